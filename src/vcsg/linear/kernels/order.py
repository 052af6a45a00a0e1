"""The order in which inner steps take rows: a matrix of row numbers, one line per mini-batch.

Memory is read fast in order and slowly at random. Rows that were shuffled are taken `sequential`ly. Rows as the user
gave them may be sorted, so they are `shuffled` where they fit the cache, and otherwise `interleaved`: mini-batches take
theirs from evenly spaced places of the data, each of which is read in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vcsg.linear.kernels.compiled import inlined, njit

Index = npt.NDArray[np.uint32]

STREAMS = 4
"""The largest number of places that are read side by side: each one more makes reading slower."""


class Random(Protocol):
    """A source of numbers from 0 to 1: `Draws`, or a generator of NumPy."""

    def random(self, size: int, /) -> npt.NDArray[np.float64]: ...


@dataclass
class Draws:
    """The generator SplitMix64 (Steele, Lea and Flood 2014).

    Setting up a NumPy generator would take as long as a pass over some thousand rows.
    """

    seed: int
    drawn: int = 0

    def random(self, size: int, /) -> npt.NDArray[np.float64]:
        """The next `size` numbers from 0 to 1."""
        self.drawn += size
        numbers: npt.NDArray[np.float64] = _uniform(self.seed, self.drawn, size)
        return numbers


@inlined
def _mixed(z: Any) -> Any:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit
def _uniform(seed: int, drawn: int, size: int) -> Any:
    """The last `size` of the first `drawn` numbers; seeds are mixed too, so that they begin far from each other."""
    start, numbers = _mixed(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15)), np.empty(size)
    for i in range(size):
        place = np.uint64(drawn - size + i + 1)
        numbers[i] = (_mixed(start + place * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(11)) * 2.0**-53
    return numbers


def sample(n: int, size: int, rng: Random) -> npt.NDArray[np.int64]:
    """Draw `size` of n rows, one from each of `size` equal parts, in random order: as good as any sample, and fast."""
    rows: npt.NDArray[np.int64] = _drawn(n, rng.random(2 * size))
    return rows


@njit
def _drawn(n: int, uniform: Any) -> Any:
    """Rows drawn from equal parts by the first half of the numbers, in an order given by the second half."""
    size = uniform.size // 2
    rows = permutation(uniform[size:])
    for i in range(size):
        low, high = rows[i] * n // size, (rows[i] + 1) * n // size
        rows[i] = low + int(uniform[i] * (high - low))
    return rows


def sequential(n: int, b: int, rng: Random) -> Index:
    """Mini-batches of b neighbours in random order, cut at another place each time."""
    b = min(b, n)
    index: Index = _neighbours(n, b, rng.random(n // b + 1))
    return index


@njit
def _neighbours(n: int, b: int, uniform: Any) -> Any:
    """All mini-batches from an offset on, which the last number gives, in an order that the others give."""
    size = uniform.size - 1
    offset = int(uniform[size] * (n % b + 1))
    batches = permutation(uniform[:size])
    index = np.empty((size, b), np.uint32)
    for i in range(size):
        for j in range(b):
            index[i, j] = offset + batches[i] * b + j
    return index


@njit
def permutation(uniform: Any) -> Any:
    """0, 1, … in random order, by as many numbers from 0 to 1 (Fisher and Yates)."""
    order = np.empty(uniform.size, np.int64)
    for i in range(uniform.size):
        order[i] = i
    for i in range(uniform.size - 1, 0, -1):
        j = int(uniform[i] * (i + 1))
        order[i], order[j] = order[j], order[i]
    return order


def shuffled(n: int, b: int, rng: Random) -> Index:
    """Mini-batches of b rows in random order, for data that fit the cache."""
    b = min(b, n)
    rows: npt.NDArray[np.int64] = permutation(rng.random(n))
    return rows[: n // b * b].astype(np.uint32).reshape(-1, b)


def interleaved(n: int, b: int, rng: Random) -> Index:
    """Mini-batches of b rows from min(b, 4) evenly spaced places that move on together."""
    b = min(b, n)
    streams = next(s for s in range(min(b, STREAMS), 0, -1) if b % s == 0)
    run, length = b // streams, n // streams
    starts = np.arange(0, length - run + 1, run, dtype=np.uint32)
    turn, offset = rng.random(2)
    starts = np.roll(starts, int(turn * len(starts)))
    places = np.arange(streams, dtype=np.uint32) * np.uint32(length) + np.uint32(offset * (n % streams + 1))
    index = starts[:, None, None] + places[None, :, None] + np.arange(run, dtype=np.uint32)
    return np.ascontiguousarray(index.reshape(-1, b))
