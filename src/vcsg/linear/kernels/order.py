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

from vcsg.linear.kernels.compiled import njit, pasted
from vcsg.linear.kernels.lanes import pointer

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
        numbers = np.empty(size)
        _uniform(self.seed, self.drawn, numbers)
        return numbers


@pasted
def _mixed(z: Any) -> Any:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit
def _uniform(seed: int, drawn: int, out: Any) -> None:
    """out ← the last of the first `drawn` numbers; seeds are mixed too, so that they begin far from each other."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    start = _mixed(np.uint64(seed) + golden)
    for i in range(out.size):
        place = np.uint64(drawn - out.size + i + 1)
        out[i] = (_mixed(start + place * golden) >> np.uint64(11)) * 2.0**-53


def sample(n: int, size: int, rng: Random) -> npt.NDArray[np.int64]:
    """Draw `size` of n rows, one from each of `size` equal parts, in random order: as good as any sample, and fast."""
    uniform = rng.random(2 * size)
    rows = permutation(uniform[size:])
    _draw(n, uniform, rows)
    return rows


@njit
def _draw(n: int, uniform: Any, rows: Any) -> None:
    """rows ← a row of the part that each of them names, by a number from 0 to 1."""
    numbers, places, size = pointer(uniform), pointer(rows), rows.size
    for i in range(size):
        low, high = places[i] * n // size, (places[i] + 1) * n // size
        places[i] = low + np.int64(numbers[i] * (high - low))


def sequential(n: int, b: int, rng: Random) -> Index:
    """Mini-batches of b neighbours in random order, cut at another place each time."""
    b = min(b, n)
    uniform = rng.random(n // b + 1)
    index = np.empty((n // b, b), np.uint32)
    _neighbours(int(uniform[-1] * (n % b + 1)), permutation(uniform[:-1]), index)
    return index


@njit
def _neighbours(offset: int, batches: Any, index: Any) -> None:
    """index ← the rows of these mini-batches, the first of which begins at an offset."""
    numbers, rows, b = pointer(batches), pointer(index), index.shape[1]
    for i in range(index.shape[0]):
        for j in range(b):
            rows[i * b + j] = offset + numbers[i] * b + j


def permutation(uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """0, 1, … in random order, by as many numbers from 0 to 1 (Fisher and Yates)."""
    order = np.arange(uniform.size)
    _exchange(uniform, order)
    return order


@njit
def _exchange(uniform: Any, order: Any) -> None:
    numbers, places = pointer(uniform), pointer(order)
    for i in range(uniform.size - 1, 0, -1):
        j = np.int64(numbers[i] * (i + 1))
        places[i], places[j] = places[j], places[i]


def shuffled(n: int, b: int, rng: Random) -> Index:
    """Mini-batches of b rows in random order, for data that fit the cache."""
    b = min(b, n)
    return permutation(rng.random(n))[: n // b * b].astype(np.uint32).reshape(-1, b)


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
