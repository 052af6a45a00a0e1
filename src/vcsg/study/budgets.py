"""What every run of a study may spend: passes, seconds or gradients."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields

from vcsg.training.limits import Limits

EVALUATIONS = 60
"""Evaluations per run, where the length of a run is known beforehand."""
LEAST_EVERY = 0.1
"""The fewest passes between evaluations: each of these takes about a third of a pass itself."""
SHORT = {"passes": "passes", "seconds": "s", "ifo": "ifo"}
UNITS = {"passes": "passes", "pass": "passes", "s": "seconds", "seconds": "seconds", "ifo": "ifo"}
"""The units as a user may write them."""


@dataclass(frozen=True)
class Budget:
    """The limits of a run, of which at least one is given: the first that is reached ends it."""

    passes: float | None = None
    """Gradients of single samples, in units of n."""
    seconds: float | None = None
    """Seconds of training, without evaluations."""
    ifo: float | None = None
    """Gradients of single samples."""

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read a budget: `30passes`, `120s`, `500000ifo`, or several separated by commas."""
        found: dict[str, float] = {}
        for part in text.split(","):
            match = re.fullmatch(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]+)", part.strip(), re.IGNORECASE)
            unit = UNITS.get(match[2].lower()) if match else None
            if match is None or unit is None or unit in found:
                raise ValueError(f"budget {text!r}: write 30passes, 120s or 500000ifo, or several as in 30passes,120s")
            found[unit] = _number(match[1], text)
        return cls(**found)

    def __str__(self) -> str:
        return ",".join(f"{value:.12g}{SHORT[name]}" for name, value in self.as_dict().items())

    def as_dict(self) -> dict[str, float]:
        """The limits that are given, by name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def limits(self) -> Limits:
        return Limits(self.passes, self.seconds, self.ifo)

    def every(self, n: int) -> float:
        """Passes between evaluations, for a curve of about 60 points; one pass where only the time is limited."""
        passes = self.in_passes(n)
        return 1.0 if passes is None else max(passes / EVALUATIONS, LEAST_EVERY)

    def in_passes(self, n: int) -> float | None:
        """The most passes that a run can have; None where only the time is limited."""
        limits = [p for p in (self.passes, None if self.ifo is None else self.ifo / n) if p is not None]
        return min(limits, default=None)

    def part(self, share: float, n: int, least: float) -> Budget:
        """A share of the budget, with at least `least` passes where the budget has them."""
        passes, seconds, ifo = self.passes, self.seconds, self.ifo
        return Budget(
            None if passes is None else max(share * passes, min(least, passes)),
            None if seconds is None else share * seconds,
            None if ifo is None else max(share * ifo, min(least * n, ifo)),
        )


def _number(digits: str, text: str) -> float:
    try:
        value = float(digits)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"{digits} in budget {text!r}: give a finite number above 0")
    return value
