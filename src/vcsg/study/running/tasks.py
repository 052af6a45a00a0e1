"""The tasks of a study, which processes can share. A task knows of the others only what they wrote to disk.

So an interrupted study can be continued: complete runs are kept, and a run that was interrupted is resumed.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from vcsg.study.budgets import Budget
from vcsg.study.plan import Study
from vcsg.study.protocols import Entry, default_step, smoothness_method
from vcsg.study.records import Row, RunConfig, RunRecord
from vcsg.study.running.estimates import Smoothness, estimate
from vcsg.study.running.runs import Order, Show, execute, is_complete, run_in
from vcsg.study.search import Choice, Size, choose_among, loss_of, next_trial, quotas
from vcsg.training.interrupt import StopRequest


class StudyTask(Protocol):
    @property
    def name(self) -> str:
        """The path of the task below the study's folder."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of the tasks that have to be done before this one."""

    def runs(self, study: Study) -> int:
        """The number of runs that the task makes."""

    def done(self, study: Study) -> bool: ...

    def perform(self, study: Study, stop: StopRequest, show: Show) -> None:
        """Do the task; a KeyboardInterrupt where it was asked to stop."""


@dataclass(frozen=True)
class Estimating:
    """Estimates L for an entry and a seed."""

    protocol: str
    method: str
    """The method that is given L; VCSG in the protocol "paper", where all methods share it."""
    by: str
    """The method that estimates L."""
    options: Row
    seed: int

    @property
    def name(self) -> str:
        return f"smoothness/{self.protocol}/{self.method}/seed-{self.seed}.json"

    @property
    def needs(self) -> tuple[str, ...]:
        return ()

    def runs(self, study: Study) -> int:
        return 0

    def done(self, study: Study) -> bool:
        return (study.folder / self.name).exists()

    def perform(self, study: Study, stop: StopRequest, show: Show) -> None:
        found = estimate(
            study.workload, study.data_dir, study.device, study.threads, self.by, self.options, self.seed, stop, show
        )
        if found is None:
            raise KeyboardInterrupt
        found.save(study.folder / self.name)


@dataclass(frozen=True)
class Searching:
    """Searches the step size of a method, and its b where asked, by short runs, for the protocol "tuned"."""

    entry: Entry
    needs: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"search/{self.entry.method}"

    @property
    def _sizes(self) -> tuple[Size, ...]:
        return self.entry.search_b or (None,)

    def runs(self, study: Study) -> int:
        return sum(quotas(self._sizes, study.trials))

    def done(self, study: Study) -> bool:
        return self._next(study) is None

    def perform(self, study: Study, stop: StopRequest, show: Show) -> None:
        while (following := self._next(study)) is not None:
            record = execute_order(self._order(study, *following), stop, show)
            if record.status == "failed" and not record.notes.get("diverged"):
                raise RuntimeError(f"{record.config.label}: {record.message}")
        self.choice(study)

    def choice(self, study: Study) -> Choice:
        return choose_among(self.trials(study), self._base(study))

    def trials(self, study: Study) -> dict[Size, dict[float, RunRecord]]:
        """The complete trials by mini-batch size and exponent, in the order in which they were made."""
        found: dict[Size, dict[float, RunRecord]] = {}
        for number in range(1, self.runs(study) + 1):
            record = complete_run(study.folder / self.name / f"trial-{number}")
            if record is None:
                break
            found.setdefault(record.notes.get("b"), {})[float(record.notes["exponent"])] = record
        return found

    def _next(self, study: Study) -> tuple[int, Size, float] | None:
        """The number, the mini-batch size and the exponent of the next trial; None where all are complete."""
        trials = self.trials(study)
        losses = {b: {e: loss_of(record) for e, record in own.items()} for b, own in trials.items()}
        following = next_trial(losses, self._sizes, study.trials)
        return None if following is None else (sum(map(len, trials.values())) + 1, *following)

    def _base(self, study: Study) -> float:
        smoothness = given_smoothness(study, self.entry, study.seeds[0])
        return default_step(self.entry, smoothness.L if smoothness else None)

    def _order(self, study: Study, number: int, b: Size, exponent: float) -> Order:
        budget = study.trial_budget
        size = {} if b is None else {"b": b}
        sized = self.entry if b is None else self.entry.with_b(b)
        options = {**sized.options, "lr": self._base(study) * 2**exponent}
        # Twice its length: it is evaluated at its start and at its end alone.
        every = 2 * (budget.in_passes(study.n) or budget.every(study.n))
        config = configure(study, self.entry, options, study.seeds[0], budget, every, "search")
        path = study.folder / self.name / f"trial-{number}"
        notes = {"trial": number, "trials": self.runs(study), "exponent": exponent, "factor": 2**exponent, **size}
        return Order(config, path, study.data_dir, notes, False, True, study.checkpoint_seconds)


@dataclass(frozen=True)
class Running:
    """Makes the run of an entry with a seed."""

    entry: Entry
    seed: int
    needs: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"runs/{self.entry.path}/seed-{self.seed}"

    def runs(self, study: Study) -> int:
        return 1

    def done(self, study: Study) -> bool:
        return complete_run(study.folder / self.name) is not None

    def perform(self, study: Study, stop: StopRequest, show: Show) -> None:
        entry, options, notes = self._chosen(study)
        options = {**entry.options, **options}
        config = configure(study, entry, options, self.seed, study.budget, study.every, "run")
        path, seconds = study.folder / self.name, study.checkpoint_seconds
        ends = study.targets if study.stop_at_target else ()
        execute_order(Order(config, path, study.data_dir, notes, study.gradients, True, seconds, ends), stop, show)

    def _chosen(self, study: Study) -> tuple[Entry, Row, Row]:
        """The entry with the b that was found for it, the options that the protocol adds, and the notes about them."""
        if self.entry.protocol == "tuned":
            search = Searching(self.entry, ())
            found = search.choice(study)
            smoothness = given_smoothness(study, self.entry, study.seeds[0])
            notes: Row = {"search": found.notes(str(study.trial_budget))}
            entry = self.entry if found.b is None else self.entry.with_b(found.b)
            return entry, {"lr": found.lr}, notes | ({"L": asdict(smoothness)} if smoothness else {})
        smoothness = given_smoothness(study, self.entry, self.seed)
        given: Row = {"L": smoothness.L} if smoothness else {}
        return self.entry, given, {"L": asdict(smoothness)} if smoothness else {}


def execute_order(order: Order, stop: StopRequest, show: Show) -> RunRecord:
    record = execute(order, stop, show)
    if record.status == "interrupted":
        raise KeyboardInterrupt
    return record


def plan(study: Study) -> list[StudyTask]:
    """All tasks of a study, each after those it needs. They go seed by seed, so that a part of them can be compared."""
    estimates: dict[str, StudyTask] = {}
    searches: list[StudyTask] = []
    runs: list[StudyTask] = []
    for seed in study.seeds:
        for entry in study.entries:
            # A search is made with the first seed, and holds for all.
            tuned = entry.protocol == "tuned"
            estimating = _estimating(study, entry, study.seeds[0] if tuned else seed)
            needs = (estimating.name,) if estimating else ()
            if estimating:
                estimates[estimating.name] = estimating
            if tuned:
                search = Searching(entry, needs)
                needs = (search.name,)
                if seed == study.seeds[0]:
                    searches.append(search)
            runs.append(Running(entry, seed, needs))
    return [*estimates.values(), *searches, *runs]


def _estimating(study: Study, entry: Entry, seed: int) -> Estimating | None:
    by = smoothness_method(entry, study.entries)
    if by is None or study.L is not None:
        return None
    method, options = by
    return Estimating(entry.protocol, "vcsg" if entry.protocol == "paper" else entry.method, method, options, seed)


def given_smoothness(study: Study, entry: Entry, seed: int) -> Smoothness | None:
    """The L that a protocol gives to an entry, which has to be estimated by now; None where it gives none."""
    if smoothness_method(entry, study.entries) is None:
        return None
    if study.L is not None:
        return Smoothness(study.L, "known for this workload")
    estimating = _estimating(study, entry, seed)
    assert estimating is not None
    return Smoothness.load(study.folder / estimating.name)


def configure(
    study: Study, entry: Entry, options: Row, seed: int, budget: Budget, every: float, role: str
) -> RunConfig:
    made = RunConfig(
        workload=study.workload,
        method=entry.method,
        label=entry.label,
        options=options,
        seed=seed,
        budget=budget.as_dict(),
        every=every,
        protocol=entry.protocol,
        role=role,
        device=study.device,
        threads=study.threads,
    )
    return replace(made, command=command(made, study.imports))


def command(config: RunConfig, imports: Sequence[str] = ()) -> str:
    """The command that makes a run again."""
    given = [part for key, value in config.options.items() for part in ("--set", f"{key}={value}")]
    parts = ["vcsg", "run", config.workload, "--method", config.method, "--seed", str(config.seed)]
    parts += ["--budget", str(Budget(**config.budget)), "--every", f"{config.every:.12g}"]
    parts += ["--device", config.device, "--threads", str(config.threads), *given, "--out", "DIR"]
    parts += [part for name in imports for part in ("--import", name)]
    return shlex.join(parts)


def complete_run(path: Path) -> RunRecord | None:
    """The run in a folder, if it is complete."""
    record = run_in(path)
    return record if record is not None and is_complete(record) else None
