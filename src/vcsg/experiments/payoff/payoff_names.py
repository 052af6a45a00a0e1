"""The estimators and the convex problem under names that a study can run: importing this module registers them."""

from __future__ import annotations

from vcsg.experiments.payoff import ridge_logistic
from vcsg.experiments.payoff.gradient_estimators import ESTIMATORS, RULES, SIZES, Estimator, name_of
from vcsg.method import Method
from vcsg.method.registry import register
from vcsg.workloads.problems import Family, register_problem


def _register(estimator: Estimator, rule: str, b: int) -> None:
    made = estimator.make(rule, b)  # once: a study asks for all methods by name again and again

    def build() -> Method:
        return made

    build.__name__ = name_of(estimator.key, rule, b)
    build.__doc__ = f"{estimator.label}, {rule} step, b = {b}."
    register(build)


for _estimator in ESTIMATORS.values():
    for _rule in RULES:
        for _b in SIZES:
            _register(_estimator, _rule, _b)
register_problem(
    ridge_logistic.NAME, Family(ridge_logistic.ridge_logistic_on, ridge_logistic.ridge_logistic, classify=True)
)
