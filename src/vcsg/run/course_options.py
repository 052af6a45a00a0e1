"""The choices of a run that are not its method's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CourseOptions:
    """The choices that are not the method's; a state is loaded only where they are the same."""

    output: str = "last"
    variance: str = "chunks"
    chunk: int = 1024
    clip_norm: float | None = None
    batch_size: int | None = None
    """The size of the batches that a loop hands over, on each rank; None where samples are drawn here."""

    @property
    def exact(self) -> bool:
        """Whether S* is measured from single samples."""
        return self.variance == "exact"
