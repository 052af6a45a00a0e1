"""The methods that are measured, with the step of their theory or with a constant one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from vcsg.method import Method, make
from vcsg.method.schedules import Facts, Plan, Schedule

GRID = (1.0, 4.0, 1 / 4, 16.0, 1 / 16, 1 / 64, 1 / 256)
"""The constants c of the steps η = c/L that are tried, in this order."""
GRID_TEXT = "1/256, 1/64, 1/16, 1/4, 1, 4, 16"
SGD_BATCH = 64


@dataclass(frozen=True)
class Contender:
    """A method of the comparison, for a target ε on a problem of given variance S*."""

    name: str
    """Its name in records."""
    label: str
    method: str
    """Its name in the catalogue, which has its look and its claim."""
    make: Callable[[float, float], Method]
    """(ε, S* at the start) → the method with the step of its theory."""
    theory: str
    """The step of its theory, in words."""
    aims: bool = False
    """Whether the method with the step of its theory depends on ε: then every ε has a run of its own."""
    sizes_aim: bool = False
    """Whether its batch sizes depend on ε, so that this holds for a constant step too."""

    def with_constant(self, eps: float, variance: float, c: float) -> Method:
        """The method with the step c/L throughout."""
        return constant_step(self.make(eps, variance), c)


@dataclass(frozen=True)
class SteadyFactor:
    """A schedule whose step does not change with the batch sizes: everything as `schedule` has it, the factor 1."""

    schedule: Schedule

    @property
    def regimes(self) -> tuple[str, ...]:
        return tuple(getattr(self.schedule, "regimes", ("",)))

    def first(self, n: int) -> int:
        return self.schedule.first(n)

    def __call__(self, facts: Facts) -> Plan:
        return replace(self.schedule(facts), factor=1.0)


def constant_step(method: Method, c: float) -> Method:
    """The method with η = c/L in every step."""
    return replace(method, schedule=SteadyFactor(method.schedule), gamma=c)


def _plain(name: str) -> Callable[[float, float], Method]:
    return lambda eps, variance: make(name)


def _sgd(eps: float, variance: float) -> Method:
    """η = min(1/L, εb/(2LS*)) (Ghadimi and Lan 2013): half of ε is left to the noise."""
    return replace(make("sgd", b=SGD_BATCH), gamma=min(1.0, eps * SGD_BATCH / (2 * variance)))


def _scsg(eps: float, variance: float) -> Method:
    return make("scsg", eps=eps)


def _vcsg(comparison: str) -> Callable[[float, float], Method]:
    """Alg 4 as printed, without a floor of B and without the first epoch of the paper's experiments; σ = 1."""
    options = {"paper": True, "sigma": 1.0, "B_min": 2, "first_epoch": False, "comparison": comparison}
    return lambda eps, variance: make("vcsg", eps=eps, **options)


CONTENDERS = {
    one.name: one
    for one in (
        Contender("gd", "GD", "gd", _plain("gd"), "1/L"),
        Contender("sgd", "SGD", "sgd", _sgd, "min(1, εb/(2S*))/L, b = 64", aims=True),
        Contender("svrg", "SVRG", "svrg", _plain("svrg"), "n^−⅔/(3L)"),
        Contender("scsg", "SCSG", "scsg", _scsg, "B^−⅔/(3L)", aims=True, sizes_aim=True),
        Contender("vcsg", "VCSG (norm)", "vcsg", _vcsg("norm"), "1/(3L), or B^−½/(3L)", True, True),
        Contender("vcsg-lemma", "VCSG (lemma)", "vcsg", _vcsg("lemma"), "1/(3L), or B^−½/(3L)", True, True),
        Contender("growing-svrg", "Growing SVRG", "growing-svrg", _plain("growing-svrg"), "1/L"),
        Contender("spider", "SPIDER", "spider", _plain("spider"), "1/(2L)"),
        Contender("page", "PAGE", "page", _plain("page"), "1/(2L)"),
    )
}
