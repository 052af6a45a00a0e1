"""The samples of every phase: seeded, resumable, the same for every kind of data and on every machine.

Work comes in phases whose sizes are known ahead (an anchor in chunks, an inner loop in mini-batches), so loader
workers may prefetch. All randomness is a function of (seed, purpose, counter): a run's position is a few integers,
nothing depends on how far a loader has read ahead, and no generator has to be saved.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

Kind = Literal["anchor", "smoothness", "inner"]
Indices = npt.NDArray[np.int64]

_PURPOSES = ("samples", "closure", "length", "output")


def stream(seed: int, purpose: str, counter: int) -> np.random.Generator:
    """An independent generator for each (seed, purpose, counter)."""
    return np.random.default_rng([seed, _PURPOSES.index(purpose), counter])


def draw_batch(rng: np.random.Generator, n: int, size: int) -> Indices:
    """`size` of n samples without replacement, in random order."""
    return rng.permutation(n) if size == n else rng.choice(n, size, replace=False)


def draw_minibatches(rng: np.random.Generator, n: int, count: int, size: int) -> Indices:
    """`count` independent mini-batches, each without replacement, as the rows of a matrix."""
    if size * size > n:
        return np.stack([draw_batch(rng, n, size) for _ in range(count)])
    # A row with a repeated index is drawn anew: what remains is uniform on rows without repetition.
    rows = rng.integers(n, size=(count, size))
    repeated = np.arange(count)
    while repeated.size:
        ordered = np.sort(rows[repeated], axis=1)
        repeated = repeated[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        rows[repeated] = rng.integers(n, size=(repeated.size, size))
    return rows


def draw_geometric(rng: np.random.Generator, B: int, b: int) -> int:
    """N on {0, 1, 2, …} with P(N = k) = γ^k(1−γ), γ = B/(B+b), so of mean B/b. (NumPy's starts at 1.)"""
    return int(rng.geometric(b / (B + b))) - 1


@dataclass(frozen=True)
class Phase:
    """`count` batches: of nearly equal size and `total` samples together, or of the given `sizes`, or fixed blocks."""

    kind: Kind
    number: int
    """Counts the phases of a run; with the seed it determines the draw."""
    count: int
    total: int
    n: int
    seed: int
    sizes: tuple[int, ...] = ()
    """The size of each batch, where they differ."""
    blocks: int = 0
    """The number of fixed blocks of all n samples, if a batch is one of them, in turn in an anchor, else at random."""
    cut: int = 0
    """The batch, if not 0, that several ranks do not take in one step with those before it."""

    def bounds(self, k: int) -> slice:
        """The place of batch k in `indices`."""
        if self.blocks:
            return _part(self.block(k), self.blocks, self.n)
        if self.sizes:
            return slice(self._ends[k] - self.sizes[k], self._ends[k])
        return _part(k, self.count, self.total)

    def cut_after(self, samples: float) -> Phase:
        """The same phase, cut after the batch with which so many samples are reached."""
        last = next((k for k in range(self.count) if self.bounds(k).stop >= samples), self.count)
        return replace(self, cut=min(last + 1, self.count))

    def size(self, k: int) -> int:
        bounds = self.bounds(k)
        return int(bounds.stop - bounds.start)

    def block(self, k: int) -> int:
        """The number of the fixed block that batch k is."""
        return k if self.kind == "anchor" else int(self._blocks[k])

    @cached_property
    def indices(self) -> Indices:
        """The samples of all batches, one after the other."""
        # Blocks are the same in every phase: their number is that of no phase.
        rng = stream(self.seed, "samples", 0 if self.blocks else self.number)
        if self.blocks or self.kind == "anchor":
            return draw_batch(rng, self.n, self.n if self.blocks else self.total)
        if self.sizes:
            return np.concatenate([draw_batch(rng, self.n, size) for size in self.sizes])
        rows = draw_minibatches(rng, self.n, self.count, self.total // self.count)
        return rows.reshape(-1)

    @cached_property
    def _ends(self) -> list[int]:
        return list(itertools.accumulate(self.sizes))

    @cached_property
    def _blocks(self) -> Indices:
        return stream(self.seed, "samples", self.number).integers(self.blocks, size=self.count)

    @cached_property
    def seeds(self) -> list[int]:
        """A seed for the closure's randomness at each batch, and a last one for the loader."""
        draws = stream(self.seed, "closure", self.number).integers(2**62, size=self.count + 1)
        return [int(s) for s in draws]


def _part(k: int, count: int, total: int) -> slice:
    """The k-th of `count` nearly equal parts."""
    return slice(k * total // count, (k + 1) * total // count)


@dataclass(frozen=True)
class Share:
    """The part of a phase that one of several ranks takes, step by step; by default everything.

    Of an anchor, and of the mini-batches that L is estimated from, a rank takes whole batches: all ranks together take
    one each in a step. A mini-batch of the inner loop is cut in slices.
    """

    rank: int = 0
    ranks: int = 1
    least: int = 1
    """The fewest samples of a slice; where a mini-batch has too few for all ranks, the last ones get none."""

    def width(self, phase: Phase, position: int) -> int:
        """How many batches of the phase are done in one step."""
        if phase.kind == "inner" or self.ranks == 1:
            return 1
        return min(self.ranks, (phase.cut if position < phase.cut else phase.count) - position)

    def part(self, phase: Phase, position: int) -> tuple[slice, float]:
        """The place of this rank's samples in `phase.indices`, and their weight in the mean over the batch.

        A rank for which nothing is left takes the first few samples with weight 0.
        """
        whole = phase.bounds(self._batch(phase, position))
        if self.ranks == 1:
            return whole, 1.0
        start, size = whole.start, whole.stop - whole.start
        if phase.kind != "inner":
            sharing = self.width(phase, position)
            own = slice(0, size)
        else:
            sharing = max(1, min(self.ranks, size // self.least))
            own = _part(self.rank, sharing, size)
        if self.rank >= sharing:
            return slice(start, start + min(size, self.least)), 0.0
        weight = (own.stop - own.start) / size
        return slice(start + own.start, start + own.stop), weight

    def parts(self, phase: Phase, position: int) -> Iterator[slice]:
        """This rank's samples from that position of the phase on."""
        while position < phase.count:
            yield self.part(phase, position)[0]
            position += self.width(phase, position)

    def steps(self, phase: Phase, position: int) -> int:
        """How many steps are left of the phase."""
        if phase.kind == "inner" or self.ranks == 1:
            return phase.count - position
        before = max(0, phase.cut - position)
        return -(-before // self.ranks) - (position + before - phase.count) // self.ranks

    def samples(self, phase: Phase, position: int) -> int:
        """How many samples all ranks together evaluate in the step, those of weight 0 not counted."""
        if self.ranks == 1:
            return phase.size(position)
        return sum(phase.size(position + i) for i in range(self.width(phase, position)))

    def seed(self, phase: Phase, position: int) -> int:
        """The seed of the closure's randomness: that of the batch, and another on each rank that has a part of it."""
        seed = phase.seeds[self._batch(phase, position)]
        return (seed + self.rank * 0x9E3779B97F4A7C15) % 2**62 if phase.kind == "inner" and self.rank else seed

    def _batch(self, phase: Phase, position: int) -> int:
        """The batch that this rank takes, or that in whose place it takes one sample."""
        if phase.kind == "inner" or self.rank >= self.width(phase, position):
            return position
        return position + self.rank
