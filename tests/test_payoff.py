"""Whether variance reduction pays: the estimators, the convex problem, and ratios against the records themselves."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scipy.optimize
import torch
from study_sample import network
from typer.testing import CliRunner, Result

from vcsg.cli import app
from vcsg.experiments.payoff import payoff_cells, ridge_logistic
from vcsg.experiments.payoff.gradient_estimators import ESTIMATORS, RULES, SIZES, name_of, parts_of
from vcsg.experiments.payoff.paying import draw_payoffs
from vcsg.experiments.payoff.payoff_cells import CellRun, Payoff, PayoffCell, ratio
from vcsg.experiments.payoff.payoff_study import NAMES, PayoffGrid
from vcsg.experiments.payoff.payoff_words import markdown, sentences
from vcsg.method import make, registry
from vcsg.method.schedules import Facts, PowerLaw
from vcsg.study import imports
from vcsg.workloads import problems


@pytest.fixture(autouse=True)
def names_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take the names of the experiment away again after a test: others go through all methods that there are."""
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    monkeypatch.setattr(problems, "_FAMILIES", dict(problems._FAMILIES))
    monkeypatch.setattr(imports, "_LOADED", dict(imports._LOADED))
    yield
    sys.modules.pop(NAMES, None)


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["payoff", *words])


# --- the estimators and the problem


@pytest.mark.parametrize("key", ESTIMATORS)
def test_an_estimator_has_the_weights_of_its_method_and_the_step_of_all(key: str) -> None:
    one = ESTIMATORS[key]
    for rule in RULES:
        made, known = one.make(rule, 16), make(one.method)
        assert (made.choices, made.moves, made.drawn) == (known.choices, known.moves, known.drawn)
        assert made.base == {"plain": 1 / 3, "adaptive": 1e-3, "orthogonal": 0.01}[rule]
        assert isinstance(made.schedule, PowerLaw)
        facts = [Facts(j, 1000, 1.0, 1.0) for j in (1, 2, 3, 50)]
        plans = [made.schedule(fact) for fact in facts]
        assert {(plan.b, plan.factor) for plan in plans} == {(16, 1.0)}
        sizes = {"fresh-svrg": [256] * 4, "scsg": [16, 48, 96, 1000]}.get(key, [1000] * 4)
        assert [plan.B for plan in plans] == sizes
    assert one.reduces == any(all(weights) for weights in make(one.method).choices)
    assert parts_of(name_of(key, "adaptive", 64)) == (key, "adaptive", 64)


def test_the_convex_problem_is_what_it_says() -> None:
    """Its gradient against autograd, L against the curvature of a term, the minimum against scipy's."""
    problem = ridge_logistic.ridge_logistic(80, 5, 3)
    x = torch.linspace(-1, 2, 5, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(problem.loss(x, problem.rows, problem.targets), x)
    torch.testing.assert_close(problem.gradient(x.detach()), found)
    longest = int(problem.rows.norm(dim=1).argmax())
    one = problem.rows[longest : longest + 1], problem.targets[longest : longest + 1]
    curvature = torch.autograd.functional.hessian(lambda at: problem.loss(at, *one), torch.zeros_like(problem.start))
    assert problem.L == pytest.approx(float(torch.linalg.eigvalsh(curvature)[-1]), rel=1e-12)

    def value(at: Any) -> float:
        return float(problem.loss(torch.from_numpy(at), problem.rows, problem.targets))

    best = scipy.optimize.minimize(value, problem.start.numpy(), method="BFGS", options={"gtol": 1e-9})
    assert ridge_logistic.least_value(problem.rows, problem.targets) == pytest.approx(best.fun, abs=1e-12)
    with pytest.raises(ValueError, match="must be −1 or 1"):
        ridge_logistic.ridge_logistic_on(problem.rows, torch.zeros(80, dtype=torch.float64))


# --- ratios


def cell(estimator: str, *curves: list[tuple[float, float | None]], status: str = "finished") -> PayoffCell:
    """A cell with a run for each curve of (passes, value); a pass takes half a second."""
    runs = [
        CellRun(k, status, [p for p, _ in c], [p / 2 for p, _ in c], [v for _, v in c]) for k, c in enumerate(curves)
    ]
    return PayoffCell(estimator, "plain", 16, 0.1, 1.0, False, runs)


def test_ratios_and_their_bounds() -> None:
    fast, slow = [(0.0, 1.0), (1.0, 0.4), (4.0, 0.1)], [(0.0, 1.0), (2.0, 0.5), (4.0, 0.3)]
    base, other = cell("sgd", fast, fast), cell("svrg", slow, slow)
    both = ratio(other, base, 0.5, "passes")
    assert (both.value, both.bound, both.low, both.high, both.pays) == (2.0, "", 2.0, 2.0, False)
    assert ratio(base, other, 0.5, "seconds").pays is True
    missed = ratio(other, base, 0.2, "passes")
    assert (missed.value, missed.bound, missed.pays, str(missed)) == (1.0, "≥", False, "≥ 1.00")
    ahead = ratio(base, other, 0.2, "passes")
    assert (ahead.value, ahead.bound, ahead.pays) == (1.0, "≤", True)
    assert (ratio(base, other, 0.01, "passes").value, ratio(base, other, 0.01, "passes").pays) == (None, None)
    uneven = cell("svrg", fast, slow)
    assert uneven.cost(0.2, "passes") == math.inf, "the median of 4 and ∞"
    assert (uneven.reached(0.2), uneven.final) == (1, pytest.approx(0.2))
    assert ratio(uneven, base, 0.45, "passes").high == pytest.approx(4.0)
    lost = cell("svrg", [(0.0, 1.0), (1.0, None)], status="failed")
    assert (lost.final, lost.cost(0.5, "passes")) == (math.inf, math.inf)


def test_the_sentences_count_what_the_ratios_say() -> None:
    fast, slow = [(0.0, 1.0), (1.0, 0.4), (4.0, 0.1)], [(0.0, 1.0), (2.0, 0.5), (4.0, 0.3)]
    cells = [cell("sgd", slow), cell("momentum", fast), cell("svrg", fast), cell("page", slow)]
    found = Payoff("network", "w/m", 100, "test_error", 0.5, "cpu", 1, None, cells)
    said = sentences(found)
    assert "took fewer gradients than the mini-batch gradient in 1 of 2 comparisons, and not fewer in 1." in said[0]
    assert said[2].startswith("Plain step, fewest gradients: 1 pass (momentum, b = 16); fewest seconds: 0.5 s")
    assert "| plain | 16 | PAGE | 1 of 1 | 2 | 1.00 | 1 | 1.00 | 30.0 % | 0.1 (× 1) |" in markdown(found)


def test_a_study_that_was_broken_off_is_read_by_the_seeds_that_all_have() -> None:
    """A rule of which only an estimator with anchors has come to its end is told too."""
    fast = [(0.0, 1.0), (1.0, 0.4), (4.0, 0.1)]
    only = Payoff("network", "w/m", 100, "test_error", 0.5, "cpu", 1, None, [cell("svrg", fast)])
    assert sentences(only)[-1].startswith("Plain step, fewest gradients: 1 pass (SVRG, anchors of all n, b = 16);")


# --- the command


TINY = ("--sizes", "8", "--seeds", "2", "--passes", "2", "--trials", "3", "--trial-passes", "2", "--no-report")


def runs_of(folder: Path) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Every run below a folder, read here by hand: what was asked of it, and its evaluations."""
    for path in sorted(folder.rglob("runs/**/run.json")):
        lines = (path.parent / "evaluations.jsonl").read_text().splitlines()
        yield json.loads(path.read_text())["config"], [json.loads(line) for line in lines]


def test_every_combination_runs_and_is_kept(tmp_path: Path) -> None:
    """All estimators and step rules on a tiny net and a drawn regression; a second call makes nothing again."""
    words = ["--network", network(tmp_path), "--convex", "synthetic:n=60,d=4", "--out", str(tmp_path / "out"), *TINY]
    words += ["--convex-passes", "2", "--convex-trial-passes", "2", "--target", "test-error=0.45", "--seeds", "1"]
    done = call(*words)
    assert done.exit_code == 0, done.output
    assert "8 estimators × 3 step rules × 1 mini-batch size = 24 combinations" in done.stdout
    assert "The orthogonal step is left out on the convex problem" in done.stdout
    net, convex = payoff_cells.read(tmp_path / "out" / "payoff.json")
    for found, rules in ((net, RULES), (convex, RULES[:2])):
        assert {(c.estimator, c.rule) for c in found.cells} == {(one, rule) for one in ESTIMATORS for rule in rules}
        for one in found.cells:
            assert all(run.passes[-1] >= 2 for run in one.runs if run.status == "finished")
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("evaluations.jsonl")}
    again = call(*words[:-4], "--target", "test-error=0.3", "--seeds", "1")
    assert again.exit_code == 0, again.output
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("evaluations.jsonl")} == stamps
    assert payoff_cells.read(tmp_path / "out" / "payoff.json")[0].goal == 0.3
    report = (tmp_path / "out" / "report.md").read_text()
    assert "# Does variance reduction pay?" in report

    shutil.rmtree(tmp_path / "out" / "network" / "runs" / "tuned" / "payoff-page-plain-8")
    (tmp_path / "out" / "payoff.json").unlink()
    read = call("--records-only", "--only", "network", "--target", "test-error=0.45", "--out", str(tmp_path / "out"))
    assert read.exit_code == 0, read.output
    (alone,) = payoff_cells.read(tmp_path / "out" / "payoff.json")
    kept = [c for c in net.cells if (c.estimator, c.rule) != ("page", "plain")]
    assert alone == replace(net, cells=kept), "what the runs showed, from their records alone"


def test_ratios_are_those_of_the_records_on_mnist_mini(tmp_path: Path) -> None:
    """Recomputed from the files of the runs: medians of the first evaluation at the goal."""
    words = ["--only", "network", "--network", "mnist-mini/lenet-300-100", "--estimators", "sgd,mars"]
    words += ["--rules", "adaptive", "--sizes", "256", "--seeds", "2", "--passes", "1", "--trials", "3"]
    words += ["--trial-passes", "0.5", "--target", "test-error=0.4", "--out", str(tmp_path / "out"), "--no-report"]
    done = call(*words)
    assert done.exit_code == 0, done.output
    (found,) = payoff_cells.read(tmp_path / "out" / "payoff.json")
    costs: dict[str, dict[str, list[float]]] = {}
    for config, rows in runs_of(tmp_path / "out" / "network"):
        first = next((row for row in rows if row["test_error"] <= 0.4), None)
        own = costs.setdefault(config["method"], {"passes": [], "seconds": []})
        for unit, values in own.items():
            values.append(math.inf if first is None else first[unit])
    base, other = costs["payoff-sgd-adaptive-256"], costs["payoff-mars-adaptive-256"]
    ((cell_, base_),) = found.pairs()
    for unit in ("passes", "seconds"):
        expected = statistics.median(other[unit]) / statistics.median(base[unit])
        assert math.isfinite(expected)
        made = ratio(cell_, base_, found.goal, unit)
        assert made.value == pytest.approx(expected, rel=1e-4)
        single = [a / b for a, b in zip(other[unit], base[unit], strict=True)]
        assert (made.low, made.high) == (pytest.approx(min(single), rel=1e-4), pytest.approx(max(single), rel=1e-4))
    assert {path.name for path in draw_payoffs([found], tmp_path)} == {"payoff.png", "payoff.pdf"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--only nothing", "only = 'nothing': choose network or convex"),
        ("--estimators svrg", "estimators without sgd"),
        ("--estimators sgd,svgr", "estimators: no 'svgr'; did you mean 'svrg'"),
        ("--sizes 3", f"sizes: no 3; did you mean '32'? There are {', '.join(map(str, SIZES))}"),
        ("--only convex --rules orthogonal", "its parameter is a vector"),
        ("--trials 2", "trials = 2: give a whole number, at least 3"),
        ("--gap 0", "gap = 0.0: give a finite number above 0"),
    ],
)
def test_what_cannot_be_run_is_refused(words: str, message: str, tmp_path: Path) -> None:
    done = call(*words.split(), "--out", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_plan_counts_all_passes() -> None:
    grid = PayoffGrid(estimators=("sgd", "svrg"), rules=("plain",), sizes=(16, 64), seeds=3, passes=8, trials=5)
    assert "4 combinations" in grid.plan()
    assert f"{4 * (5 * 3 + 3 * 8):,} passes in all" in grid.plan()
