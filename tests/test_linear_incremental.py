"""Newton steps block by block: the formula, its rate, where the point rests, and what ends the search."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from linear_data import autograd, make_problem
from scipy.optimize import brentq

from vcsg.linear import LinearClassifier, Penalty, Problem
from vcsg.linear.problem import Array
from vcsg.linear.solution import Journal
from vcsg.linear.solvers import incremental
from vcsg.linear.solvers.automatic import solve
from vcsg.linear.solvers.incremental import BLOCKS, FIRST, PARTS, BlockwiseSearch


class Watched(BlockwiseSearch):
    """A search that remembers where its turns were."""

    def turn(self) -> bool:
        self.__dict__.setdefault("way", []).append(self.x.copy())
        return super().turn()


def rows_of_block(problem: Problem, k: int) -> list[int]:
    """The rows of a block, from its definition: a piece of each quarter of all rows; the last piece has the rest."""
    length = problem.n // PARTS
    pieces = [range(q * length + length * k // BLOCKS, q * length + length * (k + 1) // BLOCKS) for q in range(PARTS)]
    rest = range(PARTS * length, problem.n) if k == BLOCKS - 1 else range(0)
    return [row for piece in (*pieces, rest) for row in piece]


def restricted(problem: Problem, rows: list[int]) -> Problem:
    return replace(problem, rows=problem.rows[rows], y=problem.y[rows], weight=problem.weight[rows])


def hessian(problem: Problem, name: str, x: Array) -> Array:
    """∇²f by central differences of autograd's gradient."""
    unit, columns = 1e-5, []
    for j in range(x.size):
        step = np.zeros(x.shape)
        step[0, j] = unit
        columns.append((autograd(problem, name, x + step)[1] - autograd(problem, name, x - step)[1]).ravel() / 2 / unit)
    return np.array(columns)


@pytest.mark.parametrize("name", ["logistic", "squared", "huber", "squared-hinge"])
@pytest.mark.parametrize("form", ["dense", "sparse", "float32"])
def test_turns_are_those_of_the_formula(name: str, form: str) -> None:
    """Each at Σ w_k z_k − H⁻¹ Σ w_k g_k over the blocks that have been evaluated; the first ones at the start."""
    problem = make_problem(name, 1003, 6, 1.0, Penalty(l2=0.1), form, weighted=True)
    start = np.full(problem.shape, 0.1)
    search = Watched(problem, start, problem, 0.0, Journal(2.9))
    search.slow = lambda: False  # type: ignore[method-assign]
    search.run()
    H, x, known = hessian(problem, name, start), start, {}
    for turn, seen in enumerate(search.way):  # type: ignore[attr-defined]
        if turn >= len(search.way) - BLOCKS + 1:  # type: ignore[attr-defined]
            break  # there the passes run out, and it rests
        assert seen == pytest.approx(x, abs=2e-5 * float(np.abs(x).max()))
        rows = rows_of_block(problem, turn % BLOCKS)
        known[turn % BLOCKS] = len(rows), seen, autograd(restricted(problem, rows), name, seen)[1]
        sizes = np.array([size for size, _, _ in known.values()], float)
        if sizes.sum() >= FIRST * problem.n:
            points, slopes = (np.stack([entry[i] for entry in known.values()]) for i in (1, 2))
            mean = np.tensordot(sizes / sizes.sum(), slopes, 1)
            x = np.tensordot(sizes / sizes.sum(), points, 1) - np.linalg.solve(H, mean.ravel())[None]
    assert turn >= BLOCKS


@pytest.mark.parametrize("error", [0.05, 0.2, 0.5])
def test_the_rate_is_that_of_the_recursion(error: float) -> None:
    """Blocks that are alike, and H = ∇²f/(1 − δ): then x_t − x* = (δ/K)·Σ of the last K distances, exactly.

    So a pass leaves r^K, with r the largest root of r^K = (δ/K)(1 + … + r^{K−1}), and many blocks the limit e^−λ.
    """
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(40, 5)), rng.normal(size=40)
    copies = PARTS * BLOCKS
    template = make_problem("squared", 4, 5, 0.0)
    problem = replace(template, rows=np.tile(rows, (copies, 1)), y=np.tile(y, copies), weight=np.ones(40 * copies))
    wrong = replace(problem, rows=problem.rows / math.sqrt(1 - error))
    search = Watched(problem, np.zeros(problem.shape), wrong, 0.0, Journal(3))
    search.slow = lambda: False  # type: ignore[method-assign]
    search.run()
    solution = np.linalg.lstsq(rows, y, rcond=None)[0]
    away = [float(np.linalg.norm(x[0, :-1] - solution)) for x in search.way]  # type: ignore[attr-defined]
    first = next(t for t, x in enumerate(search.way) if x.any())  # type: ignore[attr-defined]
    for t in range(BLOCKS + first, 2 * BLOCKS):
        assert away[t] == pytest.approx(error * np.mean(away[t - BLOCKS : t]), rel=1e-3)
    many = 2000
    root = brentq(lambda r: r**many - error / many * sum(r**j for j in range(many)), 0.9, 1.0)
    limit = brentq(lambda rate: math.expm1(rate) / rate - 1 / error, 1e-3, 30.0)
    assert root**many == pytest.approx(math.exp(-limit), rel=3 * limit**2 / many)


def large(n: int = 6007, d: int = 12, seed: int = 0, weighted: bool = True) -> Problem:
    rng = np.random.default_rng(seed)
    problem = make_problem("logistic", n, d, 1.0, Penalty(l2=1e-3), weighted=weighted)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-problem.rows @ rng.normal(size=d))), 1.0, -1.0)
    return replace(problem, y=y)


def rough(problem: Problem) -> Array:
    """A point from which Newton's steps are good ones, as growing SVRG leaves it."""
    return solve(problem, np.zeros(problem.shape), 1e-2).x + 0.02


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-7, 1e-10])
def test_it_ends_where_the_gradient_of_all_rows_is_known(tol: float) -> None:
    problem = large()
    journal = Journal(100)
    search = BlockwiseSearch(problem, rough(problem), problem.first_rows(2000), tol, journal)
    x, here, message = search.run()
    value, gradient = autograd(problem, "logistic", x)
    assert here is not None
    assert message == "‖∇f‖ ≤ tol"
    assert here.value == pytest.approx(value, rel=1e-12)
    assert here.norm == pytest.approx(float(np.linalg.norm(gradient)), rel=1e-3, abs=1e-14)
    assert np.linalg.norm(gradient) <= 1.01 * tol
    assert here.smooth == pytest.approx(gradient, rel=1e-4, abs=1e-14)
    assert journal.history[-1].gradient_norm == here.norm
    assert journal.passes == pytest.approx(search.turns / BLOCKS, rel=1e-2), "blocks differ by some rows"


def test_a_start_that_is_good_enough_takes_one_pass() -> None:
    problem = large()
    x = solve(problem, np.zeros(problem.shape), 1e-9).x
    journal = Journal(100)
    ending = BlockwiseSearch(problem, x, problem, 0.05, journal).run()
    assert ending.x is x
    assert journal.passes == pytest.approx(1)


@pytest.mark.parametrize("budget", [1.0, 1.7, 2.0, 3.4])
def test_the_last_pass_is_kept_for_the_point_that_is_returned(budget: float) -> None:
    problem = large()
    journal = Journal(budget)
    x, here, message = BlockwiseSearch(problem, np.ones(problem.shape), problem, 1e-14, journal).run()
    assert here is not None
    assert here.norm == pytest.approx(problem.anchor(x).norm, rel=1e-6)
    assert journal.passes <= budget + 1e-9
    assert message == "passes are used up"


@pytest.mark.parametrize("by", ["labels", "a feature", "nothing"])
def test_rows_may_be_sorted(by: str) -> None:
    problem = large()
    order = {"labels": problem.y, "a feature": problem.rows[:, 0], "nothing": np.zeros(problem.n)}[by]
    ordered = restricted(problem, list(np.argsort(order, kind="stable")))
    journal = Journal(100)
    x, here, _ = BlockwiseSearch(ordered, rough(problem), problem.first_rows(2000), 1e-7, journal).run()
    assert here is not None
    assert np.linalg.norm(autograd(problem, "logistic", x)[1]) <= 1.01e-7
    assert journal.passes <= 6


def test_a_hessian_that_is_too_small_sends_the_search_back() -> None:
    """Steps that are a hundred times too long lead up: L-BFGS goes on from the start."""
    problem = large()
    start, flat = rough(problem), replace(problem, rows=problem.rows / 10, bias=0.1)
    x, here, message = BlockwiseSearch(problem, start, flat, 1e-8, Journal(100)).run()
    assert (here, message) == (None, "f rises")
    assert x is start


def test_slow_steps_are_given_up() -> None:
    """With H = 2·∇²f a pass leaves 0.35 of the distance."""
    problem = large(weighted=False)
    steep = replace(problem, rows=problem.rows * 2, bias=2.0, penalty=Penalty(l2=4e-3))
    start = rough(problem)
    x, here, message = BlockwiseSearch(problem, start, steep, 1e-9, Journal(100)).run()
    assert here is not None
    assert message == "‖∇f‖ falls slowly"
    assert here.norm == problem.anchor(x).norm > 1e-9
    assert here.value < problem.anchor(start).value


def test_numbers_that_are_not_finite_send_the_search_back() -> None:
    problem = large()
    start = np.full(problem.shape, np.inf)
    ending = BlockwiseSearch(problem, start, problem, 1e-8, Journal(100)).run()
    assert ending == (start, None, "f or ∇f is not finite")


@pytest.mark.parametrize("parts", [1, 3, 4])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_pass_over_a_piece_of_each_part(monkeypatch: pytest.MonkeyPatch, parts: int, threads: int) -> None:
    monkeypatch.setattr("vcsg.linear.problem.PER_THREAD", 4)
    problem = replace(make_problem("logistic", 103, 5, 1.0, Penalty(l2=0.3), weighted=True), threads=threads)
    x, length = np.random.default_rng(0).normal(size=problem.shape), problem.n // parts
    for low, high in ((0, length), (2, 9), (7, length)):
        rows = [part * length + row for part in range(parts) for row in range(low, high)]
        rows += list(range(parts * length, problem.n)) if high == length else []
        seen = problem.anchor(x, low, high, parts=parts)
        value, gradient = autograd(restricted(problem, rows), "logistic", x)
        assert problem.rows_in(low, high, parts) == len(rows)
        assert seen.value == pytest.approx(value, rel=1e-12)
        assert seen.smooth == pytest.approx(gradient, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("name", ["logistic", "squared", "huber", "squared-hinge"])
@pytest.mark.parametrize("form", ["dense", "sparse", "float32"])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_it_follows_growing_svrg(monkeypatch: pytest.MonkeyPatch, name: str, form: str, bias: float) -> None:
    monkeypatch.setattr(incremental, "WORK", 0.0)
    problem = make_problem(name, 8000, 9, bias, Penalty(l2=1e-3), form, weighted=True)
    found = solve(problem, np.zeros(problem.shape), 1e-7, solver="growing-svrg")
    assert found.converged
    assert "incremental-newton" in found.solver
    assert np.linalg.norm(autograd(problem, name, found.x)[1]) <= 1.01e-7
    assert found.history[-1].gradient_norm <= 1e-7
    coarse = solve(problem, np.zeros(problem.shape), 0.3, solver="growing-svrg")
    assert "incremental-newton" not in coarse.solver, "a step of L-BFGS is enough"
    warm = solve(problem, coarse.x + 0.1, 1e-7, solver="growing-svrg")  # without epochs that tell how far it is
    assert warm.converged
    assert np.linalg.norm(autograd(problem, name, warm.x)[1]) <= 1.01e-7


def test_a_level_alone_is_no_warm_start() -> None:
    """Huber's loss begins at the median of the targets, where epochs on a part of the rows are as good as at 0."""
    problem = make_problem("huber", 8000, 9, 1.0, Penalty(l2=1e-3))
    level, warm = np.zeros(problem.shape), np.full(problem.shape, 0.01)
    level[0, -1] = float(np.median(problem.y))
    found = [solve(problem, start, 1e-7, solver="growing-svrg") for start in (np.zeros(problem.shape), level, warm)]
    assert ["growing" in {entry.stage for entry in each.history} for each in found] == [True, True, False]
    for each in found:
        assert np.linalg.norm(autograd(problem, "huber", each.x)[1]) <= 1.01e-7


def test_classes_and_the_l1_penalty_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "WORK", 0.0)
    for problem in (
        make_problem("multinomial", 6000, 5, 1.0, Penalty(l2=1e-3)),
        make_problem("logistic", 6000, 5, 1.0, Penalty(l1=1e-3)),
    ):
        found = solve(problem, np.zeros(problem.shape), 1e-5, solver="growing-svrg")
        assert found.converged
        assert "incremental-newton" not in found.solver


def test_many_rows_take_fewer_passes_than_with_l_bfgs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 260,000 × 30 numbers, neighbouring columns correlated by a half."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(260_000, 30))
    for j in range(1, 30):
        X[:, j] = 0.5 * X[:, j - 1] + math.sqrt(0.75) * X[:, j]
    y = X @ rng.normal(size=30) / 3 + rng.logistic(size=len(X)) > 0
    model = LinearClassifier(alpha=1e-6, tol=1e-6, random_state=0)
    ours = model.fit(X, y)
    passes = ours.history_[-1].passes
    again = LinearClassifier(alpha=1e-6, tol=1e-6, random_state=0, warm_start=True).fit(X, y).set_params(tol=1e-8)
    assert again.fit(X, y).history_[-1].gradient_norm <= 1e-8
    assert ours.solver_ == "growing-svrg, then incremental-newton"
    monkeypatch.setattr(incremental, "WORK", math.inf)
    model.fit(X, y)
    assert model.solver_ == "growing-svrg, then l-bfgs"
    assert passes <= 0.85 * model.history_[-1].passes
