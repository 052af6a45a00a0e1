"""What a user may write first, and what is said of it before any work is done."""

from __future__ import annotations

import itertools
import logging
import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import vcsg
from vcsg.workloads import mnist_mini


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def data(n: int = 64) -> tuple[Tensor, Tensor]:
    X = torch.randn(n, 5, generator=torch.Generator().manual_seed(1))
    return X, (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


@pytest.mark.parametrize("n", [2, 3, 64])
def test_the_sum_over_a_batch_is_refused_and_the_mean_is_not(n: int) -> None:
    total = nn.CrossEntropyLoss(reduction="sum")
    with pytest.raises(ValueError, match="the sum over the samples, and the methods need the mean"):
        vcsg.fit(net(), total, data(n), passes=1)
    with pytest.raises(ValueError, match="reduction='mean'"):
        vcsg.fit(net(), None, data(n), passes=1, objective=lambda m, batch: total(m(batch[0]), batch[1]))
    vcsg.fit(net(), cross_entropy, data(n), passes=1)


@pytest.mark.parametrize("extra", [nn.Dropout(0.3), nn.BatchNorm1d(3)], ids=lambda layer: type(layer).__name__)
def test_a_sum_is_refused_where_losses_in_training_depend_on_the_batch(extra: nn.Module) -> None:
    model = net().append(extra)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    with pytest.raises(ValueError, match="the sum over the samples, and the methods need the mean"):
        vcsg.fit(model, nn.CrossEntropyLoss(reduction="sum"), data(), passes=1)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


class Noise(nn.Module):
    """Noise in training and in evaluation, as of a variational autoencoder."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn_like(x)


@pytest.mark.parametrize("method", ["auto", "svrg"])
def test_a_sum_that_is_random_in_every_mode_is_refused(method: str) -> None:
    """Of 32 losses whose noise is a tenth of the inputs, two sums differ by less than a tenth, and a mean by a half."""
    options = {} if method == "auto" else {"L": 1.0}
    with pytest.raises(ValueError, match="the sum over the samples, and the methods need the mean"):
        vcsg.fit(
            nn.Sequential(Noise(), net()), nn.CrossEntropyLoss(reduction="sum"), data(), method, passes=1, **options
        )
    vcsg.fit(nn.Sequential(Noise(), net()), cross_entropy, data(), method, passes=1, **options)


def test_a_random_mean_is_never_taken_for_a_sum() -> None:
    """Of one draw in seven the loss of both halves of 16 samples is within a tenth of theirs together, by chance."""

    def denoising(model: nn.Module, x: Tensor) -> Tensor:
        u, noise = torch.rand(len(x), 1), torch.randn_like(x)
        return ((model(u.sqrt() * x + (1 - u).sqrt() * noise) - noise) ** 2).mean()

    for seed in range(30):
        torch.manual_seed(seed)
        vcsg.fit(nn.Linear(4, 4), None, torch.randn(16, 4), "sgd", lr=0.01, b=4, passes=1, objective=denoising)
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="the sum over the samples"):
        vcsg.fit(nn.Linear(4, 4), None, torch.randn(64, 4), "sgd", lr=0.01, passes=1,
                 objective=lambda model, x: 4 * len(x) * denoising(model, x))  # fmt: skip


def labelled_alone(outputs: Tensor, targets: Tensor) -> Tensor:
    known = targets >= 0
    total = cross_entropy(outputs[known], targets[known], reduction="sum")
    return total / known.sum().clamp_min(1)


@pytest.mark.parametrize("method", ["auto", "adam"])
def test_a_mean_over_the_labelled_samples_is_none_over_all(method: str) -> None:
    """Where the first half has none, the loss of both halves together is that of the second, as it is for a sum."""
    X, y = data(64)
    y[:20] = -1
    options = {} if method == "auto" else {"lr": 0.01, "b": 16}
    vcsg.fit(net(), labelled_alone, (X, y), method, passes=1, **options)

    def of_some(outputs: Tensor, targets: Tensor) -> Tensor:  # without a gradient where none is labelled
        known = targets >= 0
        return cross_entropy(outputs[known], targets[known]) if known.any() else torch.zeros(())

    torch.manual_seed(0)
    result = vcsg.fit(
        net(), of_some, (X, y.roll(-18)), method, passes=1, b=32, **({} if method == "auto" else {"lr": 0.01})
    )
    assert result.passes >= 1


@pytest.mark.parametrize("method", ["auto", "svrg"])
def test_lazy_parameters_are_drawn_as_others_are(method: str) -> None:
    """From torch's generator; the normalisation's statistics begin as they do for a layer that is not lazy."""
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyLinear(3))
        options = {"L": 1e12} if method == "svrg" else {"lr": 1e-12}
        vcsg.fit(model, cross_entropy, data(), method, passes=1, seed=seed, **options)
        drawn.append(model[0].weight.detach().clone())
    assert torch.allclose(drawn[0], drawn[1])
    assert not torch.allclose(drawn[0], drawn[2], atol=1e-3)
    one = nn.LazyLinear(2)
    vcsg.fit(one, None, data(1), "svrg", L=1.0, passes=2, objective=lambda m, batch: m(batch[0]).square().mean())


def test_losses_of_which_the_halves_tell_nothing_are_taken() -> None:
    for extra in (nn.BatchNorm1d(3), nn.Dropout(0.5)):
        vcsg.fit(net().append(extra), cross_entropy, data(), passes=1)
    vcsg.fit(net(), lambda outputs, targets: 0 * outputs.sum(), data(), passes=1)
    vcsg.fit(net(), cross_entropy, data(1), passes=1)


@pytest.mark.parametrize(
    ("loss", "remedy"),
    [(nn.CrossEntropyLoss, r"such as CrossEntropyLoss\(\)"), ("mse", "loss = 'mse': give a function")],
)
def test_a_loss_that_is_no_function_is_refused(loss: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=remedy):
        vcsg.fit(net(), loss, data(), passes=1)


def test_epochs_are_passes_here() -> None:
    with pytest.raises(TypeError, match="epochs = 3: give passes="):
        vcsg.fit(net(), cross_entropy, data(), passes=2, epochs=3)


def test_a_state_of_an_optimizer_that_has_not_begun_says_so() -> None:
    optimizer = vcsg.SVRG(net().parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"its n was not known yet, make the optimizer with n=len\(dataset\)"):
        optimizer.load_state_dict(optimizer.state_dict())


def test_a_frozen_model_is_refused() -> None:
    with pytest.raises(ValueError, match="all parameters of the model are frozen"):
        vcsg.fit(net().requires_grad_(False), cross_entropy, data(), passes=1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="device = 'cuda': torch finds no CUDA device here"):
        vcsg.fit(net(), cross_entropy, data(), passes=1, device="cuda")


def test_a_loader_that_is_confined_to_a_part_has_as_many_samples() -> None:
    model, dataset = net(), TensorDataset(*data(64))
    loader = DataLoader(dataset, 8, sampler=SubsetRandomSampler(range(32)))
    optimizer = vcsg.SVRG(model.parameters(), lr=0.1)
    for x, y in optimizer.loop(loader):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    assert (optimizer.n, optimizer.passes) == (32, 1.0)
    vcsg.SVRG(model.parameters(), n=32, batch_size=8, lr=0.1).expect(loader)
    with pytest.raises(ValueError, match="holds 32 samples, the optimizer was made for n = 64"):
        vcsg.SVRG(model.parameters(), n=64, batch_size=8, lr=0.1).expect(loader)


@pytest.mark.parametrize(
    "sampler",
    [WeightedRandomSampler([1.0] * 64, 64), RandomSampler(range(64), replacement=True)],
    ids=lambda s: type(s).__name__,
)
def test_samples_that_are_drawn_more_than_once_make_no_anchor(sampler: Any) -> None:
    """They would be taken for all n samples, each once, and ‖∇f‖² for measured exactly."""
    loader = DataLoader(TensorDataset(*data(64)), 8, sampler=sampler)
    with pytest.raises(ValueError, match=rf"the {type(sampler).__name__} .* n = 64 samples, each once.* shuffle=True"):
        vcsg.SVRG(net().parameters(), lr=0.1).loop(loader)
    next(vcsg.Adam(net().parameters()).loop(loader))


class Stream(IterableDataset):
    """Samples in order, of which nobody knows how many there are."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(*data(64), strict=True))


def test_a_stream_of_more_samples_than_n_is_told() -> None:
    model = net()
    optimizer = vcsg.Momentum(model.parameters(), n=32, batch_size=8, lr=0.1)
    batches, handed = optimizer.loop(DataLoader(Stream(), 8)), 0
    for x, y in itertools.islice(batches, 4):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        handed += len(x)
    with pytest.raises(ValueError, match=r"40 samples and perhaps more in one pass of the loader.*n = 32"):
        next(batches)
    assert handed == 32


def test_a_given_lr_is_no_smoothness_constant_by_which_a_run_could_be_judged(caplog: pytest.LogCaptureFixture) -> None:
    """The loss falls from 2.3 to 0.3 here; by L = γ/lr it should have fallen by 12."""
    X, y = mnist_mini().train
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        vcsg.fit(model, cross_entropy, (X, y), "svrg", b=64, lr=2.9, passes=5)
    assert not [record for record in caplog.records if record.name == "vcsg"]


# --- what a first program says in torch's words


def stepping(name: str = "svrg", **options: Any) -> tuple[nn.Module, vcsg.FiniteSumOptimizer]:
    model = net()
    return model, vcsg.FiniteSumOptimizer(model.parameters(), 64, name, **{"batch_size": 8, "lr": 0.1, **options})


class Column(list[float]):
    """A column of a table, as pandas has it."""

    def to_numpy(self) -> list[float]:
        return list(self)


def fitted(model: Any = None, **options: Any) -> vcsg.Result:
    made = {"data": data(), "passes": 1, **options}
    return vcsg.fit(net() if model is None else model, cross_entropy, **made)


SAID: list[tuple[Any, type[Exception], str]] = [
    (
        lambda: vcsg.per_sample(net(), cross_entropy, TensorDataset(*data())),  # type: ignore[arg-type]
        TypeError,
        r"data is a TensorDataset: give \(inputs, targets\), two tensors of as many samples",
    ),
    (lambda: vcsg.per_sample(net(), cross_entropy, (data()[0], data(99)[1])), TypeError, "two tensors of as many"),
    (lambda: fitted(lr="0.1"), TypeError, "lr = '0.1': give a number"),
    (lambda: vcsg.Adam([{"params": net().parameters(), "lr": "1e-3"}], 64), TypeError, "lr = '1e-3': give a number"),
    (lambda: fitted(method="SVRG"), ValueError, "no method 'SVRG': did you mean 'svrg'?"),
    (lambda: fitted(test=data(), metrics=["accuracy"]), TypeError, r"metrics = .*: give a dict of functions by name"),
    (
        lambda: fitted(test=data(), metrics={"hits": lambda outputs, targets: outputs.argmax(1) == targets}),
        TypeError,
        r"the metric 'hits' returned a tensor of shape \(64,\): return one number",
    ),
    (
        lambda: fitted(data=((data()[0], data()[0]), data()[1])),
        TypeError,
        r"data is of tuple, Tensor: give tensors alone; of several inputs \(A, B, Y\), with loss=None and objective=",
    ),
    (lambda: vcsg.Adam(net().parameters(), 1e-3), ValueError, r"n = 0.001: .* lr=0.001"),
    (lambda: vcsg.SVRG(net().parameters(), TensorDataset(*data())), ValueError, r"n = .*: n=len\(...\) of it"),
    (lambda: vcsg.SGD(net().parameters(), 64, momentum=0.9), TypeError, "no option 'momentum': choose vcsg.Momentum"),
    (lambda: vcsg.Adam(net().parameters(), 64, betas=(0.9, 0.99)), TypeError, "the two are beta= and beta2="),
    (lambda: fitted(optimizer="adam"), TypeError, "no option 'optimizer': give the name of a method as method="),
    (lambda: fitted(validation_data=data()), TypeError, "no option 'validation_data': for `fit` that is test="),
    (lambda: fitted(passes=None, epochs=3), TypeError, "epochs = 3: give passes= for the passes over the data"),
    (lambda: fitted(nn.Linear), TypeError, r"model = <class .*Linear'>: give a torch.nn.Module, such as Linear\(...\)"),
    (lambda: fitted(lambda x: x), TypeError, "model = <function .*: give a torch.nn.Module$"),
    (
        lambda: fitted(data=tuple(t.tolist() for t in data())),
        TypeError,
        "data is a tuple of lists: give tensors; torch",
    ),
    (lambda: fitted(data=(Column(), Column())), TypeError, "data is of Column.*: give tensors; torch.tensor"),
    (lambda: fitted(data=Column()), TypeError, "data is of Column.*: give tensors; torch.tensor"),
    (
        lambda: stepping()[1].step(torch.tensor(1.0)),
        TypeError,
        "step was given a Tensor: give a function that evaluates",
    ),
    (lambda: stepping("adam")[1].step(torch.tensor(1.0)), TypeError, r"or nothing after loss.backward\(\)"),
    (
        lambda: next(stepping(batch_size=None)[1].batches(tuple(t.numpy() for t in data()), passes=1)),
        TypeError,
        "data is a tuple of ndarray, ndarray: .*torch.from_numpy",
    ),
]


@pytest.mark.parametrize(("program", "error", "message"), SAID, ids=[message for _, _, message in SAID])
def test_the_remedy_is_said(program: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        program()


def test_a_closure_that_returns_more_than_the_loss() -> None:
    model, optimizer = stepping()
    x, y = data(8)

    def closure() -> Any:
        optimizer.zero_grad()
        outputs = model(x)
        loss = cross_entropy(outputs, y)
        loss.backward()
        return loss, outputs

    with pytest.raises(
        TypeError, match=r"^the closure returned a tuple: return the mean loss of the batch, one number$"
    ):
        optimizer.step(closure)


@pytest.mark.parametrize(
    "option", [{"learning_rate": 0.1}, {"momentum": 0.5}, {"betas": (0.9, 0.99)}, {"L": 2.0}], ids=str
)
def test_an_option_that_a_group_has_not(option: dict[str, Any]) -> None:
    first, _, last = net()
    groups = [{"params": first.parameters(), **option}, {"params": last.parameters(), "name": "head", "lr_scale": 0.3}]
    with pytest.raises(
        ValueError, match=rf"a parameter group has {next(iter(option))} = .* no effect: groups have lr, "
    ):
        vcsg.Momentum(groups, n=64, batch_size=8)
    torch.optim.SGD(groups[1:], 0.1)  # writes its own options into the group
    assert vcsg.Momentum(groups[1:], n=64, batch_size=8).param_groups[0]["name"] == "head"


def test_a_state_of_another_configuration() -> None:
    model, optimizer = stepping()
    for x, y in optimizer.loop(DataLoader(TensorDataset(*data()), 8)):
        optimizer.step(lambda x=x, y=y: backward(model, x, y))
    state = optimizer.state_dict()
    with pytest.raises(
        ValueError, match=r"method = Method\(name='svrg', …\), this optimizer has Method\(name='vcsg', …\):"
    ):
        stepping("vcsg")[1].load_state_dict(state)
    with pytest.raises(ValueError, match="batch_size = 8, this optimizer has 16"):
        stepping(batch_size=16)[1].load_state_dict(state)
    other = vcsg.SVRG(nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)).parameters(), n=64, batch_size=8, lr=0.1)
    with pytest.raises(
        ValueError, match=r"parameter 0 of shape \(8, 5\), this optimizer's has \(4, 5\): make it for the"
    ):
        other.load_state_dict(state)
    assert not other.state


def backward(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    return loss


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", ["vcsg", "svrg", "adam"])
def test_an_order_of_samples_that_is_not_random_is_told_where_anchors_are_parts(
    name: str, shuffle: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer = stepping(name, batch_size=4)
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        for _ in range(8):
            for x, y in optimizer.loop(DataLoader(TensorDataset(*data()), 4, shuffle=shuffle)):
                optimizer.step(lambda x=x, y=y: backward(model, x, y))
    told = [record for record in caplog.records if "the loader reads its samples in order" in record.message]
    assert len(told) == (name == "vcsg" and not shuffle)


class Shuffled(BatchSampler):
    """Batches of neighbours, in random order."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter(sorted(super().__iter__(), key=lambda batch: hash(batch[0])))


def test_batches_that_are_put_together_in_a_way_of_their_own_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = stepping("vcsg", batch_size=4)
    loader = DataLoader(TensorDataset(*data()), batch_sampler=Shuffled(SequentialSampler(range(64)), 4, False))
    for _ in range(8):
        for x, y in optimizer.loop(loader):
            optimizer.step(lambda x=x, y=y: backward(model, x, y))
    assert optimizer.passes > 8
    assert "in order" not in caplog.text


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("kind", ["plain", "kept", "evaluating", "one point"])
def test_statistics_that_evaluations_at_the_anchor_change_are_told(
    kind: str, draws: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = net().append(nn.BatchNorm1d(3)).train(kind != "evaluating")
    name = "adam" if kind == "one point" else "svrg"
    own = {"b": 8} if draws else {"batch_size": 8}
    kept = {"buffers": model.buffers()} if kind == "kept" else {}
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), 64, name, lr=0.1, **own, **kept)
    batches = optimizer.batches(data(), passes=2) if draws else DataLoader(TensorDataset(*data()), 8)
    for x, y in batches:
        optimizer.step(lambda x=x, y=y: backward(model, x, y))
    assert caplog.text.count("give it buffers=model") == (kind == "plain")


@pytest.mark.parametrize("lr", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["svrg", "adam"])
def test_a_step_size_out_of_range_is_refused_before_a_step(name: str, lr: float) -> None:
    model = net()
    groups = [{"params": own.parameters()} for own in (model[0], model[2])]
    optimizer = vcsg.FiniteSumOptimizer(groups, 64, name, batch_size=8, lr=0.1)
    before, (x, y) = [p.detach().clone() for p in model.parameters()], data(8)
    optimizer.param_groups[1]["lr"] = lr
    for step in (lambda: optimizer.step(lambda: backward(model, x, y)), *([optimizer.step] if name == "adam" else [])):
        backward(model, x, y)
        with pytest.raises(ValueError, match=rf"lr = {lr!r} in parameter group 1: set a finite number, at least 0"):
            step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert optimizer.ifo == 0


def test_samples_in_place_of_batches_are_refused() -> None:
    with pytest.raises(TypeError, match="the loader is a TensorDataset, which yields samples: give a DataLoader of it"):
        stepping()[1].loop(TensorDataset(*data()))


def test_batches_of_the_sampler_that_were_left_out_are_told() -> None:
    model, optimizer = stepping(batch_size=None, b=8)
    loader = DataLoader(TensorDataset(*data()), batch_sampler=optimizer.sampler)
    assert len(list(loader)) == 8  # who only looks at them uses none
    for x, y in itertools.islice(loader, 3):
        optimizer.step(lambda x=x, y=y: backward(model, x, y))
    for k, (x, y) in enumerate(loader):  # who breaks off goes on with the next
        if k % 2 == 0:
            optimizer.step(lambda x=x, y=y: backward(model, x, y))
    assert optimizer.ifo == 6 * 8
    with pytest.raises(
        RuntimeError, match=r"2 of the batches that optimizer.sampler drew were read and not used: call"
    ):
        next(iter(loader))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    ("name", "own"),
    [
        *(("svrg", {"b": 4}), ("svrg", {"b": 1}), ("vcsg", {"b_min": 4}), ("scsg", {"b": 4})),
        *((name, {"batch_size": 24}) for name in ("svrg", "vcsg", "scsg", "spider")),
    ],
)
def test_a_loss_that_is_a_sum_is_told(
    name: str, own: dict[str, int], reduction: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By mini-batches that are smaller than the batches of anchors, or by the short batch at the end of a pass."""
    model, tensors = net(), data(248)
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), 248, name, L=1000.0, **own)
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(TensorDataset(*tensors), 24, shuffle=True, generator=order)
    batches = itertools.chain(*[loader] * 30) if "batch_size" in own else optimizer.batches(tensors, passes=5)
    for x, y in batches:

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y, reduction=reduction)
            loss.backward()
            return loss

        optimizer.step(closure)
    assert caplog.text.count("grows with its size, as a sum does") == (reduction == "sum")


def test_a_loss_of_what_a_model_returns_in_training_alone() -> None:
    """Heads that help in training, as Inception has: nothing that only warns evaluates the loss elsewhere."""

    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Any:
            return (self.first(x), self.second(x)) if self.training else self.first(x)

    def loss(outputs: Any, targets: Tensor) -> Tensor:
        return cross_entropy(outputs[0], targets) + 0.3 * cross_entropy(outputs[1], targets)

    X, y = torch.randn(64, 6), torch.arange(64) % 3
    assert vcsg.fit(TwoHeads(), loss, (X, y), passes=2).passes >= 2


@pytest.mark.parametrize("way", ["fit", "batches", "loop"])
def test_a_scripted_model_is_trained_as_the_plain_one(way: str) -> None:
    """It takes no hooks, by which the size of a batch is seen and the last layer of a model found."""
    X, y = data()
    plain = net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls scripts deprecated
        scripted, layer = (torch.jit.script(model) for model in (net(), nn.Linear(5, 1)))  # type: ignore[no-untyped-call]
    for model in (plain, scripted):
        if way == "fit":
            vcsg.fit(model, cross_entropy, (X, y), passes=2)
            continue
        own = {"b": 8} if way == "batches" else {"batch_size": 8}
        optimizer = vcsg.SVRG(model.parameters(), n=64, L=10.0, **own)
        loader = itertools.chain(*[DataLoader(TensorDataset(X, y), 8)] * 2)
        for inputs, targets in optimizer.batches((X, y), passes=4) if way == "batches" else loader:
            optimizer.step(lambda x=inputs, y=targets, model=model: backward(model, x, y))
    for p, q in zip(plain.parameters(), scripted.parameters(), strict=True):
        torch.testing.assert_close(p, q)
    vcsg.fit(layer, mse_loss, (X, X[:, :1]), passes=1)
