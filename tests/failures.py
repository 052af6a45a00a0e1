"""A rank that runs until something happens to another; started by test_distributed.py, without torchrun or under it.

    python failures.py SCENE FOLDER [RANK RANKS PORT]

PORT is that of the store; 0 where rank 0 keeps it and leaves the port in the folder.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from quadratic import closure, parameter, quadratic

import vcsg
from vcsg.run import ranks as distributed

TIMEOUT = timedelta(seconds=8)
"""Of the group that works. The default group has more: on a busy machine its ranks may be long in coming."""
START = timedelta(minutes=5)
distributed.ROLL_CALL = 5.0


def store(rank: int, port: int, folder: Path) -> dist.TCPStore:
    if port:
        return dist.TCPStore("127.0.0.1", port)
    if rank == 0:
        kept = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        (folder / "port.new").write_text(str(kept.port))
        (folder / "port.new").rename(folder / "port")
        return kept
    while not (folder / "port").exists():
        time.sleep(0.05)
    return dist.TCPStore("127.0.0.1", int((folder / "port").read_text()))


def run(rank: int, scene: str, folder: Path) -> None:
    problem, p = quadratic(), parameter()
    optimizer = vcsg.SVRG([p], n=60, L=1.0, b=4, group=dist.new_group(timeout=TIMEOUT))
    for batch in optimizer.batches(problem.data, seconds=600):
        evaluate = closure(p, batch)
        if scene == "closure" and rank == 1 and optimizer.epoch == 3:
            evaluate = closure(p, (batch[0], batch[1][:-1]))
        optimizer.step(evaluate)
        if optimizer.epoch >= 3:
            (folder / f"pid-{rank}").write_text(str(os.getpid()))
            time.sleep(0.05)


def main() -> None:
    torch.set_num_threads(1)
    scene, folder = sys.argv[1], Path(sys.argv[2])
    if len(sys.argv) == 3:
        dist.init_process_group("gloo", timeout=START)
    else:
        rank, ranks, port = map(int, sys.argv[3:])
        dist.init_process_group("gloo", store=store(rank, port, folder), rank=rank, world_size=ranks, timeout=START)
    try:
        run(dist.get_rank(), scene, folder)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(3)


if __name__ == "__main__":
    main()
