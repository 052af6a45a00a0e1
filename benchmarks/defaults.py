"""A comparison of settings of VCSG, by which its defaults were chosen: the tables of docs/engineering/defaults.md.

    python -m benchmarks.defaults [--workloads NAME …] [--candidates WORDS …] [--seeds 5] [--passes 6] [--jobs 2]

A candidate is the printed algorithm with some settings changed, one word for each:

    b8, b16       mini-batches of at least so many samples
    N             the number of inner steps drawn with min(B_j, the anchor in hand) in place of B_j
    B100, B1000   anchors of at least so many samples in place of 32
    S             S* in the formula for B_j is the largest of the last four anchors
    A             Alg 4 from the first epoch on, not the first epoch of the paper's experiments
    E             ε and σ from the S* of the second anchor, not from that of the starting point
    L             L measured once more, a pass after the first time, and replaced where that was far larger
    x2            steps twice as long

Every run has a starting point and samples of its own, by its seed. L is estimated by the run itself on a network; it is
known for logistic regression. The measure is looked at every quarter of a pass. The tables have, over the seeds,

    end      the measure at the end, median and worst: the test error in %; for logistic regression ‖∇f‖² over its value
             at the start, the median of the last quarter of the looks, because it scatters
    rebound  the most that the test error rose above its lowest value so far, in points, median and worst
    jumps    how often the test error rose by more than 2 points from one look to the next, in all runs together
    stuck    the runs that end above 20 % error, or above a tenth of ‖∇f‖² at the start
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import statistics
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import nn

import vcsg
from vcsg.method.schedules import VarianceControlled
from vcsg.study.compare import parse_seeds
from vcsg.workloads import Workload, load, register_model

SETTINGS: dict[str, dict[str, Any]] = {
    "printed": {},
    "b8": {"b_min": 8},
    "b16": {"b_min": 16},
    "N": {"bounded": True},
    "B100": {"B_min": 100},
    "B1000": {"B_min": 1000},
    "S": {"memory": 4},
    "A": {"first_epoch": False},
    "E": {"settle": True},
    "L": {"measure_again": True},
    "x2": {},
}
"""The fields of the schedule that a word changes; "x2" changes the method's γ."""
CANDIDATES = (
    "printed",
    "b16",
    "b16 N",
    "b16 N B100 S",
    "b16 N B100 S A",
    "b16 N B100 S A E",
    "b16 N B1000 S A E",
    "b16 N B100 S A E x2",
    "b8 N B100 S A E x2",
    "b16 N B1000 S A E x2",
)
WORKLOADS = ("mnist-mini/lenet-300-100", "mnist-mini/small-conv", "phishing/nonconvex-logistic")
EVERY = 0.25
"""Passes between two looks."""


def small_conv(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A net of two convolutions with stride 2 and one fully connected layer, for images of 28 × 28 pixels."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, classes),
    )


register_model("small-conv", small_conv)


class Measured(NamedTuple):
    """What one run came to."""

    end: float
    rebound: float
    jumps: int
    stuck: bool
    seconds: float


def measure(task: tuple[str, str, int, float]) -> Measured:
    """One run: (workload, candidate, seed, passes)."""
    name, candidate, seed, passes = task
    torch.set_num_threads(1)
    workload = load(name)
    began = time.perf_counter()
    looks = run(workload, candidate, seed, passes)
    seconds = time.perf_counter() - began
    if workload.L is not None:
        end = statistics.median(looks[-max(1, len(looks) // 4) :]) / looks[0]
        return Measured(end, math.nan, 0, not end <= 0.1, seconds)
    lowest = itertools.accumulate(looks, min)
    rebound = max(now - low for now, low in zip(looks, lowest, strict=True))
    jumps = sum(after > before + 2 for before, after in itertools.pairwise(looks))
    return Measured(looks[-1], rebound, jumps, not looks[-1] <= 20, seconds)


def run(workload: Workload, candidate: str, seed: int, passes: float) -> list[float]:
    """The measure at the start and at every look; infinite from where a run gave up."""
    method, state = method_of(candidate), None
    torch.manual_seed(seed)
    model = workload.make_model()
    looks = [look(workload, model)]
    for step in range(1, math.ceil(passes / EVERY) + 1):
        until: dict[str, Any] = {"passes": step * EVERY, "objective": workload.objective, "L": workload.L}
        try:
            result = vcsg.fit(model, None, workload.train, method, seed=seed, state=state, progress=False, **until)
        except vcsg.Diverged:
            return [*looks, math.inf]
        state = result.state
        looks.append(look(workload, model))
    return looks


def method_of(candidate: str) -> vcsg.Method:
    """The printed algorithm with the settings of the candidate's words."""
    printed, words = vcsg.make("vcsg", paper=True), candidate.split()
    changes = {field: value for word in words for field, value in SETTINGS[word].items()}
    schedule = replace(cast(VarianceControlled, printed.schedule), **changes)
    return replace(printed, schedule=schedule, gamma=printed.gamma * (2 if "x2" in words else 1))


def look(workload: Workload, model: nn.Module) -> float:
    """The test error in %, or ‖∇f‖² of an analytic problem."""
    if workload.L is None:
        assert workload.test is not None
        model.eval()
        return 100 * workload.measure(model, workload.test)["test_error"]
    model.zero_grad()
    workload.objective(model, workload.train).backward()
    return sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)


def row(candidate: str, runs: list[Measured]) -> str:
    """A line of a table."""
    ends, rebounds = [r.end for r in runs], [r.rebound for r in runs]
    analytic, digits = math.isnan(rebounds[0]), ".2g" if math.isnan(rebounds[0]) else ".1f"
    rebound = "–" if analytic else f"{statistics.median(rebounds):.1f}, {max(rebounds):.1f}"
    jumps = "–" if analytic else str(sum(r.jumps for r in runs))
    end = f"{statistics.median(ends):{digits}}, {max(ends):{digits}}"
    stuck, seconds = sum(r.stuck for r in runs), statistics.median(r.seconds for r in runs)
    return f"| {candidate} | {end} | {rebound} | {jumps} | {stuck} of {len(runs)} | {seconds:.0f} |"


def compare(workloads: Iterable[str], candidates: list[str], seeds: tuple[int, ...], passes: float, jobs: int) -> None:
    """Print a table for every workload, a line as soon as it is measured."""
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for name in workloads:
            print(f"\n{name}, {passes:g} passes, seeds {seeds[0]} to {seeds[-1]}; median, worst\n")
            print("| candidate | end | rebound | jumps | stuck | s per run |\n|---|---|---|---|---|---|", flush=True)
            tasks = [(name, candidate, seed, passes) for candidate in candidates for seed in seeds]
            found = pool.imap(measure, tasks)
            for candidate in candidates:
                print(row(candidate, list(itertools.islice(found, len(seeds)))), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS, help="names as vcsg.workloads.load takes them")
    parser.add_argument(
        "--candidates", nargs="+", default=list(CANDIDATES), metavar="WORDS", help='such as "b16 N B100"'
    )
    parser.add_argument("--seeds", type=parse_seeds, default=tuple(range(5)), help="how many, or which, such as 5,6,7")
    parser.add_argument("--passes", type=float, default=6.0, help="length of every run, in passes over the data")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, of one thread each")
    given = parser.parse_args()
    compare(given.workloads, given.candidates, given.seeds, given.passes, given.jobs)


if __name__ == "__main__":
    main()
