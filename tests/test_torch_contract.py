"""The checks that torch makes of every optimizer of its own, of every method here, in an ordinary loop.

Methods that need the gradient at x alone are called as torch.optim's, `loss.backward(); optimizer.step()`; the others
with the closures that torch's tests have, `optimizer.step(closure)`. Two of torch's promises are refused by all, in a
sentence each: complex parameters and sparse gradients (tests/test_contract.py). A closure that leaves no gradient is
for the former alone.
"""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler as schedulers
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import vcsg
from vcsg import FiniteSumOptimizer

METHODS = sorted(set(vcsg.methods()) - {"saga", "snvrg"})
"""All that run in an ordinary loop."""
SOME = ["adam", "momentum", "sgd", "spider", "vcsg"]
"""Methods of every kind: with a second moment, a memory, without either, with an anchor that moves or rests."""
LR = {"muon": 0.01, "auto": 0.01, "adam": 0.01, "mars": 0.01}
"""A base step that suits the problem, where it is not 0.02."""

Gradient = Callable[[], Tensor]


def make(name: str, params: Any, **options: Any) -> FiniteSumOptimizer:
    return FiniteSumOptimizer(params, 8, name, **{"batch_size": 1, "lr": LR.get(name, 0.02), **options})


def needs_one_point(name: str) -> bool:
    return make(name, [nn.Parameter(torch.ones(1, 1))]).needs_one_point


def problem(dtype: torch.dtype = torch.float64, contiguous: bool = True) -> tuple[nn.Parameter, nn.Parameter, Tensor]:
    """The weight, the bias and the input of torch's tests."""
    draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0), dtype=dtype)
    if contiguous:
        return nn.Parameter(draw(10, 5)), nn.Parameter(draw(10)), draw(5)
    return nn.Parameter(draw(10, 5, 2)[..., 0]), nn.Parameter(draw(10, 2)[..., 0]), draw(5)


def closure_of(optimizer: FiniteSumOptimizer, weight: Tensor, bias: Tensor, given: Tensor) -> Gradient:
    def evaluate() -> Tensor:
        optimizer.zero_grad()
        loss = (weight.mv(given) + bias).pow(2).sum()
        loss.backward()
        return loss

    return evaluate


def advance(optimizer: FiniteSumOptimizer, gradient: Gradient, steps: int = 1) -> None:
    for _ in range(steps):
        if optimizer._course.needs_one_point:
            gradient()
            optimizer.step()
        else:
            optimizer.step(gradient)


@pytest.mark.parametrize(
    ("name", "contiguous", "maximize"),
    [*((name, True, False) for name in METHODS), *((name, False, True) for name in SOME)],
)
def test_the_loss_goes_the_right_way(name: str, contiguous: bool, maximize: bool) -> None:
    weight, bias, given = problem(contiguous=contiguous)
    optimizer = make(name, [weight, bias], maximize=maximize)
    assert type(optimizer).__name__ in repr(optimizer)
    gradient = closure_of(optimizer, weight, bias, given)
    start = gradient().item()
    advance(optimizer, gradient, 40)
    assert (gradient().item() > start) if maximize else (gradient().item() < start)


GROUPS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "lr": lambda weight, bias: [{"params": [weight]}, {"params": [bias], "lr": 0.001}],
    "weight decay": lambda weight, bias: [{"params": [weight], "weight_decay": 0.1}, {"params": bias}],
    "decoupled": lambda weight, bias: [{"params": [weight], "decoupled_weight_decay": 0.1}, {"params": [bias]}],
    "named": lambda weight, bias: [("weight", weight), ("bias", bias)],
    "one": lambda weight, bias: [{"params": bias}],
}


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("name", SOME)
def test_groups(name: str, kind: str) -> None:
    weight, bias, given = problem()
    optimizer = make(name, GROUPS[kind](weight, bias))
    gradient = closure_of(optimizer, weight, bias, given)
    start, before = gradient().item(), weight.detach().clone()
    advance(optimizer, gradient, 40)
    assert gradient().item() < start
    assert torch.equal(weight, before) == (kind == "one")
    if kind == "named":
        assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]


SCHEDULERS: dict[str, list[Callable[[Any], Any]]] = {
    "step": [lambda o: schedulers.StepLR(o, gamma=0.9, step_size=10)],
    "linear": [lambda o: schedulers.LinearLR(o, start_factor=0.4, end_factor=0.8, total_iters=4)],
    "two": [lambda o: schedulers.StepLR(o, gamma=0.99, step_size=10), schedulers.ReduceLROnPlateau],
    "three": [
        lambda o: schedulers.ExponentialLR(o, gamma=0.99),
        lambda o: schedulers.PolynomialLR(o, power=0.9, total_iters=400),
        schedulers.ReduceLROnPlateau,
    ],
}


@pytest.mark.parametrize("kind", SCHEDULERS)
@pytest.mark.parametrize("name", SOME)
def test_schedulers_of_every_step(name: str, kind: str) -> None:
    """The closure is evaluated between the steps too, for a scheduler that asks for the loss."""
    weight, bias, given = problem()
    optimizer = make(name, [weight, bias])
    gradient, used = closure_of(optimizer, weight, bias, given), [s(optimizer) for s in SCHEDULERS[kind]]
    start = gradient().item()
    for _ in range(40):
        advance(optimizer, gradient)
        for scheduler in used:
            scheduler.step(*([gradient().item()] if isinstance(scheduler, schedulers.ReduceLROnPlateau) else []))
    assert gradient().item() < start
    assert optimizer.param_groups[0]["lr"] != LR.get(name, 0.02)


def clone(name: str, optimizer: FiniteSumOptimizer, dtype: torch.dtype) -> tuple[FiniteSumOptimizer, Gradient, list]:
    """An optimizer of copies of the parameters in a dtype, with the state of the other; its closure."""
    *params, given = (t.detach().to(dtype) for t in (*optimizer.param_groups[0]["params"], problem()[2]))
    weight, bias = (nn.Parameter(p.clone()) for p in params)
    other = make(name, [weight, bias])
    state = copy.deepcopy(optimizer.state_dict())
    kept = copy.deepcopy(state)
    other.load_state_dict(state)
    torch.testing.assert_close(state["state"], kept["state"], rtol=0, atol=0)  # loading leaves it alone
    assert state["vcsg"] == kept["vcsg"]
    return other, closure_of(other, weight, bias, given), [weight, bias]


@pytest.mark.parametrize("name", METHODS)
def test_a_state_goes_on_alike_with_equal_parameters(name: str) -> None:
    weight, bias, given = problem()
    optimizer = make(name, [weight, bias])
    gradient = closure_of(optimizer, weight, bias, given)
    advance(optimizer, gradient, 20)
    other, theirs, params = clone(name, optimizer, torch.float64)
    for _ in range(20):
        advance(optimizer, gradient)
        advance(other, theirs)
        assert torch.equal(weight, params[0])
        assert torch.equal(bias, params[1])
    ours, copied = optimizer.state_dict(), other.state_dict()
    assert ours["param_groups"] == copied["param_groups"]
    torch.testing.assert_close(ours["state"], copied["state"], rtol=0, atol=0)
    other.param_groups.extend(other.param_groups)  # repeated parameters have one place in the state
    assert other.state_dict()["param_groups"][-1] == ours["param_groups"][-1]


@pytest.mark.parametrize("name", METHODS)
def test_a_state_is_cast_to_the_parameters(name: str) -> None:
    weight, bias, given = problem(torch.float32)
    optimizer = make(name, [weight, bias])
    advance(optimizer, closure_of(optimizer, weight, bias, given), 12)
    other, gradient, params = clone(name, optimizer, torch.float64)
    assert {t.dtype for p in params for t in other.state[p].values()} == {torch.float64}
    advance(other, gradient, 12)
    assert all(p.dtype == torch.float64 and torch.isfinite(p).all() for p in params)


@pytest.mark.parametrize("name", METHODS)
def test_an_older_state_lacks_newer_options(name: str) -> None:
    weight, bias, given = problem()
    optimizer = make(name, [weight, bias])
    gradient = closure_of(optimizer, weight, bias, given)
    advance(optimizer, gradient, 3)
    state = copy.deepcopy(optimizer.state_dict())
    for group in state["param_groups"]:
        del group["maximize"], group["decoupled_weight_decay"]
    del state["vcsg"]["state"]["loop"]
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["maximize"] is False
    advance(optimizer, gradient, 3)


@pytest.mark.parametrize("name", METHODS)
def test_a_state_survives_a_file(name: str) -> None:
    weight, bias, given = problem()
    optimizer = make(name, [weight, bias])
    advance(optimizer, closure_of(optimizer, weight, bias, given), 9)
    state, file = optimizer.state_dict(), io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    torch.testing.assert_close(loaded["state"], state["state"], rtol=0, atol=0)
    assert loaded["param_groups"] == state["param_groups"]
    assert any(len(held) for held in optimizer.state.values())
    other = pickle.loads(pickle.dumps(optimizer))
    assert {k for k in vars(other) if k[0] != "_"} == {k for k in vars(copy.deepcopy(optimizer)) if k[0] != "_"}


@pytest.mark.parametrize("name", METHODS)
def test_no_gradient_moves_nothing(name: str) -> None:
    weight, bias, _ = problem()
    optimizer = make(name, [weight, bias], decoupled_weight_decay=0.0)
    before = weight.detach().clone()

    def zero() -> Tensor:
        weight.grad, bias.grad = torch.zeros_like(weight), torch.zeros_like(bias)
        return torch.tensor(1.0)

    advance(optimizer, zero, 12)
    assert torch.equal(weight, before)
    if optimizer._course.needs_one_point:
        ifo = optimizer.ifo
        optimizer.zero_grad()
        optimizer.step()
        assert torch.equal(weight, before)
        assert optimizer.ifo == ifo


@pytest.mark.parametrize("returned", ["loss", "None"])
@pytest.mark.parametrize("name", [n for n in METHODS if needs_one_point(n)])
def test_a_closure_may_return_what_was_evaluated_before(name: str, returned: str) -> None:
    """`loss.backward(); optimizer.step(lambda: loss)` is the step without a closure, and leaves p.grad as it is."""
    ends = []
    for closed in (False, True):
        weight, bias, given = problem()
        optimizer = make(name, [weight, bias])
        gradient = closure_of(optimizer, weight, bias, given)
        for _ in range(12):
            loss = gradient()
            kept = weight.grad
            value = (
                optimizer.step(lambda loss=loss: loss if returned == "loss" else None) if closed else optimizer.step()
            )
            assert weight.grad is kept
            assert not closed or value is (loss if returned == "loss" else None)
        ends.append((weight.detach().clone(), optimizer.ifo))
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0)


@pytest.mark.parametrize("name", [n for n in METHODS if not needs_one_point(n)])
def test_where_two_points_are_compared_the_closure_evaluates(name: str) -> None:
    """The gradient that was there is one of x alone. It is refused at the first step, and nothing is changed."""
    weight, bias, given = problem()
    optimizer = make(name, [weight, bias])
    gradient, before = closure_of(optimizer, weight, bias, given), weight.detach().clone()
    loss = gradient()
    with pytest.raises(RuntimeError, match=r"left no gradient: call loss.backward\(\) in it"):
        optimizer.step(lambda: loss)
    assert torch.equal(weight, before)
    assert optimizer.ifo == 0
    advance(optimizer, gradient, 12)
    assert not torch.equal(weight, before)


def test_what_such_a_closure_returns_is_one_number_or_none() -> None:
    weight, bias, given = problem()
    optimizer = make("sgd", [weight, bias])
    closure_of(optimizer, weight, bias, given)()
    with pytest.raises(TypeError, match=r"a tensor of shape \(10,\): return the mean loss"):
        optimizer.step(lambda: bias.detach())


@pytest.mark.parametrize("name", METHODS)
def test_a_frozen_parameter_stays(name: str) -> None:
    weight, bias, given = problem()
    optimizer = make(name, [weight, bias])
    gradient, before = closure_of(optimizer, weight, bias, given), bias.detach().clone()
    bias.requires_grad_(False)
    advance(optimizer, gradient, 12)
    assert torch.equal(bias, before)
    bias.requires_grad_(True)
    advance(optimizer, gradient, 24)
    assert not torch.equal(bias, before)


@pytest.mark.parametrize("name", METHODS)
def test_a_tensor_is_a_learning_rate(name: str) -> None:
    ends = []
    for lr in (0.02, torch.tensor(0.02, dtype=torch.float64), torch.tensor([0.02], dtype=torch.float64)):
        weight, bias, given = problem()
        optimizer = make(name, [weight, bias], lr=lr)
        advance(optimizer, closure_of(optimizer, weight, bias, given), 12)
        ends.append(weight.detach().clone())
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


@pytest.mark.parametrize("name", METHODS)
def test_hooks_are_called_in_order(name: str) -> None:
    weight, bias, given = problem()
    optimizer, called = make(name, [weight, bias]), []

    def note(word: str) -> Callable[..., None]:
        return lambda *_: called.append(word)

    optimizer.register_step_pre_hook(note("before"))
    optimizer.register_step_post_hook(note("after"))
    handles = [
        register_optimizer_step_pre_hook(note("before all")),
        register_optimizer_step_post_hook(note("after all")),
    ]
    try:
        advance(optimizer, closure_of(optimizer, weight, bias, given), 2)
    finally:
        for handle in handles:
            handle.remove()
    assert called == ["before all", "before", "after", "after all"] * 2
    optimizer.register_state_dict_pre_hook(note("save"))
    optimizer.register_state_dict_post_hook(lambda _, state: state.update(mark=1))
    optimizer.register_load_state_dict_pre_hook(note("load"))
    optimizer.register_load_state_dict_pre_hook(note("load first"), prepend=True)
    optimizer.register_load_state_dict_post_hook(note("loaded"))
    state = optimizer.state_dict()
    assert state["mark"] == 1
    optimizer.load_state_dict(state)
    assert called[8:] == ["save", "load first", "load", "loaded"]


def wrong_inputs() -> dict[str, tuple[Any, dict[str, Any]]]:
    p, q = (nn.Parameter(torch.ones(1, 1)) for _ in range(2))
    return {
        "no list": (p, {}),
        "empty": ([], {}),
        "twice in a group": ([p, p], {}),
        "twice in all": ([{"params": p}, {"params": p}], {}),
        "half named": ([("weight", p), q], {}),
        "one group named": ([{"params": [p]}, {"params": [("weight", q)]}], {}),
        "two rates": ([p], {"lr": torch.tensor([0.001, 0.001])}),
        "no leaf": ([p * 2], {}),
    }


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", wrong_inputs())
@pytest.mark.parametrize("name", SOME)
def test_what_torch_refuses_is_refused_in_its_words(name: str, kind: str) -> None:
    params, options = wrong_inputs()[kind]
    with pytest.raises((TypeError, ValueError, UserWarning)) as theirs:
        torch.optim.SGD(params, **options)
    with pytest.raises(theirs.type) as ours:
        make(name, params, **options)
    assert str(theirs.value) in str(ours.value)
