"""All scenarios on the ranks that torchrun starts.

python -m torch.distributed.run --nproc-per-node=2 … tests/ranks_job.py FOLDER
"""

from __future__ import annotations

import gc
import sys
from datetime import timedelta
from pathlib import Path

import ranks_runs  # noqa: F401
import ranks_states  # noqa: F401
import torch
import torch.distributed as dist
from ranks import perform


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, ranks, folder = dist.get_rank(), dist.get_world_size(), Path(sys.argv[1])
    found = perform(rank, ranks, folder)
    torch.save(found, folder / f"found-{ranks}-{rank}.pt")
    gc.collect()  # a wrapped model that is still somewhere would keep threads of the group
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
