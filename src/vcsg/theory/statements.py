"""Statements of the paper as data: what is printed, where, whether it holds, and a check that returns numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "loose", "false"]
SLACK = 2.0
"""A bound that is never attained within this factor is loose."""


@dataclass(frozen=True)
class Evidence:
    """What a check found: the verdict that follows from its numbers, and the numbers by name."""

    verdict: Verdict
    figures: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.figures[name]


@dataclass(frozen=True)
class Statement:
    """A statement of the paper.

    Attributes:
        name: a short name.
        source: its lines in the paper's source.
        printed: what the paper says, in a line.
        verdict: whether it holds, is loose, or is false as printed.
        instead: what is true, in a line.
        find: the check.
    """

    name: str
    source: str
    printed: str
    verdict: Verdict
    instead: str
    find: Callable[[], Evidence]

    @property
    def line(self) -> int:
        """The first of its lines."""
        return int(self.source.removeprefix("l.").split(",")[0])

    def check(self) -> Evidence:
        """Compute the numbers that decide the verdict; they are exact or seeded, and come in well under a second."""
        return self.find()

    def __str__(self) -> str:
        word = "false as printed" if self.verdict == "false" else self.verdict
        return f"{self.source}: {self.printed} [{word}] {self.instead}"


_CHECKED: dict[str, Statement] = {}


def checked() -> dict[str, Statement]:
    """Every statement that has a check, by name, in the order of the paper's lines."""
    return dict(sorted(_CHECKED.items(), key=lambda item: item[1].line))


def claim(
    name: str, source: str, printed: str, verdict: Verdict, instead: str
) -> Callable[[Callable[[], Evidence]], Callable[[], Evidence]]:
    """Make a check known as a statement of the paper."""

    def add(find: Callable[[], Evidence]) -> Callable[[], Evidence]:
        _CHECKED[name] = Statement(name, source, printed, verdict, instead, find)
        return find

    return add


def of_bound(found: float, bound: float, figures: Mapping[str, float]) -> Evidence:
    """The verdict on an upper bound: false where a case exceeds it, loose where none comes within `SLACK` of it."""
    verdict: Verdict = "holds"
    if found > bound * (1 + 1e-9) + 1e-300:
        verdict = "false"
    elif SLACK * found < bound:
        verdict = "loose"
    return Evidence(verdict, dict(figures))


def of_equality(found: float, printed: float, figures: Mapping[str, float], tolerance: float = 1e-9) -> Evidence:
    """The verdict on an equality."""
    same = math.isclose(found, printed, rel_tol=tolerance, abs_tol=1e-12)
    return Evidence("holds" if same else "false", dict(figures))
