"""Ordinary loops: batches that the user's loop hands over, steps without a closure, and what is refused at once."""

from __future__ import annotations

import copy
import itertools
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from nets import net_closure
from quadratic import Quadratic, closure, parameter, quadratic, run, smoothness
from reference import LAM
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import vcsg
from vcsg import FiniteSumOptimizer
from vcsg.run.handed_batches import LoopPlace, LoopSizes
from vcsg.run.variance import AnchorSum

N, B = 60, 8
LOOPED = sorted(set(vcsg.methods()) - {"saga", "snvrg"})
ONE_POINT = ["adam", "auto", "momentum", "muon", "paper-sgd", "sgd"]


def loader(problem: Quadratic, size: int = B, drop_last: bool = False, seed: int = 0) -> DataLoader[Any]:
    order = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(*problem.data), size, shuffle=True, drop_last=drop_last, generator=order)


def made(name: str, p: nn.Parameter, L: float | None = 1.0, **options: Any) -> FiniteSumOptimizer:
    given = {"batch_size": B, **smoothness(name, L), **options}
    return FiniteSumOptimizer([p], options.pop("n", N), name, **{k: v for k, v in given.items() if k != "n"})


def passes_of(problem: Quadratic, count: int, drop_last: bool = False) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
    """(pass, batch) of an ordinary shuffled loader."""
    source = loader(problem, drop_last=drop_last)
    for number in range(count):
        for batch in source:
            yield number, batch


# --- the run is that of the method, on the batches of the loop


def whole(size: float, least: int = 1) -> int:
    return min(N, B * max(least, math.ceil(size / B)))


def plan(name: str, j: int, found: list[float]) -> tuple[int, float, int, str]:
    """(B_j, η_j·L, the next anchor, regime), in whole batches, as the page of methods has them."""
    if name == "svrg":
        return N, (B / N) ** (2 / 3) / 3, N, ""
    if name == "scsg":
        size, following = (whole(math.ceil(k**1.5)) for k in (j, j + 1))
        return size, (B / size) ** (2 / 3) / 3, following, ""
    S, fixing = max(found[-4:]), found[min(1, j - 1)]
    first = 12 * S / (12 * fixing / (N / 100))
    second = N * S / (S + 0.14 * math.sqrt(N) * fixing * 0.9 ** (2 * j))
    size = whole(max(min(first, second), 32), 8)
    return (size, 2 / 3, size, "first") if first <= second else (size, 2 / 3 * math.sqrt(B / size), size, "second")


def direction(name: str, regime: str, gx: np.ndarray, gy: np.ndarray, m: np.ndarray) -> np.ndarray:
    if name != "vcsg":
        return gx - gy + m
    if regime == "second":
        return 3 / 8 * (gx - gy) + 5 / 8 * m
    return (1 - LAM) * gx - LAM * (gy - m) if gx @ gx < gy @ gy else (gx - gy + m) / 2


def plain_run(
    problem: Quadratic, name: str, handed: list[tuple[int, list[int]]], lengths: list[int], first: int
) -> Iterator[tuple[int, np.ndarray, float]]:
    """(gradients so far, x, the last S*) after every batch, of a run with L = 1 and these numbers of inner steps."""
    queue, x, j, found, target, count = list(handed), np.full(4, 2.0), 0, [], first, 0
    while queue:
        j, taken = j + 1, []
        y = x
        while queue and (not taken or sum(map(len, (c for _, c in taken))) + len(queue[0][1]) <= target):
            taken.append(queue.pop(0))
            count += len(taken[-1][1])
            yield count, x, found[-1] if found else math.nan
        chunks = [problem.gradients(y)[samples] for _, samples in taken]
        m, size = np.concatenate(chunks).mean(0), sum(map(len, chunks))
        parts = [sum(len(c) for p, c in taken if p == number) for number in {p for p, _ in taken}]
        overlap = sum(part**2 for part in parts) / size**2
        spread = sum(len(c) * ((c.mean(0) - m) ** 2).sum() for c in chunks)
        if len(chunks) > 1:
            found.append((N - 1) / N * spread / (len(chunks) - 1 - (1 - overlap) * size / N))
        if not lengths:
            return
        _, eta, target, regime = plan(name, j, found)
        for _ in range(lengths.pop(0)):
            if not queue:
                return
            samples = queue.pop(0)[1]
            gx, gy = (problem.gradients(point)[samples].mean(0) for point in (x, y))
            x = x - eta * direction(name, regime, gx, gy, m)
            count += 2 * len(samples)
            yield count, x, found[-1] if found else math.nan


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("name", ["svrg", "scsg", "vcsg"])
def test_batches_of_a_loop_make_the_run_of_the_method(name: str, drop_last: bool) -> None:
    problem, p = quadratic(N), parameter()
    records: list[vcsg.Record] = []
    optimizer = made(name, p, callback=records.append)
    source, handed, seen = loader(problem, drop_last=drop_last), [], []
    for number in range(25):
        for batch in optimizer.loop(source):
            optimizer.step(closure(p, batch))
            handed.append((number, batch[2].tolist()))
            seen.append((optimizer.ifo, p.detach().numpy().copy(), optimizer.record.variance if records else math.nan))
    assert len(records) > 4
    assert all(record.b == B for record in records)
    lengths = [record.length for record in records]
    expected = list(plain_run(problem, name, handed, lengths, B if name == "scsg" else N))
    assert len(expected) == len(seen)
    epochs = 0
    for (ifo, x, variance), (count, point, known) in zip(seen, expected, strict=True):
        assert ifo == count
        np.testing.assert_allclose(x, point, rtol=1e-9, atol=1e-12)
        if not math.isnan(variance) and variance == pytest.approx(known, rel=1e-9):
            epochs += 1
    assert name == "scsg" or epochs > len(seen) / 2  # where an anchor has one batch alone there is no variance


def test_an_anchor_over_two_passes_is_measured_without_bias() -> None:
    """All ways to draw 3 of 4 samples from one pass and 2 from the next: the means of s² and of ‖g − ∇f‖²."""
    problem = quadratic(4, 3)
    gradients, x = problem.gradients(np.full(3, 2.0)), problem.gradient(np.full(3, 2.0))
    variances, noises, errors = [], [], []
    for first, second in itertools.product(itertools.permutations(range(4), 3), itertools.permutations(range(4), 2)):
        total, mean = AnchorSum(), np.zeros(3)
        for chunk in (first[:2], first[2:], second[:1], second[1:]):
            g = gradients[list(chunk)].mean(0)
            total.take(len(chunk), 0.0, float(((g - mean) ** 2).sum()))
            mean = mean + (g - mean) * len(chunk) / total.samples
        place, sizes = LoopPlace(), LoopSizes(1, 4)
        for _ in range(3):
            place.arrive(1, sizes, anchor=True)
        place.begin()
        for _ in range(2):
            place.arrive(1, sizes, anchor=True)
        anchor = total.close(4, float(mean @ mean), place.overlap)
        assert not anchor.whole
        variances.append(anchor.variance)
        noises.append(anchor.noise)
        errors.append(((mean - x) ** 2).sum())
    exact = np.trace(problem.covariance(np.full(3, 2.0)))
    assert np.mean(variances) == pytest.approx(exact, rel=1e-12)
    assert np.mean(noises) == pytest.approx(np.mean(errors), rel=1e-12)


def test_a_whole_pass_is_an_exact_anchor_and_others_are_not() -> None:
    problem, p = quadratic(N), parameter()
    optimizer, source, found = made("svrg", p), loader(problem), []
    for _ in range(6):
        for batch in optimizer.loop(source):
            optimizer.step(closure(p, batch))
            if optimizer.record is not None and (not found or found[-1] is not optimizer.record):
                found.append(optimizer.record)
    assert [record.anchor.whole for record in found] == [True, True, True]
    assert found[0].gradient_norm2 == pytest.approx(problem.norm2(np.full(4, 2.0)), rel=1e-9)
    optimizer = made("svrg", p)
    for k, batch in enumerate(itertools.chain(itertools.islice(source, 3), *[source] * 2)):
        optimizer.step(closure(p, batch), samples=len(batch[0]))
        if k == 2:
            optimizer.expect(source)  # the loop left its pass, and begins another
        if optimizer.record is not None:
            assert optimizer.record.anchor.overlap < 1
            assert vcsg.stationary(1e9)(optimizer.record) is not True
            return
    raise AssertionError("no anchor was complete")


@pytest.mark.parametrize("name", LOOPED)
def test_every_gradient_is_counted(name: str) -> None:
    problem, p, evaluated = quadratic(N), parameter(), 0
    optimizer = made(name, p, L=None)
    for _ in range(12):
        for batch in optimizer.loop(loader(problem)):

            def counting(batch: tuple[Tensor, ...] = batch) -> Tensor:
                nonlocal evaluated
                evaluated += len(batch[0])
                return closure(p, batch)()

            optimizer.step(counting)
            assert optimizer.ifo == evaluated
    assert optimizer.record is not None
    assert torch.isfinite(p).all()
    assert problem.norm2(p.detach().numpy()) < problem.norm2(np.full(4, 2.0))


@pytest.mark.parametrize("name", LOOPED)
def test_a_run_goes_on_from_any_batch(name: str) -> None:
    problem, p = quadratic(N), parameter()
    optimizer = made(name, p, L=None, output="weighted", seed=3)
    batches, kept = list(passes_of(problem, 5)), []
    for k, (_, batch) in enumerate(batches):
        if k % 9 == 3:
            kept.append((k, p.detach().clone(), copy.deepcopy(optimizer.state_dict())))
        optimizer.step(closure(p, batch), samples=len(batch[0]))
    for k, x, state in kept:
        q = nn.Parameter(x)
        other = FiniteSumOptimizer([q], method=name, output="weighted", **smoothness(name, 7.0))  # n is in the state
        other.load_state_dict(state)
        for _, batch in batches[k:]:
            other.step(closure(q, batch), samples=len(batch[0]))
        assert torch.equal(p, q)
        assert (other.ifo, other.epoch, str(other.record)) == (optimizer.ifo, optimizer.epoch, str(optimizer.record))
        assert other.state_dict()["vcsg"] == optimizer.state_dict()["vcsg"]


@pytest.mark.parametrize("name", ["svrg", "vcsg", "sgd"])
def test_a_diverged_run_goes_back(name: str, caplog: pytest.LogCaptureFixture) -> None:
    problem, p = quadratic(N), parameter()
    records: list[vcsg.Record] = []
    optimizer = made(name, p, L=0.02, callback=records.append)
    with caplog.at_level(logging.WARNING, "vcsg"):
        for _ in range(40):
            for batch in optimizer.loop(loader(problem)):
                optimizer.step(closure(p, batch))
    assert "diverged" in caplog.text
    assert optimizer.L is not None
    assert optimizer.L >= 0.08
    assert problem.norm2(p.detach().numpy()) < 0.2 * problem.norm2(np.full(4, 2.0))


def test_l_is_measured_again_where_that_is_asked_for() -> None:
    """At the first anchor that is a pass or more after the first estimate: 16 more gradients of a batch's samples."""
    problem, counted = quadratic(N), []
    for again in (False, True):
        p = parameter()
        optimizer = made("vcsg", p, L=None, measure_again=again)
        for _ in range(8):
            for batch in optimizer.loop(loader(problem)):
                optimizer.step(closure(p, batch))
                if optimizer.phase.kind == "smoothness" and optimizer.epoch > 1:
                    counted.append(again)
    assert set(counted) == {True}


# --- what is seen of a batch


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()


def net_loader(size: int = B, n: int = N, **options: Any) -> DataLoader[Any]:
    rows, targets, _ = quadratic(n).data
    return DataLoader(TensorDataset(rows, (targets > 0).long()), size, **options)


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_size_of_a_batch_is_seen_where_a_model_is_called(drop_last: bool) -> None:
    """The bare loop is the same run as `loop(loader)`, which knows the sizes, and as `samples=`, which tells them."""
    ends = []
    for way in ("seen", "loop", "told", "inferred"):
        model = net()
        given = {} if way == "inferred" else {"n": N, "batch_size": B}
        optimizer, source = vcsg.VCSG(model.parameters(), lr=0.5, **given), net_loader(drop_last=drop_last)
        for _ in range(8):
            for x, y in optimizer.loop(source) if way in ("loop", "inferred") else source:
                optimizer.step(net_closure(model, x, y), **({"samples": len(x)} if way == "told" else {}))
        ends.append((optimizer.ifo, torch.cat([p.detach().flatten() for p in model.parameters()])))
    # That the last batch is dropped, a bare loop shows only when it comes to it: one anchor is longer by a batch.
    for one, other in ((0, 2), (1, 3), *(() if drop_last else ((0, 1),))):
        assert ends[one][0] == ends[other][0]
        assert torch.equal(ends[one][1], ends[other][1])


def test_a_compiled_model_is_seen_too() -> None:
    model = net()
    compiled = torch.compile(model, backend="eager")
    optimizer = vcsg.SVRG(model.parameters(), n=N, batch_size=B, lr=0.5)
    for _ in range(3):
        for x, y in net_loader():
            optimizer.step(net_closure(compiled, x, y))
    assert optimizer.ifo == 4 * N  # an anchor, a pass of inner steps, an anchor


# --- without a closure


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("name", ["sgd", "adam", "momentum"])
def test_a_drop_in_takes_the_steps_of_torch(name: str, scheduled: bool) -> None:
    """`loss.backward(); optimizer.step()`, also with a scheduler and gradients that were clipped before."""
    theirs = {
        "sgd": lambda params: torch.optim.SGD(params, 0.05, weight_decay=0.01),
        "adam": lambda params: torch.optim.Adam(params, 0.05, weight_decay=0.01),
        "momentum": lambda params: torch.optim.SGD(params, 0.05 * 0.1, momentum=0.9, weight_decay=0.01),
    }[name]
    ends = []
    for make in (
        theirs,
        lambda params: FiniteSumOptimizer(params, N, name, batch_size=B, lr=0.05, weight_decay=0.01),
    ):
        model = net()
        optimizer = make(model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        for _ in range(9):
            for x, y in net_loader():
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                before = [p.grad.clone() for p in model.parameters()]
                optimizer.step()
                assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before, strict=True))
            if scheduled:
                scheduler.step()
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-12)
    assert optimizer.passes == 9


@pytest.mark.parametrize("name", ONE_POINT)
def test_steps_with_and_without_a_closure_are_the_same(name: str) -> None:
    problem, ends = quadratic(N), []
    for bare in (False, True):
        p = parameter()
        optimizer = FiniteSumOptimizer([p], N, name, batch_size=B, lr=0.01)
        for _, batch in passes_of(problem, 3):
            if bare:
                closure(p, batch)()
                assert optimizer.step() is None
            else:
                optimizer.step(closure(p, batch))
        ends.append((p.detach().clone(), optimizer.ifo, str(optimizer.record)))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1:] == ends[1][1:]


def test_a_drop_in_takes_batches_that_it_draws() -> None:
    problem, p, q = quadratic(N), parameter(), parameter()
    run(problem, vcsg.SGD([p], n=N, b=B, lr=0.1), p, passes=3)
    optimizer = vcsg.SGD([q], n=N, b=B, lr=0.1)
    for batch in optimizer.batches(problem.data, passes=3):
        closure(q, batch)()
        optimizer.step()
    assert torch.equal(p, q)


def test_a_grad_scaler_works_without_a_closure() -> None:
    """It divides by its scale, and leaves out a step whose gradient is not finite, which is counted."""
    problem, p, q = quadratic(N), parameter(), parameter()
    scaler, ours = torch.amp.GradScaler("cpu", init_scale=8.0), made("sgd", p, L=None, lr=0.1)
    theirs = torch.optim.SGD([q], 0.1)
    for k, (_, (rows, targets, _)) in enumerate(passes_of(problem, 2)):
        for x, optimizer in ((p, ours), (q, theirs)):
            optimizer.zero_grad()
            loss = 0.5 * ((rows @ x - targets) ** 2).mean() * (math.inf if k == 5 else 1.0)
            if optimizer is ours:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            elif k != 5:
                loss.backward()
                optimizer.step()
    torch.testing.assert_close(p, q, rtol=1e-12, atol=0)
    assert ours.passes == 2
    assert scaler.get_scale() == 4.0


def test_a_bad_gradient_without_a_closure(caplog: pytest.LogCaptureFixture) -> None:
    p = parameter()
    optimizer = made("sgd", p, L=None, lr=0.1)
    p.grad = torch.full_like(p, math.nan)
    with pytest.raises(FloatingPointError, match=r"at the starting point, before any step: .* samples of this batch"):
        optimizer.step()
    p.grad = torch.ones_like(p)
    optimizer.step()
    p.grad = torch.full_like(p, math.nan)
    optimizer.step()
    assert "diverged" in caplog.text
    assert torch.equal(p, parameter())


# --- everything else is an error at once


def test_a_batch_from_neither_source() -> None:
    problem, p = quadratic(N), parameter()
    for optimizer in (vcsg.VCSG([p], n=N), vcsg.SGD([p], n=N, lr=0.1)):
        with pytest.raises(RuntimeError, match=r"not drawn by the optimizer.* make it with batch_size="):
            optimizer.step(closure(p, problem.data))
    p.grad = torch.ones_like(p)
    with pytest.raises(RuntimeError, match="not drawn by the optimizer"):
        optimizer.step()
    feed = optimizer.batches(problem.data, passes=1)
    optimizer.step(closure(p, next(feed)))
    with pytest.raises(RuntimeError, match="not drawn by the optimizer"):
        optimizer.step(closure(p, problem.data))


def test_an_ordinary_loader_beside_the_sampler_is_refused() -> None:
    """What was taken for anchors of another size: the loop's batches, while the optimizer was to draw."""
    model = net()
    optimizer = vcsg.VCSG(model.parameters(), n=N)
    x, y = next(iter(net_loader()))
    with pytest.raises(RuntimeError, match="batch_size="):
        optimizer.step(net_closure(model, x, y))
    with pytest.raises(ValueError, match=r"made with n = 60 and no batch_size.* give batch_size="):
        optimizer.loop(net_loader())


@pytest.mark.parametrize("n", [50, 70])
def test_a_sampler_whose_dataset_has_another_length(n: int) -> None:
    optimizer = vcsg.SVRG([parameter()], n=N)
    for workers in (0, 1):
        source = DataLoader(TensorDataset(torch.zeros(n, 4)), batch_sampler=optimizer.sampler, num_workers=workers)
        with pytest.raises(ValueError, match=rf"the dataset holds {n} samples.* n = 60: .*n=len\(dataset\)"):
            next(iter(source))


LOOP_MISUSE: list[tuple[dict[str, Any], int, int, str]] = [
    ({"n": N, "batch_size": B}, 16, N, "given 16 rows.* batches of this loop have 8 samples, the last of a pass 4"),
    ({"n": N, "batch_size": B}, 6, N, "given 6 rows"),
    ({"n": 64, "batch_size": B}, B, N, "given 4 rows.*have 8 samples: .* n= .it has 64"),
    ({"n": 20, "batch_size": 7}, 7, N, "given 4 rows.*have 7 samples, the last of a pass 6"),
]


@pytest.mark.parametrize(("given", "size", "n", "message"), LOOP_MISUSE, ids=str)
def test_batches_of_another_size_than_announced(given: dict[str, Any], size: int, n: int, message: str) -> None:
    model = net()
    optimizer = vcsg.SVRG(model.parameters(), L=1.0, **given)
    for x, y in net_loader(size, n):
        state = copy.deepcopy(optimizer.state_dict())
        if len(x) != given["batch_size"]:
            break
        optimizer.step(net_closure(model, x, y))
    with pytest.raises(ValueError, match=message):
        optimizer.step(net_closure(model, x, y))
    assert str(optimizer.state_dict()) == str(state)  # the step that failed has changed nothing


@pytest.mark.parametrize("n", [40, 80])
def test_a_loader_of_another_length_or_batch_size(n: int) -> None:
    optimizer = vcsg.SVRG([parameter()], n=N, batch_size=B)
    with pytest.raises(ValueError, match=rf"the dataset holds {n} samples, the optimizer was made for n = 60"):
        optimizer.loop(net_loader(n=n))
    with pytest.raises(ValueError, match=r"batches of 10 samples, .*batch_size = 8: make it with batch_size=10"):
        optimizer.loop(net_loader(10))


def test_sizes_that_cannot_be_seen_have_to_be_told() -> None:
    problem, p = quadratic(N), parameter()
    optimizer = made("svrg", p)
    with pytest.raises(ValueError, match=r"cannot be seen.* n = 60 is no multiple of batch_size = 8.*samples="):
        optimizer.step(closure(p, problem.data))
    for wrong in (0, 9, 2.0, True):
        with pytest.raises(ValueError, match=r"samples = .*from 1 to batch_size = 8"):
            optimizer.step(closure(p, problem.data), samples=wrong)
    with pytest.raises(RuntimeError, match="not drawn by the optimizer, which was made without batch_size="):
        vcsg.SVRG([p], n=N).step(closure(p, problem.data), samples=8)


BAD_OPTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("svrg", {"batch_size": 0}, "batch_size = 0: give a whole number"),
    ("svrg", {"batch_size": 61}, "batch_size = 61: a loop over n = 60 samples on 1 rank has batches of 1 to 60"),
    ("svrg", {"b": 3}, "b = 3: the loop hands over 8 samples for a step; leave b out"),
    ("vcsg", {"b_min": 9}, "b_min = 9: the loop hands over 8"),
    ("svrg", {"variance": "exact"}, "variance = 'exact': single samples are not to be had"),
    ("svrg", {"chunk": 4}, "chunk = 4: the batches of the loop, of 8 samples, are evaluated as they come"),
    ("saga", {}, "saga keeps a gradient for each of fixed blocks.* let the optimizer draw, or choose svrg"),
    ("snvrg", {}, "snvrg has mini-batches of a size of their own.* let the optimizer draw"),
    ("svrg", {"lr": torch.tensor([0.1, 0.2])}, "lr = tensor.*: Tensor lr must be 1-element; give one number"),
]


@pytest.mark.parametrize(("name", "options", "message"), BAD_OPTIONS, ids=str)
def test_what_a_loop_cannot_give_is_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FiniteSumOptimizer([parameter()], N, name, **{"batch_size": B, **options})


def test_ways_in_do_not_mix() -> None:
    optimizer = vcsg.SVRG([parameter()], n=N, batch_size=B)
    for use in (lambda: optimizer.sampler, lambda: optimizer.batches(quadratic(N).data, passes=1)):
        with pytest.raises(ValueError, match=r"it was made for a loop .* batch_size = 8: .* or leave batch_size out"):
            use()
    with pytest.raises(TypeError, match=r"batch_size= is for a loop of your own.* give b="):
        vcsg.fit(net(), nn.functional.cross_entropy, net_loader().dataset, "svrg", batch_size=B, passes=1)
    waiting = vcsg.SVRG([parameter()])
    for use in (lambda: waiting.sampler, lambda: waiting.passes, lambda: waiting.step(lambda: 0.0)):
        with pytest.raises(RuntimeError, match=r"n is not known yet: .*optimizer.loop\(loader\)"):
            use()
    with pytest.raises(ValueError, match="n is not to be had from this list"):
        waiting.loop([(torch.zeros(2), torch.zeros(2))])


@pytest.mark.parametrize("name", sorted(set(LOOPED) - set(ONE_POINT)))
def test_methods_with_an_anchor_need_a_closure(name: str) -> None:
    p = parameter()
    optimizer = made(name, p)
    p.grad = torch.ones_like(p)
    with pytest.raises(TypeError, match=f"needs a closure, because {name} evaluates"):
        optimizer.step()
    assert optimizer.ifo == 0


def test_l_is_not_estimated_without_a_closure() -> None:
    p = parameter()
    optimizer = vcsg.SGD([p], n=N, batch_size=B)
    p.grad = torch.ones_like(p)
    with pytest.raises(TypeError, match="estimates L, for which it calls a closure: give lr="):
        optimizer.step()


# --- gradients that the closure changes, or that were there before


def clipping(model: nn.Module, x: Tensor, y: Tensor, most: float) -> Callable[[], Tensor]:
    def evaluate() -> Tensor:
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), most)
        return loss

    return evaluate


@pytest.mark.parametrize("draws", [False, True])
def test_a_closure_that_clips_is_refused(draws: bool) -> None:
    rows, targets, _ = quadratic(N).data
    data = rows, (targets > 0).long()
    for name in ("vcsg", "svrg", "spider"):
        model = net()
        optimizer = FiniteSumOptimizer(model.parameters(), N, name, **({} if draws else {"batch_size": B}))
        before = copy.deepcopy(optimizer.state_dict())
        x, y = next(optimizer.batches(data, passes=1)) if draws else next(iter(net_loader()))
        with pytest.raises(ValueError, match=r"changes gradients after backward.*clip_norm=.*gradient_clip_val"):
            optimizer.step(clipping(model, x, y, 1e-3))
        assert str(optimizer.state_dict()) == str(before)


def test_a_closure_is_watched_until_it_clips() -> None:
    """A bound that is not reached multiplies by 1; the batch that reaches it is refused, however late it comes."""
    model = net()
    optimizer = vcsg.SVRG(model.parameters(), n=N, batch_size=B, lr=0.01)
    batches = list(net_loader())
    for x, y in batches[:6]:
        optimizer.step(clipping(model, x, y, 1e3))
    with pytest.raises(ValueError, match="changes gradients after backward"):
        optimizer.step(clipping(model, *batches[6], 1e-3))


def test_clipping_is_no_fault_where_nothing_is_compared() -> None:
    model = net()
    optimizer = vcsg.Adam(model.parameters(), n=N, batch_size=B)
    for x, y in net_loader():
        optimizer.step(clipping(model, x, y, 1e-3))
    with pytest.raises(ValueError, match="changes gradients after backward"):  # but L is not to be had from such
        vcsg.SGD(model.parameters(), n=N, batch_size=B).step(clipping(model, x, y, 1e-3))


def test_accumulated_gradients_are_refused() -> None:
    """Backward passes outside the closure, whose gradients a closure without zero_grad() was to add to."""
    problem, p = quadratic(N), parameter()
    for name in ("svrg", "sgd"):
        optimizer, batches = made(name, p), [batch for _, batch in passes_of(problem, 2)]

        def add(batch: tuple[Tensor, ...]) -> Tensor:
            loss = 0.5 * ((batch[0] @ p - batch[1]) ** 2).mean()
            loss.backward()
            return loss

        p.grad = None
        optimizer.step(lambda batch=batches[0]: add(batch), samples=B)
        add(batches[1])
        with pytest.raises(RuntimeError, match="before the closure runs, and the closure does not clear it"):
            optimizer.step(lambda batch=batches[2]: add(batch), samples=B)
        for set_to_none in (True, False):  # a closure that begins with zero_grad() may have been called before

            def clearing(
                batch: tuple[Tensor, ...], made: FiniteSumOptimizer = optimizer, set_to_none: bool = set_to_none
            ) -> Tensor:
                made.zero_grad(set_to_none)
                return add(batch)

            clearing(batches[3])
            optimizer.step(lambda batch=batches[3], clear=clearing: clear(batch), samples=B)


# --- nothing to move


@pytest.mark.parametrize("name", LOOPED)
def test_frozen_parameters_are_left_alone(name: str) -> None:
    p = parameter()
    optimizer = made(name, p, L=None)
    p.requires_grad_(False)
    assert float(optimizer.step(lambda: torch.tensor(1.0), samples=B)) == 1.0
    assert torch.equal(p, parameter())
    if name in ONE_POINT and optimizer.L is not None:
        optimizer.step()
    p.requires_grad_(True)
    for batch in optimizer.loop(loader(quadratic(N))):
        optimizer.step(closure(p, batch))
    assert optimizer.passes > 0
