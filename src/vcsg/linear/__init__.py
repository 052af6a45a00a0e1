"""Linear models by compiled variance-reduced loops, as scikit-learn estimators.

model = vcsg.linear.LinearClassifier(alpha=1e-4).fit(X, y)

Needs numba, scipy and scikit-learn: pip install 'vcsg[linear]'.
"""

import vcsg.linear.kernels.compiled  # noqa: F401  (first: it says what to install where something is missing)
from vcsg.linear.classifier import LinearClassifier
from vcsg.linear.cross_validation import LinearClassifierCV, LinearRegressorCV
from vcsg.linear.kernels.losses import LOSSES
from vcsg.linear.path import LinearPath, linear_path
from vcsg.linear.precompile import precompile
from vcsg.linear.problem import Penalty, Problem
from vcsg.linear.regressor import LinearRegressor
from vcsg.linear.solution import HistoryEntry, Solution
from vcsg.linear.solvers.automatic import solve
from vcsg.linear.solvers.family import run

__all__ = [
    "LOSSES",
    "HistoryEntry",
    "LinearClassifier",
    "LinearClassifierCV",
    "LinearPath",
    "LinearRegressor",
    "LinearRegressorCV",
    "Penalty",
    "Problem",
    "Solution",
    "linear_path",
    "precompile",
    "run",
    "solve",
]
