"""`vcsg complexity`: the counts, the exponents with censored runs and their intervals, records that are continued."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.optimize import minimize
from scipy.stats import norm
from typer.testing import CliRunner

from vcsg.cli import app
from vcsg.experiments.complexity.cells import Design, Measurement, StepSearch, tasks
from vcsg.experiments.complexity.claimed_powers import RATES
from vcsg.experiments.complexity.contenders import CONTENDERS, GRID, constant_step
from vcsg.experiments.complexity.experiment import make_design
from vcsg.experiments.complexity.exponents import censored_fit, claimed, exponents
from vcsg.experiments.complexity.families import DIMENSION, FAMILIES, drawn_problem
from vcsg.experiments.complexity.growth import verdict
from vcsg.experiments.complexity.hitting import FIRST, RATIO, hits
from vcsg.experiments.complexity.observations import Observation, read_observations
from vcsg.experiments.conducting import conduct
from vcsg.experiments.pieces import Asked, Row, read_record, record_path
from vcsg.linear.solvers.family import LinearExecutor
from vcsg.method import make
from vcsg.theory.rates import TABLE_1
from vcsg.training.interrupt import Interrupt
from vcsg.workloads import least_squares, nonconvex_logistic, robust_regression

SMALL = Design(("least-squares",), ("gd", "svrg", "vcsg", "sgd"), (200, 400), (1e-2, 1e-3), 2, 100, 1e6)


def silent() -> Console:
    return Console(file=StringIO())


# --- problems and counts


@pytest.mark.parametrize(
    ("family", "made"),
    [
        ("least-squares", least_squares),
        ("nonconvex-logistic", nonconvex_logistic),
        ("robust-regression", robust_regression),
    ],
)
def test_a_family_is_the_analytic_problem_of_its_name(family, made) -> None:
    drawn, reference = drawn_problem(family, 60, 3), made(60, DIMENSION, 3)
    assert drawn.L == pytest.approx(reference.L) == pytest.approx(drawn.problem.L())
    rng = np.random.default_rng(0)
    assert drawn.start[0, :-1] == pytest.approx(0.0 if FAMILIES[family].from_zero else reference.start.numpy())
    for x in (drawn.start[0, :-1], rng.standard_normal(DIMENSION)):
        gradient = drawn.problem.anchor(np.append(x, 0.0)[None]).smooth[0, :-1]
        np.testing.assert_allclose(gradient, reference.gradient(torch.from_numpy(x)).numpy(), atol=1e-12)
    start, parts = torch.from_numpy(drawn.start[0, :-1].copy()), (reference.rows.split(1), reference.targets.split(1))
    single = torch.stack([reference.loss_gradient(start, row, target) for row, target in zip(*parts, strict=True)])
    assert drawn.variance == pytest.approx(float((single - single.mean(0)).square().sum(1).mean()))


def test_calls_of_gradient_descent_are_those_of_a_plain_loop() -> None:
    drawn = drawn_problem("least-squares", 100, 0)
    A, y = drawn.problem.rows, drawn.problem.y
    x, ifo, due, expected = drawn.start[0, :-1].copy(), 0, FIRST, dict[float, int]()
    while len(expected) < 2:
        x -= A.T @ (A @ x - y) / 100
        ifo += 100
        if ifo + 100 >= due:  # the next pass would go beyond it
            due = max(due, ifo * RATIO)
            found = float(np.sum((A.T @ (A @ x - y) / 100) ** 2))
            expected |= {eps: ifo for eps in (1e-2, 1e-4) if found <= eps and eps not in expected}
    got = hits(drawn, make("gd"), 0, {1e-2: 1e6, 1e-4: 1e6})
    assert got.ifo == expected
    assert got.spent == expected[1e-4]


@pytest.mark.parametrize("name", list(CONTENDERS))
def test_steps_taken_in_parts_are_the_same_steps(name: str) -> None:
    drawn = drawn_problem("nonconvex-logistic", 120, 0)
    method = CONTENDERS[name].make(1e-2, drawn.variance)
    whole, parts = (LinearExecutor(drawn.problem, drawn.start, method, 0, drawn.L) for _ in range(2))
    for _ in range(4):
        for executor in (whole, parts):
            if executor.course.state.phase.kind == "anchor":
                executor.look()
        whole.move()
        while parts.course.state.phase.kind == "inner" and parts.course.state.epoch < whole.course.state.epoch:
            parts.move(5)
    assert whole.course.state.ifo == parts.course.state.ifo
    np.testing.assert_allclose(parts.point.x, whole.point.x, atol=1e-12)


def test_a_count_stops_at_the_first_point_that_is_seen_to_be_accurate() -> None:
    drawn = drawn_problem("least-squares", 300, 1)
    coarse, fine = (hits(drawn, make("svrg"), 1, {eps: 1e6}) for eps in (1e-2, 1e-3))
    both = hits(drawn, make("svrg"), 1, {1e-2: 1e6, 1e-3: 1e6})
    assert both.ifo == coarse.ifo | fine.ifo
    assert fine.gradient_norm2 <= 1e-3 < coarse.gradient_norm2 <= 1e-2
    assert fine.ifo[1e-3] % 300 != 0  # within an inner loop, and not at its end alone


def test_what_the_start_meets_costs_nothing_and_what_a_cap_forbids_is_missing() -> None:
    drawn = drawn_problem("least-squares", 100, 0)
    found = hits(drawn, make("gd"), 0, {1e6: 1000.0, 1e-12: 1000.0})
    assert found.ifo == {1e6: 0}
    assert found.spent == 1000


def test_a_step_that_diverges_is_halved_and_noted() -> None:
    drawn = drawn_problem("least-squares", 100, 0)
    found = hits(drawn, constant_step(make("gd"), 64.0), 0, {1e-2: 1e5})
    assert found.rollbacks >= 2
    assert 1e-2 in found.ifo


def test_constant_step_is_constant() -> None:
    drawn = drawn_problem("least-squares", 150, 0)
    for name in ("svrg", "scsg", "vcsg"):
        executor = LinearExecutor(drawn.problem, drawn.start, CONTENDERS[name].with_constant(1e-2, 1.0, 0.25), 0, 1.0)
        for _ in range(3):
            executor.look()
            assert executor.course.step_size(1.0) == 0.25
            executor.move()


# --- exponents


def synthetic(
    p: float, q: float, rng: np.random.Generator, noise: float = 0.1, draws: int = 3, cap: float = np.inf
) -> list[Observation]:
    """Calls 7·n^p·ε^(−q) with a noise of each draw and one of each run; ∞ for no cap."""
    found = []
    for n, draw in product((500, 2000, 8000, 32_000), range(draws)):
        own = noise * rng.standard_normal()
        for eps in (1e-2, 1e-4, 1e-6):
            calls = 7 * n**p * eps**-q * np.exp(own + noise * rng.standard_normal())
            ifo = round(calls) if calls <= cap else None
            found.append(Observation("svrg", "theory", "least-squares", n, draw, eps, ifo, cap))
    return found


def test_exponents_without_noise_are_exact() -> None:
    found = exponents(synthetic(0.66, 0.31, np.random.default_rng(0), noise=0.0))
    assert found.n is not None
    assert found.eps is not None
    assert tuple(found.n) == pytest.approx((0.66, 0.66, 0.66), abs=1e-3)  # calls are whole numbers
    assert tuple(found.eps) == pytest.approx((0.31, 0.31, 0.31), abs=1e-3)


@pytest.mark.parametrize("cap", [np.inf, 1e5], ids=["all reached", "censored"])
def test_intervals_cover_the_exponent_about_as_often_as_they_say(cap: float) -> None:
    """95 % intervals from three draws; measured with 400 and 150 sets of data they cover 94 % and, censored, 91 %.

    Where the coverage is 91 %, fewer than 83 % of 120 come up with a probability of 4e-3.
    """
    rng = np.random.default_rng(1)
    fits = [exponents(synthetic(0.5, 0.4, rng, cap=cap), replicates=200) for _ in range(120)]
    for pairs in ([(fit.n, 0.5) for fit in fits], [(fit.eps, 0.4) for fit in fits]):
        covered = np.mean([found is not None and found.low <= true <= found.high for found, true in pairs])
        assert 0.83 <= covered < 1
    if cap < np.inf:
        assert np.mean([fit.reached / fit.runs for fit in fits]) < 0.9


def test_left_out_or_taken_at_the_cap_censored_runs_would_bias_the_exponent() -> None:
    rng = np.random.default_rng(2)
    fitted, dropped = [], []
    for _ in range(40):
        data = synthetic(1.0, 0.4, rng, noise=0.5, cap=3e6)
        reached = [one for one in data if not one.censored]
        both = exponents(data, replicates=1), exponents(reached, replicates=1)
        assert both[0].n is not None
        assert both[1].n is not None
        fitted.append(both[0].n.value)
        dropped.append(both[1].n.value)
    error = np.std(fitted) / np.sqrt(len(fitted))
    assert np.mean(fitted) == pytest.approx(1.0, abs=4 * error)  # beyond it with a probability of 1e-4
    assert np.mean(dropped) < 1 - 4 * error
    X, y = _design(data)
    assert np.linalg.lstsq(X, y, rcond=None)[0][1] < 0.8  # at the cap


def _design(data: Sequence[Observation]) -> tuple[np.ndarray, np.ndarray]:
    X = np.array([[1.0, np.log(one.n), -np.log(one.eps)] for one in data])
    return X, np.log([one.calls for one in data])


def test_the_censored_fit_is_the_maximum_of_the_likelihood() -> None:
    data = synthetic(0.7, 0.4, np.random.default_rng(3), noise=0.3, cap=3e5)
    X, y = _design(data)
    censored = np.array([one.censored for one in data])
    assert 0.1 < censored.mean() < 0.6

    def loss(theta: np.ndarray) -> float:
        z = (y - X @ theta[:3]) / np.exp(theta[3])
        return -float(np.sum(np.where(censored, norm.logsf(z), norm.logpdf(z) - theta[3])))

    start = [*np.linalg.lstsq(X, y, rcond=None)[0], 0.0]
    options = {"maxiter": 20_000, "maxfev": 20_000, "xatol": 1e-9, "fatol": 1e-12}
    best = minimize(loss, start, method="Nelder-Mead", options=options)
    found = censored_fit(X, y, censored, np.ones((1, len(y))))[0]
    np.testing.assert_allclose(found, best.x[:3], atol=2e-4)


def test_exponents_are_left_out_where_most_runs_did_not_get_there() -> None:
    found = exponents(synthetic(1.0, 0.5, np.random.default_rng(0), cap=2e4))
    assert found.reached < found.runs / 2
    assert found.n is None
    assert found.eps is None
    assert exponents([]).runs == 0


def test_the_exponents_of_claims() -> None:
    sizes, targets = (500, 100_000), (1e-2, 1e-6)
    assert claimed(RATES["gd"], sizes, targets) == pytest.approx((1, 1))
    assert claimed(RATES["sgd"], sizes, targets) == pytest.approx((0, 2))
    assert claimed(RATES["vcsg"], (10, 100), (1e-4, 1e-6)) == pytest.approx((1 / 4, 1))  # n < ε^−2
    assert claimed(RATES["vcsg"], (10**9, 10**10), (1e-1, 1e-2)) == pytest.approx((0, 3 / 2))
    assert claimed(RATES["scsg"], (10, 100), (1e-4, 1e-6)) == pytest.approx((2 / 3, 1))
    p, q = claimed(RATES["svrg"], sizes, targets)
    assert 2 / 3 < p < 1
    assert 0.9 < q < 1
    assert RATES["page"].calls(100, 0.1) == pytest.approx(100 + 10 / 0.1)


@pytest.mark.parametrize("name", list(TABLE_1))
def test_claims_are_the_powers_of_table_1(name: str) -> None:
    """`vcsg.theory` has Table 1 at a problem with its constants; here are its bare powers."""
    row, terms = TABLE_1[name], RATES[name].terms
    assert max(p for p, q in terms if q > 0) == row.n_power
    assert row.eps_power in [q for p, q in terms if p == 0 and q > 0] or row.eps_power is None


def test_verdicts() -> None:
    found = exponents(synthetic(0.5, 0.4, np.random.default_rng(5)))
    assert [verdict(claim, found.n) for claim in (0.2, 0.5, 0.9, None)] == ["above", "as claimed", "below", ""]


# --- records


@dataclass(frozen=True)
class SelfInterrupting:
    """A piece of work during which Ctrl-C comes."""

    name: str = "interrupted"
    needs: tuple[str, ...] = ()

    def perform(self, design: None, folder: Path, asked: Asked) -> Row:
        os.kill(os.getpid(), signal.SIGINT)
        if asked():
            raise KeyboardInterrupt
        return {}


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_keeps_what_is_done_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    pieces = [Measurement("least-squares", 200, "gd", 0, "theory"), SelfInterrupting(),
              Measurement("least-squares", 200, "svrg", 0, "theory")]  # fmt: skip
    interrupt = Interrupt()
    assert not conduct(pieces, SMALL, SMALL.identity(), tmp_path, 1, silent(), interrupt)
    assert interrupt.asked
    assert [record_path(tmp_path, piece.name).exists() for piece in pieces] == [True, False, False]
    record = record_path(tmp_path, pieces[0].name)
    before = record.stat().st_mtime_ns
    (record.parent / ".gd-x.partial.json").write_text("{")  # what a killed writer leaves
    assert conduct([pieces[0], pieces[2]], SMALL, SMALL.identity(), tmp_path, 1, silent(), Interrupt())
    assert record.stat().st_mtime_ns == before
    assert sorted(path.name for path in record.parent.iterdir()) == ["gd.json", "svrg.json"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("complexity")
    assert conduct(tasks(SMALL), SMALL, SMALL.identity(), folder, 1, silent(), Interrupt())
    return folder


def test_records_say_what_was_run(measured: Path) -> None:
    found = read_observations(measured, SMALL)
    assert len(found) == 2 * len(SMALL.methods) * len(SMALL.sizes) * len(SMALL.targets) * SMALL.draws
    for one in found:
        assert one.ifo is None or 0 < one.ifo <= one.cap == SMALL.cap(one.n)
        assert (one.c in GRID) == (one.steps == "best" and not one.censored) or one.censored
    search = read_record(measured, StepSearch("least-squares", 400, "svrg").name)
    drawn = drawn_problem("least-squares", 400, 1_000_000)
    every = {c: hits(drawn, constant_step(make("svrg"), c), 1_000_000, {1e-3: SMALL.cap(400)}).ifo for c in GRID}
    best = min((c for c in GRID if every[c]), key=lambda c: every[c][1e-3])
    assert search["chosen"][1] == {"eps": 1e-3, "c": best}


def test_two_processes_write_the_same_records(measured: Path, tmp_path: Path) -> None:
    assert conduct(tasks(SMALL), SMALL, SMALL.identity(), tmp_path, 2, silent(), Interrupt())
    for task in tasks(SMALL):
        assert read_record(tmp_path, task.name) == read_record(measured, task.name)


def test_what_cannot_be_run_is_refused(measured: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no family 'least-square': did you mean 'least-squares'"):
        make_design("quick", ["least-square"])
    with pytest.raises(ValueError, match="no method 'svgr': did you mean 'svrg'"):
        make_design("quick", [], ["svgr"])
    with pytest.raises(ValueError, match="size 'huge': choose one of quick, default, full"):
        make_design("huge")
    with pytest.raises(ValueError, match="jobs = 0"):
        conduct([], SMALL, SMALL.identity(), tmp_path, 0, silent(), Interrupt())
    other = make_design("quick")
    with pytest.raises(ValueError, match=r"holds another experiment \(it differs in families, methods, sizes\)"):
        conduct([], other, other.identity(), measured, 1, silent(), Interrupt())
    broken = record_path(tmp_path, "a")
    broken.write_text("{")
    with pytest.raises(ValueError, match=r"a\.json is no record of an experiment"):
        read_record(tmp_path, "a")


def test_the_command_ends_in_a_table_figures_and_a_page(tmp_path: Path) -> None:
    words = ["complexity", "--size", "quick", "--families", "least-squares", "--methods", "gd,vcsg", "--jobs", "1"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "VCSG (norm)" in done.output
    assert "the exponent in n is" in done.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Table 1, measured" in page
    for label in ("ε^−3/2\u00a0∧\u00a0n^¼/ε", "How it was measured", "least squares"):
        assert label in page
    assert "robust regression" not in page
    drawn = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert drawn == {f"{name}.{kind}" for name in ("exponents", "calls-n", "calls-eps") for kind in ("png", "pdf")}
    sizes = [path.stat().st_size for path in (tmp_path / "out").rglob("*.json")]
    assert max(sizes) < 2000
    design = json.loads((tmp_path / "out" / "design.json").read_text())
    assert design["methods"] == ["gd", "vcsg"]
    assert CliRunner().invoke(app, [*words[:-2], "--methods", "gd", "--out", str(tmp_path / "out")]).exit_code == 2


def test_every_family_and_method_has_its_words() -> None:
    assert set(RATES) <= {contender.method for contender in CONTENDERS.values()}
    assert all(kind.label and kind.L > 0 for kind in FAMILIES.values())
