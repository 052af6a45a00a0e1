"""A run on several ranks: `torchrun --nproc-per-node=2 -m vcsg run …`.

Rank 0 is the run: it has the folder with records and checkpoints, evaluates and shows. The others take their share of
every step (`vcsg.run.ranks`) and, where a run goes on, read its checkpoint; so all need the same folder.
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
"""The longest that one rank waits for another, while rank 0 evaluates too; `VCSG_TIMEOUT` sets another."""


def count() -> int:
    """How many ranks torchrun has started; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def check_alone(command: str) -> None:
    if count() > 1:
        raise ValueError(f"{command} starts processes of its own (--jobs): torchrun is for vcsg run")


@contextmanager
def joined(device: str) -> Iterator[int]:
    """The rank of this process, in a process group with the others where there are any."""
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


def said(number: int = 0) -> int:
    """What rank 0 says, on every rank."""
    if not dist.is_initialized():
        return number
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    word = torch.tensor([number], device=device)
    dist.broadcast(word, 0)
    return int(word)
