"""The variants: VCSG with one part changed, and the chain of methods that leads from SVRG to it.

The chain changes one thing at a time: SVRG at the step of its theory, SVRG at VCSG's step, then with VCSG's batch
sizes too (the control: same η, SVRG's weights), and VCSG, which has its own weights besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from vcsg.method import Method, make
from vcsg.method.catalogue import ALG_4_K, HALF, SVRG_WEIGHTS
from vcsg.method.schedules import Facts, Plan, VarianceControlled
from vcsg.method.weights import Constant, Rule, Tested, Weights, biased, weighted

BATCH = 16
"""The mini-batch of SVRG in the chain: the least that VCSG has."""


@dataclass(frozen=True)
class Changed:
    """VCSG's schedule with factors in its formulas, which as they stand leave it as it is."""

    schedule: VarianceControlled
    K: float = 1.0
    """A factor of K, ε staying as it is."""
    sigma: float = 1.0
    """A factor of σ."""
    alpha: float = 0.5
    """η = (γ/L)(b/B)^α in the second regime."""
    full: bool = False
    """Whether anchors take all n samples and an epoch has ⌈n/b⌉ steps, as SVRG's: the step stays."""

    @property
    def regimes(self) -> tuple[str, ...]:
        return self.schedule.regimes

    def first(self, n: int) -> int:
        return self.schedule.first(n)

    def __call__(self, facts: Facts) -> Plan:
        own = self.schedule
        sigma = self.sigma * (own.reference(facts) if own.sigma is None else own.sigma)
        eps = own.target(facts)
        # With a positive ε of its own, K is free to change.
        plan = replace(own, K=self.K * own.K, eps=eps if eps > 0 else None, sigma=sigma)(facts)
        if plan.regime == "second" and self.alpha != 0.5:
            plan = replace(plan, factor=math.pow(plan.b / plan.B, self.alpha))
        if self.full:
            plan = replace(plan, B=facts.n, next_B=facts.n, loop_B=facts.n)
        return plan


@dataclass(frozen=True)
class Variant:
    """VCSG with one part changed, or a method of the chain."""

    key: str
    """Its name in records and in the registry of methods."""
    part: str
    """The part that is changed, with the value that VCSG has; "" for VCSG itself."""
    label: str
    options: dict[str, Any] = field(default_factory=dict)
    """Options of VCSG."""
    change: Callable[[Method], Method] = lambda method: method
    """What else is changed."""

    def make(self, eps: float | None) -> Method:
        """The method for a target ε; None derives it from the variance, as VCSG does by default."""
        aimed = {} if eps is None else {"eps": eps}
        return replace(self.change(make("vcsg", **aimed, **self.options)), name=self.key)


def _scheduled(**changes: Any) -> Callable[[Method], Method]:
    def change(method: Method) -> Method:
        assert isinstance(method.schedule, VarianceControlled)
        return replace(method, schedule=Changed(method.schedule, **changes))

    return change


def _weighing(first: Rule | None = None, second: Rule | None = None) -> Callable[[Method], Method]:
    """Other weights in the first regime, in the second or in both; the "start" has those of the second."""
    given = {"first": first, "second": second, "start": second}
    return lambda method: replace(
        method, weights={regime: given[regime] or rule for regime, rule in method.weights.items()}
    )


def _stepping(factor: float) -> Callable[[Method], Method]:
    return lambda method: replace(method, gamma=factor * method.gamma)


def _lambda_first(lam: float) -> Callable[[Method], Method]:
    return _weighing(first=Tested("norm", weighted(lam), HALF))


def _lambda_second(lam: float) -> Callable[[Method], Method]:
    return _weighing(second=Constant(biased(lam)))


def _same(weights: Weights) -> Callable[[Method], Method]:
    return _weighing(Constant(weights), Constant(weights))


def _svrg_at_its_step(method: Method) -> Method:
    """SVRG with VCSG's η: full anchors, ⌈n/b⌉ steps."""
    made = _scheduled(full=True)(_same(SVRG_WEIGHTS)(method))
    return replace(made, length="fixed")


def _svrg(method: Method) -> Method:
    return make("svrg", b=BATCH)


BASE = Variant("ablate-vcsg", "", "VCSG")
SVRG = Variant("ablate-svrg", "from SVRG to VCSG", "SVRG, the step of its theory", change=_svrg)
STEP = Variant("ablate-svrg-step", "from SVRG to VCSG", "SVRG, VCSG's step", change=_svrg_at_its_step)
CONTROL = Variant(
    "ablate-control", "from SVRG to VCSG", "same η and batches, SVRG's weights", change=_same(SVRG_WEIGHTS)
)
CHAIN = (SVRG, STEP, CONTROL, BASE)
"""From SVRG to VCSG, one thing at a time."""


def _options(part: str, name: str, **values: Any) -> list[Variant]:
    return [Variant(_key(name, key), part, label, given) for key, (label, given) in values.items()]


def _changes(part: str, name: str, **values: tuple[str, Callable[[Method], Method]]) -> list[Variant]:
    return [Variant(_key(name, key), part, label, change=change) for key, (label, change) in values.items()]


def _key(name: str, key: str) -> str:
    return f"ablate-{name}-{key}".replace("_", "-")


VARIANTS: tuple[Variant, ...] = (
    *CHAIN[:-1],
    Variant("ablate-half", "from SVRG to VCSG", "same η and batches, (½, −½, ½)", change=_same(HALF)),
    *_options(
        "comparison rule (norm)", "comparison",
        lemma=("lemma test", {"comparison": "lemma"}),
        elementwise=("elementwise test", {"comparison": "elementwise"}),
        never=("never: (½, −½, ½)", {"comparison": "never"}),
    ),
    *_changes(
        "λ (0.322 and 5/8)", "lambda",
        first_low=("first regime 0.1", _lambda_first(0.1)),
        first_high=("first regime 0.45", _lambda_first(0.45)),
        second_low=("second regime 3/8", _lambda_second(3 / 8)),
        second_half=("second regime 1/2", _lambda_second(1 / 2)),
        second_high=("second regime 3/4", _lambda_second(3 / 4)),
    ),
    *_changes("K (12)", "k", one=("1", _scheduled(K=1 / ALG_4_K)), large=("480", _scheduled(K=480 / ALG_4_K))),
    *_changes("σ (S*)", "sigma", low=("S*/10", _scheduled(sigma=0.1)), high=("10·S*", _scheduled(sigma=10.0))),
    *_options("ρ (0.9)", "rho", low=("0.5", {"rho": 0.5}), high=("0.99", {"rho": 0.99})),
    *_options("B_min (n/10)", "floor", low=("32", {"B_min": 32}), high=("4000", {"B_min": 4000})),
    *_options("first epoch (none)", "start", printed=("as in the paper's experiments", {"first_epoch": True})),
    *_changes(
        "scaling of the step (α = ½)", "step",
        none=("α = 0, no B in it", _scheduled(alpha=0.0)),
        more=("α = 2/3", _scheduled(alpha=2 / 3)),
        half=("half the step", _stepping(0.5)),
        double=("twice the step", _stepping(2.0)),
    ),
    BASE,
)  # fmt: skip
"""All variants in the order of the table, VCSG itself last."""
BY_KEY = {variant.key: variant for variant in VARIANTS}
