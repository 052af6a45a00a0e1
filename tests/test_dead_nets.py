"""A net that dies is seen wherever it dies: between growing anchors, between judgements, after the last anchor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from nets import net_closure

import vcsg
from vcsg import FiniteSumOptimizer
from vcsg.method import Method
from vcsg.run.course import Course
from vcsg.run.course_options import CourseOptions
from vcsg.run.state import CourseState
from vcsg.run.variance import Anchor, AnchorSum
from vcsg.run.watch import LAST_STEPS, Watch

N = 640
DEAD = [2.32, 2.28, 2.37, 2.29, 2.25, 2.33]
"""Losses of mini-batches of a net that guesses; it began at 2.3."""


class Still:
    """Holds a point that only its name tells."""

    lr, sign, penalty = 1.0, 1, 0.0

    def __init__(self) -> None:
        self.restored: list[str] = []

    def store(self, name: str) -> None: ...

    def restore(self, name: str) -> None:
        self.restored.append(name)

    def step_along_mean(self, weight: float, step_size: Callable[[float], float]) -> None: ...


def made(method: Method) -> tuple[Course, Still]:
    still = Still()
    return Course(method, N, still, options=CourseOptions(chunk=80), L=10.0), still


def anchor(course: Course, loss: float, moment: float = 20.0) -> None:
    """The whole anchor of this epoch, with this loss and E‖∇f_i‖²."""
    size = course.state.phase.total
    course.take_anchor(AnchorSum(size, 8, loss=loss, spread=7 * 0.9 * moment, loss_spread=0.0), 0.1 * moment)


def steps(course: Course, losses: Sequence[float]) -> None:
    """Inner steps one by one, as far as the phase goes or until the run goes back."""
    number = course.state.phase.number
    for loss in losses:
        if course.state.phase.number != number:
            return
        assert course.allows(loss, loss)
        course.take_steps([loss], [loss])


def cycle(losses: Sequence[float], count: int) -> list[float]:
    return [losses[k % len(losses)] for k in range(count)]


@pytest.mark.parametrize("phase", ["inner", "anchor"])
def test_a_net_that_dies_after_the_last_anchor_is_gone_back_from(phase: str, caplog: pytest.LogCaptureFixture) -> None:
    course, still = made(vcsg.make("svrg", b=16))
    anchor(course, 2.3)
    steps(course, cycle([1.2, 0.8], 40))
    anchor(course, 0.8)
    steps(course, [0.8, 0.7, *cycle(DEAD, 38 if phase == "anchor" else 30)])
    assert course.state.phase.kind == phase
    assert not still.restored
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        course.judge_end()
    assert still.restored == ["anchor"]
    assert (course.state.epoch, course.state.L) == (2, 20.0)
    assert "at the end" in caplog.text
    assert "back at 2.3" in caplog.text
    course.judge_end()  # once is enough
    assert still.restored == ["anchor"]


@pytest.mark.parametrize("name", ["page", "spider"])
def test_an_explosion_in_the_last_steps_is_gone_back_from(name: str) -> None:
    """As page did with eight times its step: nothing was learnt yet, and the loss doubles from step to step."""
    course, still = made(vcsg.make(name, b=16))
    anchor(course, 2.3)
    while course.state.phase.kind == "anchor" or course.state.phase.count < 20:
        anchor(course, 2.3) if course.state.phase.kind == "anchor" else steps(course, [2.2] * 99)
    losses = [2.24, 2.7, 1.94, 3.5, 2.3, 2.4, 3.2, 3.0, 5.8, 10.7, 7.8, 6.5, 4.1, 18.7, 14.5, 4.7, 37, 32, 271, 167]
    steps(course, losses)
    course.judge_end()
    assert still.restored == ["anchor"]


@pytest.mark.parametrize("name", ["sgd", "saga", "storm"])
@pytest.mark.parametrize("when", ["middle", "end of an epoch", "end of the run"])
def test_a_net_that_dies_under_steps_without_anchors_is_gone_back_from(name: str, when: str) -> None:
    course, still = made(vcsg.make(name, b=4))
    if course.state.phase.kind == "anchor":
        anchor(course, 2.3)
    count = course.state.phase.count
    assert count == N // 4
    steps(course, [*cycle([2.4, 2.2], 40), *cycle([0.9, 0.5], count - 40)])
    alive = {"middle": 0, "end of an epoch": count // 2 + 30, "end of the run": 10}[when]
    steps(course, cycle([0.5, 0.7], alive))
    number = course.state.phase.number
    steps(course, cycle(DEAD, 34 if when == "end of the run" else count - alive))
    if when == "end of the run":
        assert not still.restored
        course.judge_end()
    assert still.restored == ["anchor"]
    assert course.state.epoch == 2
    assert course.state.phase.number > number


def larger(B: int, loss: float, losses_variance: float, moment: float = 100.0) -> Anchor:
    return Anchor(10_000, B, loss, losses_variance, 0.1 * moment, 0.9 * moment)


def test_a_larger_anchor_tells_a_dead_net() -> None:
    """The anchors of growing-svrg with eight times its step on LeNet-300-100."""
    watch = Watch()
    for good in (larger(1024, 2.3066, 0.01, 25.0), larger(3267, 0.829, 1.1, 112.0)):
        assert watch.fault(good, L=40.0) is None
    fault = watch.fault(larger(10_000, 2.3232, 0.02, 107.0), L=40.0)
    assert fault is not None
    assert "back at 2.323, where it began" in fault


def test_a_larger_anchor_tells_a_loss_that_grew() -> None:
    watch = Watch()
    assert watch.fault(larger(1024, 2.3074, 0.01, 31.7), L=10.0) is None
    assert watch.fault(larger(4096, 5.86, 16.0, 723.0), L=10.0) is not None


def test_the_point_that_a_larger_anchor_sends_a_run_back_to_is_measured_as_well() -> None:
    """So a run whose first anchor had missed a heavy tail is not sent back twice for it."""
    course, still = made(vcsg.make("growing-svrg", B=64, growth=4.0, b=8))
    anchor(course, 2.3)
    steps(course, [2.3] * 8)
    assert course.state.phase.total == 256
    anchor(course, 7.0)
    assert still.restored == ["anchor"]
    assert (course.state.epoch, course.state.phase.total) == (1, 256)
    anchor(course, 7.0)
    steps(course, [7.0] * 32)
    anchor(course, 6.9)
    assert course.state.epoch == 2
    assert still.restored == ["anchor"]


@pytest.mark.parametrize("rate", [1 / 20, 1 / 200, 1 / 2000])
def test_few_samples_that_carry_the_loss_condemn_no_larger_anchor(rate: float) -> None:
    """1000 runs of anchors of 8 to 8192 samples, of which some few have the loss, at a point that does not move."""
    rng, condemned = np.random.default_rng(0), 0
    for _ in range(1000):
        watch = Watch()
        for B in (8, 32, 128, 512, 2048, 8192):
            losses = np.where(rng.random(B) < rate, 1 / rate, 0.01)
            chunks = losses.reshape(8, -1).mean(1)
            variance = B / 8 * chunks.var(ddof=1)
            fault = watch.fault(Anchor(10_000, B, losses.mean(), variance, 0.1, 0.9), L=10.0)
            condemned += fault is not None and "the loss" in fault
    assert condemned <= 10


def heavy(rng: np.random.Generator, count: int) -> np.ndarray:
    """Losses of mean 1 and infinite variance."""
    return rng.pareto(1.5, count) / 2


@pytest.mark.parametrize("draw", [heavy, lambda rng, count: rng.normal(size=count) ** 2], ids=["pareto", "squares"])
def test_losses_of_a_point_as_good_as_the_first_are_not_condemned(
    draw: Callable[[np.random.Generator, int], np.ndarray],
) -> None:
    """By Markov's inequality one of 2^16 runs at most, plus those whose first loss was far too low."""
    rng, condemned = np.random.default_rng(0), 0
    for _ in range(2000):
        watch = Watch()
        watch.loss_fault(float(draw(rng, 64).mean()), 1.0)
        condemned += watch.ending_fault(list(draw(rng, LAST_STEPS))) is not None
    assert condemned <= 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("far", [1e9, -1e9])
def test_a_sample_that_is_far_from_all_others_is_no_divergence(
    far: float, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its loss is the same at every point, and however small the step: going back from it never ends."""
    X = torch.randn(500, 4, generator=torch.Generator().manual_seed(seed))
    y = X[:, :1] - 2 * X[:, 1:2]
    y[123] = far
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        vcsg.fit(model, torch.nn.functional.l1_loss, (X, y), passes=20, seed=seed)
    assert "diverged" not in caplog.text
    kept = torch.arange(500) != 123
    assert (model(X) - y)[kept].abs().mean() < 0.25 < (y - y[kept].median())[kept].abs().mean() / 5


@pytest.mark.parametrize("L", [1e-3, 1e-2])
def test_a_run_that_diverges_before_any_anchor_judges_it_is_gone_back_from(
    L: float, caplog: pytest.LogCaptureFixture
) -> None:
    """As before: in the run that diverges, the last losses are large, too."""
    X = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    y = X[:, :1] - 2 * X[:, 1:2]
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        vcsg.fit(model, torch.nn.functional.mse_loss, (X, y), "sgd", b=8, L=L, passes=20)
    assert "diverged" in caplog.text
    assert torch.nn.functional.mse_loss(model(X), y) < 1e-3


def test_fewer_steps_than_tell_are_not_judged() -> None:
    watch = Watch(first_loss=2.3, lowest_loss=0.5, loss_scale=2.3)
    assert watch.ending_fault([2.4] * 15) is None
    assert watch.ending_fault([2.4] * 16) is not None
    assert watch.ending_fault([2.4] * 16, goes_on=True) is not None
    assert watch.ending_fault([0.6, 4.2] * 8) is None
    assert watch.ending_fault([2.0, 2.8] * 8, goes_on=True) is not None
    assert watch.ending_fault([0.9, 4.2] * 8, goes_on=True) is None  # within the noise
    assert watch.ending_fault([1.0] * 32) is None
    assert watch.ending_fault([0.4] * 10 + [1e9] * 6) is None  # most are as low as ever, and a few samples are extreme
    assert Watch().ending_fault([1e9] * 32) is None  # nothing is known of the first loss


def test_a_run_that_gains_nothing_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    course, still = made(vcsg.make("sgd", b=4))
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        steps(course, cycle([2.2, 2.4], 160))
        course.judge_end()
        steps(course, cycle([2.35, 2.4], 160))
        course.judge_end()
        course.judge_end()
    told = [record.message for record in caplog.records]
    assert told == ["hardly anything was gained so far: the loss is 2.375, and it began at 2.3"]
    assert not still.restored


def test_a_gain_of_less_than_a_fiftieth_is_told_where_losses_are_steady() -> None:
    watch = Watch(first_loss=2.3, lowest_loss=2.2, loss_scale=2.3)
    told = "the loss is 2.27, and it began at 2.3"
    assert watch.gained_nothing([2.27] * 12 + [2.2] * 4) == told
    assert watch.gained_nothing([2.27] * 11 + [2.2] * 5) is None
    assert watch.gained_nothing([2.25] * 16) is None
    assert watch.gained_nothing([2.27] * 15) is None  # too few
    assert watch.gained_nothing([2.4, 9.0] * 7 + [2.29, 9.0]) is None  # they scatter, and one is below
    assert watch.gained_nothing([2.4, 9.0] * 8) == "the loss is 5.7, and it began at 2.3"


def test_last_losses_are_part_of_a_saved_state() -> None:
    course, _ = made(vcsg.make("sgd", b=4))
    steps(course, [2.0, 1.0, 0.5])
    again = CourseState.from_state_dict(course.state.state_dict())
    assert again.last_losses == [2.0, 1.0, 0.5]


@pytest.mark.parametrize("name", ["svrg", "sgd"])
def test_a_run_that_dies_at_its_end_ends_at_its_last_good_point(name: str, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    X = 3 * torch.randn(800, 5, generator=torch.Generator().manual_seed(1))
    Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
    with torch.no_grad():
        model[2].weight.mul_(0.1)
    optimizer = FiniteSumOptimizer(
        [{"params": model.parameters(), "lr": 4.0 if name == "svrg" else 1.0}], 800, name, b=8, L=3.0
    )
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        for x, y in optimizer.batches((X, Y), passes=10.4):
            if optimizer.passes > 10 and optimizer.phase.kind == "inner":
                with torch.no_grad():
                    model[0].bias.fill_(-1e3)
                    model[2].bias.zero_()
            optimizer.step(net_closure(model, x, y))
    assert len(caplog.records) == 1
    assert "diverged: at the end" in caplog.text
    assert (model[0].bias > -100).all()
    assert torch.nn.functional.cross_entropy(model(X), Y).item() < 0.6
