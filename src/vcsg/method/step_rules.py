"""Step rules: the P in x ← x − η·P(v).

P is the identity (`Plain`, whose η comes from the smoothness constant L), a division by the root of the second moment
(`Adaptive`, as in Adam), or the polar factor of every matrix (`Orthogonal`, as in Muon). The last two have a step size
of their own, `rate`, and need no L; after a divergence it is halved, as a plain step is. Rules are data;
`vcsg.run.preconditioning` applies them to tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vcsg.names import suggestion


def _check(rate: float, beta2: float, eps: float) -> None:
    for name, value in (("rate", rate), ("eps", eps)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} = {value!r}: give a finite number above 0")
    if not 0 <= beta2 < 1:
        raise ValueError(f"beta2 = {beta2!r}: give a number from 0 to below 1")


@dataclass(frozen=True)
class Plain:
    """P(v) = v; η = lr · (γ/L) · the factor of the schedule."""


@dataclass(frozen=True)
class Adaptive:
    """P(v) = v̂ / (√ŝ + eps), s ← β₂s + (1−β₂)u², hats for the correction of a start at 0 (Kingma and Ba 2015).

    u is the gradient that the step adds to what v remembers: with momentum that of the mini-batch, as in Adam; with
    MARS' weights its corrected gradient; v itself where nothing is remembered from step to step.
    """

    rate: float = 1e-3
    """The step size η where no lr is given."""
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _check(self.rate, self.beta2, self.eps)


@dataclass(frozen=True)
class Orthogonal:
    """P(V) = √max(1, rows/columns) · UWᵀ for a matrix V = UΣWᵀ; other parameters by `Adaptive` at a share of the rate.

    A convolution is the matrix of its output channels. UWᵀ comes from five Newton–Schulz iterations (Jordan et al.
    2024), so it is orthogonal up to singular values between about 0.7 and 1.2. A matrix that is far longer than wide
    (an embedding, the head of a large vocabulary) is not taken for one.
    """

    rate: float = 0.01
    """The step size η of matrices where no lr is given."""
    share: float = 1 / 30
    """The step size of all other parameters in units of that of matrices."""
    beta2: float = 0.999
    eps: float = 1e-8
    iterations: int = 5

    def __post_init__(self) -> None:
        _check(self.rate, self.beta2, self.eps)
        if not 0 < self.share < math.inf:
            raise ValueError(f"share = {self.share!r}: give a finite number above 0")
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise ValueError(f"iterations = {self.iterations!r}: give a whole number, at least 1")


StepRule = Plain | Adaptive | Orthogonal

STEP_RULES: Mapping[str, StepRule] = {"plain": Plain(), "adaptive": Adaptive(), "orthogonal": Orthogonal()}
"""The step rules by name, with their default options."""

LONGEST = 16
"""A matrix with more rows than this many times its columns is a table of vectors, and is stepped adaptively."""


def step_rule(given: str | StepRule) -> StepRule:
    """The step rule of that name, or the one that was given."""
    if isinstance(given, StepRule):
        return given
    if not isinstance(given, str) or given not in STEP_RULES:
        raise ValueError(f"step = {given!r}: {suggestion(str(given), STEP_RULES)}")
    return STEP_RULES[given]


def is_matrix(shape: tuple[int, ...]) -> bool:
    """Whether the orthogonal step takes a parameter of this shape for a matrix."""
    if len(shape) < 2 or 0 in shape:
        return False
    rows, columns = shape[0], math.prod(shape[1:])
    return min(rows, columns) > 1 and rows <= LONGEST * columns
