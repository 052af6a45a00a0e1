"""The estimators that are compared: each gives a v, and all get the same steps and the same search.

They differ in what they are to differ in alone. Every one has γ = 1/3 and no factor of B in its step (α = 0), so that
factor 1 of a search is the same step for all of them at a step rule and a b, and the search tries the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from vcsg.method import Method, make
from vcsg.method.schedules import BatchSize, Facts, Given, PowerLaw
from vcsg.method.step_rules import STEP_RULES

FRESH = 16
"""The mini-batches of which an anchor that is renewed often has its samples."""
PREFIX = "payoff"
BASE = "sgd"
"""The estimator that the others are compared with: the gradient of a mini-batch."""
RULES = tuple(STEP_RULES)
SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""The mini-batch sizes that there are names for."""


@dataclass(frozen=True)
class AtMostAll:
    """Anchors of B samples, or of all n where that is fewer."""

    B: int

    def first(self, n: int) -> int:
        return min(self.B, n)

    def __call__(self, facts: Facts) -> tuple[int, int]:
        B = self.first(facts.n)
        return B, B


@dataclass(frozen=True)
class GrowingByBatches:
    """SCSG's growing anchors in whole mini-batches: B_j = b·⌈j^{3/2}⌉, at most n."""

    b: int

    def first(self, n: int) -> int:
        return min(self.b, n)

    def __call__(self, facts: Facts) -> tuple[int, int]:
        return self._at(facts.epoch, facts.n), self._at(facts.epoch + 1, facts.n)

    def _at(self, epoch: int, n: int) -> int:
        return min(self.b * math.ceil(math.pow(epoch, 1.5)), n)


@dataclass(frozen=True)
class Estimator:
    """One way to estimate the gradient from mini-batches."""

    key: str
    label: str
    method: str
    """The method of the catalogue that has its weights."""
    reduces: bool
    """Whether it corrects mini-batch gradients by those at another point."""
    anchor: Callable[[int], BatchSize] = lambda b: Given()
    """The sizes of its anchors, given b; where it draws none, the length of an epoch."""

    def make(self, rule: str, b: int) -> Method:
        """The method with a step rule and a mini-batch size."""
        found = make(self.method)
        schedule = PowerLaw(self.anchor(b), b, alpha=0)
        return replace(found, name=name_of(self.key, rule, b), schedule=schedule, gamma=1 / 3, step=STEP_RULES[rule])


_ALL = (
    Estimator("sgd", "mini-batch gradient", "sgd", False),
    Estimator("momentum", "momentum", "momentum", False),
    Estimator("svrg", "SVRG, anchors of all n", "svrg", True),
    Estimator("fresh-svrg", f"SVRG, an anchor of {FRESH}b every {FRESH} steps", "svrg", True,
              lambda b: AtMostAll(FRESH * b)),
    Estimator("scsg", "SCSG, growing anchors", "scsg", True, GrowingByBatches),
    Estimator("storm", "STORM", "storm", True),
    Estimator("mars", "MARS", "mars", True),
    Estimator("page", "PAGE", "page", True),
)  # fmt: skip
ESTIMATORS = {one.key: one for one in _ALL}
"""The estimators by name, the base first."""


def name_of(estimator: str, rule: str, b: int) -> str:
    """The name that a study knows an estimator by, with its step rule and mini-batch size."""
    return f"{PREFIX}-{estimator}-{rule}-{b}"


def parts_of(name: str) -> tuple[str, str, int]:
    """The estimator, the step rule and the mini-batch size of such a name."""
    estimator, rule, b = name.removeprefix(f"{PREFIX}-").rsplit("-", 2)
    return estimator, rule, int(b)
