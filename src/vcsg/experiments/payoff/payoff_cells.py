"""What the runs measured, by curves, and what every estimator cost beside the mini-batch gradient."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vcsg.experiments.payoff.gradient_estimators import BASE, ESTIMATORS, RULES, parts_of
from vcsg.files import write_text
from vcsg.study.records import Row, RunRecord, load
from vcsg.study.running.runs import is_complete

UNITS = ("passes", "seconds")
DIGITS = 6
"""The digits of the numbers that are kept."""


@dataclass(frozen=True)
class CellRun:
    """One seed: the evaluations of a run, as columns."""

    seed: int
    status: str
    passes: list[float]
    seconds: list[float]
    values: list[float | None]
    """The measure; None stands for what is not finite."""

    def cost(self, goal: float, unit: str) -> float:
        """What it took to the first evaluation with a value of at most `goal`; ∞ where none has it."""
        column = self.passes if unit == "passes" else self.seconds
        return next((x for x, y in zip(column, self.values, strict=True) if y is not None and y <= goal), math.inf)

    @property
    def final(self) -> float:
        """The value at the end of the budget; ∞ where the run failed."""
        last = self.values[-1] if self.values and self.status == "finished" else None
        return math.inf if last is None else last


@dataclass(frozen=True)
class PayoffCell:
    """One estimator with one step rule and one mini-batch size, over its seeds."""

    estimator: str
    rule: str
    b: int
    lr: float
    """The step that the search chose."""
    factor: float
    """The same in units of the default step, which all estimators have in common."""
    at_edge: bool
    """Whether that step is the smallest or the largest that was tried."""
    runs: list[CellRun]

    def cost(self, goal: float, unit: str) -> float:
        """The median over the seeds."""
        return statistics.median(run.cost(goal, unit) for run in self.runs)

    def spent(self, unit: str) -> float:
        """The median of all that the runs spent."""
        return statistics.median((run.passes if unit == "passes" else run.seconds)[-1] for run in self.runs)

    def reached(self, goal: float) -> int:
        return sum(math.isfinite(run.cost(goal, "passes")) for run in self.runs)

    @property
    def final(self) -> float:
        return statistics.median(run.final for run in self.runs)


@dataclass(frozen=True)
class Payoff:
    """The cells of one problem, and what is measured on it."""

    key: str
    """"network" or "convex"."""
    workload: str
    n: int
    measure: str
    """"test_error", or "gap" for f − min f."""
    goal: float
    device: str
    jobs: int
    """How many runs shared the device."""
    least: float | None = None
    """min f, where the measure is the gap."""
    cells: list[PayoffCell] = field(default_factory=list)

    def of(self, estimator: str, rule: str, b: int) -> PayoffCell | None:
        wanted = estimator, rule, b
        return next((cell for cell in self.cells if (cell.estimator, cell.rule, cell.b) == wanted), None)

    @property
    def rules(self) -> list[str]:
        return [rule for rule in RULES if any(cell.rule == rule for cell in self.cells)]

    @property
    def sizes(self) -> list[int]:
        return sorted({cell.b for cell in self.cells})

    @property
    def estimators(self) -> list[str]:
        return [key for key in ESTIMATORS if any(cell.estimator == key for cell in self.cells)]

    def pairs(self) -> Iterator[tuple[PayoffCell, PayoffCell]]:
        """Every cell of another estimator beside that of the mini-batch gradient with the same step rule and b."""
        for cell in self.cells:
            base = self.of(BASE, cell.rule, cell.b)
            if cell.estimator != BASE and base is not None:
                yield cell, base


@dataclass(frozen=True)
class CostRatio:
    """The cost of an estimator over that of the mini-batch gradient."""

    value: float | None
    """The ratio of the medians; None where neither came to the goal, or one was there at the start."""
    bound: str = ""
    """"≥" where the estimator did not come to the goal within its budget, "≤" where the mini-batch gradient did not."""
    low: float | None = None
    high: float | None = None
    """The least and the largest ratio of two runs with the same seed, where all came there."""

    def __str__(self) -> str:
        return "–" if self.value is None else f"{self.bound}{' ' if self.bound else ''}{self.value:.2f}"

    @property
    def pays(self) -> bool | None:
        """Whether the estimator cost less; None where that is not known."""
        if self.value is None or (self.bound == "≥" and self.value < 1) or (self.bound == "≤" and self.value > 1):
            return None
        return self.value < 1 or self.bound == "≤"


def ratio(cell: PayoffCell, base: PayoffCell, goal: float, unit: str) -> CostRatio:
    """What the estimator needed to the goal over what the mini-batch gradient needed."""
    own, other = cell.cost(goal, unit), base.cost(goal, unit)
    if not own or not other:
        return CostRatio(None)
    if math.isfinite(own) and math.isfinite(other):
        single = list(_by_seed(cell, base, goal, unit))
        low, high = (min(single), max(single)) if len(single) == len(cell.runs) else (None, None)
        return CostRatio(own / other, "", low, high)
    if math.isfinite(other):
        return CostRatio(cell.spent(unit) / other, "≥")
    if math.isfinite(own):
        return CostRatio(own / base.spent(unit), "≤")
    return CostRatio(None)


def _by_seed(cell: PayoffCell, base: PayoffCell, goal: float, unit: str) -> Iterator[float]:
    """The ratios of the runs with the same seed, where both came to the goal."""
    others = {run.seed: run.cost(goal, unit) for run in base.runs}
    for run in cell.runs:
        own, other = run.cost(goal, unit), others.get(run.seed, math.inf)
        if math.isfinite(own) and math.isfinite(other) and other > 0:
            yield own / other


def complete_runs(folder: Path) -> list[RunRecord]:
    """The runs of a study that have come to their end, or diverged."""
    found = load(folder / "runs") if (folder / "runs").is_dir() else []
    return [run for run in found if is_complete(run) and run.evaluations]


def read_cells(records: Iterable[RunRecord], measure: str, least: float | None) -> list[PayoffCell]:
    """The cells of these runs, with the seeds that all of them have: a study may have been broken off."""
    found: dict[str, dict[int, RunRecord]] = {}
    for run in records:
        found.setdefault(run.config.method, {})[run.config.seed] = run
    seeds = sorted(set.intersection(*map(set, found.values()))) if found else []
    cells = [_cell(name, [own[seed] for seed in seeds], measure, least) for name, own in found.items() if seeds]
    order = list(ESTIMATORS)
    return sorted(cells, key=lambda cell: (RULES.index(cell.rule), cell.b, order.index(cell.estimator)))


def _cell(name: str, runs: list[RunRecord], measure: str, least: float | None) -> PayoffCell:
    search = runs[0].notes["search"]
    made = [
        CellRun(
            run.config.seed,
            run.status,
            [_short(row["passes"]) for row in run.evaluations],
            [_short(row["seconds"]) for row in run.evaluations],
            [_value(row, measure, least) for row in run.evaluations],
        )
        for run in runs
    ]
    return PayoffCell(*parts_of(name), _short(search["lr"]), search["factor"], search["at_edge"], made)


def _value(row: Row, measure: str, least: float | None) -> float | None:
    found = row.get("train_loss" if measure == "gap" else measure)
    return None if found is None else _short(found - (least or 0.0))


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def save(payoffs: Iterable[Payoff], path: Path) -> None:
    """Write all that was measured, without the folders of the runs."""
    text = json.dumps([asdict(one) for one in payoffs], separators=(",", ":"))
    write_text(path, text.replace('{"estimator"', '\n{"estimator"') + "\n")


def read(path: Path) -> list[Payoff]:
    """Read what `save` wrote."""
    found = []
    for row in json.loads(path.read_text(encoding="utf-8")):
        cells = [PayoffCell(**{**cell, "runs": [CellRun(**run) for run in cell["runs"]]}) for cell in row.pop("cells")]
        found.append(Payoff(**row, cells=cells))
    return found
