"""A solver for benchopt's benchmark of L2-regularised logistic regression, by `vcsg.linear.LinearClassifier`.

Copy it into a clone of https://github.com/benchopt/benchmark_logreg_l2 and run it beside the others:

    cp solver.py benchmark_logreg_l2/solvers/vcsg.py
    benchopt run benchmark_logreg_l2 -s vcsg -s sklearn -d Simulated
"""

import warnings

import numpy as np
from benchopt import BaseSolver
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from vcsg.linear import LinearClassifier


class Solver(BaseSolver):
    """Minimises Σ log(1 + exp(−y_i·x_iᵀβ)) + lmbd/2·‖β‖²: n times the mean that the classifier minimises."""

    name = "vcsg"
    requirements = ("pip::vcsg[linear]",)
    sampling_strategy = "tolerance"

    def set_objective(self, X, y, lmbd, fit_intercept=False):
        self.X = sparse.csr_matrix(X) if sparse.issparse(X) else np.ascontiguousarray(X)
        self.y = y
        self.model = LinearClassifier(alpha=lmbd / len(y), fit_intercept=fit_intercept, max_iter=10_000, random_state=0)

    def warm_up(self):
        self.run_once()  # numba compiles here, outside the time that is measured

    def run(self, tolerance):
        """The gradient's norm is that of the sum, so the classifier's mean gets the n-th part."""
        self.model.tol = tolerance / len(self.y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # at the last tolerances rounding is larger
            self.model.fit(self.X, self.y)

    def get_result(self):
        intercept = self.model.intercept_ if self.model.fit_intercept else []
        return {"beta": np.r_[self.model.coef_.ravel(), intercept]}
