"""The tasks of the experiment and their records: a search for the best constant step, or the runs of one method.

A record is one small JSON file, written when the task is done, so that what was interrupted is made again and nothing
else. A task reads what it needs of others, the constants that a search found, from their records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from vcsg.experiments.complexity.contenders import CONTENDERS, GRID, Contender
from vcsg.experiments.complexity.families import DrawnProblem, drawn_problem
from vcsg.experiments.complexity.hitting import Hits, hits
from vcsg.experiments.pieces import Asked, Row, read_record
from vcsg.method import Method

STEPS = {"theory": "the step of its theory", "best": "the best constant step of the grid"}
SEARCH_SEED = 1_000_000
"""The seed of the problem and of the sampling in searches, which no run has."""


@dataclass(frozen=True)
class Design:
    """What is measured: every method on every family with every n and every draw, to every ε."""

    families: tuple[str, ...]
    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    """n."""
    targets: tuple[float, ...]
    """ε."""
    draws: int
    """How often a problem is drawn; draw k has the seed k, for the problem and for the sampling."""
    passes: float
    """The most passes of n calls that a run may take for an ε."""
    calls: float
    """The most calls, where that is less."""

    def cap(self, n: int) -> float:
        """The most calls of a run for an ε."""
        return min(self.passes * n, self.calls)

    def identity(self) -> Row:
        """The design as JSON holds it, with what else the records depend on."""
        return dict(json.loads(json.dumps({**asdict(self), "grid": GRID})))


@dataclass(frozen=True)
class StepSearch:
    """Tries every constant of the grid on a problem that no run has; the least calls to each ε decide."""

    family: str
    n: int
    contender: str

    @property
    def needs(self) -> tuple[str, ...]:
        return ()

    @property
    def name(self) -> str:
        return f"search/{self.family}/n-{self.n}/{self.contender}"

    @property
    def weight(self) -> float:
        """How long the task takes, roughly: the longest are begun first."""
        return 4.0 * self.n

    def perform(self, design: Design, folder: Path, asked: Asked) -> Row:
        contender, drawn = CONTENDERS[self.contender], drawn_problem(self.family, self.n, SEARCH_SEED)
        best: dict[float, tuple[int, float]] = {}
        spent = 0
        for c in GRID:
            # A trial ends where it cannot be the best any more.
            caps = {eps: float(best[eps][0]) if eps in best else design.cap(self.n) for eps in design.targets}
            for made, own in _runs(contender, drawn, caps, c):
                found = hits(drawn, made, SEARCH_SEED, own, asked)
                spent += found.spent
                for eps, ifo in found.ifo.items():
                    if eps not in best or ifo < best[eps][0]:
                        best[eps] = ifo, c
        chosen = [{"eps": eps, "c": best[eps][1] if eps in best else None} for eps in design.targets]
        return {**asdict(self), "chosen": chosen, "spent": spent}


@dataclass(frozen=True)
class Measurement:
    """The runs of one method on one drawn problem, to every ε."""

    family: str
    n: int
    contender: str
    draw: int
    steps: str

    @property
    def name(self) -> str:
        return f"runs/{self.steps}/{self.family}/n-{self.n}/draw-{self.draw}/{self.contender}"

    @property
    def needs(self) -> tuple[str, ...]:
        return (StepSearch(self.family, self.n, self.contender).name,) if self.steps == "best" else ()

    @property
    def weight(self) -> float:
        """How long the task takes, roughly: the longest are begun first."""
        return float(self.n)

    def perform(self, design: Design, folder: Path, asked: Asked) -> Row:
        contender, drawn = CONTENDERS[self.contender], drawn_problem(self.family, self.n, self.draw)
        results: dict[float, Row] = {}
        for c, targets in self._constants(design, folder).items():
            if c is None and self.steps == "best":  # no constant of the grid got there
                results |= {eps: {"eps": eps, "ifo": None, "c": None} for eps in targets}
                continue
            caps = {eps: design.cap(self.n) for eps in targets}
            for made, own in _runs(contender, drawn, caps, c):
                found = hits(drawn, made, self.draw, own, asked)
                results |= {eps: _result(found, eps, c) for eps in own}
        rows = [results[eps] for eps in design.targets]
        return {**asdict(self), "cap": design.cap(self.n), "results": rows}

    def _constants(self, design: Design, folder: Path) -> dict[float | None, list[float]]:
        """The targets by the constant of the step; None is the step of the theory, or that nothing was found."""
        if self.steps == "theory":
            return {None: list(design.targets)}
        found: dict[float | None, list[float]] = {}
        for row in read_record(folder, self.needs[0])["chosen"]:
            found.setdefault(row["c"], []).append(row["eps"])
        return found


CellTask = StepSearch | Measurement


def _runs(
    contender: Contender, drawn: DrawnProblem, caps: dict[float, float], c: float | None
) -> Iterator[tuple[Method, dict[float, float]]]:
    """The runs that reach all targets: one for all of them, or one for each where the method depends on ε."""
    aims = contender.aims if c is None else contender.sizes_aim
    for own in [{eps: cap} for eps, cap in caps.items()] if aims else [caps]:
        eps = min(own)
        made = contender.make(eps, drawn.variance)
        yield (made if c is None else contender.with_constant(eps, drawn.variance, c)), own


def _result(found: Hits, eps: float, c: float | None) -> Row:
    row: Row = {"eps": eps, "ifo": found.ifo.get(eps), "c": c}
    if eps not in found.ifo:
        row |= {"spent": found.spent, "gradient_norm2": float(f"{found.gradient_norm2:.3g}")}
    if found.rollbacks:
        row["rollbacks"] = found.rollbacks
    if found.failure:
        row["failure"] = found.failure
    return row


def tasks(design: Design) -> list[CellTask]:
    """All tasks, the longest first, each search before the runs that need it."""
    cells = [(f, n, m) for n in sorted(design.sizes, reverse=True) for f in design.families for m in design.methods]
    searches: list[CellTask] = [StepSearch(*cell) for cell in cells]
    runs: list[CellTask] = [
        Measurement(*cell, draw, steps) for steps in STEPS for cell in cells for draw in range(design.draws)
    ]
    return sorted([*searches, *runs], key=lambda task: -task.weight)
