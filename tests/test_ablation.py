"""`vcsg ablate`: variants that change one part and nothing else, the verdict from costs, and the command."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vcsg.cli import app
from vcsg.experiments.ablation.ablated_costs import AblationSetting, comparisons, gains, ratio_text, sentences
from vcsg.experiments.ablation.study_of_parts import Ablation
from vcsg.experiments.ablation.variants import BASE, BY_KEY, CHAIN, CONTROL, STEP, SVRG, VARIANTS, Changed
from vcsg.experiments.complexity.families import drawn_problem
from vcsg.linear.solvers.family import LinearExecutor
from vcsg.method import make
from vcsg.method.catalogue import STEADY
from vcsg.method.schedules import Facts
from vcsg.method.weights import Weights


def facts(epoch: int, variance: float, n: int = 10_000) -> Facts:
    return Facts(epoch, n, variance, 2.0, n // 10, (variance,), 1.0)


ALL_FACTS = [facts(epoch, variance) for epoch in (1, 2, 9, 40) for variance in (0.05, 1.0, 20.0)]


# --- variants


def test_factors_of_one_change_nothing() -> None:
    for schedule in (STEADY, replace(STEADY, eps=1e-2), replace(STEADY, eps=1e-4, sigma=0.3)):
        for known in ALL_FACTS:
            plan = schedule(known)
            assert replace(Changed(schedule)(known), eps=plan.eps) == plan


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.key)
def test_a_variant_changes_its_part_alone(variant) -> None:
    """Plans differ only where the part is one of the schedule, weights only where it is one of the weights."""
    base, method = BASE.make(1e-2), variant.make(1e-2)
    plans = [[made.schedule(known) for known in ALL_FACTS] for made in (base, method)]
    part = variant.part.partition(" (")[0]
    weighs = variant in (CONTROL, SVRG, STEP) or variant.key == "ablate-half" or part in ("comparison rule", "λ")
    schedules = variant in (SVRG, STEP) or part in ("K", "σ", "ρ", "B_min", "first epoch", "scaling of the step")
    steps = variant.key in ("ablate-step-half", "ablate-step-double") or variant == SVRG
    assert (dict(base.weights) != {k: v for k, v in method.weights.items() if k != "start"}) == weighs
    assert (plans[0] != plans[1]) == (schedules and variant.key not in ("ablate-step-half", "ablate-step-double"))
    assert (base.gamma != method.gamma) == steps


def test_the_variants_are_named_once() -> None:
    assert len(BY_KEY) == len(VARIANTS)
    assert len({(one.part, one.label) for one in VARIANTS}) == len(VARIANTS)
    assert {one.part.partition(" (")[0] for one in VARIANTS} >= {
        "comparison rule", "λ", "K", "σ", "ρ", "B_min", "first epoch", "scaling of the step",
    }  # fmt: skip


def test_formulas_of_the_changed_schedule() -> None:
    schedule = replace(STEADY, eps=1e-3, B_min=2, sigma=1.0)
    known, no_sigma = facts(5, 0.02), replace(schedule, sigma=0.0)
    target = 12 * 0.02 / 1e-3
    assert no_sigma(known).B == math.ceil(target)
    assert Changed(no_sigma, K=0.5)(known).B == math.ceil(target / 2)
    full = 10_000 * 20 / (20 + 0.14 * 100 * 3.0 * 0.9**10)
    plan = Changed(schedule, sigma=3.0)(facts(5, 20.0))
    assert (plan.B, plan.regime) == (math.ceil(full), "second")
    plan = Changed(schedule, alpha=2 / 3)(facts(5, 20.0))
    assert plan.factor == pytest.approx((plan.b / plan.B) ** (2 / 3))
    whole = Changed(schedule, full=True)(known)
    assert (whole.B, whole.next_B, whole.steps_B) == (10_000, 10_000, 10_000)
    assert (whole.factor, whole.b) == (schedule(known).factor, schedule(known).b)


def test_the_control_takes_the_steps_of_vcsg_with_the_weights_of_svrg() -> None:
    drawn = drawn_problem("least-squares", 300, 0)
    runs = [LinearExecutor(drawn.problem, drawn.start, one.make(1e-2), 0, drawn.L) for one in (BASE, CONTROL)]
    for executor in runs:
        executor.look()
    vcsg, control = (executor.course for executor in runs)
    assert vcsg.state.record is not None
    assert control.state.record is not None
    for name in ("B", "b", "step_size", "length", "regime"):
        assert getattr(vcsg.state.record, name) == getattr(control.state.record, name)
    assert control.rule.choices == (Weights(1, -1, 1),)
    assert SVRG.make(1e-2) == replace(make("svrg", b=16), name=SVRG.key)


# --- the verdict


def setting(costs: dict[str, dict[int, float]], budget: float = 100.0) -> AblationSetting:
    return AblationSetting("convex", "a problem", "the goal", costs, budget, costs, "the goal", "draws")


def chain(*costs: float) -> dict[str, dict[int, float]]:
    return {variant.key: {0: cost, 1: 2 * cost} for variant, cost in zip(CHAIN, costs, strict=True)}


def test_gains_multiply_to_the_whole() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        found = gains({variant.key: dict(enumerate(rng.uniform(1, 50, 3))) for variant in CHAIN})
        assert found["step"] * found["batches"] * found["weights"] == pytest.approx(found["all"])
    assert gains(chain(80, 20, 10, 40)) == pytest.approx({"step": 4, "batches": 2, "weights": 0.25, "all": 2})
    assert gains(chain(math.inf, 20, 10, 40)) == gains({}) == gains(chain(0, 1, 1, 1)) == {}


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ((80, 40, 20, 10), "33% of the gain, in logarithms, is only the size of the step; at the same step and "
                           "batches, VCSG's weights help"),
        ((80, 5, 5, 10), "all of the gain is the size of the step, and the rest of VCSG gives some of it back; at the "
                         "same step and batches, VCSG's weights hurt"),
        ((80, 20, 10, 10), "VCSG's weights make no difference beside SVRG's"),
        ((80, 10, 11, 10), "the gain is only the size of the step; at"),
        ((10, 5, 5, 10), "So there is no gain to explain"),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_the_costs(costs: tuple[float, ...], said: str) -> None:
    assert said in sentences(setting(chain(*costs)))[0]


def test_changes_are_called_clear_where_all_runs_agree() -> None:
    costs = chain(80, 40, 20, 10) | {
        "ablate-k-one": {0: 5.0, 1: 12.0},
        "ablate-rho-low": {0: 15.0, 1: 21.0},
        "ablate-rho-high": {0: 15.0, 1: 40.0},
        "ablate-floor-low": {0: 90.0, 1: math.inf},
    }
    found = sentences(setting(costs))[1]
    assert "cheaper with K: 1 (0.55 ×)" in found
    assert "dearer with ρ: 0.99 (1.73 ×), B_min: 32 (≥ 6.71 ×)" in found
    assert "no clear change with the other 1" in found
    lines = {one.variant.key: one for one in comparisons(setting(costs))}
    assert ratio_text(lines["ablate-rho-low"]) == "1.25 (1.05 to 1.50)"
    assert (lines["ablate-floor-low"].reached, lines["ablate-floor-low"].runs) == (1, 2)


def test_nothing_done_yet_says_so() -> None:
    assert sentences(setting({})) == ["a problem: no run is done yet."]


# --- the command


def test_what_cannot_be_run_is_refused(tmp_path: Path) -> None:
    for arguments, said in (
        ({"size": "huge"}, "size 'huge': choose one of quick, default, full"),
        ({"only": "nets"}, "only = 'nets': choose network or convex"),
        ({"jobs": 0}, "jobs = 0"),
    ):
        with pytest.raises(ValueError, match=said):
            Ablation(**{"size": "quick", "folder": tmp_path, "jobs": 1, "command": "", **arguments})
    assert CliRunner().invoke(app, ["ablate", "--only", "nets", "--out", str(tmp_path / "out")]).exit_code == 2
    assert not (tmp_path / "out").exists()


def test_the_command_runs_both_settings_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["ablate", "--size", "quick", "--jobs", "1", "--out", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "mnist-mini/lenet-300-100: to a training loss of" in done.output
    assert "least squares, n = 1,000: to ‖∇f‖² ≤ 0.01, SVRG takes" in done.output
    assert {path.name for path in (out / "figures").iterdir()} == {
        f"{name}.{kind}" for name in ("network", "convex") for kind in ("png", "pdf")
    }
    page = (out / "report.html").read_text()
    assert all(text in page for text in ("The parts of VCSG", "How it was measured", "SVRG&#x27;s weights"))
    record = out / "convex" / "draw-0" / f"{BASE.key}.json"
    kept = out / "convex" / "draw-1" / f"{BASE.key}.json"
    content, before = record.read_text(), kept.stat().st_mtime_ns
    record.unlink()
    again = CliRunner().invoke(app, [*words, "--only", "convex", "--no-report"])
    assert again.exit_code == 0
    assert record.read_text() == content
    assert kept.stat().st_mtime_ns == before
