"""Every executor runs a method as the one that calls closures does, or refuses it with the reason."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from linear_data import make_problem
from test_blocks import Plain, data, net
from test_linear_engine import torch_run
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.gpu.executor import method_refusal
from vcsg.linear import Penalty
from vcsg.linear.solvers.family import LinearExecutor, run
from vcsg.method import Constant, Facts, Fading, Given, Method, Plan, PowerLaw, Weights, weights
from vcsg.run.estimator import weigh
from vcsg.run.vectors import Tensors, dot


@dataclass(frozen=True)
class Alternating:
    """Anchors of two sizes in turn, each with a regime, a mini-batch and a step of its own."""

    regimes = ("odd", "even")

    def first(self, n: int) -> int:
        return n // 3

    def __call__(self, facts: Facts) -> Plan:
        if facts.epoch % 2:
            return Plan(B=facts.n // 3, b=3, factor=0.7, next_B=facts.n, regime="odd", eps=0.1)
        return Plan(B=facts.n, b=7, factor=0.3, next_B=facts.n // 3, regime="even")


@dataclass(frozen=True)
class WhereAligned:
    """A rule that no executor has seen: code decides between two triples."""

    @property
    def choices(self) -> tuple[Weights, ...]:
        return Weights(1, -1, 1), Weights(1, 0, 0)

    def at(self, epoch: int) -> WhereAligned:
        return self

    def combine(self, now: Tensors, anchor: Tensors, mean: Tensors) -> None:
        svrg, sgd = self.choices
        weigh(svrg if dot(now, anchor) > 0 else sgd, now, anchor, mean)


class Doubled(Constant):
    """A subclass whose data are SVRG's and whose code is not."""

    def combine(self, now: Tensors, anchor: Tensors, mean: Tensors) -> None:
        weigh(self.weights, now, anchor, mean)
        for v in now:
            v.mul_(2)


@dataclass(frozen=True)
class LaterAligned:
    """Constant weights at first, code from the third epoch on."""

    @property
    def choices(self) -> tuple[Weights, ...]:
        return WhereAligned().choices

    def at(self, epoch: int) -> Constant | WhereAligned:
        return Constant(Weights(1, -1, 1)) if epoch < 3 else WhereAligned()


SVRG = Weights(1, -1, 1)
STEADY = PowerLaw(Given(), b=4, alpha=0)
BY_LEMMA = weights.Tested("lemma", Weights(0.7, -0.2, 0.4), Weights(1, 0, 0))
BY_ELEMENT = weights.Tested("elementwise", Weights(0.3, 0.2, 0.4), Weights(1, -0.5, 0.5))
UNUSUAL = {
    "regimes": Method(
        "regimes",
        {
            "odd": Constant(Weights(0.8, -0.3, 0.6)),
            "even": weights.Tested("lemma", Weights(0.7, -0.2, 0.4), Weights(1, 0, 0)),
        },
        Alternating(),
        "geometric",
        gamma=0.6,
    ),
    "moving": Method(
        "moving", {"": Constant(Weights(0.9, -0.4, 0.5))}, STEADY, "fixed", gamma=0.2, moves="step", drawn="once"
    ),
    "stepping": Method(
        "stepping", {"": Constant(Weights(1.1, -0.8, 0.8))}, STEADY, "geometric", 0.4, "step", "epoch", True
    ),
    "elementwise": Method("elementwise", {"": BY_ELEMENT}, STEADY, "fixed"),
    "fading": Method("fading", {"": Fading(0.9, 3)}, STEADY, "fixed", gamma=0.5),
}
"""Every field at a value that no method of the catalogue has."""
OWN_CODE = {
    "code": Method("code", {"": WhereAligned()}, STEADY, "fixed"),
    "subclass": Method("subclass", {"": Doubled(SVRG)}, STEADY, "fixed"),
}
LATER = Method("later", {"": LaterAligned()}, STEADY, "fixed")


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_compiled_loops_take_the_steps_of_the_closures(name: str, form: str) -> None:
    problem = make_problem("logistic", n=60, d=4, bias=0.0, penalty=Penalty(l2=0.05))
    expected = torch_run(problem, UNUSUAL[name], 5, 0.05)
    made = problem if form == "dense" else make_problem("logistic", 60, 4, 0.0, Penalty(l2=0.05), form)
    executor = LinearExecutor(made, np.zeros(made.shape), UNUSUAL[name], seed=3)
    for x in expected:
        executor.look()
        executor.move()
        np.testing.assert_allclose(executor.point.x[0, :-1], x, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", OWN_CODE)
def test_compiled_loops_refuse_a_rule_with_code_of_its_own(name: str) -> None:
    problem = make_problem("logistic", n=60, d=4, bias=0.0)
    with pytest.raises(ValueError, match=r"has the rule \w+, which forms its direction by code of its own"):
        run(problem, np.zeros(problem.shape), OWN_CODE[name])


def test_compiled_loops_refuse_such_a_rule_when_it_comes_later() -> None:
    problem = make_problem("logistic", n=60, d=4, bias=0.0)
    with pytest.raises(ValueError, match="has the rule WhereAligned"):
        run(problem, np.zeros(problem.shape), LATER, tol=0.0)


def steps(method: Method, blocks: Callable[[Any, nn.Module], Any] | None) -> tuple[list[Tensor], list[Any]]:
    """The parameters at the end of a run by closures, or in blocks by another executor; and its records."""
    model, records = net(), []
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), 90, method, L=8.0, seed=2, callback=records.append)
    executor, sizes = blocks and blocks(optimizer._executor, model), itertools.cycle([3, 1, 8])
    for x, y in optimizer.batches(data(), passes=12):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss

        if executor is None or not optimizer.advance(executor, next(sizes), 12 * 90)[0]:
            optimizer.step(closure)
    return [p.detach() for p in model.parameters()], [(r.epoch, r.regime, r.B, r.b, r.length, r.ifo) for r in records]


@pytest.mark.parametrize("name", UNUSUAL)
def test_blocks_of_steps_are_those_of_the_closures(name: str) -> None:
    expected, records = steps(UNUSUAL[name], None)
    found, told = steps(UNUSUAL[name], Plain)
    assert told == records
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_graphs_refuse_a_rule_with_code_of_its_own() -> None:
    for method in UNUSUAL.values():
        assert method_refusal(method) == ""
    for method in OWN_CODE.values():
        assert "forms its direction by code of its own" in method_refusal(method)
    assert "table" in method_refusal(vcsg.make("saga"))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", [*UNUSUAL, *OWN_CODE, "later"])
def test_graphs_take_the_steps_of_the_closures_or_leave_them_to_those(name: str) -> None:
    method = {**UNUSUAL, **OWN_CODE, "later": LATER}[name]
    results = [
        vcsg.fit(net(), cross_entropy, data(), method, L=8.0, seed=2, passes=12, engine=engine, device="cuda")
        for engine in ("graphed", "eager")
    ]
    assert results[0].engine["engine"] == ("graphed" if name in UNUSUAL else "eager")
    if name not in UNUSUAL:
        assert "code of its own" in results[0].engine["engine_reason"]
    told = [[(r.epoch, r.regime, r.B, r.b, r.length, r.ifo) for r in result.records] for result in results]
    assert told[0] == told[1]
    for a, b in zip(*(result.model.parameters() for result in results), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
