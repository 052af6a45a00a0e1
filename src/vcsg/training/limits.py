"""The limits of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

from vcsg.run.record import Until


@dataclass(frozen=True)
class Limits:
    """The limits of a run: the first one that is reached ends it."""

    passes: float | None = None
    seconds: float | None = None
    ifo: float | None = None
    until: Until | None = None
    enough: Callable[[], bool] | None = None
    """Asked after every evaluation: whether the run ends there, before its other limits."""

    def __post_init__(self) -> None:
        numbers = {"passes": self.passes, "seconds": self.seconds, "ifo": self.ifo}
        for name, limit in numbers.items():
            if limit is not None and not (isinstance(limit, Real) and limit > 0):
                raise ValueError(f"{name} = {limit!r}: give a number above 0")
        if self.until is None and all(limit is None for limit in numbers.values()):
            raise ValueError("fit() would never end: give passes= (over the data), seconds=, ifo= or until=")
        if self.until is not None and not callable(self.until):
            raise TypeError(f"until = {self.until!r}: give a function of a record, such as vcsg.stationary(1e-4)")

    @property
    def measured(self) -> bool:
        """Whether the share of a run that is done can be known: whether a limit besides `until` is set."""
        return any(limit is not None for limit in (self.passes, self.seconds, self.ifo))
