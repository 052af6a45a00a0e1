"""IFO calls to ε-accuracy on the analytic problems: what the complexity scripts count, and how.

The vcsg optimizers run as a user runs them, in float64, with L given. Their closure sets `p.grad` by the closed-form
gradient and returns 0 for the loss, which serves the watch for divergence alone (runs with the true loss were seen to
give the same counts). ‖∇f‖² is checked at epoch ends, over all n samples; the checks are not counted.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import NamedTuple, TypeVar

import torch

from vcsg import FiniteSumOptimizer, Method, make
from vcsg.method.schedules import Given, PowerLaw
from vcsg.method.weights import Constant, Weights
from vcsg.workloads import AnalyticProblem, least_squares, nonconvex_logistic

PROBLEMS: dict[str, Callable[[int, int, int], AnalyticProblem]] = {
    "least squares": least_squares,
    "logistic": nonconvex_logistic,
}
DIMENSION = 50


class Cell(NamedTuple):
    """One run: a method on a problem, from one seed."""

    problem: str
    n: int
    problem_seed: int
    method: Method
    seed: int


class EpochEnd(NamedTuple):
    passes: float
    """IFO calls so far, over n."""
    gradient_norm2: float
    """The true ‖∇f‖²."""


def svrg(scale: float) -> Method:
    """SVRG with b = 1, B = n, geometric N and η = 1/(3L√n), its v scaled: ½ is the paper's baseline, 1 is SVRG."""
    weights = Constant(Weights(scale, -scale, scale))
    return Method(f"svrg × {scale:g}", {"": weights}, PowerLaw(Given(), b=1, alpha=0.5), "geometric")


def scsg(eps: float) -> Method:
    """SCSG with B = min(12S*/ε, n), b = 1, geometric N and η = B^{−2/3}/(3L)."""
    return make("scsg", eps=eps, K=12.0, b=1)


def vcsg(eps: float, K: float = 12.0, comparison: str = "norm") -> Method:
    """VCSG by Alg 4 alone, without the first epoch of the paper's experiments; σ = 1, ρ = 0.9, B_min = 2."""
    options = {"paper": True, "sigma": 1.0, "rho": 0.9, "B_min": 2, "first_epoch": False}
    return make("vcsg", eps=eps, K=K, comparison=comparison, **options)


def epoch_ends(cell: Cell, passes: float) -> Iterator[EpochEnd]:
    """The end of every epoch of a run of this many passes over the data."""
    problem = PROBLEMS[cell.problem](cell.n, DIMENSION, cell.problem_seed)
    x = torch.nn.Parameter(problem.start.clone())
    optimizer = FiniteSumOptimizer([x], problem.n, cell.method, L=problem.L, seed=cell.seed)
    epoch = optimizer.epoch
    for rows, targets in optimizer.batches((problem.rows, problem.targets), passes=passes):

        def closure(rows=rows, targets=targets):
            x.grad = problem.loss_gradient(x.detach(), rows, targets)
            return 0.0

        optimizer.step(closure)
        if optimizer.epoch != epoch:
            epoch = optimizer.epoch
            yield EpochEnd(optimizer.passes, problem.gradient_norm2(x.detach()))


def passes_to(eps: float, cell: Cell, limit: float) -> float:
    """IFO/n at the first epoch end with ‖∇f‖² ≤ ε; inf if there is none within `limit` passes."""
    return next((end.passes for end in epoch_ends(cell, limit) if end.gradient_norm2 <= eps), math.inf)


Task = TypeVar("Task")
Result = TypeVar("Result")


def in_parallel(work: Callable[[Task], Result], tasks: Sequence[Task], processes: int) -> list[Result]:
    """work(task) for every task, in that order, by processes of one thread each; progress goes to stderr."""
    began = time.monotonic()
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        futures = [pool.submit(work, task) for task in tasks]
        for done, _ in enumerate(as_completed(futures), 1):
            clock = f"{time.monotonic() - began:.0f} s"
            print(f"\r{done} of {len(tasks)} runs, {clock} ", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return [future.result() for future in futures]


def table(rows: Sequence[Sequence[str]]) -> str:
    """The rows as a Markdown table, the first of them its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"| {' | '.join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))} |" for row in rows]
    rule = f"|{'|'.join('-' * (w + 2) for w in widths)}|"
    return "\n".join([lines[0], rule, *lines[1:]])
