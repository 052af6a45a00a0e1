"""The batches that a loop hands over: of how many samples each is, and where they lie in the loop's passes.

A loop goes through all n samples in batches of b; its last batch of a pass is what is left, or is dropped. On several
ranks each has such a loop, over its share of the samples, and all hand over as many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from vcsg.run.sampling import Phase


@dataclass(frozen=True)
class LoopSizes:
    """The sizes that a loop announced: batches of b out of n samples, shared by so many ranks."""

    b: int
    n: int
    ranks: int = 1

    @property
    def length(self) -> int:
        """The samples of a pass on one rank."""
        return math.ceil(self.n / self.ranks)

    @property
    def rests(self) -> set[int]:
        """The sizes that the last batch of a pass may have, if not b; a sampler may fill up or drop what is uneven."""
        return {self.length % self.b, (self.n // self.ranks) % self.b} - {0}

    def size(self, told: int | None, seen: int | None, expected: int, guess: bool) -> int:
        """The size of a batch, from what was told or seen of it; with `guess` the expected one will do."""
        if told is not None:
            return self.check_told(told)
        if seen is not None:
            return self.check_seen(seen)
        if self.rests and not guess:
            raise ValueError(
                f"it cannot be seen how many samples this batch has: n = {self.n} is no multiple of batch_size = "
                f"{self.b}, so it may be a short one. Loop over optimizer.loop(loader), or say it: "
                "optimizer.step(closure, samples=...)"
            )
        return expected

    def check_told(self, samples: int) -> int:
        """`samples`, if a batch can have so many."""
        if isinstance(samples, bool) or not isinstance(samples, int) or not 1 <= samples <= self.b:
            raise ValueError(
                f"samples = {samples!r}: a batch has from 1 to batch_size = {self.b} samples; make the optimizer with "
                "the batch_size= of the loop"
            )
        return samples

    def check_seen(self, rows: int) -> int:
        """`rows`, the length of what the model was given, if a batch can have so many samples."""
        if rows == self.b or rows in self.rests:
            return rows
        last = f", the last of a pass {' or '.join(map(str, sorted(self.rests)))}" if self.rests else ""
        raise ValueError(
            f"the model was given {rows} rows, and the batches of this loop have {self.b} samples{last}: make the "
            f"optimizer with the loop's batch_size= (it has {self.b}) and n= (it has {self.n}), or where rows are not "
            "samples, say how many there are: optimizer.step(closure, samples=...)"
        )


@dataclass
class LoopPlace:
    """Where a loop is in its pass over the data, and what an anchor has taken of each pass. Plain numbers."""

    handed: int = 0
    """Samples of this pass that were handed over, on one rank."""
    short: bool = True
    """Whether a pass is expected to end with a short batch, and not to drop it."""
    parts: list[int] = field(default_factory=list)
    """The samples of the anchor in hand by pass, on all ranks."""

    def expected(self, sizes: LoopSizes) -> int:
        """The size of the next batch."""
        rest = sizes.length - self.handed
        return rest if self.short and 0 < rest < sizes.b else sizes.b

    def ahead(self, samples: int, sizes: LoopSizes) -> tuple[int, ...]:
        """The sizes of the next batches, one or more, that have together at most so many samples on all ranks."""
        place, total = LoopPlace(self.handed, self.short), 0
        found: list[int] = []
        while True:
            size = place.expected(sizes)
            total += size * sizes.ranks
            if found and total > samples:
                return tuple(found)
            found += [size] * sizes.ranks
            place.arrive(size, sizes)

    def arrive(self, size: int, sizes: LoopSizes, anchor: bool = False) -> None:
        """A batch of that size is handed over on every rank, for an anchor or not."""
        if self.expected(sizes) != size:
            self.short = size < sizes.b
        if self.handed + size > sizes.length:
            self.handed = 0
        if anchor:
            if not self.handed or not self.parts:
                self.parts.append(0)
            self.parts[-1] += size * sizes.ranks
        self.handed += size
        if self.handed >= sizes.length or size in sizes.rests:
            self.handed = 0

    def begin(self, short: bool | None = None) -> None:
        """A pass begins, of which it may be known whether it ends with a short batch."""
        self.handed, self.short = 0, self.short if short is None else short

    @property
    def overlap(self) -> float:
        """Σ r_p²/B² for an anchor of B samples of which r_p are from pass p; 1 where all are from one."""
        total = sum(self.parts)
        return sum(part * part for part in self.parts) / (total * total) if total else 1.0


def resized(
    phase: Phase, position: int, width: int, size: int, place: LoopPlace, loop: LoopSizes, anchor_size: int
) -> Phase:
    """The phase with `width` batches of that size on every rank at this position; an anchor then ends where it should.

    The place is that of the loop after these batches.
    """
    own = size * loop.ranks if phase.kind == "inner" else size
    if phase.size(position) == own:
        return phase
    sizes = [phase.size(k) for k in range(phase.count)]
    sizes[position : position + width] = [own] * width
    if phase.kind == "anchor":
        return completed(phase, sizes[: position + width], place, loop, anchor_size)
    return replace(phase, total=sum(sizes), sizes=tuple(sizes))


def completed(phase: Phase, sizes: list[int], place: LoopPlace, loop: LoopSizes, anchor_size: int) -> Phase:
    """The anchor phase with batches of these sizes, and as many that follow as fit into the anchor, one at least."""
    rest = anchor_size - sum(sizes)
    if not sizes or rest >= place.expected(loop) * loop.ranks:
        sizes = [*sizes, *place.ahead(rest, loop)]
    return replace(phase, count=len(sizes), total=sum(sizes), sizes=tuple(sizes))
