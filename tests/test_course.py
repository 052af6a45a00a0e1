"""The course alone, without torch: a plain executor on numbers reports to it, and it decides."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcsg.method import Constant, Facts, Method, Plan, Weights, make
from vcsg.method.schedules import Given, PowerLaw
from vcsg.run.course import Course
from vcsg.run.course_options import CourseOptions
from vcsg.run.faults import MAX_ROLLBACKS
from vcsg.run.holder import StepNumbers
from vcsg.run.sampling import Share
from vcsg.run.variance import AnchorSum
from vcsg.run.watch import Diverged

N = 40
CURVATURES = np.linspace(0.5, 1.5, N)
CENTRES = np.linspace(-1.0, 2.0, N)
MINIMUM = float((CURVATURES * CENTRES).sum() / CURVATURES.sum())
"""f_i(x) = a_i(x − c_i)²/2, one number x."""


@dataclass
class Number:
    """Holds a point that is one number."""

    x: float = 5.0
    mean: float = 0.0
    kept: dict[str, float] = field(default_factory=dict)
    lr, sign, penalty = 1.0, 1, 0.0

    def store(self, name: str) -> None:
        self.kept[name] = self.x

    def restore(self, name: str) -> None:
        self.x = self.kept[name]

    def step_along_mean(self, weight: float, numbers: StepNumbers) -> None:
        self.x -= numbers.step_size(self.lr) * weight * self.mean


def slope(x: float, samples: Any) -> float:
    return float((CURVATURES[samples] * (x - CENTRES[samples])).mean())


def loss(x: float, samples: Any) -> float:
    return float((CURVATURES[samples] * (x - CENTRES[samples]) ** 2 / 2).mean())


def advance(course: Course, point: Number, levels: dict[int, tuple[float, float]]) -> None:
    """One step of the current phase, by the formula."""
    state = course.state
    samples = state.phase.indices[state.phase.bounds(state.position)]
    if state.phase.kind == "anchor":
        before = state.anchor_sum.samples
        deviation = slope(point.x, samples) - (point.mean if before else 0.0)
        point.mean = (point.mean if before else 0.0) + deviation * len(samples) / (before + len(samples))
        course.take_chunk(len(samples), loss(point.x, samples), deviation**2)
        if course.anchor_complete:
            course.close_anchor(state.anchor_sum, point.mean**2)
        return
    [(read, write)] = course.levels(1)
    y, m = levels[read] if read > 0 else (point.kept.get("anchor", math.nan), point.mean)
    [weights] = course.rule.choices
    beside = loss(y, samples) if weights.anchor else 0.0
    if not course.allows(loss(point.x, samples), beside):
        return
    v = weights.now * slope(point.x, samples)
    v += weights.anchor * slope(y, samples) if weights.anchor else 0.0
    v += weights.mean * m if weights.mean else 0.0
    if write:
        levels[write] = point.x, v
    value = loss(point.x, samples)
    point.x -= course.step_size(point.lr) * v
    course.take_steps([value], [beside])


def finish(course: Course, point: Number, passes: float) -> None:
    levels: dict[int, tuple[float, float]] = {}
    while course.state.ifo < passes * N:
        advance(course, point, levels)


CASES = ("gd", "svrg", "scsg", "growing-svrg", "spider", "page", "snvrg")


@pytest.mark.parametrize("name", CASES)
def test_methods_with_full_anchors_find_the_minimum(name: str) -> None:
    """Every f_i has curvature at most 1.5 = L, so each of these methods converges linearly."""
    point = Number()
    course = Course(make(name), N, point, options=CourseOptions(chunk=8), L=1.5)
    finish(course, point, passes=400)
    assert point.x == pytest.approx(MINIMUM, abs=1e-3 if name == "scsg" else 1e-6)
    assert course.state.rollbacks == 0


def test_the_course_needs_no_torch() -> None:
    code = "import sys, test_course as t; [t.test_methods_with_full_anchors_find_the_minimum(n) for n in t.CASES]"
    code += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=True, timeout=120)


def test_an_anchor_that_explodes_is_gone_back_from_with_twice_the_L() -> None:
    point = Number()
    course = Course(make("svrg"), N, point, L=2.0)
    course.take_anchor(AnchorSum(N, 8, loss=1.0, spread=1.0), 1.0)
    assert (course.state.phase.kind, point.kept["anchor"]) == ("inner", 5.0)
    point.x = 1e9
    course.take_steps([1.0] * N, [1.0] * N)
    assert (course.state.phase.kind, course.state.epoch) == ("anchor", 2)
    course.take_anchor(AnchorSum(N, 8, loss=1e18, spread=1.0), 1e18)
    assert (course.state.epoch, course.state.L, point.x) == (1, 4.0, 5.0)

    def fail() -> None:
        course.take_anchor(AnchorSum(N, 8, loss=1.0, spread=1.0), 1.0)
        course.take_steps([1.0] * N, [1.0] * N)
        course.take_anchor(AnchorSum(N, 8, loss=math.nan, spread=1.0), 1.0)

    for _ in range(MAX_ROLLBACKS - 1):
        fail()
    with pytest.raises(Diverged, match="gave up after 10 roll-backs"):
        fail()
    assert point.x == 5.0


def test_a_loss_that_is_not_finite_stops_the_step_before_it_is_taken() -> None:
    point = Number()
    course = Course(make("svrg"), N, point, L=2.0)
    course.take_anchor(AnchorSum(N, 8, loss=1.0, spread=1.0), 1.0)
    assert course.allows(1.0, 1.0)
    assert not course.allows(math.inf, 1.0)
    assert (course.state.phase.kind, course.state.L) == ("anchor", 4.0)


@pytest.mark.parametrize("name", ["auto", "adam", "momentum"])
def test_a_loss_that_is_back_where_it_began_is_gone_back_from(name: str) -> None:
    """As that of a net that died. Half epochs of 64 steps each; noise that never falls by half is left alone."""
    for middle, rolled_back in ((0.5, True), (1.9, False)):
        point = Number()
        course = Course(make(name, b=1), 128, point, L=None if name != "momentum" else 1.0)
        L = course.state.L
        for level in (2.3, middle, 2.28):
            assert course.allows(level, 0.0)
            course.take_steps([level] * 64, [0.0] * 64)
        assert course.state.L == (2 * L if rolled_back else L)
        assert (course.state.rollbacks > 0) == rolled_back


def test_the_state_is_plain_and_a_course_goes_on_from_it() -> None:
    whole, point = [], Number()
    course = Course(make("scsg"), N, point, L=1.5, seed=3)
    levels: dict[int, tuple[float, float]] = {}
    for _ in range(30):
        advance(course, point, levels)
    saved, kept = course.state.state_dict(), Number(point.x, point.mean, dict(point.kept))
    for _ in range(200):
        advance(course, point, levels)
        whole.append((point.x, course.state.ifo, course.state.epoch))
    again = Course(make("scsg"), N, kept, L=1.5, seed=3)
    again.resume(type(course.state).from_state_dict(saved))
    assert again.state.record == type(course.state).from_state_dict(saved).record is not None
    for expected in whole:
        advance(again, kept, levels)
        assert (kept.x, again.state.ifo, again.state.epoch) == expected


def test_two_ranks_decide_as_one() -> None:
    """Each takes whole chunks of an anchor; what they report together is the anchor of one rank."""
    share = [Share(rank, 2) for rank in range(2)]
    one, *two = (Course(make("svrg"), N, Number(), s, CourseOptions(chunk=5), L=1.5) for s in (None, *share))
    assert one.state.phase == two[0].state.phase == two[1].state.phase
    while not two[0].anchor_complete:
        for course in two:
            part, weight = course.share.part(course.state.phase, course.state.position)
            course.take_chunk(part.stop - part.start if weight else 0, 1.0, 0.0)
    assert two[0].state.ifo == two[1].state.ifo == N
    total = AnchorSum(N, 8, loss=1.0, spread=0.0)
    for course in two:
        course.close_anchor(total, 1.0)
    one.take_anchor(total, 1.0)
    assert one.state.phase == two[0].state.phase
    assert one.state.record == two[0].state.record == two[1].state.record


# --- what cannot be run is refused


@dataclass(frozen=True)
class Planned:
    """A schedule that plans what it is told."""

    plan: Plan

    def first(self, n: int) -> int:
        return n

    def __call__(self, facts: Facts) -> Plan:
        return self.plan


SVRG = {"": Constant(Weights(1, -1, 1))}
GOOD = Plan(B=N, b=4, factor=1.0, next_B=N)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            Plan(N, 4, 1.0, N, regime="late"),
            "the regime 'late', for which there are no weights: name one of ''",
        ),
        (Plan(N, 0, 1.0, N), "b = 0: plan between 1 and n = 40"),
        (Plan(N, 41, 1.0, N), "b = 41"),
        (Plan(N, 4, 1.0, 0), "next_B = 0"),
        (Plan(N, 4, math.nan, N), "a factor of nan"),
        (Plan(N, 4, 1.0, N, levels=(1, 1), sizes=(4, 4)), "2 levels and 2 sizes, and the method has moves = 'epoch'"),
        (Plan(N, 4, 1.0, N, sizes=(4, 4)), "0 levels and 2 sizes"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(plan: Plan, message: str) -> None:
    course = Course(Method("mine", SVRG, Planned(plan), "fixed"), N, Number(), L=1.0)
    with pytest.raises(ValueError, match="the schedule of 'mine' planned") as caught:
        course.take_anchor(AnchorSum(N, 8, loss=1.0, spread=1.0), 1.0)
    assert message in str(caught.value)


class Early:
    """A schedule that names its regimes."""

    regimes = ("early", "late")

    def first(self, n: int) -> int:
        return n

    def __call__(self, facts: Facts) -> Plan:
        return GOOD


class Bare:
    """A rule that cannot be run: it neither is one of the library's nor combines."""

    choices = (Weights(1, -1, 1),)

    def at(self, epoch: int) -> Bare:
        return self


STEADY = PowerLaw(Given(), b=4, alpha=0)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "length": ({"length": "geometrical"}, "length = 'geometrical': choose 'geometric' or 'fixed'"),
    "moves": ({"moves": "steps"}, "moves = 'steps': choose 'epoch' or 'step' or 'nested'"),
    "drawn": ({"drawn": "twice"}, "drawn = 'twice': choose 'epoch' or 'once'"),
    "gamma": ({"gamma": 0.0}, "gamma = 0.0: give a finite number above 0"),
    "anchor step": ({"anchor_step": 1}, "anchor_step = 1: give True or False"),
    "no weights": ({"weights": {}}, "give a rule"),
    "no rule": ({"weights": {"": (1, -1, 1)}}, "give a rule such as Constant"),
    "not finite": ({"weights": {"": Constant(Weights(1, math.nan, 0))}}, "give triples of finite weights"),
    "no combine": ({"weights": {"": Bare()}}, "or a rule with a method combine"),
    "regimes": ({"schedule": Early()}, "names the regime 'early', for which there are no weights, only for ''"),
    "table": ({"table": True, "moves": "step", "drawn": "once"}, "a table needs the weights (1, −1, 1), moves='epoch'"),
    "once": ({"drawn": "once"}, "an anchor that is drawn once has to move with every step"),
    "nested": ({"moves": "nested", "drawn": "once"}, "nested anchors need drawn='epoch'"),
    "no anchor": ({"weights": {"": Constant(Weights(1, 0, 0))}, "moves": "step"}, "speak of an anchor"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_method_checks_itself_when_it_is_made(case: str) -> None:
    changes, message = REFUSED[case]
    given: dict[str, Any] = {"weights": SVRG, "schedule": STEADY, "length": "fixed"}
    assert Method("mine", **given).name == "mine"
    with pytest.raises((ValueError, TypeError), match="method 'mine'") as caught:
        Method("mine", **{**given, **changes})
    assert message in str(caught.value)
