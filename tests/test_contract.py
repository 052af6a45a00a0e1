"""The contract of torch.optim: groups, schedulers, hooks, dtypes, copies, compiled models, and what is refused."""

from __future__ import annotations

import copy
import gc
import io
import math
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from nets import net_closure
from quadratic import closure, parameter, quadratic, run, smoothness, steps
from torch import Tensor
from torch.optim import lr_scheduler as schedulers
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import vcsg
from vcsg import FiniteSumOptimizer

METHODS = sorted(vcsg.methods())
OPTIONS: dict[str, dict[str, Any]] = {"sgd": {"b": 3}, "storm": {"b": 3}, "alpha-svrg": {"b": 3}, "vcsg": {"eps": 0.05}}


def optimised(name: str, passes: float = 6, evaluate: Callable[..., Any] = closure, **options: Any) -> np.ndarray:
    problem, p = quadratic(), parameter()
    L = options.pop("L", 1.0)
    optimizer = FiniteSumOptimizer([p], 60, name, **smoothness(name, L), **{**OPTIONS.get(name, {}), **options})
    for batch in optimizer.batches(problem.data, passes=passes):
        optimizer.step(evaluate(p, batch))
    return p.detach().numpy()


# --- groups and their options


@pytest.mark.parametrize("name", METHODS)
def test_weight_decay_is_part_of_f(name: str) -> None:
    """As if the closure added (w/2)‖x‖² to every f_i; then S* and ‖∇f‖², and so B_j, are the same too."""

    def penalised(p: torch.nn.Parameter, batch: tuple[Tensor, ...]) -> Callable[[], Tensor]:
        def evaluate() -> Tensor:
            loss = 0.5 * ((batch[0] @ p - batch[1]) ** 2).mean() + 0.15 * (p * p).sum()
            loss.backward()
            return loss

        return evaluate

    added = optimised(name, evaluate=penalised, decoupled_weight_decay=0.0)
    np.testing.assert_allclose(optimised(name, weight_decay=0.3), added, rtol=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_maximize_climbs_what_minimising_the_negative_descends(name: str) -> None:
    def negative(p: torch.nn.Parameter, batch: tuple[Tensor, ...]) -> Callable[[], Tensor]:
        def evaluate() -> Tensor:
            loss = -0.5 * ((batch[0] @ p - batch[1]) ** 2).mean()
            loss.backward()
            return loss

        return evaluate

    np.testing.assert_array_equal(optimised(name, evaluate=negative, maximize=True), optimised(name))


def test_groups_may_go_opposite_ways() -> None:
    p, q = parameter(), parameter()
    optimizer = vcsg.GD([{"params": [p]}, {"params": [q], "maximize": True, "weight_decay": 0.1}], n=60, L=10.0)
    problem = quadratic()
    for rows, targets, _ in optimizer.batches(problem.data, passes=1):

        def evaluate(rows: Tensor = rows, targets: Tensor = targets) -> Tensor:
            loss = 0.5 * ((rows @ p - targets) ** 2).mean() + 0.5 * ((rows @ q - targets) ** 2).mean()
            loss.backward()
            return loss

        optimizer.step(evaluate)
    g = problem.gradient(np.full(4, 2.0))
    np.testing.assert_allclose(p.detach(), 2 - g / 10)
    np.testing.assert_allclose(q.detach(), 2 + g / 10 - 0.02)


def test_groups_are_added_before_the_first_step_only() -> None:
    p, q = parameter(), parameter()
    optimizer = vcsg.SGD([p], n=60, L=1.0)
    optimizer.add_param_group({"params": [q], "lr": 0.5})
    assert [g["lr"] for g in optimizer.param_groups] == [1.0, 0.5]
    run(quadratic(), optimizer, p, ifo=60)
    with pytest.raises(RuntimeError, match="only before the first one"):
        optimizer.add_param_group({"params": [parameter()]})


@pytest.mark.parametrize(
    ("group", "error", "message"),
    [
        ({"params": [torch.zeros(2, dtype=torch.complex64)]}, TypeError, "complex: optimise torch.view_as_real"),
        ({"params": [torch.zeros(2, dtype=torch.int64)]}, TypeError, "torch.int64: give floating-point"),
        ({"params": [parameter()], "lr": -1.0}, ValueError, "lr = -1.0: give a finite number, at least 0"),
        ({"params": [parameter()], "weight_decay": math.nan}, ValueError, "weight_decay = nan"),
    ],
)
def test_bad_groups(group: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        vcsg.SVRG([group], n=10)
    optimizer = vcsg.SVRG([parameter()], n=10)
    with pytest.raises(error, match=message):
        optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 1


def test_sparse_gradients_are_refused() -> None:
    table = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = vcsg.SVRG(table.parameters(), n=5, L=1.0)
    next(iter(optimizer.sampler))

    def evaluate() -> Tensor:
        loss = table(torch.tensor([1, 2])).square().mean()
        loss.backward()
        return loss

    with pytest.raises(TypeError, match="sparse=False"):
        optimizer.step(evaluate)


def test_grad_scaler_is_refused() -> None:
    scaler = torch.amp.GradScaler("cpu")
    p = parameter()
    optimizer = vcsg.SVRG([p], n=10, L=1.0)
    next(iter(optimizer.sampler))
    scaler.scale(p.sum()).backward()
    with pytest.raises(TypeError, match=r"GradScaler.*bfloat16 autocast"):
        scaler.step(optimizer, closure(p, quadratic().data))
    optimizer.step(closure(p, quadratic().data))


def test_saga_refuses_a_table_that_does_not_fit() -> None:
    p = torch.nn.Parameter(torch.zeros(1000))
    with pytest.raises(
        ValueError, match=r"keep 300 gradients of 1,000 numbers, 1,200,000 bytes.*b=12 samples"
    ) as caught:
        vcsg.SAGA([p], n=300, memory=100_000)
    assert "choose svrg" in str(caught.value)
    vcsg.SAGA([p], n=300, memory=100_000, b=12)
    with pytest.raises(ValueError, match="memory = 0"):
        vcsg.SAGA([p], n=300, memory=0)


# --- step size


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda o: schedulers.LambdaLR(o, lambda e: 0.9**e),
    "multiplicative": lambda o: schedulers.MultiplicativeLR(o, lambda e: 0.9),
    "step": lambda o: schedulers.StepLR(o, 2, 0.5),
    "multistep": lambda o: schedulers.MultiStepLR(o, [1, 3], 0.5),
    "constant": lambda o: schedulers.ConstantLR(o, 0.5, 2),
    "linear": lambda o: schedulers.LinearLR(o, 0.5, 1.0, 3),
    "exponential": lambda o: schedulers.ExponentialLR(o, 0.8),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, 5),
    "restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3),
    "polynomial": lambda o: schedulers.PolynomialLR(o, 6),
    "cyclic": lambda o: schedulers.CyclicLR(o, 0.1, 1.0, 2, cycle_momentum=False),
    "onecycle": lambda o: schedulers.OneCycleLR(o, 1.0, 12, cycle_momentum=False),
    "plateau": lambda o: schedulers.ReduceLROnPlateau(o, patience=0),
    "sequential": lambda o: schedulers.SequentialLR(
        o, [schedulers.ConstantLR(o, 0.5, 2), schedulers.ExponentialLR(o, 0.8)], [2]
    ),
    "chained": lambda o: schedulers.ChainedScheduler([schedulers.ConstantLR(o, 0.5, 2), schedulers.StepLR(o, 2)]),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_lr_schedulers_step_once_an_epoch(kind: str) -> None:
    """η of every epoch is that of the schedule at its start, whatever L and the method's own factor are."""
    problem, p, told = quadratic(), parameter(), []
    optimizer = vcsg.SVRG([p], n=60, b=6, L=4.0, callback=told.append)
    scheduler = SCHEDULERS[kind](optimizer)
    lrs, epoch = [optimizer.param_groups[0]["lr"]], 1
    for _ in steps(problem, optimizer, p, passes=18):
        if optimizer.epoch != epoch:
            epoch = optimizer.epoch
            scheduler.step(*([1.0] if kind == "plateau" else []))
            lrs.append(optimizer.param_groups[0]["lr"])
    assert len(told) >= 5
    assert len(set(lrs)) > 1
    for record, lr in zip(told, lrs, strict=False):
        assert record.step_size == pytest.approx(float(lr) / 12 * 0.1 ** (2 / 3))


@pytest.mark.parametrize("name", METHODS)
def test_a_tensor_lr_is_a_number(name: str) -> None:
    options = {"L": None, "lr": torch.tensor(0.05, dtype=torch.float64)}
    np.testing.assert_array_equal(optimised(name, **options), optimised(name, L=None, lr=0.05))


@pytest.mark.parametrize("name", METHODS)
def test_clip_norm_shortens_every_step(name: str) -> None:
    problem, p = quadratic(), parameter(np.full(4, 30.0))
    optimizer = FiniteSumOptimizer([p], 60, name, clip_norm=0.01, **smoothness(name, 1.0), **OPTIONS.get(name, {}))
    x, longest = p.detach().clone(), 0.0
    for _ in steps(problem, optimizer, p, passes=5):
        if optimizer.method.needs_L:
            length = (p.detach() - x).norm().item() / optimizer.method.gamma
        else:  # v is shortened before the rule makes a step of it
            length = p.grad.norm().item() if p.grad is not None else 0.0
        longest = max(longest, length / 0.01)
        x = p.detach().clone()
    assert 0 < longest <= 1 + 1e-12
    np.testing.assert_array_equal(optimised(name, clip_norm=1e9), optimised(name))


@pytest.mark.parametrize("name", METHODS)
def test_zero_gradients_are_a_no_op(name: str) -> None:
    def flat(p: torch.nn.Parameter, batch: tuple[Tensor, ...]) -> Callable[[], Tensor]:
        def evaluate() -> Tensor:
            loss = 1 + 0 * p.sum()
            loss.backward()
            return loss

        return evaluate

    np.testing.assert_array_equal(optimised(name, evaluate=flat, decoupled_weight_decay=0.0), np.full(4, 2.0))


@pytest.mark.parametrize("name", METHODS)
def test_foreach_on_and_off_agree(name: str) -> None:
    np.testing.assert_allclose(
        optimised(name, foreach=False, L=None), optimised(name, foreach=True, L=None), rtol=1e-12
    )


# --- hooks, copies


def test_step_and_state_dict_hooks() -> None:
    problem, p, called = quadratic(), parameter(), []
    optimizer = vcsg.SVRG([p], n=60, L=1.0)
    optimizer.register_step_pre_hook(lambda *_: called.append("before"))
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    run(problem, optimizer, p, ifo=10)
    assert called == ["before", "after"] * (len(called) // 2)
    assert len(called) >= 2
    optimizer.register_state_dict_pre_hook(lambda *_: called.append("save"))
    optimizer.register_state_dict_post_hook(lambda *_: called.append("saved"))
    optimizer.register_load_state_dict_pre_hook(lambda *_: called.append("load"))
    optimizer.register_load_state_dict_post_hook(lambda *_: called.append("loaded"))
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert called[-4:] == ["save", "saved", "load", "loaded"]


def test_hooks_for_all_optimizers_and_the_profiler_hear_of_steps() -> None:
    problem, p, called = quadratic(), parameter(), []
    optimizer = vcsg.SVRG([p], n=60, L=1.0)
    handles = [
        register_optimizer_step_pre_hook(lambda *_: called.append("before")),
        register_optimizer_step_post_hook(lambda *_: called.append("after")),
    ]
    try:
        run(problem, optimizer, p, ifo=1)
    finally:
        for handle in handles:
            handle.remove()
    assert called == ["before", "after"]
    with torch.profiler.profile() as profiler:
        run(problem, optimizer, p, ifo=optimizer.ifo + 1)
    assert "Optimizer.step#SVRG.step" in {event.key for event in profiler.key_averages()}


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_collected_with_its_optimizer_is_silent() -> None:
    class Holder:
        pass

    holder = Holder()
    holder.itself = holder
    holder.optimizer = vcsg.SVRG([parameter()], n=60, L=1.0)
    holder.batches = holder.optimizer.batches(quadratic().data, passes=9)
    p = holder.optimizer.param_groups[0]["params"][0]
    while holder.optimizer.phase.kind != "inner":
        holder.optimizer.step(closure(p, next(holder.batches)))
    next(holder.batches)
    del holder
    gc.collect()


@pytest.mark.parametrize(
    "copier", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["deep", "pickle"]
)
@pytest.mark.parametrize("name", METHODS)
def test_copies_go_on_alike(name: str, copier: Callable[[Any], Any]) -> None:
    problem, p = quadratic(), parameter()
    optimizer = FiniteSumOptimizer([p], 60, name, output="weighted", **OPTIONS.get(name, {}))
    run(problem, optimizer, p, passes=3.3)
    q, other = copier((p, optimizer))
    assert other.param_groups[0]["params"][0] is q
    x = q.detach().clone()
    run(problem, optimizer, p, passes=8)
    assert torch.equal(q, x)
    run(problem, other, q, passes=8)
    for o in (optimizer, other):
        o.load_output()
    assert torch.equal(p, q)
    assert other.ifo == optimizer.ifo


def test_a_deleted_optimizer_frees_its_tensors_at_once() -> None:
    """No reference cycle: on a GPU the anchor and the mean would stay until Python's collector runs."""
    problem, p = quadratic(), parameter()
    optimizer = vcsg.SVRG([p], n=60, L=1.0)
    run(problem, optimizer, p, passes=2)
    held = weakref.ref(optimizer.state[p]["anchor"])
    gc.disable()
    try:
        del optimizer
        assert held() is None
    finally:
        gc.enable()


def test_a_copied_sampler_follows_the_copy() -> None:
    optimizer = vcsg.SVRG([parameter()], n=60, L=1.0)
    other = copy.deepcopy(optimizer)
    run(quadratic(), optimizer, optimizer.param_groups[0]["params"][0], passes=1.5)
    assert len(other.sampler) == 8
    assert next(iter(other.sampler)) != next(iter(optimizer.sampler))


# --- precision


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_follows_float64(name: str, dtype: torch.dtype) -> None:
    """To the precision of x itself: sums and means of half-precision gradients are kept in float32."""
    problem = quadratic()
    p = torch.nn.Parameter(torch.full((4,), 2.0, dtype=dtype))
    optimizer = FiniteSumOptimizer([p], 60, name, **smoothness(name, 4.0), **OPTIONS.get(name, {}))
    rows, targets, index = problem.data
    for batch in optimizer.batches((rows.to(dtype), targets.to(dtype), index), passes=4):
        optimizer.step(closure(p, batch))
        assert p.dtype == dtype
        assert p.grad is None or p.grad.dtype == dtype
    if name != "vcsg":  # its decisions depend on rounding
        expected = optimised(name, passes=4, L=4.0)
        np.testing.assert_allclose(p.detach().double(), expected, atol=1e-4 if dtype == torch.float32 else 0.2)


def test_half_precision_state_survives_a_checkpoint() -> None:
    problem = quadratic()
    p = torch.nn.Parameter(torch.full((4,), 2.0, dtype=torch.bfloat16))
    optimizer = vcsg.SVRG([p], n=60, L=1.0)
    data = tuple(t.bfloat16() if t.is_floating_point() else t for t in problem.data)
    for batch in optimizer.batches(data, passes=1.5):
        optimizer.step(closure(p, batch))
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    buffer.seek(0)
    other = vcsg.SVRG([p], n=60, L=1.0)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    assert other.state[p]["mean"].dtype == torch.float32
    assert torch.equal(other.state[p]["mean"], optimizer.state[p]["mean"])


def test_autocast_around_the_whole_loop_still_sees_the_anchor() -> None:
    """Autocast keeps bfloat16 copies of the weights; one kept from x would be used at y."""

    def train(outside: bool) -> Tensor:
        torch.manual_seed(0)
        model, data = torch.nn.Linear(5, 1), torch.randn(40, 5)
        optimizer = vcsg.SVRG(model.parameters(), n=40, lr=0.5)
        with torch.autocast("cpu", torch.bfloat16, enabled=outside):
            for x in optimizer.batches(data, passes=4):

                def evaluate(x: Tensor = x) -> Tensor:
                    optimizer.zero_grad()
                    with torch.autocast("cpu", torch.bfloat16):
                        loss = (model(x).float() - 1).square().mean()
                    loss.backward()
                    return loss

                optimizer.step(evaluate)
        return model.weight.detach()

    assert torch.equal(train(outside=True), train(outside=False))


# --- models as they are


def bn_net() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(6, 2)
    ).double()


def net_data(n: int = 48) -> tuple[Tensor, Tensor]:
    X = torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return X, (X[:, 0] > 0).long()


@pytest.mark.parametrize("name", METHODS)
def test_batchnorm_statistics_change_by_inner_steps_at_x_alone(name: str) -> None:
    """Against a model of the same weights that is evaluated once per inner step, at x."""
    model, twin, data = bn_net(), bn_net(), net_data()
    optimizer = FiniteSumOptimizer(model.parameters(), 48, name, buffers=model.buffers())
    inner = 0
    for x, y in optimizer.batches(data, passes=6):
        assert len(x) >= 2
        if optimizer.phase.kind == "inner":
            inner += 1
            with torch.no_grad():
                for q, p in zip(twin.parameters(), model.parameters(), strict=True):
                    q.copy_(p)
                twin(x)
        optimizer.step(net_closure(model, x, y))
        for b, expected in zip(model.buffers(), twin.buffers(), strict=True):
            torch.testing.assert_close(b, expected, rtol=1e-12, atol=1e-12)
    assert model[1].num_batches_tracked == inner


def test_batchnorm_with_exact_variance_is_refused() -> None:
    model = bn_net()
    with pytest.raises(ValueError, match="variance='exact' takes single samples"):
        vcsg.VCSG(model.parameters(), n=48, buffers=model.buffers(), variance="exact")


@pytest.mark.parametrize("name", ["svrg", "vcsg", "spider"])
def test_compiled_models_take_the_same_path(name: str) -> None:
    """Parameters and buffers are pointed elsewhere under a compiled model too, and nothing is compiled anew for it."""
    ends = []
    for compiled in (False, True):
        model, data = bn_net(), net_data()
        call = torch.compile(model, backend="aot_eager", dynamic=True) if compiled else model
        optimizer = FiniteSumOptimizer(model.parameters(), 48, name, buffers=model.buffers(), L=4.0, seed=2)
        for x, y in optimizer.batches(data, passes=4):
            optimizer.step(net_closure(call, x, y))
        ends.append(torch.cat([t.detach().double().flatten() for t in (*model.parameters(), *model.buffers())]))
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-9)


def test_tied_weights_are_one_parameter() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4)).double()
    model[2].weight = model[0].weight
    X = torch.randn(30, 4, dtype=torch.float64)
    optimizer = vcsg.SVRG(model.parameters(), n=30, lr=0.5)
    first = last = None
    for x in optimizer.batches(X, passes=20):

        def evaluate(x: Tensor = x) -> Tensor:
            loss = (model(x) - 1).square().mean()
            loss.backward()
            return loss

        last = optimizer.step(evaluate).item()
        first = last if first is None else first
    assert model[2].weight is model[0].weight
    assert len(optimizer.state) == 3
    assert last < first


def test_random_augmentation_leaves_noise_in_the_estimates() -> None:
    """f_i is then random: two anchors of all n samples at one point differ, and the optimizer still runs."""
    X, Y = net_data()
    model = torch.nn.Linear(5, 2).double()
    optimizer = vcsg.SVRG(model.parameters(), n=48, lr=1e-300)
    told = []
    optimizer._callback = told.append
    for x, y in optimizer.batches((X, Y), passes=4):

        def evaluate(x: Tensor = x, y: Tensor = y) -> Tensor:
            noisy = x + 0.3 * torch.randn_like(x)
            loss = torch.nn.functional.cross_entropy(model(noisy), y)
            loss.backward()
            return loss

        optimizer.step(evaluate)
    assert told[0].gradient_norm2 != told[1].gradient_norm2
    assert told[0].gradient_norm2 == pytest.approx(told[1].gradient_norm2, rel=0.5)
