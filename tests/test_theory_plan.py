"""A plan beside the runs that it plans, its tables and figure, the command, and what is refused."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

import vcsg
from vcsg import theory
from vcsg.cli import app
from vcsg.run.sampling import draw_geometric
from vcsg.theory.planned_epochs import copies, evaluations

GIVEN = {"n": 60_000, "eps": 1e-2, "L": 10.0, "variance": 100.0, "gap": 2.3}
N, L = 120, 2.0


@pytest.fixture(scope="module")
def whole() -> theory.RunPlan:
    return theory.plan(**GIVEN)


def run(name: str, passes: float, p: torch.nn.Parameter, **options: Any) -> tuple[Any, list[Any]]:
    """A run on f_i(x) = (L/2)‖x − a_i‖², whose S* is the same everywhere, and its records."""
    targets = torch.from_numpy(np.random.default_rng(0).standard_normal((N, *p.shape)))
    records: list[Any] = []
    method = vcsg.make(name, **options)
    optimizer = vcsg.FiniteSumOptimizer(
        [p], N, method, callback=records.append, **({"L": L} if method.needs_L else {"lr": 1e-4})
    )
    for (batch,) in optimizer.batches((targets,), passes=passes):

        def closure(batch: torch.Tensor = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = L / 2 * ((p - batch) ** 2).flatten(1).sum(1).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)
    return optimizer, records


def variance() -> float:
    """S* of these f_i for a parameter of shape (3, 3)."""
    targets = np.random.default_rng(0).standard_normal((N, 3, 3))
    return float(L**2 * targets.var(0).sum())


@pytest.mark.parametrize("name", sorted(vcsg.methods()))
def test_a_run_has_the_sizes_steps_and_memory_that_were_planned(name: str) -> None:
    """Anchors of all n samples measure S* exactly but for the chunks; smaller ones spread, and B_j with them."""
    p = torch.nn.Parameter(torch.full((3, 3), 2.0, dtype=torch.float64))
    eps = 12 * variance() / (0.6 * N)
    optimizer, records = run(name, 7, p, **({"eps": eps} if name in ("vcsg", "scsg") else {}))
    own = theory.plan(N, eps, L, variance(), 1.0, [name])[name]
    tolerance = 0.35 if name in ("vcsg", "scsg", "growing-svrg") else 1e-9
    for record in records:
        planned = own.epochs[min(record.epoch, len(own.epochs)) - 1]
        assert record.regime == planned.regime
        assert record.B == pytest.approx(planned.plan.B, rel=tolerance)
        assert record.b == pytest.approx(planned.plan.b, rel=tolerance)
        if optimizer.method.needs_L:
            assert record.step_size == pytest.approx(planned.eta, rel=tolerance)
        if optimizer.method.length == "fixed" and tolerance < 0.1:
            assert record.length == planned.steps
        assert (record.anchor.B if record.anchor and planned.anchor else 0) == pytest.approx(
            planned.anchor, rel=tolerance
        )
    if own.method.length == "fixed" and tolerance < 0.1 and len(records) > 2:
        # From one record to the next, each made when its anchor is done, lie the steps of the first and an anchor.
        planned = own.epochs[min(1, len(own.epochs) - 1)]
        assert records[2].ifo - records[1].ifo == pytest.approx(planned.calls)
    held = sum(tensor.numel() for tensor in optimizer.state[p].values()) / p.numel()
    beside = any(evaluations(own.method, rule) == 2 for rule in own.method.weights.values())
    assert copies(own.method, N) == held + beside


def test_geometric_lengths_have_the_planned_mean() -> None:
    """4000 draws of N with mean 8 and standard deviation 8.5: six standard errors are 0.81 (one in 10⁸ beyond)."""
    own = theory.plan(N, 1.0, L, 1.0, 1.0, ["batching-svrg"], {"batching-svrg": {"B": 40, "b": 5}})
    (planned,) = own["batching-svrg"].epochs[:1]
    rng = np.random.default_rng(0)
    drawn = [draw_geometric(rng, planned.plan.steps_B, planned.plan.b) for _ in range(4000)]
    assert planned.steps == 8
    assert abs(np.mean(drawn) - planned.steps) < 0.81


def test_vcsg_goes_through_its_regimes(whole: theory.RunPlan) -> None:
    own = theory.plan(**GIVEN | {"eps": 0.5}, methods=["vcsg"], options={"vcsg": {"paper": True, "sigma": 1e4}})["vcsg"]
    assert [first.regime for first, _ in own.stages] == ["start", "second", "first"]
    assert own.settled
    sizes = [planned.plan.B for planned in whole["vcsg"].epochs]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 60_000
    for planned in whole["vcsg"].epochs[:5]:  # l.288 by hand, but for B_min = n/10
        term = 60_000 * 100 / (100 + 0.14 * math.sqrt(60_000) * 100 * 0.9 ** (2 * planned.epoch))
        assert planned.plan.B == max(6000, math.ceil(min(12 * 100 / 0.01, term)))


def test_every_method_is_planned_and_proved_or_not_is_said(whole: theory.RunPlan) -> None:
    assert [own.name for own in whole.methods] == list(vcsg.methods())
    text = whole.table(200)
    for own in whole.methods:
        assert own.name in text
        assert own.guarantee.reason in text
    assert "Proved:" in text
    assert "Claimed:" in text
    assert whole["svrg"].claimed == pytest.approx(60_000 + 60_000 ** (2 / 3) * 2300)
    assert str(whole) == whole.table()
    with pytest.raises(KeyError, match="'sag' is not in the plan"):
        whole["sag"]


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_fit_their_width(whole: theory.RunPlan, width: int) -> None:
    lines = whole.table(width).splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in whole.table(width).replace(", …", "")  # no cell is cut off


def test_the_figure_has_a_line_for_each_course_of_sizes(whole: theory.RunPlan) -> None:
    axes = whole.plot().axes[0]
    labels = [str(line.get_label()) for line in axes.lines]
    assert "growing-svrg" in labels
    assert "vcsg, second regime" in labels
    assert any("svrg" in label and "spider" in label for label in labels)
    line = axes.lines[labels.index("vcsg")]
    drawn = np.asarray(line.get_ydata())[: len(whole["vcsg"].epochs)]
    assert drawn.tolist() == [planned.plan.B for planned in whole["vcsg"].epochs]
    empty = theory.plan(**GIVEN, methods=["sgd"]).plot().axes[0]
    assert [text.get_text() for text in empty.texts] == ["no method of the plan draws an anchor for every epoch"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n": 0}, "n = 0: give the number of samples"),
        ({"n": 2.5}, "n = 2.5"),
        ({"n": True}, "n = True"),
        ({"eps": 0}, "eps = 0.0: give the target"),
        ({"eps": math.nan}, "eps = nan"),
        ({"L": -1}, "L = -1.0: give the smoothness constant"),
        ({"variance": -1}, "variance = -1.0: give the variance"),
        ({"gap": math.inf}, "gap = inf"),
        ({"methods": []}, "methods is empty"),
        ({"methods": ["svgr"]}, "did you mean 'svrg'"),
        ({"options": {"svrg": {"b": 2}}, "methods": ["gd"]}, "not among the methods: gd"),
        ({"options": {"svrg": {"b": 0}}, "methods": ["svrg"]}, "b = 0: give a whole number"),
        ({"options": {"svrg": {"b": 70_000}}, "methods": ["svrg"]}, "b = 70000 does not fit n = 60000"),
    ],
)
def test_what_cannot_be_planned_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        theory.plan(**GIVEN | wrong)


def test_extreme_settings_are_planned() -> None:
    for given in ({"n": 1}, {"n": 2}, {"variance": 0}, {"eps": 1e-12}, {"eps": 1e6}, {"n": 10**9}):
        made = theory.plan(**GIVEN | given, methods=["gd", "svrg", "scsg", "vcsg", "spider", "snvrg", "sgd"])
        assert all(own.guarantee.calls > 0 for own in made.methods)


def test_theory_needs_no_torch() -> None:
    code = "import sys, vcsg; vcsg.theory.plan(100, .1, 1, 1, 1); print('torch' in sys.modules, 'rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


# --- the command


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["plan", *words])


SYNTHETIC = "synthetic:n=200,d=5,seed=1/least-squares"
NUMBERS = ("--n", "60000", "--eps", "1e-2", "--L", "10", "--variance", "100", "--gap", "2.3")


def test_the_command_shows_the_plan_and_draws_it(tmp_path: Path) -> None:
    found = call(*NUMBERS, "--methods", "vcsg, svrg", "--set", "svrg.b=4", "--out", str(tmp_path / "B.png"))
    assert found.exit_code == 0, found.output
    assert "n = 60,000, ε = 0.01, L = 10, S* = 100, gap = 2.3" in found.stdout
    assert (tmp_path / "B.png").read_bytes().startswith(b"\x89PNG")
    expected = theory.plan(**GIVEN, methods=["svrg"], options={"svrg": {"b": 4}})["svrg"].guarantee
    assert f"{expected.epochs:,.0f}" in found.stdout


def test_the_command_measures_a_workload() -> None:
    found = call("--workload", SYNTHETIC, "--eps", "1e-3", "--methods", "svrg")
    assert found.exit_code == 0, found.output
    problem = vcsg.workloads.least_squares(200, 5, 1)
    gradients = problem.rows * (problem.rows @ problem.start - problem.targets)[:, None]
    measured = float(gradients.var(0, unbiased=False).sum())
    loss = float(problem.loss(problem.start, problem.rows, problem.targets))
    words = found.stdout.replace("\n", " ")
    assert "n = 200, L = 1 (known)" in words
    assert f"a loss of {loss:.4g}, which is taken for the gap" in words
    said = float(words.split("S* = ")[1].split()[0])
    # S* from chunks: 200 samples in a few chunks give an estimate, with a spread of about √(2/7)
    assert 0.3 < said / measured < 2.5
    given = call(
        "--workload", "synthetic:n=200,d=5,seed=1/least-squares", "--eps", "1e-3", "--gap", "7", "--methods", "gd"
    )
    assert "gap = 7" in given.stdout
    assert f"{math.ceil(2 * 7 / 1e-3):,}" in given.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*NUMBERS, "--eps", "0"), "eps = 0.0"),
        (("--eps", "1e-2", "--n", "5"), "--L is missing: give --n, --L, --variance and --gap, or --workload"),
        ((*NUMBERS, "--out", "B.jpg"), "--out B.jpg: give a file that ends in .png"),
        ((*NUMBERS, "--out", "no/B.png"), "there is no folder no"),
        ((*NUMBERS, "--set", "vcsg.lr=1"), "vcsg has no option 'lr' that a plan knows"),
        ((*NUMBERS, "--set", "tau=1"), "no method has an option 'tau' that a plan knows"),
        ((*NUMBERS, "--methods", "gd", "--set", "svrg.b=1"), "'svrg', which is not planned"),
        ((*NUMBERS, "--methods", "adamw"), "no method 'adamw'"),
        (("--workload", "mnist/lenet-9", "--eps", "1"), "no model or problem 'lenet-9'"),
    ],
)
def test_the_command_refuses_before_it_works(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = call(*words)
    assert found.exit_code == 2
    assert message in found.stderr
    assert not found.stdout
