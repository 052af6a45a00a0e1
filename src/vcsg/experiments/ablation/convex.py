"""The variants on a convex problem: calls to ‖∇f‖² ≤ ε on drawn least squares, by the compiled engine."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from vcsg.experiments.ablation.variants import BY_KEY, VARIANTS
from vcsg.experiments.complexity.families import drawn_problem
from vcsg.experiments.complexity.hitting import hits
from vcsg.experiments.pieces import Asked, Row, read_record, record_path

FAMILY = "least-squares"


@dataclass(frozen=True)
class ConvexDesign:
    """Every variant on every draw."""

    n: int
    eps: float
    draws: int
    passes: float
    """The most passes of n calls of a run."""

    def identity(self) -> Row:
        return {"convex": dict(json.loads(json.dumps(asdict(self)))), "variants": [one.key for one in VARIANTS]}


@dataclass(frozen=True)
class ConvexRun:
    """The run of one variant on one drawn problem."""

    variant: str
    draw: int

    @property
    def name(self) -> str:
        return f"convex/draw-{self.draw}/{self.variant}"

    @property
    def needs(self) -> tuple[str, ...]:
        return ()

    def perform(self, design: ConvexDesign, folder: Path, asked: Asked) -> Row:
        drawn = drawn_problem(FAMILY, design.n, self.draw)
        method, cap = BY_KEY[self.variant].make(design.eps), design.passes * design.n
        found = hits(drawn, method, self.draw, {design.eps: cap}, asked)
        row: Row = {**asdict(self), "ifo": found.ifo.get(design.eps), "spent": found.spent}
        return row | ({"rollbacks": found.rollbacks} if found.rollbacks else {})


def convex_pieces(design: ConvexDesign) -> list[ConvexRun]:
    return [ConvexRun(variant.key, draw) for draw in range(design.draws) for variant in VARIANTS]


def convex_costs(folder: Path, design: ConvexDesign) -> dict[str, dict[int, float]]:
    """Passes to ε by variant and draw; ∞ where a run did not get there."""
    found: dict[str, dict[int, float]] = {}
    for piece in convex_pieces(design):
        if record_path(folder, piece.name).exists():
            ifo = read_record(folder, piece.name)["ifo"]
            found.setdefault(piece.variant, {})[piece.draw] = math.inf if ifo is None else ifo / design.n
    return found
