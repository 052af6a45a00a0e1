"""What test_distributed.py runs, on one rank in its own process and on several under torchrun.

    python -m torch.distributed.run --nproc-per-node=2 … tests/ranks.py FOLDER

Every scenario returns plain numbers and tensors. They are to be equal on all ranks of a job, bit by bit, and on any
number of ranks but for rounding, except under the keys "each" (equal on the ranks of a job alone) and "own".
"""

from __future__ import annotations

import copy
import functools
import gc
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from nets import net_closure, vector
from quadratic import closure, parameter, quadratic
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import vcsg
from vcsg import FiniteSumOptimizer

METHODS = sorted(set(vcsg.methods()) - {"saga"})
OPTIONS: dict[str, dict[str, Any]] = {
    "sgd": {"b": 3},
    "storm": {"b": 3},
    "alpha-svrg": {"b": 5},
    "vcsg": {"eps": 0.5, "B_min": 8},
}
N = 61
PROBLEM = quadratic(N)

Scenario = Callable[[int, int, Path], Any]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def made(name: str, **options: Any) -> tuple[nn.Parameter, FiniteSumOptimizer]:
    p = parameter()
    return p, FiniteSumOptimizer([p], N, name, **{"L": 1.0, **OPTIONS.get(name, {}), **options})


def path(
    p: nn.Parameter, optimizer: FiniteSumOptimizer, data: Any = PROBLEM.data, evaluate: Any = closure, **limits: Any
) -> dict[str, Any]:
    """Where a run went: the point after every step that moved it, the records, and what the optimizer counts."""
    points, records = [], []
    limits = limits or {"until": lambda record: record.epoch > 3}
    for batch in optimizer.batches(data, **limits):
        optimizer.step(evaluate(p, batch))
        if not points or not torch.equal(points[-1], p):
            points.append(p.detach().clone())
        if optimizer.record is not None and (not records or records[-1] is not optimizer.record):
            records.append(optimizer.record)
    told = [{**asdict(r), "variance": r.variance} for r in records]
    return {"points": torch.stack(points), "records": told, "ifo": optimizer.ifo, "epoch": optimizer.epoch}


def refused(kind: type[Exception], work: Callable[[], Any]) -> str:
    try:
        work()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")


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
    return [vector(model), result.ifo]


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


# --- states


def moments(name: str) -> Iterator[tuple[nn.Parameter, FiniteSumOptimizer]]:
    p, optimizer = made(name, L=None, output="weighted", **RESUMED[name])
    for batch in optimizer.batches(PROBLEM.data, passes=4):
        yield p, optimizer
        optimizer.step(closure(p, batch))


def finished(p: nn.Parameter, optimizer: FiniteSumOptimizer) -> list[Any]:
    for batch in optimizer.batches(PROBLEM.data, passes=4):
        optimizer.step(closure(p, batch))
    optimizer.load_output()
    return [p.detach().clone(), optimizer.ifo, optimizer.epoch, optimizer.L]


RESUMED = {"vcsg": {}, "svrg": {"b": 5}, "spider": {"b": 9}}


@scenario
def states(rank: int, ranks: int, folder: Path) -> Any:
    """The state before every step, the same on all ranks; kept for another number of ranks to go on from."""
    saved: dict[str, list[Any]] = {}
    for name in RESUMED:
        saved[name] = [copy.deepcopy((p.detach(), optimizer.state_dict())) for p, optimizer in moments(name)]
    if rank == 0:
        torch.save(saved, folder / f"states-{ranks}.pt")
    return {
        "each": saved,
        "ends": {name: finished(*made(name, L=None, output="weighted", **RESUMED[name])) for name in RESUMED},
    }


@scenario
def resumed(rank: int, ranks: int, folder: Path) -> Any:
    """From the states of another number of ranks, on several every second of them; the end is that of `states`."""
    before = folder / f"states-{ranks - 1 or 3}.pt"
    ends = {}
    for name, saved in torch.load(before).items() if before.exists() else ():
        ends[name] = []
        for x, state in saved[:: 1 if ranks == 1 else 2]:
            p, optimizer = made(name, L=None, output="weighted", **RESUMED[name])
            p.data.copy_(x)
            optimizer.load_state_dict(state)
            ends[name].append(finished(p, optimizer))
    return {"each": ends}


@scenario
def copies(rank: int, ranks: int, folder: Path) -> Any:
    found = []
    for copier in (copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))):
        for passes in (0.5, 1.4, 3.1):
            p, optimizer = made("vcsg")
            path(p, optimizer, passes=passes)
            q, other = copier((p, optimizer))
            found.append([path(q, other, passes=6)["points"][-1], path(p, optimizer, passes=6)["points"][-1]])
    for one, other in found:
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    return found


# --- stopping


@scenario
def budgets(rank: int, ranks: int, folder: Path) -> Any:
    """Where a budget ends a run does not depend on the number of ranks, inside an anchor neither."""
    found = []
    for name, options in {"gd": {}, "vcsg": {}, "svrg": {"b": 7, "L": None}, "page": {"chunk": 4}}.items():
        for ifo in range(1, 200, 9):
            p, optimizer = made(name, **options)
            for batch in optimizer.batches(PROBLEM.data, ifo=ifo):
                optimizer.step(closure(p, batch))
            found.append([name, ifo, optimizer.ifo, optimizer.phase.kind, p.detach().clone()])
    p, optimizer = made("vcsg")
    for ifo in range(0, 300, 13):  # one run, its budget raised again and again
        for batch in optimizer.batches(PROBLEM.data, ifo=ifo):
            optimizer.step(closure(p, batch))
        found.append([ifo, optimizer.ifo, p.detach().clone()])
    return found


def until_stopped(asks: bool, ask: Callable[[FiniteSumOptimizer], None], **limits: Any) -> list[Any]:
    p, optimizer = made("svrg", b=4)
    for batch in optimizer.batches(PROBLEM.data, **limits):
        optimizer.step(closure(p, batch))
        if asks and optimizer.epoch == 2 and optimizer.phase.kind == "inner":
            ask(optimizer)
    stopped = [optimizer.ifo, p.detach().clone()]
    return [*stopped, path(p, optimizer, passes=8)]


@scenario
def stopping(rank: int, ranks: int, folder: Path) -> Any:
    """One rank asks, has the faster clock, or gets a signal: all end together, and can go on."""
    last = rank == ranks - 1

    def signalled(optimizer: FiniteSumOptimizer) -> None:
        before = signal.signal(signal.SIGINT, lambda *_: optimizer.stop())
        os.kill(os.getpid(), signal.SIGINT)
        signal.signal(signal.SIGINT, before)

    return {
        "each": [
            until_stopped(last, lambda optimizer: optimizer.stop(), passes=1000),
            until_stopped(last, signalled, passes=1000),
            until_stopped(False, lambda _: None, seconds=0.0 if last else 1000.0),
        ]
    }


@scenario
def interrupted(rank: int, ranks: int, folder: Path) -> Any:
    """KeyboardInterrupt in the loop of every rank leaves all in a state to go on from."""
    p, optimizer = made("vcsg")
    try:
        for batch in optimizer.batches(PROBLEM.data, passes=9):
            optimizer.step(closure(p, batch))
            if optimizer.passes > 3.4:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    return path(p, optimizer, passes=8)["points"][-1]


# --- what goes wrong


def broken(kind: str, sample: int, optimizer: FiniteSumOptimizer, value: float) -> Callable[..., Callable[[], Tensor]]:
    """The closure with a bad loss, once: where a phase of this kind of epoch 2 meets the sample at x."""

    def evaluate(p: nn.Parameter, batch: tuple[Tensor, ...]) -> Callable[[], Tensor]:
        def once() -> Tensor:
            loss = closure(p, batch)()
            anchor = optimizer.state[p].get("anchor", torch.empty(0))
            met = optimizer.phase.kind == kind and sample in batch[2] and p.data_ptr() != anchor.data_ptr()
            return loss * value if met and optimizer.epoch == 2 and optimizer.L == 1.0 else loss

        return once

    return evaluate


@scenario
def rolled_back(rank: int, ranks: int, folder: Path) -> Any:
    found = []
    for kind in ("anchor", "inner"):
        for sample in (3, 40):
            p, optimizer = made("svrg", b=20)
            way = path(p, optimizer, evaluate=broken(kind, sample, optimizer, float("nan")))
            assert optimizer.L == 2.0
            found.append({"points": way["points"][-1], "each": way})
    return found


@scenario
def bad_start(rank: int, ranks: int, folder: Path) -> Any:
    words = []
    for name in ("svrg", "sgd"):
        p, optimizer = made(name)
        rows, targets, index = PROBLEM.data
        targets = targets.clone()
        targets[3 if name == "svrg" else slice(None)] = torch.nan
        words.append(refused(FloatingPointError, functools.partial(path, p, optimizer, (rows, targets, index))))
        assert "starting point" in words[-1]
        assert torch.equal(p, parameter())
        words.append(path(p, optimizer, passes=3))
    return {"own": words}


@scenario
def caught_error(rank: int, ranks: int, folder: Path) -> Any:
    """An error in the closure of one rank leaves its state as it was: it can try again, while the others wait."""
    p, optimizer = made("vcsg")
    for step, batch in enumerate(optimizer.batches(PROBLEM.data, passes=5)):
        if rank == ranks - 1 and step % 7 == 3:
            with mock.patch.object(torch.Tensor, "backward", side_effect=RuntimeError("broken")):
                assert refused(RuntimeError, lambda batch=batch: optimizer.step(closure(p, batch))) == "broken"
        optimizer.step(closure(p, batch))
    return [p.detach(), optimizer.ifo]


@scenario
def refusals(rank: int, ranks: int, folder: Path) -> Any:
    if ranks == 1:
        return {"each": None}
    words = [refused(ValueError, lambda: made("saga"))]
    assert "choose svrg" in words[0]
    alone = [dist.new_group([r]) for r in range(ranks)]
    path(*made("saga", group=alone[rank]), passes=2)
    word = refused(ValueError, lambda: made("svrg", group=alone[1 - rank] if rank < 2 else alone[0]))
    assert f"rank {rank} is not in group=" in word
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    for use_orig_params in (False, True):
        model = FullyShardedDataParallel(
            nn.Linear(4, 2), device_id=torch.device("cpu"), use_orig_params=use_orig_params
        )
        words.append(refused(TypeError, lambda model=model: vcsg.SVRG(model.parameters(), n=N)))
    model = nn.Linear(4, 2)
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (ranks,)))
    words.append(refused(TypeError, lambda: vcsg.SVRG(model.parameters(), n=N)))
    assert all("sharded" in word for word in words[1:])
    return {"each": words}


@scenario
def sub_group(rank: int, ranks: int, folder: Path) -> Any:
    """The first and the last rank alone."""
    if ranks < 3:
        return path(*made("vcsg"))
    group = dist.new_group([0, 2])
    if rank == 1:
        return {"absent": True}
    p, optimizer = made("vcsg", group=group)
    found = path(p, optimizer)
    q, other = copy.deepcopy((p, optimizer))
    path(p, optimizer, passes=9)
    path(q, other, passes=9)
    assert torch.equal(p, q)
    assert "save its state_dict" in refused(TypeError, lambda: pickle.dumps(optimizer))
    return found


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


def perform(rank: int, ranks: int, folder: Path) -> dict[str, Any]:
    found = {}
    for name, play in SCENARIOS.items():
        try:
            found[name] = play(rank, ranks, folder)
        except Exception:
            traceback.print_exc()
            raise SystemExit(f"scenario {name} failed on rank {rank} of {ranks}") from None
    return found


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, ranks, folder = dist.get_rank(), dist.get_world_size(), Path(sys.argv[1])
    found = perform(rank, ranks, folder)
    torch.save(found, folder / f"found-{ranks}-{rank}.pt")
    gc.collect()  # a wrapped model that is still somewhere would keep threads of the group
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
