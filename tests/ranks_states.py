"""Scenarios of several ranks: states and copies, stopping, and what goes wrong."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from quadratic import closure, parameter
from ranks import PROBLEM, N, made, path, refused, scenario
from torch import Tensor, nn

import vcsg
from vcsg import FiniteSumOptimizer

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


@scenario
def certified(rank: int, ranks: int, folder: Path) -> Any:
    """A small anchor asks for a full one on all ranks alike, and that stops the run."""
    p, optimizer = made("batching-svrg", B=30)
    found = path(p, optimizer, until=vcsg.stationary(3e-3), passes=300)
    anchors = [record["anchor"]["B"] for record in found["records"]]
    assert set(anchors) == {30, N}
    assert anchors[-1] == N
    assert PROBLEM.norm2(p.detach().numpy()) <= 3e-3
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
