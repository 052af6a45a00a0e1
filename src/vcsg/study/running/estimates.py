"""L, where a workload does not know it: estimated once, as a method would do it by itself, and written down."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from vcsg.files import write_text
from vcsg.study import methods
from vcsg.study.methods import Options
from vcsg.study.running.runs import Show, initial_model, load_workload, threads
from vcsg.training.clock import Clock
from vcsg.training.evaluation import mode
from vcsg.training.interrupt import Wish
from vcsg.training.limits import Limits
from vcsg.training.loop import Loop
from vcsg.training.sources import TensorSource


@dataclass(frozen=True)
class Smoothness:
    """An L and what it cost."""

    L: float
    source: str
    """Where it came from, in words."""
    ifo: int = 0
    """Gradients of single samples that the estimate took, its anchor included."""
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Smoothness:
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def estimate(
    workload: str,
    data_dir: str | None,
    device: str,
    thread_count: int,
    method: str,
    options: Options,
    seed: int,
    wish: Wish,
    show: Show,
) -> Smoothness | None:
    """L at the initial weights of a seed, for the mini-batch size of a method of the family; None where interrupted.

    The method runs as ever and is stopped at its first record, which is made when L is known.
    """
    loaded = load_workload(workload, data_dir, device)
    model = initial_model(loaded, seed)
    own = {key: value for key, value in options.items() if key not in ("lr", "L")}
    if "b" in own:
        own["b"] = min(own["b"], loaded.n)  # a baseline, for which this is done, takes larger ones than the family
    optimizer = methods.make(method, model, loaded.n, own, seed)
    clock = Clock(torch.device(device))
    loop = Loop(
        optimizer,
        lambda batch: loaded.objective(model, batch),
        TensorSource("train", loaded.train, torch.device(device)),
        lambda row, last: None,
        Limits(until=lambda record: True),
        every=1.0,
        clock=clock,
    )
    with (
        threads(thread_count),
        mode(model, True),
        show(f"L as {method} estimates it, seed {seed}", optimizer, False) as display,
    ):
        stopped = loop.run(wish, display)
    record = optimizer.record
    if stopped == "interrupted" or record is None:
        return None
    source = f"estimated as {method} does, at the initial weights of seed {seed}, for mini-batches of {record.b}"
    return Smoothness(record.L, source, record.ifo, clock.seconds)
