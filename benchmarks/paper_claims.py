"""What the paper claims, beside what we measure: the figures marked *measured* in docs/paper.md.

    python -m benchmarks.paper_claims norm-test | baselines | exponents

Everything is counted in IFO calls over n, to the first epoch end with true ‖∇f‖² ≤ ε. The problems have d = 50, and
every seed draws its own; L is given. Each part is cut to a few seeds, to take five to ten minutes in two processes.

norm-test: does VCSG's norm test (l.300) stall its first regime? For each test, the first ε-accurate epoch end, and the
mean of ‖∇f‖² over the epoch ends in the second half of the run, on the logistic problem at ε = 1e-4.
baselines: the paper's SVRG, scaled by ½, against SVRG at the same step size, and VCSG at K = 12 and K = 1.
exponents: the p of calls ∝ n^p at ε = 1e-4, by least squares on the logarithms of all runs, with its standard error.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from benchmarks.counting import Cell, EpochEnd, epoch_ends, in_parallel, scsg, svrg, table, vcsg

from vcsg import Method, make, theory

LIMIT = 2000.0
"""Passes after which a run of `baselines` or `exponents` counts as never accurate."""


class Task(NamedTuple):
    cell: Cell
    targets: tuple[float, ...]
    """The values of ε to look for."""
    passes: float
    whole: bool = False
    """Whether to go on to the end once all are reached."""


class Outcome(NamedTuple):
    first: dict[float, float]
    """IFO/n at the first ε-accurate epoch end, by ε; inf where there is none."""
    settled: float
    """The mean ‖∇f‖² over the epoch ends in the second half of the passes; NaN if there is none."""


def measure(task: Task) -> Outcome:
    first: dict[float, float] = dict.fromkeys(task.targets, math.inf)
    late = []
    for end in epoch_ends(task.cell, task.passes):
        reached(first, end)
        if end.passes > task.passes / 2:
            late.append(end.gradient_norm2)
        if not task.whole and max(first.values()) < math.inf:
            break
    return Outcome(first, statistics.fmean(late) if late else math.nan)


def reached(first: dict[float, float], end: EpochEnd) -> None:
    for eps in first:
        if end.gradient_norm2 <= eps:
            first[eps] = min(first[eps], end.passes)


def cells(problem: str, n: int, method: Method, seeds: int) -> list[Cell]:
    """A run for each seed, every one on its own problem."""
    return [Cell(problem, n, seed, method, seed) for seed in range(seeds)]


def measure_all(tasks: dict[str, list[Task]], processes: int) -> dict[str, list[Outcome]]:
    """The outcomes of the tasks under each name."""
    outcomes = iter(in_parallel(measure, [task for group in tasks.values() for task in group], processes))
    return {name: [next(outcomes) for _ in group] for name, group in tasks.items()}


def median(outcomes: Iterable[Outcome], eps: float) -> str:
    """The median count at ε; how many never got there."""
    counts = [outcome.first[eps] for outcome in outcomes]
    never = counts.count(math.inf)
    middle = statistics.median(counts)
    count = "never" if middle == math.inf else f"{middle:.0f}"
    return f"{count} ({never} of {len(counts)} never)" if never else count


# --- norm-test ------------------------------------------------------------------------------------


def norm_test(processes: int) -> None:
    """The three tests of the first regime: K = 1 at n = 8000 (to the end) and 2000, K = 12 at n = 8000."""
    eps = 1e-4
    parts = [(1.0, 8000, 8, True), (1.0, 2000, 8, False), (12.0, 8000, 3, False)]
    tasks = {
        f"{K:g}, {n}, {test}": [Task(c, (eps,), 150, whole) for c in cells("logistic", n, vcsg(eps, K, test), seeds)]
        for K, n, seeds, whole in parts
        for test in ("norm", "lemma", "never")
    }
    outcomes = measure_all(tasks, processes)
    rows = [["K, n, test", "seeds", "median IFO/n", "mean ‖∇f‖²/ε, 75n to 150n"]]
    for (name, group), whole in zip(outcomes.items(), [p[3] for p in parts for _ in range(3)], strict=True):
        settled = f"{statistics.fmean(o.settled for o in group) / eps:.1f}" if whole else "–"
        rows.append([name, str(len(group)), median(group, eps), settled])
    print(f"Logistic, ε = {eps:g}, at most 150n IFO calls\n\n{table(rows)}")


# --- baselines ------------------------------------------------------------------------------------


def baselines(processes: int) -> None:
    n, seeds, targets = 2000, 5, (1e-3, 1e-5)
    tasks = {}
    for problem in ("least squares", "logistic"):
        for name, method in (("SVRG ½", svrg(0.5)), ("SVRG", svrg(1))):
            tasks[f"{problem} {name}"] = [Task(c, targets, LIMIT) for c in cells(problem, n, method, seeds)]
        for eps in targets:
            for K in (12, 1):
                group = [Task(c, (eps,), LIMIT) for c in cells(problem, n, vcsg(eps, K), seeds)]
                tasks[f"{problem} VCSG, K = {K}, {eps}"] = group
    outcomes = measure_all(tasks, processes)
    rows = [["problem, ε", "SVRG ½", "SVRG", "VCSG, K = 12", "VCSG, K = 1"]]
    for problem in ("least squares", "logistic"):
        for eps in targets:
            names = ["SVRG ½", "SVRG", f"VCSG, K = 12, {eps}", f"VCSG, K = 1, {eps}"]
            counts = [median(outcomes[f"{problem} {name}"], eps) for name in names]
            rows.append([f"{problem}, {eps:.0e}", *counts])
    print(f"IFO/n to ε-accuracy, n = {n}, median of {seeds} seeds\n\n{table(rows)}")


# --- exponents ------------------------------------------------------------------------------------


def exponents(processes: int) -> None:
    eps, seeds, sizes = 1e-4, 3, (250, 500, 1000, 2000)
    methods = {"GD": make("gd"), "SVRG ½": svrg(0.5), "SCSG": scsg(eps), "VCSG": vcsg(eps)}
    tasks = {
        f"{problem} {name}": [Task(c, (eps,), LIMIT) for n in reversed(sizes) for c in cells(problem, n, method, seeds)]
        for problem in ("least squares", "logistic")
        for name, method in methods.items()
    }
    outcomes = measure_all(tasks, processes)
    rows = [["", *methods, "claimed for VCSG"]]
    for problem in ("least squares", "logistic"):
        fits = []
        for name in methods:
            group = f"{problem} {name}"
            ns = [task.cell.n for task in tasks[group]]
            fits.append(exponent(ns, [n * o.first[eps] for n, o in zip(ns, outcomes[group], strict=True)]))
        rows.append([problem, *fits, f"{theory.TABLE_1['vcsg'].n_power:g}"])
    print(
        f"Exponent of n in the IFO calls to ε = {eps:g}, n = {sizes[0]} to {sizes[-1]}, {seeds} seeds\n\n{table(rows)}"
    )


def exponent(ns: list[int], calls: list[float]) -> str:
    """The slope of log calls in log n, and its standard error."""
    x = np.log(ns) - np.mean(np.log(ns))
    y = np.log(calls) - np.mean(np.log(calls))
    slope = x @ y / (x @ x)
    error = math.sqrt(np.sum((y - slope * x) ** 2) / (len(x) - 2) / (x @ x))
    return f"{slope:.2f} ± {error:.2f}"


PARTS: dict[str, Callable[[int], None]] = {"norm-test": norm_test, "baselines": baselines, "exponents": exponents}


def main() -> None:
    parser = argparse.ArgumentParser(description="the figures marked *measured* in docs/paper.md")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--processes", type=int, default=2, help="processes of one thread each (default: 2)")
    options = parser.parse_args()
    began = time.monotonic()
    PARTS[options.part](options.processes)
    print(f"\n{time.monotonic() - began:.0f} s in {options.processes} process(es)")


if __name__ == "__main__":
    main()
