"""One run on several ranks of torch.distributed: who evaluates which samples, and what is exchanged.

Every rank draws the same samples, lengths and outcomes from the same seed, so all that is exchanged are sums:

- an anchor: a rank takes whole chunks, in rounds of one chunk each. At the end its mean gradient is reduced, once, and
  a few numbers. As chunks are those of a run on one rank, so are S* and all that follows from it.
- an inner step: a rank takes a slice of the mini-batch. One reduction: of a·∇f_I(x) + b·∇f_I(y) where the weights are
  constant, of both gradients where a test needs them. Losses, buffers and the wish to stop go along.
- the estimate of L: a rank takes whole mini-batches; their curvatures are exchanged.

A rank for which there is nothing left evaluates a few samples with weight 0, so that all take the same number of steps,
and every decision (sizes, stopping, going back) is made from exchanged numbers, alike on all of them.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel

from vcsg.method.weights import Constant, Rule, Weights
from vcsg.run.buffers import Change
from vcsg.run.estimator import combine, weigh
from vcsg.run.point import Closure
from vcsg.run.sampling import Share
from vcsg.run.variance import AnchorSum
from vcsg.run.vectors import Tensors, add, add_to, copy_to, norm2


def _import_without_a_group() -> None:
    """Import what torch itself imports sooner or later, and whose defaults keep the group of that moment for ever."""
    world, distributed_c10d.GroupMember.WORLD = distributed_c10d.GroupMember.WORLD, None
    try:
        importlib.import_module("torch.distributed.nn.functional")
    finally:
        distributed_c10d.GroupMember.WORLD = world


_import_without_a_group()

ROLL_CALL = 10.0
"""Seconds that a rank waits, after a failed exchange, for the others to say that they are there."""

HERE = "here"
"""The word with which a rank answers that roll-call."""


class OneRank:
    """The only rank: nothing is exchanged."""

    met = True
    """Whether the ranks have seen that they were made alike."""
    agreed = False
    """Whether the run is to stop here."""

    def __init__(self, least: int = 1) -> None:
        self.share = Share(least=least)

    def ask(self) -> None:
        """Ask for a stop; with others, it is agreed on with the next exchange of gradients."""
        self.agreed = True

    def forget(self) -> None:
        """Go on: a stop was agreed on and is done."""
        self.agreed = False

    def meet(self, facts: dict[str, float], device: torch.device) -> None:
        """Every rank has these facts, or all raise; what is exchanged is on this device."""

    def begin(self, tensors: Tensors) -> None:
        """Every rank begins with the tensors of the first."""

    def tell(self, error: BaseException) -> None:
        """Leave word of an error for the others, who wait."""

    def prepared(self, closure: Closure) -> Closure:
        return closure

    def combine(
        self,
        rule: Rule,
        now: Tensors,
        anchor: Tensors,
        mean: Tensors,
        weight: float,
        losses: tuple[float, ...],
        buffers: list[Change],
    ) -> tuple[float, ...]:
        """now ← v from the gradients of this rank's part of the mini-batch; returns the losses of all of it."""
        combine(rule, now, anchor, mean)
        return losses

    def merge(self, own: AnchorSum, mean: Tensors, samples: int) -> tuple[AnchorSum, float]:
        """The statistics of an anchor of so many samples, and ‖g‖², from those of this rank; `mean` becomes g."""
        return own, norm2(mean).item()

    def collect(self, numbers: list[float], weight: float = 1.0) -> list[list[float]]:
        """The numbers of every rank, in their order, without those of ranks of weight 0."""
        return [numbers]


class Ranks(OneRank):
    """One of several ranks of a process group."""

    def __init__(self, group: dist.ProcessGroup | None = None, least: int = 1) -> None:
        # Whoever holds a group keeps its threads: a process that ends with them is aborted.
        self._held = None if group is None or group is dist.group.WORLD else weakref.ref(group)
        self._names = dist.get_process_group_ranks(group)
        self.share = Share(dist.get_rank(group), dist.get_world_size(group), least)
        self.met = self.agreed = self._asked = False
        self._device = torch.device("cpu")
        self._exchanges = 0

    def __deepcopy__(self, _: Any) -> Ranks:
        return Ranks(self._group, self.share.least)

    def __reduce__(self) -> Any:
        if self._held is not None:
            raise TypeError("an optimizer with a group= of its own cannot be pickled: save its state_dict() instead")
        return ranks_of, (None, self.share.least)

    @property
    def _group(self) -> dist.ProcessGroup | None:
        if self._held is None:
            return None
        group = self._held()
        if group is None:
            raise ConnectionError("the process group of this optimizer was destroyed: make a new one with a new group")
        return group

    def ask(self) -> None:
        self._asked = True

    def forget(self) -> None:
        self.agreed = self._asked = False

    def meet(self, facts: dict[str, float], device: torch.device) -> None:
        self._device = device
        rows = self.collect(list(facts.values()))
        for name, values in zip(facts, zip(*rows, strict=True), strict=True):
            # Only rounding may tell them apart, which ranks of different hardware do differently.
            if not all(math.isclose(value, values[0], rel_tol=1e-5 if name == "‖x‖" else 0) for value in values):
                told = ", ".join(
                    f"rank {rank} has {value:.10g}" for rank, value in zip(self._names, values, strict=True)
                )
                raise ValueError(
                    f"the ranks do not agree on {name}: {told}. Make model and optimizer alike on all of them, and "
                    "load the same state"
                )
        self.met = True

    def begin(self, tensors: Tensors) -> None:
        for t in tensors:
            whole = t.detach().contiguous()
            self._call(dist.broadcast, whole, group_src=0)
            t.detach().copy_(whole)

    def prepared(self, closure: Closure) -> Closure:
        """The closure with the reductions of a DistributedDataParallel model switched off: ours take their place."""

        def quiet() -> Any:
            silenced: list[DistributedDataParallel] = []

            def switch_off(module: nn.Module, _: Any) -> None:
                if isinstance(module, DistributedDataParallel) and module.require_backward_grad_sync:
                    # The second, of buffers, stays off: they are equal, and it hangs where not all ranks evaluate.
                    module.require_backward_grad_sync = module.require_forward_param_sync = False
                    silenced.append(module)

            handle = register_module_forward_pre_hook(switch_off)
            try:
                return closure()
            finally:
                handle.remove()
                for module in silenced:
                    module.require_backward_grad_sync = True

        return quiet

    def combine(
        self,
        rule: Rule,
        now: Tensors,
        anchor: Tensors,
        mean: Tensors,
        weight: float,
        losses: tuple[float, ...],
        buffers: list[Change],
    ) -> tuple[float, ...]:
        if type(rule) is not Constant:
            # Not both gradients but one and their difference: where they are equal, at the first step after an anchor,
            # sums in different orders would not be, and a test of the two would be a toss.
            add_to(anchor, now, -1)
            reduced = self._sum([*now, *anchor], weight, losses, buffers)
            add_to(anchor, now, -1)
            combine(rule, now, anchor, mean)
            return reduced
        a, b, c = rule.weights
        weigh(Weights(a, b, 0), now, anchor, [])
        reduced = self._sum(now, weight, losses, buffers)
        if c:
            add(now, mean, c)
        return reduced

    def _sum(
        self, tensors: Tensors, weight: float, losses: tuple[float, ...] = (), buffers: Sequence[Change] = ()
    ) -> tuple[float, ...]:
        """Tensors, losses and changes of buffers become weighted sums over the ranks, in one reduction."""
        buffers = [(b, before) for b, before in buffers if b.is_floating_point() and b.shape == before.shape]
        device, dtype = tensors[0].device, max((t.dtype for t in tensors), key=lambda d: d.itemsize)
        # Not new − before alone: a mask is infinite, and a buffer that is constant stays what it is.
        changes = [torch.where(b == before, 0, b - before) for b, before in buffers]
        numbers = torch.tensor([*losses, float(self._asked)], dtype=dtype)
        flat = torch.cat([t.detach().reshape(-1).to(device, dtype) for t in [*tensors, *changes, numbers]])
        own = flat[:-1]
        # Where there is no part, what was evaluated in its place may be anything, and 0·NaN is NaN.
        own.mul_(weight) if weight else own.zero_()
        self._call(dist.all_reduce, flat)
        *parts, tail = torch.split(flat, [*(t.numel() for t in [*tensors, *changes]), len(numbers)])
        copy_to(tensors, [part.view(t.shape) for part, t in zip(parts, tensors, strict=False)])
        for (b, before), part in zip(buffers, parts[len(tensors) :], strict=True):
            b.copy_(before + part.view(b.shape).to(b))
        *reduced, asked = tail.tolist()
        self.agreed = asked > 0
        return tuple(reduced)

    def merge(self, own: AnchorSum, mean: Tensors, samples: int) -> tuple[AnchorSum, float]:
        """The mean is reduced first. About it, the sum of squares of a rank grows by its distance."""
        before = [m.clone() for m in mean]
        self._sum(mean, own.samples / samples)
        add(before, mean, -1)
        spread = own.spread + own.samples * norm2(before).item() if own.samples else 0.0
        told = [float(own.samples), float(own.chunks), own.loss, own.loss_spread, spread, norm2(mean).item()]
        rows = self.collect(told)
        sound = all(math.isfinite(row[2]) for row in rows)  # a chunk that is not is not taken in
        if sound and round(sum(row[0] for row in rows)) != samples:
            raise ValueError(
                f"the ranks evaluated {', '.join(f'{row[0]:.0f}' for row in rows)} samples of an anchor of {samples}: "
                "their loops hand over batches of different sizes. Give all ranks as many samples, as "
                "DistributedSampler does"
            )
        loss = sum(size * loss for size, _, loss, *_ in rows) / samples
        merged = AnchorSum(
            samples=samples,
            chunks=round(sum(chunks for _, chunks, *_ in rows)),
            loss=loss,
            spread=sum(row[4] for row in rows),
            loss_spread=sum(row[3] + row[0] * ((row[2] - loss) * (row[2] - loss)) for row in rows),
        )
        return merged, rows[0][5]

    def collect(self, numbers: list[float], weight: float = 1.0) -> list[list[float]]:
        table = torch.zeros(self.share.ranks, 1 + len(numbers), dtype=torch.float64, device=self._device)
        if weight:
            table[self.share.rank] = torch.tensor([1.0, *numbers], dtype=torch.float64)
        self._call(dist.all_reduce, table)
        return [row[1:] for row in table.tolist() if row[0]]

    # --- when something fails

    def _call(self, collective: Callable[..., Any], tensor: Tensor, **options: Any) -> None:
        try:
            collective(tensor, group=self._group, **options)
        except RuntimeError as error:
            raise ConnectionError(
                f"rank {self._name} could not exchange with the others: {self._roll_call()}"
            ) from error
        self._exchanges += 1

    @property
    def _name(self) -> int:
        """The rank among all that were started, which is what their logs are known by."""
        return self._names[self.share.rank]

    def tell(self, error: BaseException) -> None:
        if not isinstance(error, ConnectionError):
            self._in_time(
                lambda: self._store().set(str(self._name), f"{self._exchanges} {type(error).__name__}: {error}")
            )

    def _store(self) -> distributed_c10d.Store:
        """The store by which the ranks of a group find each other; here it holds words about what went wrong."""
        return distributed_c10d.PrefixStore(f"vcsg/{self._names}", distributed_c10d._get_default_store())

    def _roll_call(self) -> str:
        """Find out what became of the other ranks: each has left an answer, or word of an error, or nothing."""
        keeper = "torchrun" if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else "rank 0"
        return self._in_time(self._answers) or f"{keeper}, which keeps the addresses of all, is gone or stopped"

    def _answers(self) -> str:
        store, deadline = self._store(), time.monotonic() + ROLL_CALL
        store.set(str(self._name), HERE)
        words: dict[int, str] = {}
        while len(words) < len(self._names) and time.monotonic() < deadline:
            time.sleep(0.1)
            for name in self._names:
                word = store.get(str(name)).decode() if store.check([str(name)]) else ""
                # An error of an earlier exchange was caught: that rank went on.
                if word == HERE or word.startswith(f"{self._exchanges} "):
                    words[name] = word
        failed = [f"rank {name} failed with {word.partition(' ')[2]}" for name, word in words.items() if word != HERE]
        if missing := [str(name) for name in self._names if name not in words]:
            failed.append(f"no answer from rank {', '.join(missing)} within {ROLL_CALL:.0f} s")
        return "; ".join(failed) or "all ranks are there: the network failed, or the group's timeout is too short"

    def _in_time(self, work: Callable[[], Any]) -> Any:
        """Return what `work` returns; None where the store is lost. A stopped process may hold a call for ever."""
        found: list[Any] = []

        def attempt() -> None:
            with contextlib.suppress(RuntimeError):
                found.append(work())

        thread = threading.Thread(target=attempt, daemon=True)
        thread.start()
        thread.join(ROLL_CALL + 2)
        return found[0] if found else None


def ranks_of(group: dist.ProcessGroup | None, least: int = 1) -> OneRank:
    """The ranks that a new optimizer works with: those of the group, or of the default one where there is any."""
    if not dist.is_available() or not dist.is_initialized():
        if group is not None:
            raise ValueError("group= was given but torch.distributed is not initialised: call init_process_group first")
        return OneRank(least)
    if dist.get_rank(group) < 0:
        raise ValueError(f"rank {dist.get_rank()} is not in group=: make the optimizer on the ranks of the group alone")
    return Ranks(group, least) if dist.get_world_size(group) > 1 else OneRank(least)
