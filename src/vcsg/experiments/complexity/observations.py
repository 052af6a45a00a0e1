"""What the records say: one observation for every method, problem, draw and ε."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from vcsg.experiments.complexity.cells import STEPS, Design, Measurement, StepSearch, tasks
from vcsg.experiments.pieces import Row, read_record, record_path


@dataclass(frozen=True)
class Observation:
    """The calls of one run to one ε."""

    contender: str
    steps: str
    """"theory" or "best"."""
    family: str
    n: int
    draw: int
    eps: float
    ifo: int | None
    """The calls; None where the run did not get there."""
    cap: float
    """The calls that the run might spend."""
    c: float | None = None
    """The constant of a constant step."""

    @property
    def censored(self) -> bool:
        return self.ifo is None

    @property
    def calls(self) -> float:
        """The calls, or those after which the run was given up."""
        return self.cap if self.ifo is None else float(self.ifo)


def read_observations(folder: Path, design: Design) -> list[Observation]:
    """The observations of all measurements that are done, those left out that the start meets: they cost nothing."""
    found = []
    for task in tasks(design):
        if isinstance(task, Measurement) and record_path(folder, task.name).exists():
            found += _observations(read_record(folder, task.name))
    return found


def _observations(record: Row) -> list[Observation]:
    where = {name: record[name] for name in ("contender", "steps", "family", "n", "draw", "cap")}
    rows = [row for row in record["results"] if row["ifo"] != 0]
    return [Observation(**where, eps=row["eps"], ifo=row["ifo"], c=row["c"]) for row in rows]


def search_cost(folder: Path, design: Design) -> int:
    """The calls that the searches for constant steps took."""
    searches = [task.name for task in tasks(design) if isinstance(task, StepSearch)]
    return sum(int(read_record(folder, name)["spent"]) for name in searches if record_path(folder, name).exists())


def at_edge(observations: Iterable[Observation], grid: Iterable[float]) -> tuple[int, int]:
    """How many searches chose the largest or the smallest constant of the grid, and how many chose one at all."""
    cells = {(one.contender, one.family, one.n, one.eps): one.c for one in observations if one.steps == "best"}
    chosen = [c for c in cells.values() if c is not None]
    ends = min(grid), max(grid)
    return sum(c in ends for c in chosen), len(chosen)


def median_calls(observations: Iterable[Observation]) -> float:
    """The median, a run that did not get there counting as infinitely long."""
    found = [math.inf if one.censored else one.calls for one in observations]
    return median(found) if found else math.nan


def by_method(observations: Iterable[Observation]) -> dict[tuple[str, str], list[Observation]]:
    """The observations by method and steps, in the order of both."""
    found: dict[tuple[str, str], list[Observation]] = {}
    for one in observations:
        found.setdefault((one.contender, one.steps), []).append(one)
    return {key: found[key] for key in sorted(found, key=lambda key: list(STEPS).index(key[1]))}
