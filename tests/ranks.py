"""What the scenarios of several ranks share: runs that leave a trace to compare.

A scenario is a function of (rank, ranks, folder) that returns plain numbers and tensors. They are to be equal on all
ranks of a job, bit by bit, and on any number of ranks but for rounding, except under the keys "each" (equal on the
ranks of a job alone) and "own".
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from quadratic import closure, parameter, quadratic, smoothness
from torch import nn

import vcsg
from vcsg import FiniteSumOptimizer

METHODS = sorted(set(vcsg.methods()) - {"saga"})
OPTIONS: dict[str, dict[str, Any]] = {
    "sgd": {"b": 3},
    "storm": {"b": 3},
    "alpha-svrg": {"b": 5},
    "vcsg": {"paper": True, "eps": 0.5, "B_min": 8},
    **{name: {"b": 5} for name in ("momentum", "adam", "muon", "mars", "auto")},
}
N = 61
PROBLEM = quadratic(N)

Scenario = Callable[[int, int, Path], Any]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def made(name: str, **options: Any) -> tuple[nn.Parameter, FiniteSumOptimizer]:
    p = parameter()
    L = options.pop("L", 1.0 if options.get("step") is None else None)
    return p, FiniteSumOptimizer([p], N, name, **smoothness(name, L), **{**OPTIONS.get(name, {}), **options})


def path(
    p: nn.Parameter, optimizer: FiniteSumOptimizer, data: Any = PROBLEM.data, evaluate: Any = closure, **limits: Any
) -> dict[str, Any]:
    """Where a run went: the point after every step that moved it, the records, and what the optimizer counts."""
    points, records = [], []
    limits = limits or {"until": lambda record: record.epoch > 3}
    for batch in optimizer.batches(data, **limits):
        optimizer.step(evaluate(p, batch))
        if not points or not torch.equal(points[-1], p):
            points.append(p.detach().clone())
        if optimizer.record is not None and (not records or records[-1] is not optimizer.record):
            records.append(optimizer.record)
    told = [{**asdict(r), "variance": r.variance} for r in records]
    return {"points": torch.stack(points), "records": told, "ifo": optimizer.ifo, "epoch": optimizer.epoch}


def refused(kind: type[Exception], work: Callable[[], Any]) -> str:
    try:
        work()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")


def perform(rank: int, ranks: int, folder: Path) -> dict[str, Any]:
    found = {}
    for name, play in SCENARIOS.items():
        try:
            found[name] = play(rank, ranks, folder)
        except Exception:
            traceback.print_exc()
            raise SystemExit(f"scenario {name} failed on rank {rank} of {ranks}") from None
    return found
