"""Scenarios of several ranks: every method, kinds of data and models, the start, what is exchanged."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from nets import net_closure, vector
from quadratic import closure
from ranks import METHODS, PROBLEM, N, made, path, refused, scenario
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import vcsg
from vcsg import FiniteSumOptimizer

# --- every method, every option


@scenario
def methods(rank: int, ranks: int, folder: Path) -> Any:
    return {name: path(*made(name)) for name in METHODS}


@scenario
def options(rank: int, ranks: int, folder: Path) -> Any:
    variants: list[dict[str, Any]] = [
        {"name": "vcsg", "eps": 0.05},
        {"name": "vcsg", "comparison": "lemma"},
        {"name": "vcsg", "comparison": "elementwise"},
        {"name": "vcsg", "weight_decay": 0.1, "clip_norm": 0.2},
        {"name": "svrg", "b": 2, "variance": "exact", "chunk": 5},
        {"name": "scsg", "b": 4, "maximize": True, "L": 40.0},
        {"name": "svrg", "b": 7, "chunk": 3, "foreach": False},
        {"name": "svrg", "b": 7, "step": "adaptive", "output": "average", "decoupled_weight_decay": 0.1},
    ]
    return [path(*made(**variant)) for variant in variants]


@scenario
def estimated_smoothness(rank: int, ranks: int, folder: Path) -> Any:
    return {name: path(*made(name, L=None)) for name in ("svrg", "vcsg", "gd", "sgd", "snvrg")}


@scenario
def weighted_output(rank: int, ranks: int, folder: Path) -> Any:
    found = []
    for name in ("svrg", "vcsg", "scsg"):
        p, optimizer = made(name, output="weighted", b=3) if name != "vcsg" else made(name, output="weighted")
        way = path(p, optimizer, passes=9)
        optimizer.load_output()
        found.append([way, p.detach()])
    return found


@scenario
def matrices_by_rules(rank: int, ranks: int, folder: Path) -> Any:
    """A network, whose matrices have orthogonal steps; the average is the same on all ranks as well."""
    found = []
    for name in ("adam", "muon", "mars", "auto"):
        model = net()
        optimizer = FiniteSumOptimizer(model.parameters(), N, name, b=7, decoupled_weight_decay=0.1, output="average")
        for x, y in optimizer.batches(net_data(), passes=5):
            optimizer.step(net_closure(model, x, y))
        last = vector(model).clone()
        optimizer.load_output()
        found.append([last, vector(model), optimizer.ifo])
    return found


@scenario
def lower_precision(rank: int, ranks: int, folder: Path) -> Any:
    p = nn.Parameter(torch.full((4,), 2.0, dtype=torch.bfloat16))
    optimizer = vcsg.SVRG([p], n=N, L=4.0, b=4)
    data = tuple(t.bfloat16() if t.is_floating_point() else t for t in PROBLEM.data)
    return {"each": path(p, optimizer, data, passes=4)}


# --- data and models


@scenario
def loaders(rank: int, ranks: int, folder: Path) -> Any:
    found = []
    for workers in (0, 2):
        p, optimizer = made("vcsg")
        data = DataLoader(
            TensorDataset(*PROBLEM.data),
            batch_sampler=optimizer.sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        found.append(path(p, optimizer, data))
    p, optimizer = made("vcsg")
    return [*found, path(p, optimizer)]


def net(seed: int = 0, dropout: float = 0.0, norm: bool = False) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Linear(4, 5), *([nn.BatchNorm1d(5)] if norm else []), nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, 2)]
    return nn.Sequential(*layers).double()


def net_data() -> tuple[Tensor, Tensor]:
    return PROBLEM.data[0], (PROBLEM.data[1] > 0).long()


@scenario
def wrapped_model(rank: int, ranks: int, folder: Path) -> Any:
    """DistributedDataParallel, for which unequal slices would matter, and the plain model."""
    found = []
    for wrap in (False, True):
        model = net()
        call = DistributedDataParallel(model) if wrap and ranks > 1 else model
        optimizer = vcsg.SVRG(call.parameters(), n=N, b=5, lr=0.5)
        for x, y in optimizer.batches(net_data(), passes=5):
            optimizer.step(net_closure(call, x, y))
        found.append(vector(model))
        assert not wrap or ranks == 1 or call.require_backward_grad_sync
    return found


@scenario
def loops(rank: int, ranks: int, folder: Path) -> Any:
    """Each rank hands over its part of every batch, with a closure or without, the model wrapped or not."""
    found, (X, Y) = [], net_data()
    for name, wrap in (("svrg", False), ("svrg", True), ("scsg", True), ("sgd", False), ("sgd", True)):
        model = net()
        call = DistributedDataParallel(model) if wrap and ranks > 1 else model
        optimizer = FiniteSumOptimizer(call.parameters(), 60, name, batch_size=6 // ranks, lr=0.5)
        for number in range(5):
            order = torch.randperm(60, generator=torch.Generator().manual_seed(number)).view(10, ranks, 6 // ranks)
            for batch in order[:, rank]:
                evaluate = net_closure(call, X[batch], Y[batch])
                if name == "sgd":
                    evaluate()
                    optimizer.step()
                else:
                    optimizer.step(evaluate)
        found.append([vector(model), optimizer.ifo, optimizer.epoch, optimizer.record.B, optimizer.record.length])
    return found


@scenario
def unlike_loops(rank: int, ranks: int, folder: Path) -> Any:
    """One rank hands over fewer samples than the others: all are told, at the end of the anchor or in a step."""
    found, (X, Y) = [], net_data()
    for name in ("svrg", "sgd") if ranks > 1 else ():
        model = net()
        optimizer = FiniteSumOptimizer(model.parameters(), 60, name, batch_size=6, lr=0.5)

        def hand_over(optimizer: FiniteSumOptimizer = optimizer, model: nn.Module = model) -> None:
            size = 6 if rank else 3
            for _ in range(20):
                optimizer.step(net_closure(model, X[:size], Y[:size]), samples=size)

        found.append("DistributedSampler" in refused(ValueError, hand_over))
    return {"each": found}


@scenario
def batchnorm(rank: int, ranks: int, folder: Path) -> Any:
    """f is no sum then, and depends on the slices; sizes do not, and all ranks have the same statistics."""
    found = []
    for wrap in (False, True):
        model, sizes, states = net(norm=True), [], []
        model.register_buffer("mask", torch.full((2,), -torch.inf, dtype=torch.float64))
        call = DistributedDataParallel(model) if wrap and ranks > 1 else model
        records: list[vcsg.Record] = []
        optimizer = vcsg.SVRG(
            call.parameters(), n=N, b=3, lr=0.1, buffers=call.buffers(), chunk=2, callback=records.append
        )
        for x, y in optimizer.batches(net_data(), passes=4):
            sizes.append(len(x))
            optimizer.step(net_closure(call, x, y))
            states.append(torch.cat([t.detach().double().flatten() for t in model.state_dict().values()]))
        assert min(sizes) >= 2
        found.append({"sizes": [(r.B, r.b, r.length, r.ifo) for r in records], "each": torch.stack(states)})
    assert torch.equal(found[0]["each"], found[1]["each"])
    return found


class Centred(nn.Module):
    """Keeps the mean of its inputs, in place or by a new tensor."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        found = torch.lerp(self.mean, x.mean(0), 0.1)
        if self.in_place:
            self.mean.copy_(found)
        else:
            self.mean = found
        return x


@scenario
def assigned_buffers(rank: int, ranks: int, folder: Path) -> Any:
    """Buffers that are assigned anew become means over the ranks, as those that are changed in place."""
    found = []
    for in_place in (True, False):
        model = nn.Sequential(Centred(in_place), net())
        optimizer = vcsg.SVRG(model.parameters(), n=N, b=6, lr=0.1, buffers=model)
        for x, y in optimizer.batches(net_data(), passes=4):
            optimizer.step(net_closure(model, x, y))
        found.append(torch.cat([t.detach().flatten() for t in model.state_dict().values()]))
    assert torch.equal(*found)
    return {"each": found[0]}


@scenario
def dropout(rank: int, ranks: int, folder: Path) -> Any:
    model = net(dropout=0.5)
    optimizer = vcsg.SPIDER(model.parameters(), n=N, b=7, lr=0.1)
    for x, y in optimizer.batches(net_data(), passes=5):
        optimizer.step(net_closure(model, x, y))
    return {"ifo": optimizer.ifo, "each": vector(model)}


@scenario
def fitted(rank: int, ranks: int, folder: Path) -> Any:
    model = net()
    result = vcsg.fit(model, nn.functional.cross_entropy, net_data(), "svrg", b=5, lr=0.5, passes=4, progress=False)
    chosen = net()
    other = vcsg.fit(chosen, nn.functional.cross_entropy, net_data(), passes=4, progress=False)
    return [vector(model), result.ifo, vector(chosen), other.chosen]


# --- the start


@scenario
def one_start_for_all(rank: int, ranks: int, folder: Path) -> Any:
    model = net(seed=rank, norm=True)
    model[0].bias.requires_grad_(False)
    if rank:
        model[1].running_mean += rank
        model[-1].weight.data = model[-1].weight.data.t().contiguous().t()
    optimizer = vcsg.SVRG(model.parameters(), n=N, b=6, lr=0.1, buffers=model.buffers())
    x, y = next(optimizer.batches(net_data(), passes=9))
    optimizer.step(net_closure(model, x, y))
    return torch.cat([t.detach().double().flatten() for t in model.state_dict().values()])


@scenario
def unlike_ranks(rank: int, ranks: int, folder: Path) -> Any:
    """Optimizers that were made or loaded differently: all ranks say so at the first step."""
    if ranks == 1:
        return {"each": None}
    odd = rank == 1

    def first_step(p: nn.Parameter, optimizer: FiniteSumOptimizer) -> str:
        return refused(ValueError, lambda: path(p, optimizer, passes=9))

    words = [first_step(*made("svrg", seed=int(odd))), first_step(*made("svrg", weight_decay=0.1 * odd))]
    assert all("do not agree on method, n, seed and options" in word for word in words)
    p, optimizer = made("svrg")
    path(p, optimizer, passes=2)
    state, x = copy.deepcopy(optimizer.state_dict()), p.detach().clone()
    q, other = made("svrg")
    if not odd:
        other.load_state_dict(state)
        q.data.copy_(x)
    words.append(first_step(q, other))
    assert "do not agree on steps taken: rank 0 has" in words[-1]
    assert "rank 1 has 0" in words[-1]
    q, other = made("svrg")
    other.load_state_dict(state)
    if not odd:
        q.data.copy_(x)
    words.append(first_step(q, other))
    assert "do not agree on ‖x‖" in words[-1]
    return {"each": words}


# --- what is exchanged


@scenario
def exchanges(rank: int, ranks: int, folder: Path) -> Any:
    """The numbers of every reduction of every step: one per inner step, two per anchor, none between."""
    sent: list[int] = []
    reduce = dist.all_reduce

    def counted(tensor: Tensor, **options: Any) -> Any:
        sent.append(tensor.numel())
        return reduce(tensor, **options)

    log = {}
    with mock.patch.object(dist, "all_reduce", counted):
        for name in ("svrg", "vcsg", "sgd"):
            p, optimizer = made(name)
            log[name] = []
            for batch in optimizer.batches(PROBLEM.data, until=lambda record: record.epoch > 3):
                kind, regime = optimizer.phase.kind, optimizer.record.regime if optimizer.record else ""
                sent.clear()
                optimizer.step(closure(p, batch))
                log[name].append((kind, regime, optimizer.phase.kind != kind, list(sent)))
    return {"each": log}
