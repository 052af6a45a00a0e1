"""Runs as curves: the median over seeds and the band from the lowest to the highest, on a common grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vcsg.study.records import RunRecord
from vcsg.study.targets import Target
from vcsg.study.view.style import place_of
from vcsg.study.view.summary import groups
from vcsg.study.view.words import SCALES

Array = NDArray[np.float64]
SLOW = 6.0
"""The ratio of the slowest method's time to the fastest's from which the time axis is logarithmic."""
UNSEEN = 0.01
"""The share of the axis below which it is not seen that one run ends later than another."""
POINTS = 400
"""The most points of a curve; more are not seen on paper and make a page heavy."""


@dataclass(frozen=True)
class Tail:
    """A run that did not finish, drawn by itself: it must neither bend the median nor vanish."""

    x: Array
    y: Array
    status: str


@dataclass(frozen=True)
class Rest:
    """What is left of a run that finished, after the first of its method has: from there on there is no median."""

    x: Array
    y: Array


@dataclass(frozen=True)
class Curve:
    """One method in one panel.

    Median and band are over the runs that finished, as far as all of them go: where some have ended, those left would
    no longer be the same seeds. These are drawn by themselves to their own ends. In between its evaluations a run is
    interpolated linearly. NaN is a gap.
    """

    method: str
    label: str
    x: Array
    median: Array
    low: Array
    high: Array
    runs: int
    tails: tuple[Tail, ...] = ()
    rests: tuple[Rest, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.method, self.label

    @property
    def empty(self) -> bool:
        return not len(self.x) and not self.tails


def curves(runs: list[RunRecord], protocol: str, across: str, metric: str) -> list[Curve]:
    """The methods of a protocol that have the metric, `runs` being of one workload; errors are in percent."""
    own = {key[2:]: its for key, its in groups(runs).items() if key[1] == protocol}
    made = [curve(own[key], across, metric) for key in sorted(own, key=lambda key: place_of(*key))]
    return [one for one in made if not one.empty]


def xs_of(curve: Curve) -> list[Array]:
    """The x of the median and of every run that is drawn by itself, where there is any."""
    return [x for x in (curve.x, *(rest.x for rest in curve.rests), *(tail.x for tail in curve.tails)) if len(x)]


def needs_log(curves: Sequence[Curve]) -> bool:
    """Whether some method takes so much longer than another that a linear axis would hide the faster one.

    Where a run failed says nothing of that: only methods that finished are compared.
    """
    ends = [max(float(x[-1]) for x in xs_of(one)) for one in curves if len(one.x)]
    return bool(ends) and min(ends) > 0 and max(ends) > SLOW * min(ends)


def log_range(curves: Sequence[Curve]) -> tuple[float, float]:
    """A logarithmic axis of times: from a fiftieth of the fastest method, or its first evaluation, to the last end."""
    finished = [one for one in curves if len(one.x)]
    ends = [float(x[-1]) for one in curves for x in xs_of(one)]
    starts = [float(one.x[one.x > 0][0]) for one in finished if (one.x > 0).any()]
    return max(min(starts), min(float(one.x[-1]) for one in finished) / 50), max(ends)


def ceiling(curves: Sequence[Curve]) -> float:
    """The value above which a run that went astray is cut off: ten times the largest at the start; +∞ where none is."""
    starts = [float(y[0]) for one in curves for y in (one.median, *(tail.y for tail in one.tails)) if len(y)]
    start = max((value for value in starts if math.isfinite(value)), default=0.0)
    highest = max((float(np.nanmax(y)) for one in curves for y in values_of(one) if np.isfinite(y).any()), default=0.0)
    return 10 * start if 0 < 10 * start < highest else math.inf


def values_of(curve: Curve) -> list[Array]:
    """Every y of a curve: median, ends of the band, and the runs that are drawn by themselves."""
    alone = [*(rest.y for rest in curve.rests), *(tail.y for tail in curve.tails)]
    return [curve.median, curve.low, curve.high, *alone]


def last(curve: Curve) -> tuple[float, float] | None:
    """Where the median ends, or, where there is none, a run that did not finish."""
    for x, y in ((curve.x, curve.median), *((tail.x, tail.y) for tail in curve.tails)):
        seen = np.flatnonzero(np.isfinite(y))
        if len(seen):
            return float(x[seen[-1]]), float(y[seen[-1]])
    return None


def curve(runs: list[RunRecord], across: str, metric: str) -> Curve:
    """One method: `across` is "passes", "seconds" or "ifo"."""
    drawn = [(run, path(run, across, metric)) for run in runs]
    whole = [points for run, points in drawn if run.status == "finished" and len(points[0])]
    tails = tuple(Tail(*points, run.status) for run, points in drawn if run.status != "finished" and len(points[0]))
    grid = common_grid([x for x, _ in whole])
    values = np.array([np.interp(grid, x, y) for x, y in whole]).reshape(len(whole), len(grid))
    config = runs[0].config
    return Curve(config.method, config.label, grid, *_spread(values), len(whole), tails, _rests(whole))


def _rests(whole: list[tuple[Array, Array]]) -> tuple[Rest, ...]:
    """The runs after the end of the first, from there to their own ends; what is too short to be seen is left out."""
    ends = [float(x[-1]) for x, _ in whole]
    if not ends or min(ends) <= 0:
        return ()
    first, found = min(ends), []
    for x, y in whole:
        if x[-1] - first > UNSEEN * max(ends):
            later = x > first
            start = np.interp(first, x, y)
            found.append(Rest(np.array([first, *x[later]]), np.array([start, *y[later]])))
    return tuple(found)


def path(run: RunRecord, across: str, metric: str) -> tuple[Array, Array]:
    """The evaluations of a run that have the metric; NaN where it was not finite."""
    rows = [row for row in run.evaluations if metric in row and row.get(across) is not None]
    y = [math.nan if row[metric] is None else SCALES.get(metric, 1.0) * row[metric] for row in rows]
    return np.array([row[across] for row in rows], dtype=float), np.array(y, dtype=float)


def common_grid(xs: list[Array]) -> Array:
    """Where some run was evaluated, between the last of their beginnings and the first of their ends."""
    if not xs:
        return np.array([])
    start, end = max(x[0] for x in xs), min(x[-1] for x in xs)
    every = np.unique(np.concatenate(xs))
    return thin(every[(every >= start) & (every <= end)])


def error_metric(runs: list[RunRecord], targets: Sequence[Target]) -> str:
    """The metric shown as test error: that of the first target where it is an error, else one that was measured."""
    known = {name for run in runs for row in run.evaluations for name in row}
    wanted = [target.metric for target in targets if target.metric in SCALES]
    order = (*wanted, "test_error", "test_error_top5", "grad_norm2", "test_loss")
    several = [name for name in order if name in known and (name != "grad_norm2" or has_path(runs, name))]
    return next(iter(several), "test_error")


def has_path(runs: list[RunRecord], metric: str) -> bool:
    """Whether the metric was measured on the way, and not at the end alone."""
    return any(sum(metric in row for row in run.evaluations) > 1 for run in runs)


def thin(values: Array, points: int = POINTS) -> Array:
    """At most `points` of the values, evenly chosen, with the first and the last."""
    if len(values) <= points:
        return values
    return np.asarray(values[np.linspace(0, len(values) - 1, points).round().astype(int)])


def _spread(values: Array) -> tuple[Array, Array, Array]:
    """Median, lowest and highest by column. A value that is not finite counts as +∞ in the median."""
    if not len(values):
        return (np.array([]),) * 3
    lost = np.isnan(values)
    median = np.median(np.where(lost, np.inf, values), axis=0)
    low, high = np.where(lost, np.inf, values).min(axis=0), np.where(lost, -np.inf, values).max(axis=0)
    return _finite(median), _finite(low), _finite(high)


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, np.nan)
