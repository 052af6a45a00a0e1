"""The exponents p and q in calls ∝ n^p·ε^(−q), fitted with censored runs and with bootstrap intervals.

log calls = a_family + p·log n + q·log(1/ε) + noise. A run that was given up at its cap of calls is a censored
observation: all that is known is that it would have taken more. The fit is the maximum likelihood for normal noise
(Tobin 1958), by the EM algorithm; without censored runs that is least squares. Left out, such runs would make every
slow method look as if its calls stopped growing.

An interval comes from resampling the draws of every (family, n), all ε of a draw together, for they come from the same
problem and often from the same run. Of D draws D − 1 are taken, with replacement, so that the variance is that of D and
not of fewer (Rao and Wu 1988). Few draws do not tell their own variance well, so the interval is widened as that of a
t-test is, with the degrees of freedom of Satterthwaite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri, stdtrit

from vcsg.experiments.complexity.claimed_powers import ClaimedPowers
from vcsg.experiments.complexity.observations import Observation

Array = npt.NDArray[np.float64]
REPLICATES = 400
CONFIDENCE = 0.95
LEAST_REACHED = 0.5
"""The share of runs that have to get there for an exponent to be given: with fewer, the noise model decides it."""


class Interval(NamedTuple):
    """An estimate and the ends of its interval; the ends are NaN where there is one draw only."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Exponents:
    """The fitted exponents of one method, None where the runs do not tell."""

    n: Interval | None
    eps: Interval | None
    reached: int
    runs: int


def exponents(observations: Sequence[Observation], seed: int = 0, replicates: int = REPLICATES) -> Exponents:
    """Fit the exponents of one method with one kind of step."""
    reached = [one for one in observations if not one.censored]
    enough = len(reached) >= LEAST_REACHED * max(1, len(observations))
    in_n, in_eps = (enough and len({key(one) for one in reached}) > 1 for key in (_size, _target))
    if not in_n and not in_eps:
        return Exponents(None, None, len(reached), len(observations))
    X, y, censored = _design(observations, in_n, in_eps)
    units = [(one.family, one.n, one.draw) for one in observations]
    weights = np.concatenate([np.ones((1, len(y))), resampled(units, replicates, np.random.default_rng(seed))])
    found = censored_fit(X, y, censored, weights[_determined(X, weights)])
    wider = widening(X, units)
    slopes = [_interval(found[:, -k], wider[-k]) for k in range(int(in_n) + int(in_eps), 0, -1)]
    return Exponents(
        slopes.pop(0) if in_n else None, slopes.pop(0) if in_eps else None, len(reached), len(observations)
    )


def _size(one: Observation) -> float:
    return one.n


def _target(one: Observation) -> float:
    return one.eps


def _design(
    observations: Sequence[Observation], in_n: bool, in_eps: bool
) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """A column for every family, then log n and log(1/ε) where they are fitted; log calls; what is censored."""
    families = list(dict.fromkeys(one.family for one in observations))
    columns = [[float(one.family == name) for one in observations] for name in families]
    columns += [[np.log(one.n) for one in observations]] if in_n else []
    columns += [[-np.log(one.eps) for one in observations]] if in_eps else []
    y = np.log([one.calls for one in observations])
    return np.array(columns).T, y, np.array([one.censored for one in observations])


def _determined(X: Array, weights: Array) -> npt.NDArray[np.bool_]:
    """Which lines of weights leave enough observations to tell the coefficients."""
    scaled = X / np.abs(X).max(0)
    gram = np.einsum("rm,mi,mj->rij", weights, scaled, scaled) / len(X)
    return np.asarray(np.linalg.eigvalsh(gram)[:, 0] > 1e-9)


def resampled(units: Sequence[tuple[str, int, int]], replicates: int, rng: np.random.Generator) -> Array:
    """The weight of every observation in every replicate: how often its draw was taken, scaled to the number of draws.

    `units` has (family, n, draw) of every observation; draws are taken within each (family, n).
    """
    weights = np.zeros((replicates, len(units)))
    strata: dict[tuple[str, int], dict[int, list[int]]] = {}
    for place, (family, n, draw) in enumerate(units):
        strata.setdefault((family, n), {}).setdefault(draw, []).append(place)
    for draws in strata.values():
        count = len(draws)
        taken = max(1, count - 1)
        times = rng.multinomial(taken, np.full(count, 1 / count), size=replicates) * count / taken
        for column, places in enumerate(draws.values()):
            weights[:, places] = times[:, column : column + 1]
    return weights


def censored_fit(
    X: Array, y: Array, censored: npt.NDArray[np.bool_], weights: Array, tolerance: float = 1e-7, most: int = 2000
) -> Array:
    """The coefficients for every line of weights, by maximum likelihood for normal noise with censored observations.

    Args:
        X: a line for every observation.
        y: what was observed, or the value above which it lies.
        censored: where it lies above.
        weights: a line of weights of the observations for every fit.
        tolerance: the change of a coefficient at which the EM algorithm ends.
        most: its most iterations.
    """
    gram = np.linalg.inv(np.einsum("rm,mi,mj->rij", weights, X, X))

    def solve(values: Array) -> Array:
        return np.asarray(np.einsum("rij,rm,mj->ri", gram, weights * values, X))

    total = weights.sum(1)
    expected = np.broadcast_to(y, weights.shape).copy()
    found = solve(expected)
    if not censored.any():
        return found
    variance = (weights * (expected - found @ X.T) ** 2).sum(1) / total + 1e-6
    for _ in range(most):
        mean, sigma = found @ X.T[:, censored], np.sqrt(variance)[:, None]
        z = (y[censored] - mean) / sigma
        hazard = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(-z))
        expected[:, censored] = mean + sigma * hazard
        before, found = found, solve(expected)
        spread = (weights * (expected - found @ X.T) ** 2).sum(1)
        unknown = (weights[:, censored] * variance[:, None] * np.maximum(0.0, 1 + z * hazard - hazard**2)).sum(1)
        variance = (spread + unknown) / total + 1e-12
        if np.abs(found - before).max() < tolerance:
            break
    return found


def widening(X: Array, units: Sequence[tuple[str, int, int]]) -> Array:
    """For every coefficient, how much wider an interval of Student's t is than one of the normal; NaN for one draw.

    The degrees of freedom are (Σv)²/Σ(v²/(D − 1)) over the (family, n), v their share in the variance of the
    coefficient where a draw and a run have noise of the same size, D their draws.
    """
    influence = np.linalg.pinv(X)
    strata: dict[tuple[str, int], dict[int, Array]] = {}
    for place, (family, n, draw) in enumerate(units):
        own = strata.setdefault((family, n), {}).setdefault(draw, np.zeros((2, len(influence))))
        own += [influence[:, place], influence[:, place] ** 2]
    shares = np.array([sum(own[0] ** 2 + own[1] for own in draws.values()) for draws in strata.values()])
    freedom = np.array([[len(draws) - 1.0] for draws in strata.values()])
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = shares.sum(0) ** 2 / (shares**2 / freedom).sum(0)
    tail = (1 + CONFIDENCE) / 2
    return np.where(degrees > 0, stdtrit(np.maximum(degrees, 1.0), tail) / ndtri(tail), np.nan)


def _interval(values: Array, wider: float) -> Interval:
    """The first value is the estimate, the others are replicates."""
    tail = (1 - CONFIDENCE) / 2
    low, high = values[0] + wider * (np.quantile(values[1:], [tail, 1 - tail]) - values[0])
    return Interval(float(values[0]), float(low), float(high))


def claimed(rate: ClaimedPowers, sizes: Sequence[int], targets: Sequence[float]) -> tuple[float, float]:
    """The exponents of a claim, fitted like those that are measured to its calls at the same n and ε."""
    cells = [(n, eps) for n in sizes for eps in targets]
    X = np.array([[1.0, np.log(n), -np.log(eps)] for n, eps in cells])
    y = np.log([rate.calls(n, eps) for n, eps in cells])
    _, p, q = np.linalg.lstsq(X, y, rcond=None)[0]
    return float(p), float(q)
