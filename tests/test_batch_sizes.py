"""Batches that are not of the samples that were drawn or handed over: what is seen of them, and what is left alone."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from nets import net_closure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import vcsg
from vcsg.run import looking

N, B = 60, 8


def data(n: int = N) -> tuple[Tensor, Tensor]:
    X = torch.randn(n, 5, generator=torch.Generator().manual_seed(1))
    return X, (X[:, 0] > 0).long()


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))


def collated(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    X, y = zip(*samples, strict=True)
    return torch.stack(X), torch.stack(y)


def drawing(
    model: nn.Module, collate: Callable[[Any], Any] | None = None, dataset: Any = None
) -> tuple[Any, DataLoader[Any]]:
    optimizer = vcsg.SVRG(model.parameters(), n=N, b=B, lr=0.1)
    dataset = TensorDataset(*data()) if dataset is None else dataset
    return optimizer, DataLoader(dataset, batch_sampler=optimizer.sampler, collate_fn=collate)


# --- the optimizer draws: what a loader makes of the samples

WRONG: dict[str, Callable[[list[Any]], Any]] = {
    "rows are dropped": lambda samples: collated(samples[:-1]),
    "rows come once more": lambda samples: collated(samples + samples[:3]),
    "a dict": lambda samples: dict(zip("xy", collated(samples[1:]), strict=True)),
    "nested, with names": lambda samples: (["train", 1.0, None], [collated(samples[1:])]),
    "a single tensor": lambda samples: collated(samples[1:])[0],
}


@pytest.mark.parametrize("collate", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("fitted", [False, True])
def test_a_batch_of_another_size_than_was_drawn(collate: Callable[[Any], Any], fitted: bool) -> None:
    model = net()
    message = r"the batch has \d+ rows, and 8 samples were drawn for it: .*collate_fn .*one entry for each sample"
    if fitted:
        options = {"objective": lambda m, batch: m(data()[0]).mean(), "collate_fn": collate}
        with pytest.raises(ValueError, match=message):
            vcsg.fit(model, None, TensorDataset(*data()), "svrg", b=B, lr=0.1, passes=1, **options)
        return
    optimizer, source = drawing(model, collate)
    with pytest.raises(ValueError, match=message):
        next(optimizer.batches(source, passes=1))


RIGHT: dict[str, Callable[[list[Any]], Any]] = {
    "two views of each": lambda samples: collated(samples * 2),
    "sequences first": lambda samples: tuple(t.unsqueeze(0).repeat(3, *[1] * t.dim()) for t in collated(samples)),
    "a list of samples": lambda samples: [x for x, _ in samples],
    "rows of graphs": lambda samples: (torch.cat([x for x, _ in samples]), collated(samples)[1]),
    "rows of graphs, with lengths": lambda samples: {
        "x": torch.cat([x for x, _ in samples]),
        "y": torch.cat([x for x, _ in samples]),
        "lengths": torch.tensor([5] * len(samples)),
    },
    "of several lengths": lambda samples: (torch.zeros(3), torch.zeros(4)),
    "an object": lambda samples: (torch.zeros(3), object()),
    "a bare number": lambda samples: (torch.zeros(3), torch.tensor(1.0)),
    "nested tensors": lambda samples: torch.nested.nested_tensor([x for x, _ in samples]),
    "nothing": lambda samples: None,
}


@pytest.mark.parametrize("collate", RIGHT.values(), ids=RIGHT)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_batch_that_may_be_of_the_samples_drawn_is_left_alone(collate: Callable[[Any], Any]) -> None:
    optimizer, source = drawing(net(), collate)
    next(optimizer.batches(source, passes=1))


def test_a_bare_sample_is_left_alone() -> None:
    optimizer = vcsg.SVRG(net().parameters(), n=N, lr=0.1, chunk=1)
    source = DataLoader(
        TensorDataset(data()[0]), batch_sampler=optimizer.sampler, collate_fn=lambda samples: samples[0][0]
    )
    assert next(optimizer.batches(source, passes=1)).shape == (5,)


@pytest.mark.parametrize("size", [1, 4])
def test_the_sampler_is_no_sampler_of_single_samples(size: int) -> None:
    optimizer = vcsg.SVRG(net().parameters(), n=N, b=B)
    with pytest.raises(ValueError, match=rf"puts {size} of its batches into one: give batch_sampler=optimizer.sampler"):
        next(iter(DataLoader(TensorDataset(*data()), size, sampler=optimizer.sampler)))
    rows, _ = next(iter(DataLoader(TensorDataset(*data()), None, sampler=optimizer.sampler)))  # whole batches at once
    assert rows.shape == (8, 5)


# --- what a closure makes of a batch


def ways(model: nn.Module) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Optimizers for the model, each with the batches of its loop."""
    optimizer, source = drawing(model)
    yield optimizer, optimizer.batches(source, passes=9)
    optimizer, source = drawing(model)
    yield optimizer, iter(source)
    optimizer = vcsg.SVRG(model.parameters(), n=N, b=B, lr=0.1)
    yield optimizer, optimizer.batches(data(), passes=9)
    optimizer = vcsg.SVRG(model.parameters(), n=N, batch_size=B, lr=0.1)
    yield optimizer, optimizer.loop(DataLoader(TensorDataset(*data()), B))


@pytest.mark.parametrize("way", range(4))
@pytest.mark.parametrize("parts", [[4], [2, 2]], ids=str)
def test_a_closure_with_half_of_the_batch(way: int, parts: list[int]) -> None:
    model = net()
    optimizer, batches = list(ways(model))[way]
    x, y = next(batches)
    state = copy.deepcopy(optimizer.state_dict())

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = sum(
            (cross_entropy(model(part), y[: len(part)]) for part in x[: sum(parts)].split(parts)), torch.zeros(())
        )
        loss.backward()
        return loss

    with pytest.raises(ValueError, match=rf"given 4 rows, and the batch has {len(x)} samples: .*samples={len(x)}\)"):
        optimizer.step(closure)
    assert str(optimizer.state_dict()) == str(state)
    optimizer.step(net_closure(model, x, y))  # the same batch, once more
    x, y = next(batches)
    optimizer.step(closure, samples=len(x))  # who says it is trusted


def test_a_closure_that_loses_rows_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at now and then, not only at the start."""
    monkeypatch.setattr(looking, "BETWEEN", 99)
    model = net()
    optimizer = vcsg.SVRG(model.parameters(), n=N, b=B, lr=0.1)
    batches = optimizer.batches(data(), passes=90)
    for x, y in itertools.islice(batches, 20):
        optimizer.step(net_closure(model, x, y))

    def go_on() -> None:
        for x, y in batches:
            optimizer.step(net_closure(model, x[:4], y[:4]))

    with pytest.raises(ValueError, match="and the batch has 8 samples"):
        go_on()


class Recurrent(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.rnn, self.head = nn.RNN(1, 4, batch_first=batch_first), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[1][0])


class Nodes(nn.Module):
    """Graphs of five nodes each, all nodes in a row; the mean over each graph."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Linear(1, 4), nn.Linear(4, 2)

    def forward(self, nodes: Tensor) -> Tensor:
        return self.head(self.embedding(nodes).view(-1, 5, 4).mean(1))


class Named(nn.Module):
    """A model that packs several samples in a row, and is called with names."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 2)

    def forward(self, packed: Tensor) -> Tensor:
        return self.head(packed.view(-1, 5))


class Conditioned(nn.Module):
    """A model that is given something else first, and the samples by name."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 2)

    def forward(self, scale: Tensor, *, x: Tensor) -> Tensor:
        return self.head(scale.mean() * x)


MODELS: dict[str, tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor]]] = {
    "sequences first": (Recurrent(False), lambda model, x: model(x.T.unsqueeze(-1))),
    "sequences second": (Recurrent(True), lambda model, x: model(x.unsqueeze(-1))),
    "nodes of graphs": (Nodes(), lambda model, x: model(x.view(-1, 1))),
    "micro-batches": (net(), lambda model, x: torch.cat([model(part) for part in x.split(3)])),
    "two views": (net(), lambda model, x: model(torch.cat([x, x + 0.1]))[: len(x)]),
    "packed, by name": (Named(), lambda model, x: model(packed=x.view(1, -1))),
    "samples by name": (Conditioned(), lambda model, x: model(torch.ones(3), x=x)),
    "modules one by one": (net(), lambda model, x: model[2](model[1](model[0](x)))),
    "functional": (net(), lambda model, x: torch.func.functional_call(model, dict(model.named_parameters()), x)),
    "compiled": (net(), lambda model, x: torch.compile(model, backend="eager")(x)),
}


@pytest.mark.parametrize("way", range(4))
@pytest.mark.parametrize(("model", "apply"), MODELS.values(), ids=MODELS)
def test_models_that_take_other_rows_than_samples(
    model: nn.Module, apply: Callable[[nn.Module, Tensor], Tensor], way: int
) -> None:
    optimizer, batches = list(ways(model))[way]
    for _, (x, y) in zip(range(6), batches, strict=False):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = cross_entropy(apply(model, x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    assert optimizer.ifo >= 40


def test_a_size_that_is_not_the_drawn_one_is_refused() -> None:
    model = net()
    optimizer = vcsg.SVRG(model.parameters(), n=N, b=B, lr=0.1)
    x, y = next(optimizer.batches(data(), passes=1))
    with pytest.raises(ValueError, match=r"samples = 5: 8 samples were drawn for this step.*leave samples= out"):
        optimizer.step(net_closure(model, x, y), samples=5)
    assert optimizer.ifo == 0


# --- one step for one batch of `loop`


def looping(name: str = "svrg") -> tuple[nn.Module, Any, Iterator[Any]]:
    model = net()
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), N, name, batch_size=B, lr=0.1)
    return model, optimizer, optimizer.loop(DataLoader(TensorDataset(*data()), B))


@pytest.mark.parametrize("bare", [False, True])
def test_two_steps_for_one_batch(bare: bool) -> None:
    model, optimizer, batches = looping("sgd" if bare else "svrg")
    for k, (x, y) in enumerate(batches):
        for step in range(2):
            closure = net_closure(model, x, y)
            if bare:
                closure()
            if not step:
                optimizer.step(None if bare else closure)
                continue
            with pytest.raises(
                RuntimeError, match=r"a second step for one batch of optimizer.loop\(loader\): call step"
            ):
                optimizer.step(None if bare else closure)
        assert optimizer.ifo == sum([B, B, B, B, B, B, B, 4][: k + 1])
    optimizer.step(net_closure(model, *data()), samples=B)  # outside of it a batch is what the loop says


@pytest.mark.parametrize("bare", [False, True])
def test_no_step_for_a_batch(bare: bool) -> None:
    model, optimizer, batches = looping("sgd" if bare else "svrg")
    closure = net_closure(model, *next(batches))
    if bare:
        closure()
    optimizer.step(None if bare else closure)
    next(batches)
    with pytest.raises(RuntimeError, match=r"the last batch of optimizer.loop.* was not used: .* batch_size= for all"):
        next(batches)


def test_a_step_that_fails_has_not_used_its_batch() -> None:
    model, optimizer, batches = looping()
    for x, y in batches:
        with pytest.raises(ZeroDivisionError):
            optimizer.step(lambda: 1 / 0)
        optimizer.step(net_closure(model, x, y))
    assert optimizer.passes == 1


def test_a_pass_may_be_left_early() -> None:
    model, optimizer, batches = looping()
    optimizer.step(net_closure(model, *next(batches)))
    next(batches)
    batches.close()
    optimizer.step(net_closure(model, *data(B)))
    assert optimizer.ifo == 2 * B


# --- a closure that does not read the batch


def warned(caplog: pytest.LogCaptureFixture, tensors: tuple[Tensor, Tensor], read: bool) -> bool:
    model = net()
    optimizer = vcsg.SVRG(model.parameters(), n=N, b=B, lr=0.1)
    with caplog.at_level("WARNING", "vcsg"):
        for x, y in optimizer.batches(tensors, passes=4):
            optimizer.step(net_closure(model, *((x, y) if read else tensors)))
    found = [record for record in caplog.records if "does the closure evaluate the batch in hand" in record.message]
    caplog.clear()
    assert len(found) <= 1
    return bool(found)


def test_a_closure_over_the_same_tensors_each_time_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog, data(), read=False)
    assert not warned(caplog, data(), read=True)


# --- models whose rows are not seen


def test_a_model_inside_vmap_is_left_alone() -> None:
    """Where a model is called for one sample at a time by torch.vmap, it is given no axis of samples."""
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = vcsg.SVRG(model.parameters(), n=N, b=B, lr=0.1)
    x, _ = data()
    x = x.flatten(1)[:, :5]
    for (rows,) in optimizer.batches((x,), passes=2):

        def closure(rows: Tensor = rows) -> Tensor:
            optimizer.zero_grad()
            loss = torch.vmap(model)(rows).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    assert optimizer.passes >= 2


def test_rows_may_come_in_any_argument() -> None:
    """Edges before nodes, as graph models have it: the longest of the tensors counts."""

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 2)

        def forward(self, edges: Tensor, nodes: Tensor) -> Tensor:
            return self.layer(nodes)

    model, nodes, edges = Graph(), torch.randn(N, 5), torch.zeros(2, 7)
    optimizer = vcsg.SVRG(model.parameters(), n=N, b=B, lr=0.1)
    for (index,) in optimizer.batches((torch.arange(N),), passes=2):

        def closure(index: Tensor = index) -> Tensor:
            optimizer.zero_grad()
            loss = model(edges, nodes)[index].square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    assert optimizer.passes >= 2


def test_a_stream_of_batches_is_a_loader() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            x, y = data()
            yield from zip(x.split(B), y.split(B), strict=True)

    model = net()
    optimizer = vcsg.Adam(model.parameters(), n=N, batch_size=B)
    for x, y in optimizer.loop(Stream()):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    assert optimizer.passes == 1
