"""One run on several ranks of torch.distributed: who evaluates which samples, and what is exchanged.

Every rank draws the same samples, lengths and outcomes from the same seed, so all that is exchanged are sums:

- an anchor: a rank takes whole chunks, in rounds of one chunk each. At the end its mean gradient is reduced, once, and
  a few numbers. As chunks are those of a run on one rank, so are S* and all that follows from it.
- an inner step: a rank takes a slice of the mini-batch. One reduction: of a·∇f_I(x) + b·∇f_I(y) where the weights are
  constant, of both gradients where a test needs them. The loss goes along.
- the estimate of L: a rank takes whole mini-batches; their curvatures are exchanged.

A rank for which there is nothing left evaluates one sample with weight 0, so that all take the same number of steps,
and every decision (sizes, stopping, going back) is made from reduced numbers, alike on all of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel

from vcsg.eager import Closure
from vcsg.sampling import Share
from vcsg.variance import AnchorSum
from vcsg.vectors import Tensors, add, copy_to, norm2, scale
from vcsg.weights import Constant, Rule, Weights

ROLL_CALL = 10.0
"""Seconds that a rank waits, after a failed exchange, for the others to say that they are there."""


class Alone:
    """The only rank: nothing is exchanged."""

    share = Share()
    agreed = False
    """Whether the run is to stop here."""

    def ask(self) -> None:
        """Ask for a stop; with others, it is agreed on with the next exchange."""
        self.agreed = True

    def forget(self) -> None:
        """Go on: a stop was agreed on and is done."""
        self.agreed = False

    def start(self, tensors: Tensors) -> None:
        """Everyone begins with the tensors of rank 0."""

    def prepared(self, closure: Closure) -> Closure:
        return closure

    def combine(
        self, rule: Rule, now: Tensors, anchor: Tensors, mean: Tensors, weight: float, *losses: float
    ) -> tuple[float, ...]:
        """now ← v from the gradients of this rank's part of the mini-batch; returns the losses of all of it."""
        rule.combine(now, anchor, mean)
        return losses

    def merge(self, own: AnchorSum, mean: Tensors, samples: int) -> AnchorSum:
        """The statistics of an anchor of so many samples from those of this rank's chunks; `mean` too, in place."""
        return own

    def collect(self, numbers: list[float], weight: float) -> list[list[float]]:
        """What each rank with a part has to say, in their order."""
        return [numbers]


class Team(Alone):
    """One of several ranks of a process group."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group
        self.share = Share(dist.get_rank(group), dist.get_world_size(group))
        self._asked = False
        self.agreed = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_group": None, "share": self.share, "_asked": False, "agreed": False}

    def ask(self) -> None:
        self._asked = True

    def forget(self) -> None:
        self.agreed = self._asked = False

    def start(self, tensors: Tensors) -> None:
        for t in tensors:
            self._call(dist.broadcast, t.detach(), group_src=0)

    def prepared(self, closure: Closure) -> Closure:
        """The closure with the own reduction of a DistributedDataParallel model switched off: ours takes its place."""

        def quiet() -> Any:
            silenced: list[DistributedDataParallel] = []

            def switch_off(module: nn.Module, _: Any) -> None:
                if isinstance(module, DistributedDataParallel) and module.require_backward_grad_sync:
                    module.require_backward_grad_sync = False
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
        self, rule: Rule, now: Tensors, anchor: Tensors, mean: Tensors, weight: float, *losses: float
    ) -> tuple[float, ...]:
        if not isinstance(rule, Constant):
            reduced = self._sum([*now, *anchor], weight, losses)
            rule.combine(now, anchor, mean)
            return reduced
        a, b, c = rule.weights
        Constant(Weights(a, b, 0)).combine(now, anchor, [])
        reduced = self._sum(now, weight, losses)
        if c:
            add(now, mean, c)
        return reduced

    def _sum(self, tensors: Tensors, weight: float, losses: tuple[float, ...]) -> tuple[float, ...]:
        """Every tensor and loss becomes the weighted sum over the ranks, in one reduction of one buffer."""
        device, dtype = tensors[0].device, max((t.dtype for t in tensors), key=lambda d: d.itemsize)
        # Where there is no part, what was evaluated in its place may be anything, and 0·NaN is NaN.
        numbers = [loss if weight else 0.0 for loss in losses]
        if not weight:
            for t in tensors:
                t.zero_()
        tail = torch.tensor([weight * x for x in numbers] + [float(self._asked)], dtype=dtype, device=device)
        scale(tensors, weight)
        flat = torch.cat([*(t.reshape(-1).to(device, dtype) for t in tensors), tail])
        self._call(dist.all_reduce, flat)
        parts = torch.split(flat, [*(t.numel() for t in tensors), len(tail)])
        copy_to(tensors, [part.view(t.shape) for part, t in zip(parts[:-1], tensors, strict=True)])
        *reduced, asked = parts[-1].tolist()
        self.agreed = asked > 0
        return tuple(reduced)

    def merge(self, own: AnchorSum, mean: Tensors, samples: int) -> AnchorSum:
        """The mean gradient is reduced first; then the sums of squares, to which each adds its distance from it."""
        before = [m.clone() for m in mean]
        self._sum(mean, own.samples / samples, ())
        add(before, mean, -1)
        distance = norm2(before).item() if own.samples else 0.0
        loss, square = own.samples * own.loss, own.samples * own.loss**2
        spread = own.spread + own.samples * distance
        chunks, loss, square, spread = self._reduced([float(own.chunks), loss, own.loss_spread + square, spread])
        return AnchorSum(
            samples=samples,
            chunks=round(chunks),
            loss=loss / samples,
            spread=spread,
            loss_spread=max(0.0, square - loss**2 / samples) if math.isfinite(square) else math.nan,
        )

    def collect(self, numbers: list[float], weight: float) -> list[list[float]]:
        rank, ranks = self.share.rank, self.share.ranks
        row = [1.0, *numbers] if weight else [0.0] * (1 + len(numbers))
        table = [0.0] * (len(row) * ranks)
        table[rank * len(row) : (rank + 1) * len(row)] = row
        reduced = self._reduced(table)
        rows = [reduced[r * len(row) : (r + 1) * len(row)] for r in range(ranks)]
        return [row[1:] for row in rows if row[0]]

    def _reduced(self, numbers: list[float]) -> list[float]:
        """The sums over all ranks, in float64 where the backend has it on the CPU."""
        device = "cuda" if dist.get_backend(self._group) == "nccl" else "cpu"
        flat = torch.tensor(numbers, dtype=torch.float64, device=device)
        self._call(dist.all_reduce, flat)
        found: list[float] = flat.tolist()
        return found

    def _call(self, collective: Callable[..., Any], tensor: Tensor, **options: Any) -> None:
        try:
            collective(tensor, group=self._group, **options)
        except RuntimeError as error:
            found = self._missing()
            raise RuntimeError(f"rank {self.share.rank} could not exchange with the others: {found}") from error

    def _missing(self) -> str:
        """Who does not answer: those that are there say so in the store, which every process group has."""
        try:
            store = distributed_c10d.PrefixStore("vcsg-roll-call", distributed_c10d._get_default_store())
            store.set_timeout(timedelta(seconds=ROLL_CALL))
            store.set(str(self.share.rank), "here")
            deadline, missing = time.monotonic() + ROLL_CALL, list(range(self.share.ranks))
            while missing and time.monotonic() < deadline:
                missing = [rank for rank in missing if not store.check([str(rank)])]
                time.sleep(0.1)
        except RuntimeError:
            return "rank 0, which keeps the addresses of all, is gone"
        if missing:
            return f"no answer from rank {', '.join(map(str, missing))}"
        return "all ranks answer, and one may have failed earlier: see their errors"


def team(group: dist.ProcessGroup | None) -> Alone:
    """The ranks that a new optimizer works with: those of the group, or of the default one where there is any."""
    if not dist.is_available() or not dist.is_initialized():
        if group is not None:
            raise ValueError("group= was given but torch.distributed is not initialised: call init_process_group first")
        return Alone()
    return Team(group) if dist.get_world_size(group) > 1 else Alone()
