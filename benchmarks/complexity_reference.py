"""IFO calls to ε-accuracy beside reference figures: a check that the methods are the ones they claim to be.

    python -m benchmarks.complexity_reference [--seeds 3] [--quick]

Measured is IFO/n to the first epoch end with true ‖∇f‖² ≤ ε, on one draw of each problem (n = 2000, d = 50, problem
seed 1), the median over the seeds of the methods. The reference figures come from a separate simulation with its own
seeds: expect the order and the rough size, not the digits (of GD, which draws nothing, the digits too).

GD has η = 1/L; SVRG ½ has weights (½, −½, ½), B = n, b = 1, η = 1/(3L√n), geometric N; SCSG has B = min(12S*/ε, n),
b = 1, η = B^{−2/3}/(3L), geometric N; VCSG has K = 12, σ = 1, ρ = 0.9, B_min = 2, the norm test, no first epoch of
its own. L is given.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import NamedTuple

from benchmarks.counting import Cell, in_parallel, passes_to, scsg, svrg, table, vcsg

from vcsg import Method, make

N = 2000
LIMIT = 2000.0
"""Passes after which a run counts as never accurate."""

REFERENCE: dict[tuple[str, float], dict[str, int]] = {
    ("least squares", 1e-3): {"GD": 213, "SVRG ½": 83, "SCSG": 150, "VCSG": 65},
    ("least squares", 1e-5): {"GD": 627, "SVRG ½": 255, "SCSG": 443, "VCSG": 197},
    ("logistic", 1e-3): {"GD": 175, "SVRG ½": 68, "SCSG": 123, "VCSG": 43},
    ("logistic", 1e-5): {"GD": 245, "SVRG ½": 99, "SCSG": 183, "VCSG": 67},
}


class Task(NamedTuple):
    eps: float
    cell: Cell


def methods(eps: float) -> dict[str, Method]:
    return {"GD": make("gd"), "SVRG ½": svrg(0.5), "SCSG": scsg(eps), "VCSG": vcsg(eps)}


def measure(task: Task) -> float:
    return passes_to(task.eps, task.cell, LIMIT)


def run(rows: list[tuple[str, float]], seeds: int) -> dict[tuple[str, float, str], float]:
    """The median IFO/n by problem, ε and method; the longest runs are started first."""
    tasks = [
        ((problem, eps, name), Task(eps, Cell(problem, N, 1, method, seed)))
        for problem, eps in sorted(rows, key=lambda row: row[1])
        for name, method in methods(eps).items()
        for seed in range(1 if name == "GD" else seeds)
    ]
    counts: dict[tuple[str, float, str], list[float]] = {}
    for (key, _), count in zip(tasks, in_parallel(measure, [task for _, task in tasks], processes=2), strict=True):
        counts.setdefault(key, []).append(count)
    return {key: statistics.median(found) for key, found in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="IFO calls to ε-accuracy beside reference figures")
    parser.add_argument("--seeds", type=int, default=3, help="seeds per method (default: 3)")
    parser.add_argument("--quick", action="store_true", help="the coarse ε and one seed only: about a minute")
    options = parser.parse_args()
    rows, seeds = list(REFERENCE), options.seeds
    if options.quick:
        rows, seeds = [row for row in rows if row[1] == 1e-3], 1
    began = time.monotonic()
    counts = run(rows, seeds)
    names = list(methods(1.0))
    print(f"IFO/n to ‖∇f‖² ≤ ε, measured (reference): n = {N}, d = 50, median of {seeds} seed(s)\n")
    body = [
        [f"{problem}, {eps:.0e}"] + [f"{counts[problem, eps, m]:.0f} ({REFERENCE[problem, eps][m]})" for m in names]
        for problem, eps in rows
    ]
    print(table([["problem, ε", *names], *body]))
    print(f"\n{time.monotonic() - began:.0f} s in 2 processes")


if __name__ == "__main__":
    main()
