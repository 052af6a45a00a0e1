"""What a run promises where something is wrong: bad samples are named, a dead net is seen, nothing falls silent."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from nets import net_closure, vector
from quadratic import closure, parameter, quadratic, run, smoothness
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

import vcsg
from vcsg import FiniteSumOptimizer
from vcsg.method.schedules import Facts, VarianceControlled
from vcsg.run.course import Course
from vcsg.run.course_options import CourseOptions
from vcsg.run.variance import Anchor, AnchorSum
from vcsg.run.watch import BadSamples, Diverged, Watch

METHODS = sorted(vcsg.methods())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "diverged" in record.message]


# --- f has its penalty


@pytest.mark.parametrize("name", ["gd", "svrg", "sgd", "storm"])
def test_a_run_whose_penalty_falls_is_not_condemned(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """From a fitted start the loss of the data rises, and f falls."""
    problem = quadratic(n=200, d=5, noise=0.0)
    p = parameter(problem.minimum + 1e-4)
    options = {} if name == "gd" else {"b": 1}
    optimizer = FiniteSumOptimizer([p], 200, name, L=2.0, weight_decay=1.0, **options)
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        x = run(problem, optimizer, p, passes=20)
    assert not warnings(caplog)
    best = np.linalg.solve(problem.hessian + np.eye(5), problem.A.T @ problem.t / 200)
    assert np.linalg.norm(x - best) < 0.2 * np.linalg.norm(problem.minimum - best)


@pytest.mark.parametrize("maximize", [False, True])
def test_the_loss_of_a_record_is_that_of_f(maximize: bool) -> None:
    problem, p, q = quadratic(), parameter(), torch.nn.Parameter(torch.full((3,), 5.0, dtype=torch.float64))
    frozen = torch.nn.Parameter(torch.ones(2, dtype=torch.float64), requires_grad=False)
    groups = [{"params": [p], "weight_decay": 0.5}, {"params": [q, frozen], "weight_decay": 0.1}]
    optimizer = FiniteSumOptimizer(groups, 60, "svrg", L=1.0, maximize=maximize)

    def both(rows: Tensor, targets: Tensor) -> Callable[[], Tensor]:
        def evaluate() -> Tensor:
            loss = 0.5 * ((rows @ p - targets) ** 2).mean() + 0 * q.sum()
            loss.backward()
            return loss

        return evaluate

    for rows, targets, _ in optimizer.batches(problem.data, passes=1):
        returned = optimizer.step(both(rows, targets))
    mean = 0.5 * float(((problem.A @ np.full(4, 2.0) - problem.t) ** 2).mean())
    penalty = 0.25 * 16.0 + 0.05 * 75.0
    assert optimizer.record is not None
    assert optimizer.record.loss == pytest.approx(mean - penalty if maximize else mean + penalty)
    assert float(returned.detach()) < 20.0


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["empty", "frozen"])
def test_a_group_in_which_nothing_moves(name: str, kind: str) -> None:
    problem, ends = quadratic(), []
    for more in (False, True):
        p, idle = parameter(), torch.nn.Parameter(torch.ones(3, dtype=torch.float64), requires_grad=False)
        groups: list[dict[str, Any]] = [{"params": [p]}]
        if more:
            still: list[Any] = [] if kind == "empty" else [idle]
            groups.append({"params": still, "weight_decay": 0.1, "maximize": True})
        ends.append(run(problem, FiniteSumOptimizer(groups, 60, name, **smoothness(name, 1.0)), p, passes=4))
        assert torch.equal(idle, torch.ones(3))
    np.testing.assert_array_equal(*ends)


# --- samples that are not finite


BAD = 37


def spoilt(value: float = math.nan) -> tuple[Tensor, Tensor, Tensor]:
    rows, targets, numbers = quadratic(n=400).data
    targets[BAD] = value
    return rows, targets, numbers


def go(optimizer: FiniteSumOptimizer, p: torch.nn.Parameter, data: Any) -> None:
    for batch in optimizer.batches(data, passes=100):
        optimizer.step(closure(p, batch))


CASES: list[tuple[str, dict[str, Any]]] = [
    ("scsg", {}),
    ("sgd", {"b": 20}),
    ("sgd", {"b": 1}),
    ("svrg", {"b": 4}),
    ("storm", {"b": 4}),
    ("spider", {}),
    ("vcsg", {"eps": 0.1}),
    ("batching-svrg", {"B": 20}),
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_sample_that_is_not_finite_is_named(name: str, options: dict[str, Any], value: float) -> None:
    """Whether it comes in the first anchor or much later, it is no divergence: L stays, x is finite."""
    p, data = parameter(), spoilt(value)
    optimizer = FiniteSumOptimizer([p], 400, name, L=2.0, seed=3, **options)
    with pytest.raises(FloatingPointError, match=rf"look at the model and at the sample {BAD}$"):
        go(optimizer, p, data)
    assert optimizer.L == 2.0
    assert torch.isfinite(p).all()


def test_a_loader_names_the_sample_too() -> None:
    p, data = parameter(), spoilt()
    optimizer = vcsg.SGD([p], n=400, L=2.0, b=20)
    loader = DataLoader(TensorDataset(*data), batch_sampler=optimizer.sampler)
    with pytest.raises(BadSamples, match=rf"sample {BAD}$"):
        go(optimizer, p, loader)


def faulty_root(model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Finite data and a finite loss, and a gradient that is not: √ at 0, for one sample."""
    x, y = batch
    return mse_loss(model(x), y) + (model(x).square().sum(1) * (y[:, 0] != 0)).sqrt().mean()


@pytest.mark.parametrize(("method", "options"), [("svrg", {"b": 8}), ("sgd", {"b": 8}), ("scsg", {"b": 2})])
@pytest.mark.parametrize("kind", ["tensors", "dataset"])
def test_fit_finds_the_one_sample_whose_gradient_is_not_finite(method: str, options: Any, kind: str) -> None:
    torch.manual_seed(0)
    X, Y = torch.randn(300, 3), torch.ones(300, 1)
    Y[BAD] = 0.0
    data: Any = (X, Y) if kind == "tensors" else TensorDataset(X, Y)
    model = torch.nn.Linear(3, 1)
    made: dict[str, Any] = {"workers": 0, "collate_fn": lambda rows: tuple(map(torch.stack, zip(*rows, strict=True)))}
    with pytest.raises(FloatingPointError, match=rf"at the sample {BAD}$"):
        vcsg.fit(
            model, None, data, method, objective=faulty_root, passes=60, L=50.0, **options,
            **(made if kind == "dataset" else {}),
        )  # fmt: skip
    assert torch.isfinite(vector(model)).all()


@pytest.mark.parametrize("name", ["storm", "svrg", "spider", "scsg"])
def test_a_point_that_is_not_finite_is_gone_back_from_where_its_samples_are_fine(name: str) -> None:
    """At the good point the batch is finite: it was the step, be it that of an anchor that moves."""
    problem, p = quadratic(), parameter()
    optimizer = FiniteSumOptimizer([p], 60, name, L=1e-4, b=1)
    with contextlib.suppress(Diverged):
        run(problem, optimizer, p, passes=100)
    assert optimizer.L is not None
    assert optimizer.L > 1e-3
    assert torch.isfinite(p).all()


def test_an_epoch_that_is_tried_again_for_what_is_not_finite_goes_step_by_step() -> None:
    class Still:
        lr, sign, penalty = 1.0, 1, 0.0

        def store(self, name: str) -> None: ...

        def restore(self, name: str) -> None: ...

        def step_along_mean(self, weight: float, step_size: Callable[[float], float]) -> None: ...

    course = Course(vcsg.make("svrg", b=4), 40, Still(), options=CourseOptions(chunk=8), L=1.0)
    total = AnchorSum(40, 8, loss=1.0, spread=1.0)
    course.take_anchor(total, 1.0)
    assert course.ready(10, math.inf) == 10
    course.take_steps([1.0, math.nan], [1.0, 1.0])
    assert course.ready(10, math.inf) == 0
    course.take_anchor(total, 1.0)
    assert course.ready(10, math.inf) == 0
    course.take_steps([1.0] * 10, [1.0] * 10)
    course.take_anchor(total, 1.0)
    assert course.ready(10, math.inf) == 10


@pytest.mark.parametrize("L", [1e-9, 1e-3])
def test_a_roll_back_in_float64_does_not_overflow(L: float) -> None:
    problem, p = quadratic(), parameter()
    optimizer = vcsg.SVRG([p], n=60, L=L, b=1)
    try:
        run(problem, optimizer, p, passes=200)
    except Diverged:
        assert L == 1e-9
    assert torch.isfinite(p).all()


# --- a dead net


def relu_net() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def test_a_dead_net_is_gone_back_from(caplog: pytest.LogCaptureFixture) -> None:
    """It guesses, and its loss is about the first: no bound above that would tell."""
    model, generator = relu_net(), torch.Generator().manual_seed(1)
    X = 3 * torch.randn(800, 5, generator=generator)
    Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
    optimizer = vcsg.SVRG(model.parameters(), n=800, b=8, L=3.0, lr=3.0)
    last, dead = 6, False
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        for x, y in optimizer.batches((X, Y), passes=100):
            optimizer.step(net_closure(model, x, y))
            if optimizer.epoch == last + 1 and not dead:
                dead = True
                with torch.no_grad():
                    model[0].bias.fill_(-1e3)
                    model[2].bias.copy_(torch.bincount(Y).log())
            if warnings(caplog):
                break
    assert optimizer.epoch == last
    assert "E‖∇f_i‖² fell" in warnings(caplog)[0]
    assert (model[0].bias > -100).all()


def anchor(loss: float, moment: float, error: float = 0.0) -> Anchor:
    """One of 100 of 10,000 samples."""
    return Anchor(10_000, 100, loss, error**2 * 100, 0.1 * moment, 0.9 * moment)


def watched(*anchors: Anchor) -> str | None:
    watch = Watch()
    for each in anchors[:-1]:
        assert watch.fault(each, L=10.0) is None
    return watch.fault(anchors[-1], L=10.0)


def test_what_a_watch_condemns_and_what_it_does_not() -> None:
    start, learnt = anchor(2.3, 25.0), anchor(0.8, 200.0)
    assert watched(start, learnt, anchor(2.28, 150.0)) is not None  # all that it had learnt
    assert watched(start, learnt, anchor(1.8, 30.0)) is not None  # most of it, and the gradients vanish
    assert watched(start, anchor(2.31, 0.9)) is not None  # dead from the start
    assert watched(start, learnt, anchor(1.8, 150.0)) is None  # a rebound of a net that lives
    assert watched(start, learnt, anchor(0.9, 10.0)) is None  # a few samples that are well known
    assert watched(start, learnt, anchor(2.4, 150.0, error=0.3)) is None  # too few to tell
    assert watched(start, anchor(0.01, 0.1), anchor(0.012, 0.01)) is None  # at the end of a good run
    assert watched(anchor(1000.0, 10.0), anchor(999.9, 1e-4)) is None  # a constant in the loss
    assert watched(anchor(0.0, 10.0), anchor(0.0, 1e-4)) is None  # a closure that returns no loss


def test_an_accepted_point_is_not_condemned_when_its_anchor_is_drawn_again() -> None:
    watch = Watch()
    for each in (anchor(2.3, 25.0), anchor(0.8, 200.0)):
        assert watch.fault(each, L=10.0) is None
    again = watch.renewed()
    assert again.fault(anchor(2.28, 1.0), L=10.0) is None
    assert again.fault(anchor(2.28, 1.0), L=10.0) is not None  # and what comes after is judged by all of the run


@pytest.mark.parametrize("name", ["storm", "svrg", "sgd"])
def test_a_first_loss_near_0_says_nothing_of_the_scale(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """f_i = ½xᵀA_i x − b_iᵀx is near 0 at the start and of either sign later."""
    problem, p = quadratic(n=200), parameter(np.full(4, 1e-9))
    optimizer = FiniteSumOptimizer([p], 200, name, L=1.0, b=2)
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        for rows, targets, _ in optimizer.batches(problem.data, passes=60):

            def evaluate(rows: Tensor = rows, targets: Tensor = targets) -> Tensor:
                loss = (0.5 * (rows @ p) ** 2 - targets * (rows @ p)).mean()
                loss.backward()
                return loss

            optimizer.step(evaluate)
    assert not warnings(caplog)


# --- sizes


def test_L_is_measured_for_the_smaller_mini_batches_of_the_next_epoch() -> None:
    """VCSG as printed begins with b = n^¼ = 10 and goes on with B = n/100 = 100, b = 3."""
    X, Y = torch.randn(10_000, 3, generator=torch.Generator().manual_seed(0)).double(), torch.zeros(10_000).double()
    p, sizes = parameter(d=3), set()
    optimizer = vcsg.VCSG([p], n=10_000, paper=True)
    for batch in optimizer.batches((X, Y), passes=2):
        if optimizer.phase.kind == "smoothness":
            sizes.add(len(batch[0]))
        if optimizer.phase.kind == "inner":
            break
        optimizer.step(closure(p, batch))
    assert sizes == {3}
    assert optimizer.record is not None
    assert optimizer.record.b == 10


def test_a_floor_of_b_lengthens_the_steps_of_the_second_regime() -> None:
    """At b = 1 it is the printed 1/√B; an epoch of B/b steps then goes as far, unless its steps were beyond γ/L."""
    for b_min in (1, 4, 16, 64, 256):
        schedule = VarianceControlled(eps=1e-9, b_min=b_min)
        second = schedule(Facts(2, 5000, 1.0, 1.0))
        assert (second.regime, second.b) == ("second", b_min)
        assert second.factor == pytest.approx(min(1.0, b_min / math.sqrt(second.B)))
        if b_min < 64:
            assert second.factor * second.B / second.b == pytest.approx(math.sqrt(second.B))  # as at b = 1
        start = schedule(Facts(1, 5000, 1.0, 1.0))
        assert (start.regime, start.b) == ("start", max(8, b_min))
        assert start.factor == pytest.approx(min(1.0, max(8, b_min) / 8 / math.sqrt(5000)))
        first = VarianceControlled(eps=1e9, b_min=b_min)(Facts(2, 5000, 1.0, 1.0))
        assert (first.regime, first.factor) == ("first", 1.0)


def test_a_first_variance_of_zero_is_no_measure() -> None:
    """All samples agree at the start, and differ later: ε and σ come from the first anchor where they do."""
    p, records = parameter(np.zeros(4)), []
    rows, targets, _ = quadratic().data
    optimizer = vcsg.VCSG([p], n=60, L=4.0, callback=records.append)
    for a, t in optimizer.batches((rows, targets), passes=20):

        def evaluate(a: Tensor = a, t: Tensor = t) -> Tensor:
            loss = (0.5 * (a @ p) ** 2).mean() + p.sum()
            loss.backward()
            return loss

        optimizer.step(evaluate)
    assert records[0].variance == 0.0
    assert records[-1].variance > 0
    assert records[-1].eps > 0
    assert VarianceControlled()(Facts(2, 60, 1.0, 0.0)).B == 60


def test_K_without_eps_is_said_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        for name in ("vcsg", "scsg"):
            vcsg.make(name), vcsg.make(name, eps=0.1, K=1.0)
        assert not caplog.records
        for name in ("vcsg", "scsg"):
            vcsg.make(name, K=1.0)
    assert [r.message for r in caplog.records] == ["K = 1 has no effect without eps: give eps=, or leave K out"] * 2


# --- state


@pytest.mark.parametrize(("ifo", "kind"), [(100, "inner"), (200, "anchor")])
def test_the_record_is_there_after_a_state_is_loaded_in_mid_epoch(ifo: int, kind: str) -> None:
    problem, p = quadratic(), parameter()
    optimizer = vcsg.SVRG([p], n=60, L=1.0)
    run(problem, optimizer, p, ifo=ifo)
    assert optimizer.phase.kind == kind
    other = vcsg.SVRG([parameter()], n=60, L=1.0)
    other.load_state_dict(optimizer.state_dict())
    assert other.record == optimizer.record is not None


def test_weighted_output_where_the_first_group_rests() -> None:
    problem, p, q = quadratic(), parameter(), parameter()
    optimizer = FiniteSumOptimizer(
        [{"params": [q], "lr": 0.0}, {"params": [p]}], 60, "batching-svrg", L=1.0, output="weighted", seed=3
    )
    ends, epoch = [], 1
    for batch in optimizer.batches(problem.data, passes=30):
        optimizer.step(closure(p, batch))
        if optimizer.epoch != epoch:
            epoch = optimizer.epoch
            ends.append(p.detach().clone())
    last = p.detach().clone()
    optimizer.load_output()
    assert any(torch.equal(p, end) for end in ends)
    assert not torch.equal(p, last)
    assert optimizer.record is not None
    assert optimizer.record.step_size > 0


@pytest.mark.parametrize("fails", ["raises", "is not finite"])
def test_batchnorm_statistics_are_put_back_where_a_step_is_not_taken(fails: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)).double()
    X = torch.randn(48, 5, dtype=torch.float64)
    optimizer = vcsg.SVRG(model.parameters(), n=48, b=4, L=10.0, buffers=model.buffers())
    at_anchor = [p.detach().clone() for p in model.parameters()]
    for x, y in optimizer.batches((X, (X[:, 0] > 0).long()), passes=10):
        inner = optimizer.phase.kind == "inner" and optimizer._state.position > 1
        before = [b.clone() for b in model.buffers()]

        def evaluate(x: Tensor = x, y: Tensor = y) -> Tensor:
            loss = cross_entropy(model(x), y)
            loss.backward()
            if all(torch.equal(p, q) for p, q in zip(model.parameters(), at_anchor, strict=True)):
                return loss
            if fails == "raises":
                raise KeyError("at x")
            return loss * math.nan

        if inner:
            if fails == "raises":
                with pytest.raises(KeyError, match="at x"):
                    optimizer.step(evaluate)
            else:
                optimizer.step(evaluate)
                assert optimizer.L == 20.0
            assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))
            return
        optimizer.step(net_closure(model, x, y))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["anchor", "inner"])
def test_a_parameter_that_is_thawed_has_an_anchor_at_once(name: str, kind: str) -> None:
    problem, p = quadratic(), parameter()
    q = torch.nn.Parameter(torch.full((4,), 0.5, dtype=torch.float64), requires_grad=False)
    optimizer = FiniteSumOptimizer([p, q], 60, name, **smoothness(name, 1.0))
    anchored = optimizer.method.anchored(1)
    thawed, seen, before = False, False, 0
    for rows, targets, _ in optimizer.batches(problem.data, passes=40):

        def evaluate(rows: Tensor = rows, targets: Tensor = targets) -> Tensor:
            loss = 0.5 * ((rows @ (p + q) - targets) ** 2).mean()
            loss.backward()
            return loss

        here = optimizer.phase.kind == kind and optimizer._state.position == 1
        if (here or optimizer.passes > 5) and not thawed:
            thawed, before = True, optimizer.ifo
            steps = optimizer._state.steps
            q.requires_grad_(True)
            optimizer.step(evaluate)
            assert optimizer._state.steps == steps + 1
            if anchored and here:
                assert (optimizer.phase.kind, optimizer._state.position) == ("anchor", 0)
                assert optimizer.ifo > before
                assert torch.equal(q, torch.full_like(q, 0.5))
            continue
        optimizer.step(evaluate)
        if thawed and anchored and optimizer.record is not None and optimizer.record.ifo >= before + 60:
            seen = True
            assert optimizer.state[q]["mean"].abs().sum() > 0
            break
    assert seen or not anchored
    assert thawed
