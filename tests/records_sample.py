"""Folders of records as a study leaves them, with made-up but plausible curves, for the tests of figures and report."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vcsg import Record
from vcsg.run.variance import Anchor
from vcsg.study.records import Row, RunConfig, RunRecord
from vcsg.study.running.writing import RunWriter

ENVIRONMENT = {
    "vcsg": "0.1.0",
    "torch": "2.13.0",
    "python": "3.11.7",
    "platform": "Linux",
    "processor": "a processor",
    "cores": 2,
    "device": "cpu",
}


@dataclass(frozen=True)
class Shape:
    """How a method's curve runs: error(p) = low + (0.9 − low)(1 + p/τ)^−power."""

    label: str
    low: float
    tau: float
    power: float
    seconds: float
    """Per pass."""
    options: tuple[tuple[str, float], ...] = ()
    anchored: bool = True


MNIST = {
    "paper": {
        "vcsg": Shape("VCSG", 0.021, 0.35, 1.7, 1.1, (("b_min", 16),)),
        "scsg": Shape("SCSG", 0.022, 0.6, 1.45, 0.9, (("b", 16),)),
        "paper-svrg": Shape("the paper's SVRG", 0.02, 3.0, 1.0, 0.8),
        "paper-sgd": Shape("the paper's SGD", 0.05, 6.0, 0.8, 0.75, anchored=False),
    },
    "tuned": {
        "vcsg": Shape("VCSG", 0.019, 0.3, 1.8, 1.1, (("lr", 2.0),)),
        "scsg": Shape("SCSG", 0.02, 0.3, 1.6, 0.9, (("lr", 1.5),)),
        "svrg": Shape("SVRG", 0.019, 0.35, 1.7, 0.7, (("lr", 2.9), ("b", 64))),
        "sgd": Shape("SGD", 0.018, 0.2, 1.9, 0.4, (("lr", 0.1),), anchored=False),
        "sgd-momentum": Shape("SGD, momentum 0.9", 0.016, 0.12, 2.0, 0.42, (("lr", 0.05),), anchored=False),
    },
}
CIFAR = {
    "paper": {
        "vcsg": Shape("VCSG", 0.27, 2.0, 1.2, 2.2),
        "scsg": Shape("SCSG", 0.30, 2.5, 1.0, 1.9),
        "paper-svrg": Shape("the paper's SVRG", 0.33, 9.0, 0.9, 1.6),
        "paper-sgd": Shape("the paper's SGD", 0.42, 9.0, 0.8, 1.5, anchored=False),
    },
    "tuned": {
        "vcsg": Shape("VCSG", 0.25, 1.5, 1.4, 2.2),
        "scsg": Shape("SCSG", 0.26, 1.5, 1.1, 1.9),
        "svrg": Shape("SVRG", 0.25, 1.6, 1.2, 1.5),
        "sgd": Shape("SGD", 0.24, 1.0, 1.5, 0.9, anchored=False),
        "sgd-momentum": Shape("SGD, momentum 0.9", 0.23, 0.6, 1.6, 0.95, anchored=False),
    },
}
CLAIMS = {
    "mnist/lenet-300-100": {
        "metric": "test_error",
        "target": 0.025,
        "speedup": {"scsg": 2.0, "svrg": 3.0, "sgd": 4.0},
        "seconds": 16.0,
    },
    "cifar10/lenet-5": {
        "metric": "test_error",
        "target": 0.3,
        "speedup": {"scsg": 4.0, "svrg": 6.0, "sgd": 13.0},
        "seconds": None,
    },
}


def config(workload: str, method: str, label: str, **fields: object) -> RunConfig:
    given: dict[str, object] = {
        "options": {},
        "seed": 0,
        "tests": 10_000,
        "budget": {"passes": 30.0},
        "every": 0.5,
        "protocol": "",
        "n": 60_000,
        "parameters": 266_610,
        "command": f"vcsg run {workload} {method}",
    }
    return RunConfig(workload=workload, method=method, label=label, **(given | fields))  # type: ignore[arg-type]


def write_run(
    folder: Path,
    config: RunConfig,
    rows: list[Row],
    epochs: list[Record] | None = None,
    status: str = "finished",
    message: str = "",
    notes: Row | None = None,
) -> Path:
    """One run through the writer that real runs go through."""
    record = RunRecord(folder, config, dict(ENVIRONMENT), "2026-01-01T12:00:00+00:00", "running", notes=notes or {})
    writer = RunWriter(folder, record)
    writer.begin()
    for row in rows:
        writer.evaluation(row)
    for epoch in epochs or []:
        writer.epoch(epoch)
    if status != "running":
        writer.close(status, message)
    return folder


def rows(shape: Shape, seed: int, *, passes: float, every: float, n: int, top5: bool = False) -> list[Row]:
    """Evaluations along the curve, with noise of its own for each seed."""
    draw = np.random.default_rng([seed, len(shape.label), round(1000 * shape.tau)])
    pace, found = shape.seconds * (1 + 0.06 * draw.standard_normal()), []
    low, tau = shape.low * (1 + 0.03 * draw.standard_normal()), shape.tau * math.exp(0.15 * draw.standard_normal())
    for place in np.arange(0, passes + every / 2, every):
        p = float(place + (0.07 * draw.random() if place else 0))
        fall = (1 + p / tau) ** -shape.power
        error = (low + (0.9 - low) * fall) * math.exp(0.03 * draw.standard_normal())
        loss = 2.3 * fall**1.3 * math.exp(0.05 * draw.standard_normal()) + 1e-4
        row: Row = {"ifo": round(p * n), "passes": p, "seconds": p * pace, "epoch": int(p) + 1, "train_loss": loss}
        row |= {"test_loss": 2 * error + 0.02, "test_error": min(error, 0.9)}
        found.append(row | ({"test_error_top5": min(error, 0.9) ** 1.5} if top5 else {}))
    found[-1]["grad_norm2"] = 0.03 * found[-1]["train_loss"]
    return found


def epochs(n: int, passes: float, seed: int = 0, adaptive: bool = True) -> list[Record]:
    """The records of an anchored method; where `adaptive`, of one that has regimes and a target ε."""
    draw, done, found, B = np.random.default_rng(seed), 0.0, [], n
    while done < passes:
        j = len(found) + 1
        variance = 30 * math.exp(-0.02 * done + 0.6 * draw.standard_normal()) + 0.5
        anchor = Anchor(
            n=n,
            B=B,
            loss=2.3 / (1 + done),
            loss_s2=0.5,
            g_norm2=variance / B * draw.chisquare(3) / 3 + 0.3 / (1 + done),
            s2=variance,
        )
        done += B / n
        first, second = 12 * variance / 0.02, n * variance / (variance + 0.14 * math.sqrt(n) * 30 * 0.99 ** (2 * j))
        regime = "start" if j == 1 else "first" if first < second else "second"
        size = n if j == 1 or not adaptive else max(32, min(n, math.ceil(min(first, second))))
        b = max(1, round(size**0.25))
        length = int(draw.geometric(b / (size + b))) - 1
        found.append(
            Record(
                epoch=j,
                regime=regime if adaptive else "",
                B=size,
                b=b,
                step_size=0.03,
                length=length,
                L=9.0,
                eps=0.02 if adaptive else None,
                anchor=anchor,
                ifo=round(done * n),
                passes=done,
            )
        )
        done, B = done + 2 * length * b / n, size
    return found


def write_study(
    folder: Path,
    workload: str = "mnist/lenet-300-100",
    shapes: dict[str, dict[str, Shape]] = MNIST,
    seeds: int = 3,
    passes: float = 30.0,
    every: float = 0.5,
    n: int = 60_000,
    search: bool = True,
) -> Path:
    """DIR/study.json, DIR/runs/PROTOCOL/METHOD/seed-K and DIR/search/METHOD/trial-K."""
    claim = CLAIMS.get(workload)
    for protocol, methods in shapes.items():
        for method, shape in methods.items():
            for seed in range(seeds):
                made = config(
                    workload,
                    method,
                    shape.label,
                    options=dict(shape.options),
                    seed=seed,
                    protocol=protocol,
                    n=n,
                    budget={"passes": passes},
                )
                write_run(
                    folder / "runs" / protocol / method / f"seed-{seed}",
                    made,
                    rows(shape, seed, passes=passes, every=every, n=n),
                    epochs(n, passes, seed, adaptive=method == "vcsg") if shape.anchored else None,
                    notes=notes(protocol, method, seed),
                )
    if search:
        for method, shape in shapes.get("tuned", {}).items():
            write_search(folder / "search" / method, workload, method, shape, n)
    study = {
        "format": 1,
        "command": f"vcsg compare {workload} --seeds {seeds} --passes {passes:g}",
        "workload": workload,
        "protocols": list(shapes),
        "targets": [{"metric": claim["metric"], "value": claim["target"]}] if claim else [],
        "claim": claim,
        "methods": sorted({method for methods in shapes.values() for method in methods}),
        "seeds": list(range(seeds)),
        "budget": {"passes": passes},
    }
    (folder / "study.json").write_text(json.dumps(study), encoding="utf-8")
    return folder


def notes(protocol: str, method: str, seed: int) -> Row:
    """As a protocol leaves them."""
    source = f"estimated as vcsg does, at the initial weights of seed {seed}, for mini-batches of 16"
    found: Row = {"L": {"L": 9.0 + seed, "source": source, "ifo": 72_000, "seconds": 0.8}, "stopped": "passes"}
    if protocol == "tuned":
        found["search"] = {
            "trials": 4,
            "of": "5 passes each, by the loss over all training samples at their end",
            "default_step": 0.05,
            "factors": [1.0, 4.0, 0.25, 2.0],
            "losses": [0.21, None, 0.44, 0.19],
            "factor": 2.0,
            "lr": 0.1,
            "at_edge": method == "scsg",
            "ifo": 1_200_000,
            "seconds": 19.0,
            "caution": "a short run favours steps that are large at first and methods that need no anchor",
        }
    return found


def write_search(folder: Path, workload: str, method: str, shape: Shape, n: int) -> None:
    """Four trials of a step size, the largest of which diverges."""
    for trial, lr in enumerate((0.05, 0.1, 0.0125, 0.2)):
        made = config(workload, method, shape.label, options={"lr": lr}, role="search", protocol="tuned", n=n)
        worse = Shape(
            shape.label, shape.low * (1 + trial), shape.tau * (1 + abs(trial - 1)), shape.power, shape.seconds
        )
        found = rows(worse, trial, passes=5, every=1, n=n)
        if trial == 3:
            found = [*found[:2], found[2] | {"train_loss": None}]
        status, message = ("failed", "the loss grew from 0.8 to 1e+09") if trial == 3 else ("finished", "")
        said = {"trial": trial + 1, "trials": 4, "exponent": math.log2(lr / 0.05), "factor": lr / 0.05}
        path = folder / f"trial-{trial + 1}"
        write_run(path, made, [found[0], found[-1]], status=status, message=message, notes=said)


def analytic(folder: Path, seeds: int = 2, n: int = 2000) -> Path:
    """An analytic problem: no test set, ‖∇f‖² at every evaluation."""
    for method, label, rate, floor in (
        ("gd", "GD", 0.05, 1e-12),
        ("sgd", "SGD", 0.3, 1e-4),
        ("svrg", "SVRG", 0.25, 1e-12),
        ("vcsg", "VCSG", 0.12, 1e-12),
    ):
        for seed in range(seeds):
            draw = np.random.default_rng([seed, len(label)])
            made = config(
                "synthetic/nonconvex-logistic", method, label, seed=seed, protocol="paper", n=n, parameters=50
            )
            found = []
            for p in range(0, 61):
                noise = math.exp(0.2 * draw.standard_normal())
                row: Row = {"ifo": p * n, "passes": float(p), "seconds": 0.004 * p, "epoch": p + 1}
                found.append(
                    row | {"train_loss": 0.4 + math.exp(-rate * p), "grad_norm2": noise * math.exp(-rate * p) + floor}
                )
            write_run(folder / "runs" / "paper" / method / f"seed-{seed}", made, found)
    return folder
