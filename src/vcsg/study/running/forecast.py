"""How long a study will take, from what a few steps of every method take on this device.

A method is run in miniature: on some thousand samples, with a step too small to change anything, for about a second.
That gives the time of a gradient with the mini-batches of the method, its anchors included. A run is then as many
gradients as its budget allows, and as many evaluations as it has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from vcsg.study.budgets import Budget
from vcsg.study.methods import Options
from vcsg.study.plan import Study
from vcsg.study.protocols import Entry
from vcsg.study.running import tasks
from vcsg.study.running.miniature import first_samples, initial_model, load_workload, run_in_miniature, warm_up
from vcsg.study.running.runs import BATCH, EARLY_EVALUATIONS, threads
from vcsg.study.running.tasks import Estimating, Running, Searching, StudyTask
from vcsg.training.evaluation import means
from vcsg.training.interrupt import StopRequest
from vcsg.training.limits import Limits
from vcsg.training.sources import TensorSource
from vcsg.workloads import Workload

SECONDS = 1.0
"""The time that every method is run for, besides the first steps, which prepare things and are not counted."""
SAMPLES = 4000
"""The most samples of these runs: few enough that a method comes past its first anchor."""
ESTIMATE = 2.0
"""Passes that an estimate of L takes at most: an anchor, and about as many gradients as it has."""
GRADIENTS = 3.0
"""What a gradient takes of the time of a loss alone, for ‖∇f‖² at the end of a run."""


@dataclass(frozen=True)
class Pace:
    """The time of a method on a device: of a pass of training, and of the loss of a sample in an evaluation."""

    a_pass: float
    a_sample: float


@dataclass(frozen=True)
class Forecast:
    """What is left to do of one method: its runs, or the short runs of its search."""

    protocol: str
    label: str
    runs: int
    passes: float
    """Passes of each run."""
    seconds: float
    """The time of each run, its evaluations included."""

    @property
    def total(self) -> float:
        return self.runs * self.seconds


def forecast(study: Study, paces: Mapping[str, Pace], tests: int) -> list[Forecast]:
    """A line for every method and every search of which something is left to do.

    Args:
        study: the study; what its folder holds already is not counted.
        paces: the pace of every entry, by its path.
        tests: the number of test samples.
    """
    todo = [task for task in tasks.plan(study) if not task.done(study)]
    lines = []
    for entry in study.entries:
        pace = paces[entry.path]
        searches = sum(_left(task, study) for task in todo if isinstance(task, Searching) and task.entry == entry)
        runs = sum(isinstance(task, Running) and task.entry == entry for task in todo)
        if searches:
            passes = _passes(study, study.trial_budget, pace)
            seconds = passes * pace.a_pass + 2 * study.n * pace.a_sample  # evaluated at its start and its end
            lines.append(Forecast(entry.protocol, f"{entry.label}: search", searches, passes, seconds))
        if runs:
            passes = _passes(study, study.budget, pace)
            seconds = passes * pace.a_pass + evaluations(study, passes, tests) * pace.a_sample
            lines.append(Forecast(entry.protocol, entry.label, runs, passes, seconds))
    return [*_estimates(study, todo, paces), *lines]


def _left(task: StudyTask, study: Study) -> int:
    """The trials of a search that are still to be made."""
    assert isinstance(task, Searching)
    return task.runs(study) - sum(map(len, task.trials(study).values()))


def _estimates(study: Study, todo: Sequence[StudyTask], paces: Mapping[str, Pace]) -> list[Forecast]:
    found = [task for task in todo if isinstance(task, Estimating)]
    if not found:
        return []
    slowest = max(pace.a_pass for pace in paces.values())
    return [Forecast("", "estimates of L", len(found), ESTIMATE, ESTIMATE * slowest)]


def _passes(study: Study, budget: Budget, pace: Pace) -> float:
    """The passes that a budget allows: by its count of gradients, or as many as its seconds are enough for."""
    counted = budget.in_passes(study.n)
    timed = math.inf if budget.seconds is None else budget.seconds / pace.a_pass
    return timed if counted is None else min(counted, timed)


def evaluations(study: Study, passes: float, tests: int) -> float:
    """The losses of single samples that all evaluations of a run compute, with gradients in units of them."""
    times = passes / study.every + EARLY_EVALUATIONS + 1
    gradients = GRADIENTS * study.n * (times if study.gradients else 1)
    return times * (study.n + tests) + gradients


# --- measuring


def measure(study: Study, stop: StopRequest) -> dict[str, Pace]:
    """The pace of every entry, by its path; a KeyboardInterrupt where it was asked to stop."""
    loaded = load_workload(study.workload, study.data_dir, study.device)
    found: dict[tuple[str, str], float] = {}
    paces = {}
    with threads(study.threads):
        a_sample = _loss_time(study, loaded)
        for entry in study.entries:
            key = entry.method, repr(sorted(_plain_options(entry).items()))
            if key not in found:
                found[key] = _pass_time(study, loaded, entry, stop)
            paces[entry.path] = Pace(found[key], a_sample)
    return paces


def _plain_options(entry: Entry) -> Options:
    """The options of a method without its step size, which does not change the time of a step."""
    return {key: value for key, value in entry.options.items() if key not in ("lr", "L")}


def _loss_time(study: Study, loaded: Workload) -> float:
    """Seconds of the loss of one sample, as an evaluation computes it."""
    model, head = initial_model(loaded, study.seeds[0]), first_samples(loaded, SAMPLES, study.device)
    _losses(loaded, model, head)  # the first time prepares things
    start = time.monotonic()
    _losses(loaded, model, head)
    return (time.monotonic() - start) / head.n


def _losses(loaded: Workload, model: nn.Module, head: TensorSource) -> None:
    means(model, head, BATCH, lambda batch: {"loss": float(loaded.objective(model, batch))})


def _pass_time(study: Study, loaded: Workload, entry: Entry, stop: StopRequest) -> float:
    """Seconds of n gradients, by a run in miniature, without its first third."""
    head, limits = first_samples(loaded, SAMPLES, study.device), Limits(seconds=1.5 * SECONDS)
    warm_up(study.workload, study.data_dir, study.device, entry.method, entry.options.get("step"))
    rows = run_in_miniature(
        loaded,
        head,
        study.device,
        entry.method,
        _plain_options(entry),
        limits,
        stop,
        every=0.25,
        seed=study.seeds[0],
    )
    start = next((row for row in rows if row["seconds"] >= rows[-1]["seconds"] / 3), rows[0])
    if start["ifo"] >= rows[-1]["ifo"]:
        start = rows[0]
    return study.n * (rows[-1]["seconds"] - start["seconds"]) / (rows[-1]["ifo"] - start["ifo"])
