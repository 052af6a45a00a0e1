"""What a user of the optimizer relies on: data of any kind, stopping, safety, records, output, errors that help."""

from __future__ import annotations

import copy
import inspect
import io
import itertools
import logging
import math
import re
import typing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from nets import net_closure, vector
from quadratic import closure, parameter, quadratic, run, smoothness, steps
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import vcsg
from vcsg import FiniteSumOptimizer
from vcsg.optimizer_options import CommonOptions
from vcsg.run.faults import MAX_ROLLBACKS
from vcsg.run.power_iteration import curvature

METHODS = sorted(vcsg.methods())


def net(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(8, 3)
    ).double()


def samples(n: int = 50) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(n, 5, dtype=torch.float64, generator=generator)
    return X, (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


# --- data


def trained(name: str, kind: str) -> tuple[Tensor, int, Tensor]:
    """The end of three passes with data of that kind, from the same global random state."""
    model, data = net(), samples()
    optimizer = FiniteSumOptimizer(model.parameters(), 50, name)
    source: Any = data
    if kind != "tensors":
        workers = int(kind)
        source = DataLoader(
            TensorDataset(*data), batch_sampler=optimizer.sampler, num_workers=workers, persistent_workers=workers > 0
        )
    torch.manual_seed(3)
    for x, y in optimizer.batches(source, passes=3):
        optimizer.step(net_closure(model, x, y))
    return vector(model), optimizer.ifo, torch.rand(4)


@pytest.mark.parametrize("name", METHODS)
def test_loaders_and_tensors_give_the_same_trajectory_with_dropout(name: str) -> None:
    reference = trained(name, "tensors")
    for kind in ("0", "2"):
        found = trained(name, kind)
        assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(reference, found, strict=True))


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    assert torch.equal(trained("vcsg", "tensors")[2], expected)
    assert torch.equal(trained("vcsg", "2")[2], expected)


def test_dropout_has_the_same_mask_at_both_points() -> None:
    """At x = y the two gradients of SVRG cancel exactly, dropout included, so v = m."""
    model, (X, Y) = net(), samples()
    optimizer = vcsg.SVRG(model.parameters(), n=50, L=1.0)
    for x, y in optimizer.batches((X, Y), passes=math.inf):
        first = optimizer.phase.kind == "inner"
        optimizer.step(net_closure(model, x, y))
        if first:
            break
    for p in model.parameters():
        torch.testing.assert_close(p.grad, optimizer.state[p]["mean"], rtol=0, atol=1e-15)


def test_a_single_tensor_is_yielded_as_a_tensor() -> None:
    optimizer = vcsg.SGD([parameter()], n=10, L=1.0)
    assert isinstance(next(optimizer.batches(torch.zeros(10, 4), passes=1)), Tensor)


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.zeros(10, 4))


def bad_data(optimizer: FiniteSumOptimizer) -> dict[str, tuple[Any, str]]:
    rows = TensorDataset(torch.zeros(10, 4))
    return {
        "iterable": (DataLoader(Stream()), "IterableDataset.*__getitem__"),
        "other sampler": (DataLoader(rows, batch_size=2), "batch_sampler=optimizer.sampler"),
        "n of loader": (
            DataLoader(TensorDataset(torch.zeros(11, 4)), batch_sampler=optimizer.sampler),
            r"11 samples.*n = 10.*n=len\(dataset\)",
        ),
        "n of tensors": ((torch.zeros(10, 4), torch.zeros(9)), "tensor 1 of the data holds 9 samples.*n = 10"),
        "scalar": (torch.tensor(1.0), "tensor 0 of the data holds 0 samples"),
        "array": (np.zeros((10, 4)), "data is a ndarray: give a DataLoader"),
        "empty": ((), "data is a tuple"),
    }


@pytest.mark.parametrize("kind", list(bad_data(vcsg.SGD([parameter()], n=10))))
def test_unusable_data_is_refused_before_work_starts(kind: str) -> None:
    optimizer = vcsg.SGD([parameter()], n=10)
    data, message = bad_data(optimizer)[kind]
    with pytest.raises((TypeError, ValueError), match=message):
        optimizer.batches(data, passes=1)


# --- bad calls leave everything as it was


def nothing(p: torch.nn.Parameter) -> Any:
    return None


def no_backward(p: torch.nn.Parameter) -> Any:
    return (p * p).sum()


def vector_loss(p: torch.nn.Parameter) -> Any:
    (p * p).sum().backward()
    return p * p


def infinite(p: torch.nn.Parameter) -> Any:
    loss = (p * p).sum() * math.inf
    loss.backward()
    return loss


def nan_gradient(p: torch.nn.Parameter) -> Any:
    loss = (p * 0).sum().sqrt() + 1
    loss.backward()
    return loss


def raises(p: torch.nn.Parameter) -> Any:
    (p * p).sum().backward()
    raise KeyboardInterrupt("Ctrl-C")


BAD_CLOSURES: dict[Callable[..., Any], tuple[type[BaseException], str]] = {
    nothing: (TypeError, "closure returned None: return the mean loss"),
    no_backward: (RuntimeError, r"call loss.backward\(\)"),
    vector_loss: (TypeError, r"tensor of shape \(4,\)"),
    raises: (KeyboardInterrupt, "Ctrl-C"),
}


def place(name: str, kind: str) -> tuple[FiniteSumOptimizer, torch.nn.Parameter]:
    """An optimizer whose next step is of that kind."""
    problem, p = quadratic(), parameter()
    optimizer = FiniteSumOptimizer([p], problem.n, name, seed=1, **({} if kind == "smoothness" else {"L": 1.0}))
    feed = optimizer.batches(problem.data, passes=100)
    batch = next(feed)
    while optimizer.phase.kind != kind or (kind != "smoothness" and optimizer._state.position != 1):
        optimizer.step(closure(p, batch))
        batch = next(feed)
    return optimizer, p


@pytest.mark.parametrize("kind", ["anchor", "smoothness", "inner"])
@pytest.mark.parametrize("bad", BAD_CLOSURES, ids=lambda f: f.__name__)
def test_a_bad_closure_is_an_error_and_changes_nothing(kind: str, bad: Callable[..., Any]) -> None:
    optimizer, p = place("svrg", kind)
    before, x = copy.deepcopy(optimizer.state_dict()), p.detach().clone()
    error, message = BAD_CLOSURES[bad]
    with pytest.raises(error, match=message):
        optimizer.step(lambda: bad(p))
    assert torch.equal(p, x)
    assert str(optimizer.state_dict()) == str(before)


@pytest.mark.parametrize("bad", [infinite, nan_gradient], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["svrg", "gd", "vcsg"])
def test_a_start_that_is_not_finite_is_an_error_that_names_samples(name: str, bad: Callable[..., Any]) -> None:
    p = parameter()
    optimizer = FiniteSumOptimizer([p], 60, name)
    before = copy.deepcopy(optimizer.state_dict())
    next(optimizer.batches(quadratic().data, passes=1))
    with pytest.raises(FloatingPointError, match=r"at the starting point, before any step: .* samples \[\d+"):
        optimizer.step(lambda: bad(p))
    assert str(optimizer.state_dict()) == str(before)
    assert torch.equal(p, parameter())


def test_a_start_that_is_not_finite_without_anchor() -> None:
    p = parameter()
    for options, message in (({"L": 1.0}, "at the starting point"), ({}, r"L cannot be estimated.*Give L= or lr=")):
        optimizer = vcsg.SGD([p], n=60, **options)
        next(optimizer.batches(quadratic().data, passes=1))
        with pytest.raises(FloatingPointError, match=message):
            optimizer.step(lambda: infinite(p))
    assert torch.equal(p, parameter())


def test_a_gradient_that_is_not_finite_later_in_the_first_anchor() -> None:
    optimizer, p = place("svrg", "anchor")
    assert optimizer.epoch == 1
    assert optimizer._state.position == 1
    before = str(copy.deepcopy(optimizer.state_dict()))
    with pytest.raises(FloatingPointError, match="the gradient is not finite at the starting point"):
        optimizer.step(lambda: nan_gradient(p))
    assert str(optimizer.state_dict()) == before


def test_a_bad_sample_at_the_anchor_point_is_named() -> None:
    optimizer, p = place("svrg", "inner")
    before, x = copy.deepcopy(optimizer.state_dict()), p.detach().clone()
    with pytest.raises(FloatingPointError, match=r"at the last good point.* look at the model and at the sample \d+"):
        optimizer.step(lambda: infinite(p))
    assert torch.equal(p, x)
    assert str(optimizer.state_dict()) == str(before)


def test_step_without_closure_shows_the_lines_to_write() -> None:
    with pytest.raises(TypeError, match=r"def closure\(\):"):
        vcsg.VCSG([parameter()], n=10).step()


def test_a_batch_that_is_not_used_is_an_error() -> None:
    problem, p = quadratic(), parameter()
    feed = vcsg.SVRG([p], n=60).batches(problem.data, passes=1)
    next(feed)
    with pytest.raises(RuntimeError, match=r"call optimizer.step\(closure\) once per batch"):
        next(feed)


BAD_OPTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("svrg", {"n": 0}, "n = 0: give a whole number"),
    ("svrg", {"n": 2.5}, "n = 2.5: give a whole number"),
    ("svrg", {"lr": -1.0}, "lr = -1.0: give a finite number above 0"),
    ("svrg", {"L": 0.0}, "L = 0.0: give a finite number above 0"),
    ("svrg", {"L": math.nan}, "L = nan"),
    ("svrg", {"output": "best"}, "output = 'best': choose 'last' or 'weighted'"),
    ("svrg", {"variance": "none"}, "variance = 'none': choose 'chunks' or 'exact'"),
    ("svrg", {"chunk": 0}, "chunk = 0"),
    ("svrg", {"seed": -1}, "seed = -1"),
    ("svrg", {"b": 61}, "b = 61 does not fit n = 60 samples: choose b between 1 and 60"),
    ("svrg", {"b": 0}, "b = 0: give a whole number, at least 1"),
    ("sgd", {"b": 61}, "b = 61 does not fit n = 60"),
    ("batching-svrg", {"B": 61}, "B = 61 does not fit n = 60"),
    ("weighted-svrg", {"lam": 0.0}, "lam = 0.0: give a number strictly between 0 and 1"),
    ("biased-svrg", {"lam": 1.0}, "lam = 1.0: give a number strictly between 0 and 1"),
    ("scsg", {"eps": 0.0}, "eps = 0.0: give a finite number above 0"),
    ("scsg", {"eps": 1.0, "B_min": 1}, "B_min = 1: one sample has no variance"),
    ("vcsg", {"eps": -1.0}, "eps = -1.0"),
    ("vcsg", {"K": 0.0}, "K = 0.0"),
    ("vcsg", {"rho": 1.0}, "rho = 1.0"),
    ("vcsg", {"sigma": -1.0}, "sigma = -1.0"),
    ("vcsg", {"B_min": 1}, "B_min = 1"),
    ("vcsg", {"b_min": 61}, "b_min = 61 does not fit n = 60"),
    ("vcsg", {"comparison": "size"}, "comparison = 'size': choose one of norm, lemma, elementwise, never"),
    ("vcsg", {"first_epoch": "no"}, "first_epoch = 'no': give True or False"),
    ("vcsg", {"epsilon": 0.1}, "vcsg has no option 'epsilon': did you mean 'eps'"),
    ("gd", {"b": 3}, "gd has no option 'b': there are none"),
    ("vscg", {}, "no method 'vscg': did you mean 'vcsg'"),
]


@pytest.mark.parametrize(("name", "options", "message"), BAD_OPTIONS, ids=str)
def test_options_out_of_range(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message.replace("(", r"\(")):
        FiniteSumOptimizer([parameter()], options.pop("n", 60), name, **options)


def test_numpy_integers_are_integers() -> None:
    optimizer = vcsg.SVRG([parameter()], n=np.int64(60), b=np.int32(3), seed=np.int64(1))
    assert isinstance(optimizer.n, int)
    torch.load(io.BytesIO(_bytes(optimizer.state_dict())), weights_only=True)


def _bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def test_a_preset_takes_no_method_and_a_method_no_options() -> None:
    with pytest.raises(TypeError, match="positional"):
        vcsg.SVRG([parameter()], 60, "sgd")
    with pytest.raises(TypeError, match="takes a Method or a name"):
        vcsg.SVRG([parameter()], 60, method="sgd")
    with pytest.raises(TypeError, match="takes a Method or a name"):
        FiniteSumOptimizer([parameter()], 60)
    with pytest.raises(TypeError, match="options b go to a method given by name"):
        FiniteSumOptimizer([parameter()], 60, vcsg.make("svrg"), b=3)


@pytest.mark.parametrize("name", METHODS)
def test_presets_and_names_are_the_same(name: str) -> None:
    presets = {cls.factory.__name__.replace("_", "-"): cls for cls in FiniteSumOptimizer.__subclasses__()}
    optimizer = presets[name]([parameter()], n=60)
    assert repr(optimizer.method) == repr(vcsg.methods()[name])
    assert optimizer.method.name == name
    assert type(optimizer).__name__ in vcsg.__all__


@pytest.mark.parametrize("name", METHODS)
def test_a_preset_has_typed_options_and_explains_every_one(name: str) -> None:
    """What is written in presets.py, for editors and type checkers, are the options that the catalogue has."""
    factory = vcsg.method.factory(name)
    [preset] = [cls for cls in FiniteSumOptimizer.__subclasses__() if cls.factory is factory]
    hints = typing.get_type_hints(preset.__init__)
    written = inspect.signature(preset.__init__).parameters
    own = {key: p.default for key, p in written.items() if p.kind == p.KEYWORD_ONLY}
    assert own == {key: p.default for key, p in inspect.signature(factory).parameters.items()}
    assert {key: hints[key] for key in own} == {
        key: hint for key, hint in typing.get_type_hints(factory).items() if key != "return"
    }
    common = inspect.signature(FiniteSumOptimizer.__init__).parameters
    shared = [key for key, p in common.items() if p.kind == p.KEYWORD_ONLY]
    assert list(typing.get_type_hints(CommonOptions)) == shared
    assert list(inspect.signature(preset).parameters) == ["params", "n", *own, *shared]
    explained = re.findall(r"^    (\w+): \S", preset.__doc__ or "", re.MULTILINE)
    assert explained == ["params", "n", *own, *shared]
    assert (preset.__doc__ or "").startswith((factory.__doc__ or "").splitlines()[0])


def test_batches_needs_a_rule_to_stop() -> None:
    optimizer = vcsg.SVRG([parameter()], n=60)
    with pytest.raises(ValueError, match="would never end"):
        optimizer.batches(quadratic().data)
    with pytest.raises(ValueError, match="passes = -1"):
        optimizer.batches(quadratic().data, passes=-1)
    with pytest.raises(ValueError, match="seconds = nan"):
        optimizer.batches(quadratic().data, seconds=math.nan)


# --- stopping


def test_stopping_rules() -> None:
    problem = quadratic()
    for limits in ({"ifo": 150}, {"passes": 2.5}):
        p = parameter()
        optimizer = vcsg.SVRG([p], n=60, L=1.0)
        run(problem, optimizer, p, **limits)
        assert 150 <= optimizer.ifo <= 151
    p = parameter()
    optimizer = vcsg.SVRG([p], n=60, L=1.0)
    run(problem, optimizer, p, seconds=0.05)
    assert 0 < optimizer.ifo < 1_000_000
    run(problem, optimizer, p, passes=0)
    epochs: list[int] = []
    run(problem, optimizer, p, until=lambda r: epochs.append(r.epoch) or len(epochs) == 3)
    assert epochs == [epochs[0], epochs[0] + 1, epochs[0] + 2]


@pytest.mark.parametrize("quantity", ["loss", "variance", "gradient_norm2"])
@pytest.mark.parametrize("name", ["sgd", "auto", "storm"])
def test_a_rule_by_what_is_never_measured_is_refused(name: str, quantity: str) -> None:
    """No comparison with NaN is true: the run would go on for ever."""
    p = parameter()
    optimizer = vcsg.FiniteSumOptimizer([p], 60, name, **({"L": 1.0} if name == "sgd" else {"lr": 0.01}))
    with pytest.raises(
        ValueError, match=rf"record\.{quantity}, which is measured at anchors.* Choose a method that does"
    ):
        run(quadratic(), optimizer, p, until=lambda record: getattr(record, quantity) < -1)
    told: list[str] = []
    run(quadratic(), optimizer, p, until=lambda r: told.append(f"{r} {r.scalars()}") or r.epoch > 4)  # type: ignore[func-returns-value]
    assert told
    epoch = optimizer.epoch
    run(quadratic(), optimizer, p, until=lambda r: r.epoch > epoch + 2 or (r.anchor and getattr(r, quantity) < -1))
    assert optimizer.epoch == epoch + 3
    p = parameter()
    optimizer = vcsg.SVRG([p], n=60, L=1.0)
    run(quadratic(), optimizer, p, until=lambda record: getattr(record, quantity) > -1)
    assert optimizer.epoch == 1


def test_stopping_in_the_middle_and_going_on_is_the_same_run() -> None:
    problem, p, q = quadratic(), parameter(), parameter()
    whole, parts = (vcsg.VCSG([v], n=60, eps=0.01, L=1.0) for v in (p, q))
    run(problem, whole, p, passes=10)
    for passes in (0.3, 1.2, 3, 7.5, 10):
        run(problem, parts, q, passes=passes)
    assert torch.equal(p, q)


def test_interrupting_leaves_the_model_at_x() -> None:
    """Ctrl-C in the evaluation at the anchor, and in one of the smoothness estimate."""
    for kind in ("inner", "smoothness"):
        optimizer, p = place("svrg", kind)
        x = p.detach().clone()
        with torch.no_grad():
            y = optimizer.state[p]["anchor"]
        assert kind == "smoothness" or not torch.equal(x, y)
        seen = []

        def interrupted(p: torch.nn.Parameter = p, seen: list[Tensor] = seen) -> Any:
            seen.append(p.detach().clone())
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            optimizer.step(interrupted)
        assert not torch.equal(seen[0], x)
        assert torch.equal(p, x)


# --- step size and L


def test_lr_alone_is_the_base_step_and_with_L_a_multiplier() -> None:
    def eta(**options: Any) -> float:
        p = parameter()
        optimizer = vcsg.SGD([p], n=60, b=1, **options)
        run(quadratic(), optimizer, p, ifo=1)
        return optimizer.record.step_size

    assert eta(lr=0.01) == pytest.approx(0.01)
    assert eta(L=4.0) == pytest.approx(1 / 12)
    assert eta(L=4.0, lr=0.5) == pytest.approx(1 / 24)
    assert vcsg.SGD([parameter()], n=60, lr=0.01).L == pytest.approx(100 / 3)


def test_parameter_groups_have_their_own_lr() -> None:
    problem, p, q = quadratic(), parameter(), parameter()
    optimizer = vcsg.SGD([{"params": [p], "lr": 0.1}, {"params": [q], "lr": 0.2}], n=60, b=60, lr=0.3)
    for rows, targets, _ in optimizer.batches(problem.data, ifo=60):

        def evaluate(rows: Tensor = rows, targets: Tensor = targets) -> Tensor:
            loss = 0.5 * ((rows @ p - targets) ** 2).mean() + 0.5 * ((rows @ q - targets) ** 2).mean()
            loss.backward()
            return loss

        optimizer.step(evaluate)
    g = problem.gradient(np.full(4, 2.0))
    np.testing.assert_allclose(p.detach(), 2 - 0.1 * g)
    np.testing.assert_allclose(q.detach(), 2 - 0.2 * g)


@pytest.mark.parametrize("b", [1, 3])
def test_L_is_the_median_curvature_of_minibatches(b: int) -> None:
    """On a quadratic the top eigenvalue of a mini-batch has a closed form; power iteration must be near it."""
    problem, p = quadratic(n=400, d=5), parameter(d=5)
    optimizer = vcsg.SVRG([p], n=400, b=b)
    curvatures = []
    for batch in optimizer.batches(problem.data, passes=10):
        if optimizer.phase.kind == "smoothness":
            rows = batch[0].numpy()
            curvatures.append(np.linalg.eigvalsh(rows.T @ rows / b)[-1])
            x = p.detach().clone()
        before = optimizer.ifo
        optimizer.step(closure(p, batch))
        if curvatures and optimizer.L is None:
            assert torch.equal(p, x)
            assert optimizer.ifo - before == 16 * b
        if optimizer.L is not None:
            break
    assert len(curvatures) == 5
    assert optimizer.L == pytest.approx(np.median(curvatures), rel=0.02)


def test_L_of_float32_nets_is_near_the_hessian() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    X, Y = torch.randn(30, 6), torch.randint(0, 3, (30,))
    params = list(model.parameters())
    names = [name for name, _ in model.named_parameters()]

    def loss_of(flat: Tensor) -> Tensor:
        parts = [t.view_as(p) for t, p in zip(flat.split([p.numel() for p in params]), params, strict=True)]
        outputs = torch.func.functional_call(model, dict(zip(names, parts, strict=True)), (X,))
        return torch.nn.functional.cross_entropy(outputs, Y)

    hessian = torch.autograd.functional.hessian(loss_of, vector(model))
    exact = torch.linalg.eigvalsh(hessian).abs().max().item()
    centre = [p.detach().clone() for p in params]

    def gradient() -> list[Tensor]:
        with torch.enable_grad():
            return list(torch.autograd.grad(torch.nn.functional.cross_entropy(model(X), Y), params))

    with torch.no_grad():
        found = curvature(gradient, params, centre, seed=0)
    assert found == pytest.approx(exact, rel=0.1)
    assert all(torch.equal(p, c) for p, c in zip(params, centre, strict=True))


# --- divergence


def test_divergence_rolls_back_doubles_L_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    problem = quadratic()
    plain = [name for name in METHODS if vcsg.methods()[name].needs_L]
    cases: list[tuple[str, dict[str, Any]]] = [(name, {"L": 1.0}) for name in plain]
    cases += [("svrg", {"step": "adaptive"}), ("spider", {"step": "orthogonal"})]
    for name, options in cases:
        p = parameter()
        options |= {"b": 1} if name in ("sgd", "momentum") else {"eps": 0.01} if name in ("vcsg", "scsg") else {}
        optimizer = FiniteSumOptimizer([p], 60, name, lr=300.0, **options)
        first = optimizer.L
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="vcsg"):
            x = run(problem, optimizer, p, passes=150)
        assert np.isfinite(x).all(), name
        if optimizer.method.anchored(1):  # without an anchor there is no loss at the start to compare with
            assert problem.norm2(x) < problem.norm2(np.full(4, 2.0)), name
        doublings = [r for r in caplog.records if "diverged" in r.message]
        assert doublings, name
        assert optimizer.L == pytest.approx(first * 2.0 ** len(doublings)), name


def test_a_step_that_is_not_finite_at_the_very_end_is_undone() -> None:
    problem, p = quadratic(), parameter()
    optimizer = vcsg.SVRG([p], n=60, L=1.0)
    for batch in optimizer.batches(problem.data, ifo=121):
        evaluate = closure(p, batch)

        def poisoned(evaluate: Any = evaluate) -> Tensor:
            loss = evaluate()
            if optimizer.ifo >= 120:
                p.grad.fill_(math.nan)
            return loss

        optimizer.step(poisoned)
    assert torch.isfinite(p).all()
    assert optimizer.L == 2.0


def test_gives_up_with_a_usable_model_when_nothing_helps() -> None:
    """A loss that is finite only at the start: no step size can help."""
    problem, p = quadratic(), parameter()
    start = p.detach().clone()
    optimizer = vcsg.SVRG([p], n=60, L=1.0)

    def evaluate() -> Tensor:
        loss = (p * p).sum() * (1.0 if torch.equal(p, start) else math.inf)
        loss.backward()
        return loss

    def endless() -> None:
        for _ in optimizer.batches(problem.data, passes=1000):
            optimizer.step(evaluate)

    with pytest.raises(RuntimeError, match=f"gave up after {MAX_ROLLBACKS} roll-backs to epoch 1.*Give a larger L="):
        endless()
    assert torch.equal(p, start)


def test_a_quiet_run_never_rolls_back(caplog: pytest.LogCaptureFixture) -> None:
    """Noise alone must not look like divergence: small anchors, heavy-tailed targets, many seeds."""
    rng = np.random.default_rng(0)
    problem = quadratic()
    problem = type(problem)(problem.A, problem.A @ np.ones(4) + rng.standard_t(2.1, size=60))
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        for seed in range(20):
            for name, options in {"scsg": {}, "vcsg": {}, "sgd": {"b": 1}, "storm": {"b": 4}, "saga": {}}.items():
                p = parameter()
                run(problem, FiniteSumOptimizer([p], 60, name, L=1.0, seed=seed, **options), p, passes=15)
    assert not caplog.records


# --- records, output, state


def test_records_tell_every_epoch() -> None:
    problem, p, told = quadratic(n=400), parameter(), []
    optimizer = vcsg.VCSG([p], n=400, paper=True, callback=told.append)
    run(problem, optimizer, p, passes=30)
    assert [r.epoch for r in told] == list(range(1, len(told) + 1))
    assert told[0].regime == "start"
    assert {r.regime for r in told[1:]} <= {"first", "second"}
    assert told[0].B == 400
    assert told[0].b == round(400**0.25)
    for earlier, later in itertools.pairwise(told):
        assert later.ifo == earlier.ifo + 2 * earlier.b * earlier.length + later.anchor.B
        assert later.passes == later.ifo / 400
    for r in told[1:]:
        assert r.step_size == pytest.approx(1 / (3 * r.L) / (1 if r.regime == "first" else math.sqrt(r.B)))
    assert told[0].eps == pytest.approx(12 * told[0].variance / 4)
    assert told[1].anchor.B == max(32, 4)
    assert "S*=" in str(told[0])


def test_the_first_record_has_the_exact_gradient_and_variance() -> None:
    problem, p, told = quadratic(), parameter(), []
    optimizer = vcsg.VCSG([p], n=60, variance="exact", callback=told.append)
    run(problem, optimizer, p, passes=8)
    x = np.full(4, 2.0)
    assert told[0].gradient_norm2 == pytest.approx(problem.norm2(x))
    assert told[0].variance == pytest.approx(np.trace(problem.covariance(x)))
    assert told[0].loss == pytest.approx(0.5 * ((problem.A @ x - problem.t) ** 2).mean())


def test_methods_without_anchor_tell_their_epochs_too() -> None:
    problem, p, told = quadratic(), parameter(), []
    run(problem, vcsg.SGD([p], n=60, b=6, L=1.0, callback=told.append), p, passes=3)
    assert [(r.epoch, r.length, r.ifo, r.anchor) for r in told[:3]] == [
        (1, 10, 0, None),
        (2, 10, 60, None),
        (3, 10, 120, None),
    ]
    assert math.isnan(told[0].variance)


def test_between_steps_the_model_is_at_x() -> None:
    problem, p = quadratic(), parameter()
    optimizer = vcsg.SVRG([p], n=60, L=1.0)
    points: list[Tensor] = []
    data = p.data_ptr()
    for _ in steps(problem, optimizer, p, passes=5):
        points.append(p.detach().clone())
        assert p.data_ptr() == data
        if optimizer.phase.kind == "inner" and optimizer._state.position > 0:
            assert not torch.equal(p, optimizer.state[p]["anchor"])


def test_last_output_changes_nothing_and_weighted_returns_an_epoch_end() -> None:
    problem, p = quadratic(), parameter()
    optimizer = vcsg.BatchingSVRG([p], n=60, L=1.0)
    x = run(problem, optimizer, p, passes=7).copy()
    optimizer.load_output()
    np.testing.assert_array_equal(p.detach(), x)

    p, ends = parameter(), []
    optimizer = vcsg.BatchingSVRG([p], n=60, L=1.0, output="weighted", seed=2)
    epoch = 1
    for _ in steps(problem, optimizer, p, passes=20):
        if optimizer.epoch != epoch:
            epoch = optimizer.epoch
            ends.append(p.detach().clone())
    optimizer.load_output()
    assert any(torch.equal(p, end) for end in ends)
    run(problem, optimizer, p, passes=25)
    assert torch.isfinite(p).all()


def test_weighted_output_before_the_first_epoch_ends_is_x() -> None:
    problem, p = quadratic(), parameter()
    optimizer = vcsg.SVRG([p], n=60, L=1.0, output="weighted")
    x = run(problem, optimizer, p, passes=1.5).copy()
    optimizer.load_output()
    np.testing.assert_array_equal(p.detach(), x)


def test_loading_refuses_another_run() -> None:
    state = vcsg.SVRG([parameter()], n=60, b=3).state_dict()
    with pytest.raises(ValueError, match="n = 60, this optimizer has 61"):
        vcsg.SVRG([parameter()], n=61, b=3).load_state_dict(state)
    with pytest.raises(ValueError, match="the state was saved with method"):
        vcsg.SVRG([parameter()], n=60, b=4).load_state_dict(state)
    with pytest.raises(ValueError, match="not the state of a vcsg optimizer"):
        vcsg.SVRG([parameter()], n=60, b=3).load_state_dict(torch.optim.SGD([parameter()]).state_dict())


def test_loading_copies_the_tensors() -> None:
    problem, p = quadratic(), parameter()
    optimizer = vcsg.SVRG([p], n=60, L=1.0)
    run(problem, optimizer, p, passes=2)
    state = copy.deepcopy(optimizer.state_dict())
    kept = copy.deepcopy(state)
    other = vcsg.SVRG([p], n=60, L=1.0)
    other.load_state_dict(state)
    run(problem, other, p, passes=6)
    assert torch.equal(state["state"][0]["anchor"], kept["state"][0]["anchor"])


def test_a_loaded_state_brings_its_seed_and_lr() -> None:
    problem, p = quadratic(), parameter()
    optimizer = vcsg.SVRG([p], n=60, lr=0.01, seed=5)
    run(problem, optimizer, p, passes=1.7)
    state, x = copy.deepcopy(optimizer.state_dict()), p.detach().clone()
    end = run(problem, optimizer, p, passes=9).copy()
    q = torch.nn.Parameter(x)
    other = vcsg.SVRG([q], n=60, L=3.0)
    other.load_state_dict(state)
    np.testing.assert_array_equal(run(problem, other, q, passes=9), end)


def test_frozen_parameters_and_parameters_without_gradient_stay() -> None:
    model, (X, Y) = net(), samples()
    model[0].weight.requires_grad_(False)
    unused = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    frozen = model[0].weight.clone()
    optimizer = vcsg.VCSG([*model.parameters(), unused], n=50)
    for x, y in optimizer.batches((X, Y), passes=5):
        optimizer.step(net_closure(model, x, y))
    assert torch.equal(model[0].weight, frozen)
    assert torch.equal(unused, torch.ones(2))
    assert not torch.equal(vector(net()), vector(model))


def test_a_constant_gradient_has_no_variance_and_needs_the_smallest_anchor() -> None:
    p, told = parameter(), []
    optimizer = vcsg.VCSG([p], n=60, lr=0.01, callback=told.append)
    for _ in optimizer.batches(torch.zeros(60, 1), passes=20):

        def evaluate() -> Tensor:
            loss = p.sum()
            loss.backward()
            return loss

        optimizer.step(evaluate)
    assert {r.B for r in told[1:]} == {32}
    assert {r.variance for r in told} == {0.0}


@pytest.mark.parametrize("name", METHODS)
def test_going_on_from_the_weighted_output_begins_with_what_it_needs(name: str) -> None:
    problem, p = quadratic(), parameter()
    optimizer = FiniteSumOptimizer([p], 60, name, output="weighted", seed=3, **smoothness(name, 1.0))
    run(problem, optimizer, p, passes=9)
    optimizer.load_output()
    x = p.detach().clone()
    assert optimizer.phase.kind == ("anchor" if optimizer.method.anchored(optimizer.epoch) else "inner")
    for _ in steps(problem, optimizer, p, passes=30):
        pass
    assert not torch.equal(p, x)
    assert torch.isfinite(p).all()


def test_a_method_of_the_mean_alone_has_its_weight() -> None:
    from vcsg.method.schedules import Given, PowerLaw
    from vcsg.method.weights import Constant, Weights

    problem, p = quadratic(), parameter()
    half = vcsg.Method(
        "half-gd", {"": Constant(Weights(0, 0, 0.5))}, PowerLaw(Given(), beta=1, alpha=0), "fixed", gamma=1
    )
    run(problem, FiniteSumOptimizer([p], 60, half, L=2.0), p, passes=1)
    np.testing.assert_allclose(p.detach(), 2 - problem.gradient(np.full(4, 2.0)) / 4)
