"""A run in miniature: a method on the first samples of a workload, with a step too small to change anything."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from vcsg import workloads
from vcsg.method import registry
from vcsg.run.randomness import seeded
from vcsg.silence import without_warnings
from vcsg.study import methods
from vcsg.study.baselines import BASELINES
from vcsg.study.methods import Options
from vcsg.training.choosing import choose_options
from vcsg.training.evaluation import mode
from vcsg.training.interrupt import Interrupt, StopRequest
from vcsg.training.limits import Limits
from vcsg.training.loop import Row
from vcsg.training.numerics import lay_out
from vcsg.training.progress import Silent
from vcsg.training.session import Session, SessionOptions
from vcsg.training.sources import TensorSource
from vcsg.workloads import Workload

SMALL_STEP = 1e-9
"""The step size of these runs."""
WARM_UP_SAMPLES, WARM_UP_STEPS = 16, 24
"""The samples of a mini-batch and the steps, about, of the run before the first one of a method in a process."""


@lru_cache(maxsize=1)
def load_workload(name: str, data_dir: str | None, device: str) -> Workload:
    """The workload of this name; the last one is kept in memory, since all runs of a study use the same."""
    return workloads.load(name, data_dir=data_dir, device=device)


def initial_model(workload: Workload, seed: int) -> nn.Module:
    """The model with the initial weights of a seed, the same for every method."""
    with seeded(seed):
        return workload.make_model()


def first_samples(workload: Workload, count: int, device: str) -> TensorSource:
    """The first samples for training, `count` of them or all."""
    return TensorSource("train", tuple(tensor[:count] for tensor in workload.train), torch.device(device))


def run_in_miniature(
    workload: Workload,
    head: TensorSource,
    device: str,
    method: str,
    options: Options,
    limits: Limits,
    stop: StopRequest,
    *,
    every: float = 1.0,
    seed: int = 0,
) -> list[Row]:
    """The history of a run of a method on these samples alone: its clock and its counts."""
    model = initial_model(workload, seed)
    lay_out(model, None, torch.device(device))
    own = options | {"lr": SMALL_STEP}
    if own.get("b"):
        own["b"] = min(own["b"], head.n)

    def objective(batch: Any) -> Tensor:
        return workload.objective(model, batch)

    if method == "auto":
        with mode(model, True):
            own |= choose_options(model, objective, head, own).options
    optimizer = methods.make(method, model, head.n, own, seed)
    session = Session(model, optimizer, objective, head, lambda row, last: None, limits, SessionOptions(every=every))
    with without_warnings():  # that nothing is gained, for one
        if session.run(methods.label(method, options), Silent, stop) == "interrupted":
            raise KeyboardInterrupt
    return session.history


@cache
def warm_up(name: str, data_dir: str | None, device: str, method: str, step: str | None) -> None:
    """Take some steps of a method, so that no run's time includes what is loaded or compiled for the first of them."""
    workload = load_workload(name, data_dir, device)
    options: Options = {"b": WARM_UP_SAMPLES} if "b" in methods.parameters(method) else {}
    if step is not None and method not in BASELINES:
        options["step"] = step
    b = options.get("b") or getattr(registry.make(method).schedule, "b", None) or WARM_UP_SAMPLES
    head = first_samples(workload, WARM_UP_STEPS // 3 * b, device)
    run_in_miniature(workload, head, device, method, options, Limits(passes=3.0), Interrupt())
