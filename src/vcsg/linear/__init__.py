"""Linear models by compiled variance-reduced loops, as scikit-learn estimators.

model = vcsg.linear.LinearClassifier(alpha=1e-4).fit(X, y)

Needs numba, scipy and scikit-learn: pip install 'vcsg[linear]'.
"""

import vcsg.linear.compiled  # noqa: F401  (first: it says what to install where something is missing)
from vcsg.linear.engine import run
from vcsg.linear.estimators import LinearClassifier, LinearRegressor
from vcsg.linear.growing import solve
from vcsg.linear.losses import LOSSES
from vcsg.linear.precompile import precompile
from vcsg.linear.problem import Penalty, Problem
from vcsg.linear.solution import Epoch, Solution

__all__ = [
    "LOSSES",
    "Epoch",
    "LinearClassifier",
    "LinearRegressor",
    "Penalty",
    "Problem",
    "Solution",
    "precompile",
    "run",
    "solve",
]
