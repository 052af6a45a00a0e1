"""A run on several ranks: `torchrun --nproc-per-node=2 -m vcsg run …`.

Rank 0 writes records and checkpoints, evaluates and shows progress. The others take their share of every step
(`vcsg.run.ranks`) and read the checkpoint of a run that is continued, so all ranks need the same folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

SECONDS = 600.0
"""Seconds that a rank waits for another, for instance while rank 0 evaluates; `VCSG_TIMEOUT` overrides it."""


def count() -> int:
    """The number of ranks that torchrun has started; 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def check_alone(command: str) -> None:
    if count() > 1:
        raise ValueError(f"{command} starts processes of its own (--jobs): torchrun is for vcsg run")


@contextmanager
def joined(device: str) -> Iterator[int]:
    """Join the process group of all ranks, where there are several, and give the rank of this process."""
    if count() == 1:
        yield 0
        return
    cuda = torch.device(device).type == "cuda"
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    timeout = timedelta(seconds=float(os.environ.get("VCSG_TIMEOUT", SECONDS)))
    store, number, ranks = next(rendezvous("env://", timeout=timeout))
    # Torchrun keeps the store when it restarts a job, and gloo would read the addresses of processes that are no more.
    store = dist.distributed_c10d.PrefixStore(f"vcsg/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend, store=store, rank=number, world_size=ranks, timeout=timeout)
    try:
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def from_rank_0(number: int = 0) -> int:
    """The number that rank 0 passes, on every rank."""
    if not dist.is_initialized():
        return number
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    message = torch.tensor([number], device=device)
    dist.broadcast(message, 0)
    return int(message)
