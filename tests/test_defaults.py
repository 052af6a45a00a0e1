"""What keeps VCSG from getting stuck by default, and that the printed algorithm is one option away."""

from __future__ import annotations

import inspect
import math
from dataclasses import fields
from statistics import fmean

import pytest
import torch
from quadratic import parameter, quadratic, run
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.method import catalogue
from vcsg.method.schedules import RECENT, Facts, Plan, VarianceControlled
from vcsg.workloads import lenet_300_100, mnist_mini

N = 10_000


def facts(*variances: float, anchor: int = N) -> Facts:
    """What is known at the anchor of this size, after anchors with these S*."""
    settled = variances[1] if len(variances) > 1 else math.nan
    return Facts(len(variances), N, variances[-1], variances[0], anchor, variances[-RECENT:], settled)


def plan(*variances: float, anchor: int = N, **options: object) -> Plan:
    return vcsg.make("vcsg", **options).schedule(facts(*variances, anchor=anchor))


def test_the_printed_algorithm_is_one_option_away() -> None:
    """The values are those of Alg 4 and of the experiments, l.288 to l.377; see docs/paper.md."""
    method = vcsg.make("vcsg", paper=True)
    assert method.gamma == 1 / 3
    assert method.schedule == VarianceControlled(
        eps=None,
        K=12.0,
        sigma=None,
        rho=0.9,
        B_min=32,
        b_min=1,
        first_epoch=True,
        bounded=False,
        memory=1,
        settle=False,
    )
    first = plan(2.0, paper=True)
    assert (first.regime, first.B, first.b, first.factor, first.next_B) == ("start", N, 10, 0.01, 100)
    later = plan(2.0, 40.0, anchor=32, paper=True)
    assert (later.regime, later.B, later.steps_B, later.b, later.factor) == ("first", 2000, 2000, 7, 1.0)
    small = plan(2.0, 40.0, 0.2, anchor=32, paper=True)
    assert (small.B, small.b, small.eps) == (32, 2, pytest.approx(0.24))


def test_options_given_go_before_those_of_the_paper() -> None:
    printed = vcsg.make("vcsg", paper=True, B_min=5, b_min=4, first_epoch=False, bounded=True, memory=3).schedule
    assert printed == VarianceControlled(B_min=5, b_min=4, first_epoch=False, bounded=True, memory=3)
    assert vcsg.make("vcsg", first_epoch=True).schedule.regimes == ("start", "first", "second")


def test_the_sizes_by_default() -> None:
    first = plan(2.0)
    assert (first.regime, first.B, first.b, first.factor, first.next_B) == ("first", 1000, 16, 1.0, 1000)
    tiny = vcsg.make("vcsg").schedule(Facts(1, 9, 2.0, 2.0, 9, (2.0,)))
    assert (tiny.B, tiny.b) == (9, 9)
    assert vcsg.make("vcsg").gamma == 2 / 3


def test_an_inner_loop_is_no_longer_than_its_anchor_allows() -> None:
    """S* grows fiftyfold on an anchor of 1000: the next anchor grows, this loop does not."""
    met = plan(2.0, 2.0, 100.0, anchor=1000)
    assert met.next_B == met.B == 5000
    assert met.steps_B == 1000
    assert plan(2.0, 2.0, 100.0, anchor=1000, bounded=False).steps_B == 5000


def test_the_lengths_drawn_follow_the_anchor_in_hand() -> None:
    """Means of N·b/B over a run whose B_j is n from the second epoch on, and whose second anchor has 40 samples."""

    class Jumps:
        regimes = ("",)

        def first(self, n: int) -> int:
            return 40

        def __call__(self, facts: Facts) -> Plan:
            assert facts.anchor == 40
            return Plan(B=facts.n, b=4, factor=0.0, next_B=40, loop_B=facts.anchor)

    method = vcsg.Method("jumps", {"": catalogue.svrg().weights[""]}, Jumps(), "geometric")
    told: list[vcsg.Record] = []
    p = parameter()
    optimizer = vcsg.FiniteSumOptimizer([p], 400, method, L=1.0, callback=told.append)
    run(quadratic(400), optimizer, p, passes=300)
    assert len(told) > 500
    assert fmean(r.length for r in told) == pytest.approx(10, abs=2)
    assert {r.B for r in told} == {400}


def test_an_anchor_that_missed_the_rare_samples_does_not_shrink_the_next() -> None:
    assert plan(2.0, 2.0, 100.0, 1.0, 1.0, 1.0).next_B == 5000
    assert plan(2.0, 2.0, 100.0, 1.0, 1.0, 1.0, 1.0).next_B == 1000
    assert plan(2.0, 2.0, 100.0, 1.0, memory=1).next_B == 1000


def test_eps_is_that_of_the_first_point_after_the_start() -> None:
    """A start where S* is 1000 times what follows, as on a deep net, says nothing about what follows."""
    assert plan(2000.0).eps == pytest.approx(12 * 2000 / 100)
    assert plan(2000.0, 2.0).eps == plan(2000.0, 2.0, 70.0).eps == pytest.approx(12 * 2 / 100)
    assert plan(2000.0, 2.0, 70.0, B_min=2, memory=1).B == 3500
    assert plan(2000.0, 2.0, 70.0, B_min=2, paper=True).eps == pytest.approx(12 * 2000 / 100)
    assert plan(2000.0, 2.0, eps=0.3).eps == 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": 0}, "memory = 0"),
        ({"memory": RECENT + 1}, f"memory = {RECENT + 1}: give a number of anchors from 1 to {RECENT}"),
        ({"bounded": 1}, "bounded = 1: give True or False"),
        ({"paper": "yes"}, "paper = 'yes': give True or False"),
    ],
)
def test_options_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vcsg.make("vcsg", **options)


def test_every_field_of_the_schedule_but_one_is_an_option() -> None:
    own = {field.name for field in fields(VarianceControlled)}
    assert own - set(inspect.signature(catalogue.vcsg).parameters) == {"settle"}


def test_a_state_holds_what_the_next_plan_needs() -> None:
    p = parameter()
    optimizer = vcsg.VCSG([p], n=60, L=1.0, B_min=8, b_min=2)
    run(quadratic(), optimizer, p, passes=6)
    q = torch.nn.Parameter(p.detach().clone())
    other = vcsg.VCSG([q], n=60, L=1.0, B_min=8, b_min=2)
    other.load_state_dict(optimizer.state_dict())
    for x, resumed in ((p, optimizer), (q, other)):
        run(quadratic(), resumed, x, passes=20)
    assert torch.equal(p, q)
    assert optimizer.record == other.record


def test_a_seed_that_got_stuck_does_not() -> None:
    """As printed, this seed's first epoch outlasts six passes, at a step √n times too small: 64 % test error."""
    data = mnist_mini()
    torch.manual_seed(3)
    model = lenet_300_100()
    result = vcsg.fit(model, cross_entropy, data.train, "vcsg", passes=3, test=data.test, seed=3)
    assert result.history[-1]["error"] < 0.2
