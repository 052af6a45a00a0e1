"""L, where it is not known for a workload: estimated once, as a method would do it by itself, and saved."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from vcsg.files import write_text
from vcsg.run.record import Record
from vcsg.study import methods
from vcsg.study.methods import Options
from vcsg.study.running.miniature import initial_model, load_workload
from vcsg.study.running.runs import Show, threads
from vcsg.training.interrupt import StopRequest
from vcsg.training.limits import Limits
from vcsg.training.session import Session, SessionOptions
from vcsg.training.sources import TensorSource
from vcsg.workloads import Workload


@dataclass(frozen=True)
class Smoothness:
    """A value of L and what it cost to find."""

    L: float
    source: str
    """The origin of the value, in words."""
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
    stop: StopRequest,
    show: Show,
) -> Smoothness | None:
    """L at the initial weights of a seed, for the mini-batches of a method of the family; None if interrupted.

    The method runs as usual and is stopped at its first record, which is made when L is known.
    """
    loaded = load_workload(workload, data_dir, device)
    own = {key: value for key, value in options.items() if key not in ("lr", "L")}
    title = f"L as {method} estimates it, seed {seed}"
    record, seconds = first_record(loaded, device, thread_count, method, own, seed, stop, show, title)
    if record is None:
        return None
    sizes = "the smaller of the first two mini-batch sizes"
    source = f"estimated as {method} does, at the initial weights of seed {seed}, for {sizes}"
    return Smoothness(record.L, source, record.ifo, seconds)


def first_record(
    loaded: Workload,
    device: str,
    thread_count: int,
    method: str,
    options: Options,
    seed: int,
    stop: StopRequest,
    show: Show,
    title: str,
) -> tuple[Record | None, float]:
    """The first record of a method, with the anchor at the start and L, and its seconds; None if interrupted."""
    model = initial_model(loaded, seed)
    own = dict(options)
    if "b" in own:
        own["b"] = min(own["b"], loaded.n)  # a baseline may have larger mini-batches than the family takes
    optimizer = methods.make(method, model, loaded.n, own, seed)
    session = Session(
        model,
        optimizer,
        lambda batch: loaded.objective(model, batch),
        TensorSource("train", loaded.train, torch.device(device)),
        lambda row, last: None,
        Limits(until=lambda record: True),
        SessionOptions(engine="eager"),
    )
    with threads(thread_count):
        stopped = session.run(title, show, stop)
    return (None if stopped == "interrupted" else optimizer.record), session.clock.seconds
