"""Methods as data: weights, schedules and the catalogue, and the registry that knows them by name.

Nothing here has state or touches the tensors of a run: what a method does is decided by `vcsg.run.course` and done by
the executors.
"""

from vcsg.method import catalogue as catalogue
from vcsg.method.definition import Length, Method
from vcsg.method.registry import build, factory, make, methods, register
from vcsg.method.schedules import (
    Bounded,
    Facts,
    Given,
    Growing,
    GrowingAnchor,
    NestedLoops,
    PaperBaseline,
    Plan,
    PowerLaw,
    Schedule,
    VarianceControlled,
)
from vcsg.method.step_rules import Adaptive, Orthogonal, Plain, StepRule
from vcsg.method.weights import Constant, Fading, Rule, Tested, Weights, biased, weighted

__all__ = [
    "Adaptive",
    "Bounded",
    "Constant",
    "Facts",
    "Fading",
    "Given",
    "Growing",
    "GrowingAnchor",
    "Length",
    "Method",
    "NestedLoops",
    "Orthogonal",
    "PaperBaseline",
    "Plain",
    "Plan",
    "PowerLaw",
    "Rule",
    "Schedule",
    "StepRule",
    "Tested",
    "VarianceControlled",
    "Weights",
    "biased",
    "build",
    "factory",
    "make",
    "methods",
    "register",
    "weighted",
]
