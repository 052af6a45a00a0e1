"""Many steps at once, without a GPU: what the run counts and decides for them, and the kernels in Triton's interpreter.

`Plain` executes blocks of steps by the formula, in float64 on the CPU, as the graphed engine does on a device; the run
must then be that of `step`, for every method, wherever the blocks are cut.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from nets import vector
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.gpu.executor import Form, GraphExecutor, Objective, all_at, form, refusal
from vcsg.gpu.graphs import Samples, Uncapturable, equal
from vcsg.gpu.launching import Ruled, Tables
from vcsg.method import Adaptive, Orthogonal, weights
from vcsg.method import Plain as PlainSteps
from vcsg.method.step_rules import is_matrix
from vcsg.method.weights import Constant, Rule, Weights
from vcsg.run.closures import ClosureExecutor
from vcsg.run.course import StepNumbers
from vcsg.run.preconditioning import Correction, precondition
from vcsg.training.engine import StepEngine
from vcsg.training.loop import _reaching
from vcsg.training.sources import TensorSource

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
N = 90


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def data() -> tuple[Tensor, Tensor]:
    X = torch.randn(N, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return X, (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


# --- what the run makes of blocks


class Plain:
    """Executes the steps of a run by the formula."""

    def __init__(self, executor: ClosureExecutor, model: nn.Module) -> None:
        self._executor, self._model, self._data = executor, model, data()
        self._course, self._point = executor.course, executor.point

    def advance(self, most: int, limit: float) -> tuple[int, float]:
        course, state = self._course, self._course.state
        count = course.ready(most, limit)
        if not count:
            return 0, 0.0
        phase, first = state.phase, state.position
        parts = [phase.indices[phase.bounds(k)] for k in range(first, first + count)]
        measured = self._anchor(parts) if phase.kind == "anchor" else self._inner(parts)
        losses, others = zip(*measured, strict=True)
        if phase.kind == "anchor":
            course.take_chunks(losses, others)
            self._executor.close_anchor()
        else:
            course.take_steps(losses, others)
        return sum(map(len, parts)), sum(len(part) * loss for part, loss in zip(parts, losses, strict=True))

    def _gradient(self, at: list[Tensor], part: Tensor) -> tuple[float, list[Tensor]]:
        names = [name for name, _ in self._model.named_parameters()]
        point = {name: t.clone().requires_grad_() for name, t in zip(names, at, strict=True)}
        with torch.enable_grad():
            outputs = torch.func.functional_call(self._model, point, (self._data[0][part],))
            loss = cross_entropy(outputs, self._data[1][part])
            return loss.item(), list(torch.autograd.grad(loss, list(point.values())))

    def _anchor(self, parts: list[Tensor]) -> list[tuple[float, float]]:
        point, taken = self._point, self._course.state.anchor_sum.samples
        mean, measured = point.vector("mean"), []
        for part in parts:
            loss, gradient = self._gradient(point.params, part)
            if taken == 0:
                for m in mean:
                    m.zero_()
            taken += len(part)
            distance = sum(float((g - m).square().sum()) for g, m in zip(gradient, mean, strict=True))
            for g, m in zip(gradient, mean, strict=True):
                m += (g - m) * len(part) / taken
            measured.append((loss, distance))
        return measured

    def _inner(self, parts: list[Tensor]) -> list[tuple[float, float]]:
        course, point = self._course, self._point
        rule, measured, count = course.rule, [], len(parts)
        for part, (read, write), numbers in zip(parts, course.levels(count), course.step_numbers(count), strict=True):
            loss, now = self._gradient(point.params, part)
            beside, anchor, mean = 0.0, [torch.zeros_like(g) for g in now], [torch.zeros_like(g) for g in now]
            if any(w.anchor for w in rule.choices):
                beside, anchor = self._gradient(point.vector(f"anchor{read or ''}"), part)
            if any(w.mean for w in rule.choices):
                mean = [m.clone() for m in point.vector(f"mean{read or ''}")]
            v = direction(rule, now, anchor, mean)
            steps = self._steps(v, mean, numbers)
            if write:
                for y, m, x, d in zip(
                    point.vector(f"anchor{write}"), point.vector(f"mean{write}"), point.params, v, strict=True
                ):
                    y.copy_(x)
                    m.copy_(d)
            for group in point.groups:
                eta = numbers.step_size(group["lr"])
                for x in group["params"]:
                    share = point.rule.share if isinstance(point.rule, Orthogonal) and x.dim() < 2 else 1
                    x.copy_((1 - eta * share * group["decoupled_weight_decay"]) * x - eta * steps.pop(0))
            if numbers.average is not None:
                for x, average in zip(point.params, point.vector("output"), strict=True):
                    average.copy_(average + numbers.average * (x - average))
            measured.append((loss, beside))
        return measured

    def _steps(self, v: list[Tensor], mean: list[Tensor], numbers: StepNumbers) -> list[Tensor]:
        """P(v) of every parameter, by the formula."""
        rule, t, memory = self._point.rule, numbers.moment, numbers.memory if numbers.memory < 1 else 0.0
        if isinstance(rule, PlainSteps):
            return list(v)
        seconds, found = iter(self._point.second_moments()), []
        for d, m in zip(v, mean, strict=True):
            if isinstance(rule, Orthogonal) and d.dim() == 2:
                found.append(polar(d, rule.iterations))
                continue
            s, added = next(seconds), (d - memory * m) / (1 - memory)
            s.copy_(rule.beta2 * (s if t > 1 else 0 * s) + (1 - rule.beta2) * added**2)
            unbiased = d / (1 - memory**t) if numbers.from_zero else d
            share = 1.0 if isinstance(rule, Adaptive) else rule.share
            found.append(share * unbiased / ((s / (1 - rule.beta2**t)).sqrt() + rule.eps))
        return found


def polar(matrix: Tensor, iterations: int) -> Tensor:
    """√max(1, rows/columns) · UWᵀ, as five quintic iterations have it."""
    rows, columns = matrix.shape
    x = (matrix if rows <= columns else matrix.T) / matrix.norm()
    for _ in range(iterations):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x if rows <= columns else x.T) * math.sqrt(max(1.0, rows / columns))


def direction(rule: Rule, now: list[Tensor], anchor: list[Tensor], mean: list[Tensor]) -> list[Tensor]:
    """v by the formula."""
    flat = [torch.cat([t.flatten() for t in vector]) for vector in (now, anchor)]
    passed, failed = rule.choices[0], rule.choices[-1]
    holds = torch.ones_like(flat[0], dtype=torch.bool)
    if isinstance(rule, weights.Tested):
        lam = passed.mean
        holds = {
            "norm": lambda: (flat[0].norm() < flat[1].norm()).expand_as(flat[0]),
            "lemma": lambda: (flat[1] @ flat[1] >= 2 * (1 - lam) * (flat[0] @ flat[1])).expand_as(flat[0]),
            "elementwise": lambda: flat[0] < flat[1],
        }[rule.test]()
    split = holds.split([t.numel() for t in now])
    return [
        torch.where(
            where.view_as(g),
            passed.now * g + passed.anchor * y + passed.mean * m,
            failed.now * g + failed.anchor * y + failed.mean * m,
        )
        for where, g, y, m in zip(split, now, anchor, mean, strict=True)
    ]


def run(method: str, passes: float, blocks: Iterator[int] | None, **options: Any) -> Any:
    """A run to its end, with blocks of these sizes or step by step."""
    model = net()
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), N, method, seed=2, **options)
    told: list[tuple[Any, ...]] = []
    optimizer._callback = lambda r: told.append((r.epoch, r.regime, r.B, r.b, r.length, r.ifo))
    plain = Plain(optimizer._executor, model)
    ifo = []
    for x, y in optimizer.batches(data(), passes=passes):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss

        if blocks is None or not optimizer.advance(plain, next(blocks), passes * N)[0]:  # type: ignore[arg-type]
            optimizer.step(closure)
        ifo.append(optimizer.ifo)
    return model, optimizer, told, ifo


@pytest.mark.parametrize("sizes", [(1,), (3, 1, 7), (10_000,)], ids=str)
@pytest.mark.parametrize("name", sorted(name for name in vcsg.methods() if name != "saga"))
def test_blocks_of_any_size_are_the_run_of_single_steps(name: str, sizes: tuple[int, ...]) -> None:
    options = {"output": "weighted", "weight_decay": 0.0}
    model, optimizer, told, ifo = run(name, 9, itertools.cycle(sizes), **options)
    other, single, told_single, ifo_single = run(name, 9, None, **options)
    assert told == told_single
    assert optimizer.ifo == single.ifo
    assert set(ifo) <= set(ifo_single)
    assert optimizer._state.steps == single._state.steps
    torch.testing.assert_close(vector(model), vector(other), rtol=1e-9, atol=1e-11)
    for o in (optimizer, single):
        o.load_output()
    torch.testing.assert_close(vector(model), vector(other), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "step"),
    [("svrg", "adaptive"), ("spider", "orthogonal"), ("storm", "adaptive"), ("mars", None), ("auto", None)],
)
def test_blocks_of_steps_by_a_rule_with_decay_and_an_average(name: str, step: str | None) -> None:
    options = {"step": step, "b": 8, "output": "average", "decoupled_weight_decay": 0.1}
    model, optimizer, told, _ = run(name, 9, itertools.cycle((3, 1, 7)), **options)
    other, single, told_single, _ = run(name, 9, None, **options)
    assert told == told_single
    torch.testing.assert_close(vector(model), vector(other), rtol=1e-9, atol=1e-11)
    last = vector(model).clone()
    for o in (optimizer, single):
        o.load_output()
    torch.testing.assert_close(vector(model), vector(other), rtol=1e-9, atol=1e-11)
    assert not torch.equal(vector(model), last)


@pytest.mark.parametrize("comparison", ["norm", "lemma", "elementwise"])
def test_blocks_with_a_test(comparison: str) -> None:
    options = {"comparison": comparison, "L": 5.0}
    model, _, told, _ = run("vcsg", 40, itertools.cycle((5, 2)), **options)
    other, _, told_single, _ = run("vcsg", 40, None, **options)
    assert told == told_single
    torch.testing.assert_close(vector(model), vector(other), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("limit", [1, 37, 90, 91, 140, 200])
def test_a_block_ends_with_the_step_that_reaches_the_limit(limit: int) -> None:
    model = net()
    optimizer = vcsg.SVRG(model.parameters(), n=N, b=4, L=10.0, chunk=16)
    plain = Plain(optimizer._executor, model)
    sizes = [16] * 3 + [8] * 4 + [4, 6] + [8] * 22  # chunks; two gradients of each sample
    expected = next(total for total in itertools.accumulate(sizes) if total >= limit)
    for _ in optimizer.batches(data(), ifo=limit):
        optimizer.advance(plain, 10_000, limit)  # type: ignore[arg-type]
    assert optimizer.ifo == expected


class Broken(Plain):
    """Measures what is not finite from some step on."""

    def __init__(self, *given: Any, kind: str, step: int, column: int) -> None:
        super().__init__(*given)
        self._kind, self._step, self._column = kind, step, column

    def _spoil(self, kind: str, measured: list[tuple[float, float]]) -> list[tuple[float, float]]:
        first = self._course.state.position
        spoilt = [list(row) for row in measured]
        for k, row in enumerate(spoilt):
            if kind == self._kind and self._course.state.rollbacks == 0 and first + k >= self._step:
                row[self._column] = math.nan
                for x in self._point.params if kind == "inner" else self._point.vector("mean"):
                    x.fill_(math.nan)
        return [(a, b) for a, b in spoilt]

    def _anchor(self, parts: list[Tensor]) -> list[tuple[float, float]]:
        return self._spoil("anchor", super()._anchor(parts))

    def _inner(self, parts: list[Tensor]) -> list[tuple[float, float]]:
        return self._spoil("inner", super()._inner(parts))


def broken(**fault: Any) -> tuple[vcsg.FiniteSumOptimizer, nn.Module, Broken]:
    model = net()
    optimizer = vcsg.SVRG(model.parameters(), n=N, b=4, L=10.0, chunk=16)
    return optimizer, model, Broken(optimizer._executor, model, **fault)


def to_the_end(optimizer: vcsg.FiniteSumOptimizer, engine: Plain) -> None:
    for _ in optimizer.batches(data(), passes=2):
        optimizer.advance(engine, 10_000, 2 * N)  # type: ignore[arg-type]


def test_a_loss_that_is_not_finite_takes_the_block_back_to_the_anchor() -> None:
    optimizer, model, engine = broken(kind="inner", step=5, column=0)
    start = vector(model).clone()
    for _ in optimizer.batches(data(), passes=math.inf):
        optimizer.advance(engine, 10_000, math.inf)  # type: ignore[arg-type]
        if optimizer._state.rollbacks:
            break
    assert optimizer.ifo == N + 6 * 8  # to the step that was not finite, and no further
    assert optimizer.L == 20.0
    assert torch.equal(vector(model), start)
    assert optimizer.phase.kind == "anchor"


@pytest.mark.parametrize("step", [0, 1])
def test_an_anchor_that_moves_has_moved_as_far_as_steps_were_taken(step: int) -> None:
    model = net()
    optimizer = vcsg.SPIDER(model.parameters(), n=N, b=4, L=10.0, chunk=16)
    plain, seen = Plain(optimizer._executor, model), []
    take = optimizer._course.allows

    def allows(value: float, beside: float, sound: bool = False) -> bool:
        seen.append((optimizer._state.position, optimizer._state.depth))
        return take(value, beside, sound)

    optimizer._course.allows = allows  # type: ignore[method-assign]
    for _ in optimizer.batches(data(), passes=math.inf):
        if optimizer.phase.kind == "inner":
            losses = [1.0] * step + [math.nan] * 3
            with torch.no_grad():
                optimizer._course.take_steps(losses, [1.0] * len(losses))
            break
        optimizer.advance(plain, 10_000, math.inf)  # type: ignore[arg-type]
    assert seen == [(step, min(step, 1))]


def test_a_loss_at_the_anchor_that_is_not_finite_is_an_error_and_the_model_is_at_the_anchor() -> None:
    optimizer, model, engine = broken(kind="inner", step=5, column=1)
    start = vector(model).clone()
    with pytest.raises(FloatingPointError, match="at the anchor"):
        to_the_end(optimizer, engine)
    assert torch.equal(vector(model), start)
    assert optimizer.phase.kind == "anchor"


@pytest.mark.parametrize("column", [0, 1])
def test_a_first_anchor_that_is_not_finite_is_an_error_and_can_be_begun_anew(column: int) -> None:
    optimizer, model, engine = broken(kind="anchor", step=2, column=column)
    with pytest.raises(FloatingPointError, match="before any step"):
        to_the_end(optimizer, engine)
    assert optimizer.ifo == 0
    to_the_end(optimizer, Plain(optimizer._executor, model))
    assert torch.isfinite(vector(model)).all()


def test_an_evaluation_is_due_at_the_same_gradient_for_blocks_and_for_steps() -> None:
    for n in (7, 90, 60_000):
        for due in (0.1, 0.3, 0.7, 1 / 3, 1.1, 2.0, 2.9):
            limit = _reaching(due, n)
            assert limit / n >= due > (limit - 1) / n
    assert _reaching(math.inf, 5) == math.inf


# --- where graphs are not possible


def test_the_engine_says_why_it_goes_step_by_step(caplog: pytest.LogCaptureFixture) -> None:
    model = net()
    optimizer = vcsg.SVRG(model.parameters(), n=N)
    source = TensorSource("data", data(), torch.device("cpu"))
    engine = StepEngine("graphed", optimizer, model, lambda batch: cross_entropy(model(batch[0]), batch[1]), source)
    assert engine.advance() == (0, 0.0)
    assert engine.notes == {"engine": "eager", "engine_reason": "model and data are not on a CUDA device"}
    assert "not on a CUDA device" in caplog.text
    with pytest.raises(ValueError, match="'auto', 'eager' or 'graphed'"):
        vcsg.fit(model, cross_entropy, data(), passes=1, engine="fast")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.cuda
@pytest.mark.parametrize(
    ("reason", "options"), [("table", {"method": "saga"}), ("clip_norm", {"method": "svrg", "clip_norm": 1.0})]
)
def test_what_has_no_graph(reason: str, options: dict[str, Any]) -> None:
    model = net().cuda()
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), N, **options)
    assert reason in refusal(optimizer._executor, [t.cuda() for t in data()])
    with pytest.raises(Uncapturable, match=reason):
        GraphExecutor(optimizer._executor, model, lambda batch: batch, Samples([t.cuda() for t in data()], tuple))


class Tied(nn.Module):
    """Uses a weight twice, and another that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(5, 5).double(), nn.Linear(5, 5).double()
        self.last = nn.Linear(5, 3).double().requires_grad_(False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


@pytest.mark.parametrize("form_of", [tuple, list, lambda pair: {"inputs": pair[0], "targets": pair[1]}])
def test_all_gradients_at_the_anchor_in_one_pass(form_of: Any) -> None:
    model = Tied()

    def objective(batch: Any) -> Tensor:
        inputs, targets = batch.values() if isinstance(batch, dict) else batch
        return cross_entropy(model(inputs), targets)

    groups = [
        {"params": [model.first.weight], "weight_decay": 0.3},
        {"params": [model.first.bias, model.second.bias], "maximize": True},
    ]
    optimizer = vcsg.SVRG(groups, n=N)
    point = optimizer._executor.point
    with torch.no_grad():
        for y in point.vector("anchor"):
            y.add_(torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(4)))
    X, Y = data()
    batches = [form_of((X[k : k + 6], Y[k : k + 6])) for k in range(0, 30, 6)]
    before = vector(model).clone()
    with torch.no_grad():
        found = all_at(Objective(model, objective), point, "anchor", batches)
    assert torch.equal(vector(model), before)
    for batch, (loss, gradient) in zip(batches, found, strict=True):

        def closure(batch: Any = batch) -> Tensor:
            value = objective(batch)
            value.backward()
            return value

        with torch.no_grad():
            expected_loss, expected = point.evaluate_at(closure, 0, "anchor")
        torch.testing.assert_close(loss, expected_loss.detach(), rtol=1e-12, atol=1e-12)
        for g, wanted in zip(gradient, expected, strict=True):
            torch.testing.assert_close(g, wanted, rtol=1e-11, atol=1e-12)


def test_forms_tell_apart_what_needs_a_graph_of_its_own() -> None:
    svrg, sgd = Constant(Weights(1, -1, 1)), Constant(Weights(1, 0, 0))
    tested = weights.Tested("norm", Weights(0.9, -0.9, 0.1), Weights(0.9, -0.1, 0.1))
    assert form(svrg, 4, 0, 0) == form(Constant(Weights(0.5, -0.5, 0.5)), 4, 0, 0) == Form(4, "", True, True, 0, 0)
    assert form(sgd, 4, 0, 0) == Form(4, "", False, False, 0, 0)
    assert form(tested, 4, 1, 1) == Form(4, "norm", True, True, 1, 1)
    assert [equal(things) for things in ([1, 1, 2, 1], [1], [3, 3])] == [2, 1, 2]


# --- the kernels

SHAPES = [(300, 7), (11,), (), (1,), (2049,), (4, 3, 2, 2)]
triton = pytest.mark.skipif(
    __import__("importlib").util.find_spec("triton") is None, reason="Triton is not installed: pip install triton"
)


def fill(tensor: Tensor, values: Tensor) -> None:
    tensor.copy_(values)


def vectors(count: int, dtype: torch.dtype, seed: int = 0) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        tensors = [torch.randn(shape, dtype=dtype, generator=generator) for shape in SHAPES]
        tensors[-1] = tensors[-1].to(memory_format=torch.channels_last)
        found.append([t.to(DEVICE) for t in tensors])
    return found


@triton
@pytest.mark.parametrize("moves", [False, True], ids=["stays", "moves"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("test", ["", "norm", "lemma", "elementwise"])
@pytest.mark.parametrize("seed", [0, 1])
def test_one_step_by_kernels(test: str, dtype: torch.dtype, moves: bool, seed: int) -> None:
    now, anchor, mean, x, y, m = vectors(6, dtype, seed)
    if seed:  # the other outcome of the tests
        now = [0.5 * g for g in now]
        anchor = [g + 0.1 * a for g, a in zip(now, anchor, strict=True)] if test == "lemma" else anchor
    passed, failed = Weights(0.9, -0.9, 0.1), Weights(0.8, -0.1, 0.2)
    rule: Rule = weights.Tested(test, passed, failed) if test else Constant(passed)
    etas = [0.1 * (k + 1) for k in range(len(SHAPES))]
    v = direction(rule, [g.double() for g in now], [g.double() for g in anchor], [g.double() for g in mean])
    expected = [a.double() - eta * d for a, eta, d in zip(x, etas, v, strict=True)]
    before = [t.clone() for t in x]
    kept = [t.clone() for t in (*y, *m)]
    tables = Tables(x, [0.0] * len(x), fill)
    tables.choose(rule, etas)
    tables.launch().descend([now, anchor, mean, x, y, m], test, moves)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for found, wanted in zip(x, expected, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)
    if moves:
        assert all(torch.equal(a, b) for a, b in zip(y, before, strict=True))
        for found, wanted in zip(m, v, strict=True):
            torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)
    else:
        assert all(torch.equal(a, b) for a, b in zip((*y, *m), kept, strict=True))


@triton
def test_a_tie_fails_the_norm_test() -> None:
    now, mean, x = vectors(3, torch.float32)
    rule = weights.Tested("norm", Weights(1, 0, 0), Weights(0, 0, 0))
    before = [t.clone() for t in x]
    tables = Tables(x, [0.0] * len(x), fill)
    tables.choose(rule, [1.0] * len(SHAPES))
    tables.launch().descend([now, [g.clone() for g in now], mean, x, [], []], "norm", False)
    assert all(torch.equal(a, b) for a, b in zip(x, before, strict=True))


@triton
def test_sgd_and_what_is_not_aligned() -> None:
    now, x = vectors(2, torch.float32)
    shifted = torch.zeros(2050, device=DEVICE)[1:]
    now[4] = shifted.copy_(now[4])
    expected = [a - 0.5 * g for a, g in zip(x, now, strict=True)]
    tables = Tables(x, [0.0] * len(x), fill)
    tables.choose(Constant(Weights(1, 0, 0)), [0.5] * len(SHAPES))
    tables.launch().descend([now, [], [], x, [], []], "", False)
    for found, wanted in zip(x, expected, strict=True):
        torch.testing.assert_close(found, wanted)


@triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_chunk_goes_into_the_mean_by_a_kernel(dtype: torch.dtype) -> None:
    gradient, mean = vectors(2, dtype)
    share = torch.tensor(0.3, dtype=dtype, device=DEVICE)
    distance = sum(float((g.double() - m.double()).square().sum()) for g, m in zip(gradient, mean, strict=True))
    expected = [m.double() + float(share) * (g.double() - m.double()) for g, m in zip(gradient, mean, strict=True)]
    tables = Tables(mean, [0.0] * len(mean), fill)
    found = tables.launch().absorb(gradient, mean, share)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert float(found) == pytest.approx(distance, rel=tolerance)
    for m, wanted in zip(mean, expected, strict=True):
        torch.testing.assert_close(m.double(), wanted, rtol=tolerance, atol=tolerance)


@triton
@pytest.mark.parametrize("averaged", [False, True], ids=["last", "average"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_step_along_any_direction_by_a_kernel(dtype: torch.dtype, averaged: bool) -> None:
    """With a step size and a decay of its own for every tensor, and the average of the points."""
    d, x, mean = vectors(3, dtype)
    weight = torch.tensor(0.3, dtype=dtype, device=DEVICE)
    etas, decays = ([0.1 * (k + c) for k in range(len(SHAPES))] for c in (1, 2))
    moved = [(1 - eta * w) * p.double() - eta * g.double() for p, g, eta, w in zip(x, d, etas, decays, strict=True)]
    expected = [m.double() + float(weight) * (p - m.double()) for m, p in zip(mean, moved, strict=True)]
    before = [m.double() for m in mean]
    tables = Tables(x, decays, fill)
    tables.choose(Constant(Weights(1, 0, 0)), etas)
    tables.launch().finish(d, x, mean if averaged else [], torch.stack([weight * 0, weight * 0, weight]))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for found, wanted in zip((*x, *mean), (*moved, *(expected if averaged else before)), strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)


@triton
@pytest.mark.parametrize("remembers", [True, False], ids=["momentum", "anew"])
@pytest.mark.parametrize("rule", [Adaptive(beta2=0.9), Orthogonal(beta2=0.9)], ids=["adaptive", "orthogonal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_step_by_a_rule_by_kernels(dtype: torch.dtype, rule: Adaptive | Orthogonal, remembers: bool) -> None:
    """Against P(v) by torch's operations: matrices wide, tall, of several blocks, with channels last."""
    shapes = [(5, 9), (3,), (60, 40), (9, 5), (), (4, 3, 2, 2), (200, 3), (20, 30)]
    generator = torch.Generator().manual_seed(0)

    def drawn() -> list[Tensor]:
        found = [torch.randn(shape, dtype=dtype, generator=generator) for shape in shapes]
        found[5] = found[5].to(memory_format=torch.channels_last)
        return [t.to(DEVICE) for t in found]

    gradient, mean, x = drawn(), drawn(), drawn()
    gradient[3].zero_()
    mean[3].zero_()
    for t in (gradient[7], mean[7]):  # the squares of many of its entries vanish
        t *= math.sqrt(torch.finfo(dtype).tiny) / 10_000
    adaptive = [k for k, p in enumerate(x) if isinstance(rule, Adaptive) or not is_matrix(tuple(p.shape))]
    second = [x[k].square() for k in adaptive]
    a, etas = 0.25, [0.1 * (k + 1) for k in range(len(x))]
    v = [m + a * (g - m) for m, g in zip(mean, gradient, strict=True)] if remembers else gradient
    added = [gradient[k] for k in adaptive]
    moments = [s.clone() for s in second]
    wanted = precondition(rule, [t.clone() for t in v], added, moments, Correction(1.5, 1.25))
    expected = [p - eta * d for p, eta, d in zip(x, etas, wanted, strict=True)]

    tables = Tables(x, [0.0] * len(x), fill, rule)
    tables.choose(Constant(Weights(a, 0, 1 - a)), etas)
    memory, stacking, step = tables.launches(3)
    memory.remember(gradient, mean if remembers else [])
    direction = mean if remembers else gradient
    if tables.stacks.stacked:
        stacking.stack(direction)
    numbers = torch.tensor([1.5, 1.25, 0.0], dtype=dtype, device=DEVICE)
    step.finish(direction, x, [], numbers, Ruled(tables.stacks.iterated(), added, second))
    exact = dtype == torch.float64
    for found, other in zip((*direction, *second), (*v, *moments), strict=True):
        torch.testing.assert_close(found, other, rtol=1e-5, atol=1e-6)
    matrices = set(range(len(x))) - set(adaptive)
    for k, (found, other) in enumerate(zip(x, expected, strict=True)):
        close = 1e-12 if exact else 0.05 * etas[k] if k in matrices else 1e-5  # in bfloat16: some parts in a hundred
        torch.testing.assert_close(found, other, rtol=0, atol=close)
