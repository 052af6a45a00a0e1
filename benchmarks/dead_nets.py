"""Does a run that dies say so? Every method at its own step and at steps far too long: docs/engineering/divergence.md.

    python -m benchmarks.dead_nets [--methods NAME …] [--times 1 4 8] [--seeds 2] [--passes 5] [--jobs 2]

LeNet-300-100 on mnist-mini. L is estimated by the run, and the step is that of the method times 1, 4 and 8; b = 16 for
SVRG, SCSG and SAGA. A cell has, for every seed, the test error in % and a letter for every kind of word that was said:

    n   went back because a loss or a gradient was not finite
    j   went back because an anchor, or the losses of steps, were judged to be no good
    e   went back when the run ended, by its last losses
    g   ended, by its last losses, hardly lower than it began, and said so
    x   gave up with an error

A run is dead where the loss of all training samples at its end is at least 49/50 of that at its start. The last lines
count those that are dead without a word, and the runs with the method's own step that were judged, by any letter but n.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
from dataclasses import replace
from typing import Any, NamedTuple

import torch

import vcsg
from vcsg.method.step_rules import Plain
from vcsg.study.compare import parse_seeds
from vcsg.workloads import load

WORKLOAD = "mnist-mini/lenet-300-100"
BATCHES = dict.fromkeys(("svrg", "scsg", "saga"), 16)
NOT_FINITE = ("nan", "inf;", "not finite")


class Ended(NamedTuple):
    """How a run ended."""

    error: float
    dead: bool
    words: str
    """The letters of what was said, sorted."""

    def __str__(self) -> str:
        return f"{self.error:.1f}{' dead' if self.dead else ''}{' ' + self.words if self.words else ''}"


class Heard(logging.Handler):
    """Keeps the letter of every warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.letters: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith("hardly anything was gained"):
            self.letters.add("g")
        elif text.startswith("diverged"):
            judged = "e" if "at the end" in text else "j"
            self.letters.add("n" if any(word in text for word in NOT_FINITE) else judged)


def method_of(name: str, times: float) -> vcsg.Method:
    """The method with steps so many times as long."""
    method = vcsg.make(name, **({"b": BATCHES[name]} if name in BATCHES else {}))
    if isinstance(method.step, Plain):
        return replace(method, gamma=times * method.gamma)
    return replace(method, step=replace(method.step, rate=times * method.step.rate))


def measure(task: tuple[str, float, int, float]) -> Ended:
    """One run: (method, times, seed, passes)."""
    name, times, seed, passes = task
    torch.set_num_threads(1)
    workload, heard = load(WORKLOAD), Heard()
    assert workload.test is not None
    logger = logging.getLogger("vcsg")
    logger.handlers, logger.propagate = [heard], False
    torch.manual_seed(seed)
    model = workload.make_model()

    def loss() -> float:
        with torch.no_grad():
            return float(workload.objective(model, workload.train))

    options: dict[str, Any] = {"objective": workload.objective, "progress": False}
    start = loss()
    try:
        vcsg.fit(model, None, workload.train, method_of(name, times), passes=passes, seed=seed, **options)
    except vcsg.Diverged:
        heard.letters.add("x")
    model.eval()
    error = 100 * workload.measure(model, workload.test)["test_error"]
    return Ended(error, not loss() < 0.98 * start, "".join(sorted(heard.letters)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=sorted(vcsg.methods()), help="names of methods")
    parser.add_argument("--times", nargs="+", type=float, default=[1.0, 4.0, 8.0], help="factors of the step")
    parser.add_argument("--seeds", type=parse_seeds, default=(0, 1), help="how many, or which, such as 5,6,7")
    parser.add_argument("--passes", type=float, default=5.0, help="length of every run, in passes over the data")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, of one thread each")
    given = parser.parse_args()
    tasks = [(m, t, seed, given.passes) for m in given.methods for t in given.times for seed in given.seeds]
    print("| method |" + "".join(f" × {t:g} |" for t in given.times) + "\n|---|" + "---|" * len(given.times))
    silent, judged = 0, 0
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        found = pool.imap(measure, tasks)
        for method in given.methods:
            cells = []
            for times in given.times:
                runs = [next(found) for _ in given.seeds]
                cells.append("; ".join(map(str, runs)))
                silent += sum(run.dead and not run.words for run in runs)
                judged += sum(times == 1 and bool(run.words.strip("n")) for run in runs)
            print(f"| {method} | {' | '.join(cells)} |", flush=True)
    print(f"\ndead without a word: {silent} of {len(tasks)} runs\njudged with the method's own step: {judged}")


if __name__ == "__main__":
    main()
