"""A run that stops because its gradient is small has an anchor of all samples that says so."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from quadratic import Quadratic, closure, parameter, quadratic, run, steps

import vcsg
from vcsg import FiniteSumOptimizer
from vcsg.run.record import Answer
from vcsg.run.variance import Anchor, AnchorSum


def rare(n: int = 2000, carriers: int = 4) -> Quadratic:
    """f_i = ½(a_i·x − t_i)² with a few samples that carry all of the gradient: at x = 0 the others have none."""
    rows, targets = np.zeros((n, 1)), np.zeros(n)
    rows[:carriers], targets[:carriers] = 1.0, n / carriers
    rows[carriers:] = 1e-3
    return Quadratic(rows, targets)


def asked(record: vcsg.Record, eps: float) -> bool:
    return vcsg.stationary(eps)(record) is Answer.CONFIRM


def test_no_run_stops_falsely_where_few_samples_carry_the_gradient() -> None:
    """At ε = ‖∇f‖²/10, with steps that do not move: nearly every small anchor sees no gradient at all."""
    problem, deceived = rare(), 0
    eps = problem.norm2(np.zeros(1)) / 10
    for seed in range(200):
        p = parameter(np.zeros(1))
        told: list[vcsg.Record] = []
        optimizer = vcsg.BatchingSVRG([p], n=problem.n, B=32, b=16, L=1e12, seed=seed, callback=told.append)
        run(problem, optimizer, p, until=vcsg.stationary(eps), passes=2)
        assert optimizer.passes >= 2
        deceived += any(asked(record, eps) for record in told)
    assert deceived > 190


def coverage(B: int, draws: int = 1000) -> float:
    """The share of anchors of B samples whose rough bound is above ‖∇f‖²."""
    problem, x, rng = rare(), np.zeros(1), np.random.default_rng(0)
    gradients, covered = problem.gradients(x), 0
    for _ in range(draws):
        total, mean = AnchorSum(), np.zeros(1)
        for part in np.array_split(gradients[rng.permutation(problem.n)[:B]], 8):
            deviation = float(((part.mean(0) - mean) ** 2).sum())
            total.take(len(part), 0.0, deviation)
            mean += (part.mean(0) - mean) * len(part) / total.samples
        covered += total.close(problem.n, float(mean @ mean)).rough_bound >= problem.norm2(x)
    return covered / draws


def test_the_rough_bound_is_as_rough_as_it_says() -> None:
    assert coverage(32) == pytest.approx(0.06, abs=0.03)
    assert coverage(2000, draws=1) == 1


def test_the_rough_bound_of_a_full_anchor_is_the_gradient() -> None:
    assert Anchor(n=9, B=9, loss=0.0, loss_s2=4.0, g_norm2=0.3, s2=5.0).rough_bound == pytest.approx(0.3)
    part = Anchor(n=9, B=3, loss=0.0, loss_s2=4.0, g_norm2=0.3, s2=5.0)
    assert part.rough_bound == pytest.approx((math.sqrt(0.3) + math.sqrt(20 * part.noise)) ** 2)


@pytest.mark.parametrize("name", ["svrg", "vcsg", "scsg"])
@pytest.mark.parametrize("eps", [1e-3, 1e-6])
def test_it_stops_at_a_full_anchor_that_is_exact(name: str, eps: float) -> None:
    problem, p = quadratic(), parameter()
    options = {"eps": eps / 10} if name == "vcsg" else {}
    optimizer = FiniteSumOptimizer([p], 60, name, L=1.0, **options)
    x = run(problem, optimizer, p, until=vcsg.stationary(eps), passes=3000)
    assert optimizer.passes < 3000
    assert optimizer.record is not None
    assert optimizer.record.anchor is not None
    assert optimizer.record.anchor.B == 60
    assert optimizer.record.gradient_norm2 == pytest.approx(problem.norm2(x), rel=1e-9)
    assert problem.norm2(x) <= eps


def test_a_confirming_anchor_is_counted_like_any_other() -> None:
    problem, p, eps = quadratic(), parameter(), 3e-3
    told: list[vcsg.Record] = []
    optimizer = vcsg.BatchingSVRG([p], n=60, B=30, L=1.0, callback=told.append)
    counted = sum(len(batch[0]) for batch in steps(problem, optimizer, p, until=vcsg.stationary(eps), passes=500))
    inner = sum(r.length * r.b for r in told[:-1])
    assert optimizer.ifo == counted + inner  # an inner step evaluates its batch at two points
    assert optimizer.passes < 500
    confirming = [after for before, after in itertools.pairwise(told) if before.length and asked(before, eps)]
    assert confirming
    assert all(record.anchor is not None and record.anchor.B == 60 for record in confirming)
    sizes = {record.anchor.B for record in told if record.anchor is not None}
    assert sizes == {30, 60}


def test_an_epoch_without_steps_delays_the_confirmation_by_one() -> None:
    """N = 0: the next anchor has begun before the rule is asked."""
    p = parameter()
    optimizer = vcsg.BatchingSVRG([p], n=60, B=30, b=30, L=1.0, seed=1)
    told = []
    answers = iter([Answer.CONFIRM, *[False] * 40])
    for _ in steps(quadratic(), optimizer, p, until=lambda r: told.append(r) or next(answers), passes=20):  # type: ignore[func-returns-value]
        pass
    first = next(k for k, r in enumerate(told) if r.anchor is not None and r.anchor.B == 60)
    assert first == 1 + (told[0].length == 0)


def test_the_request_survives_a_state_saved_before_the_rule_is_asked() -> None:
    problem, p, rule = quadratic(), parameter(), vcsg.stationary(10.0)  # every anchor asks
    optimizer = vcsg.BatchingSVRG([p], n=60, B=30, L=1.0)
    for batch in optimizer.batches(problem.data, passes=9, until=rule):
        optimizer.step(closure(p, batch))
        if optimizer.record is not None:
            break
    assert optimizer.phase.kind == "inner"
    assert optimizer.record is not None
    assert asked(optimizer.record, 10.0)
    q = torch.nn.Parameter(p.detach().clone())
    other = vcsg.BatchingSVRG([q], n=60, B=30, L=1.0)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for x, resumed in ((p, optimizer), (q, other)):
        run(problem, resumed, x, until=rule, passes=9)
        assert resumed.record is not None
        assert resumed.record.anchor is not None
        assert (resumed.record.epoch, resumed.record.anchor.B) == (2, 60)
    assert torch.equal(p, q)
    assert optimizer.ifo == other.ifo


def test_a_request_is_part_of_a_saved_state() -> None:
    p = parameter()
    optimizer = vcsg.BatchingSVRG([p], n=60, B=30, L=1.0)
    answers = iter([Answer.CONFIRM, *[False] * 99])
    batches = optimizer.batches(quadratic().data, passes=9, until=lambda _: next(answers))
    for batch in batches:
        if optimizer.phase.kind == "inner":
            break
        optimizer.step(closure(p, batch))
    other = vcsg.BatchingSVRG([p], n=60, B=30, L=1.0)
    other.load_state_dict(optimizer.state_dict())
    sizes = [r.anchor.B for r in records_of(other, p, passes=6)]
    assert sizes[0] == 60


def records_of(optimizer: FiniteSumOptimizer, p: torch.nn.Parameter, passes: float) -> list[vcsg.Record]:
    told: list[vcsg.Record] = []
    run(quadratic(), optimizer, p, until=lambda r: bool(told.append(r)), passes=passes)  # type: ignore[func-returns-value]
    return told


def test_fit_stops_at_a_confirmed_point() -> None:
    problem = quadratic()
    rows, targets = problem.data[:2]
    model = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)

    def squares(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 0.5 * ((outputs[:, 0] - targets) ** 2).mean()

    result = vcsg.fit(
        model, squares, (rows, targets), "batching-svrg", B=30, L=1.0, passes=900, until=vcsg.stationary(3e-3)
    )
    assert result.stopped == "until"
    x = model.weight.detach().numpy()[0]
    assert problem.norm2(x) <= 3e-3
    assert result.records[-1].anchor is not None
    assert result.records[-1].anchor.B == 60
    assert {r.anchor.B for r in result.records if r.anchor is not None} == {30, 60}


def test_stationary_checks_its_arguments() -> None:
    for eps in (0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"eps = {eps}"):
            vcsg.stationary(eps)


@pytest.mark.parametrize("name", ["sgd", "saga", "storm", "auto"])
def test_a_run_that_could_never_end_is_refused(name: str) -> None:
    p = parameter()
    optimizer = FiniteSumOptimizer([p], 60, name)
    with pytest.raises(ValueError, match="draws no anchor in every epoch, so the run would never end"):
        optimizer.batches(quadratic().data, until=vcsg.stationary(1e-4))
    optimizer.batches(quadratic().data, until=vcsg.stationary(1e-4), passes=1)
    model, data = torch.nn.Linear(3, 2), (torch.randn(20, 3), torch.zeros(20, dtype=torch.long))
    with pytest.raises(ValueError, match="would never end"):
        vcsg.fit(model, torch.nn.functional.cross_entropy, data, name, until=vcsg.stationary(1e-4))
