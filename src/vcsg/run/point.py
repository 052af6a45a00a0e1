"""The tensors of a run: x, the points and gradients kept beside it, and how a closure is evaluated at any of them."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import is_not
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from vcsg.method.step_rules import Adaptive, Orthogonal, Plain, StepRule, is_matrix
from vcsg.run.buffers import Buffers
from vcsg.run.clipping import Clipping
from vcsg.run.holder import StepNumbers
from vcsg.run.preconditioning import Correction, correction, precondition
from vcsg.run.randomness import Randomness
from vcsg.run.vectors import HALF, add, all_finite, clear, copy_to, lerp, norm2, scale

Closure = Callable[[], Any]
TRACE = 1e-30
"""What is smaller is not worth remembering; far above the subnormal numbers of float32."""


class Point:
    """x is in the parameters themselves; all else is in the optimizer's state, by name.

    "anchor" is y and "mean" is m, with the level appended where anchors are nested ("anchor1"). "output" is the
    reservoir or the average, "second" holds second moments and "table" SAGA's gradients. Gradients of half-precision
    parameters, what is made of them, and the output are in float32. `buffers` change by evaluations at x in inner steps
    alone.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        buffers: Buffers | None = None,
        clip_norm: float | None = None,
        rule: StepRule = Plain(),  # noqa: B008 (a frozen value)
    ) -> None:
        self.buffers, self.rule = buffers or Buffers(), rule
        self._clipping = None if clip_norm is None else Clipping(clip_norm, rule)
        self.attach(optimizer)

    def attach(self, optimizer: Optimizer) -> None:
        """Belong to this optimizer. The reference is weak: a cycle would keep its tensors until a collection."""
        self._owner = weakref.ref(optimizer)
        self.params: list[Tensor] = []
        """The parameters that require a gradient, as of the last `refresh`."""
        self.randomness = Randomness()
        self._vectors: dict[str, list[Tensor]] = {}
        self._shown: dict[int, tuple[int, int]] = {}
        self._left: Tensor | None = None
        self._before: list[Tensor | None] = []
        self.refresh()

    def __getstate__(self) -> dict[str, Any]:
        return {"buffers": self.buffers, "_clipping": self._clipping, "rule": self.rule}

    @property
    def _optimizer(self) -> Optimizer:
        optimizer = self._owner()
        assert optimizer is not None
        return optimizer

    @property
    def optimizer_deleted(self) -> bool:
        """Whether the optimizer is no more: what still runs is the clean-up of its loop."""
        return self._owner() is None

    @property
    def groups(self) -> list[dict[str, Any]]:
        return self._optimizer.param_groups

    def check_lr(self) -> None:
        """Refuse an `lr` that a scheduler or a hand has put out of range, before anything moves."""
        for k, group in enumerate(self.groups):
            if not -1e-9 < group["lr"] < math.inf:  # schedules that end at 0 may round to below it
                raise ValueError(f"lr = {group['lr']!r} in parameter group {k}: set a finite number, at least 0")

    @property
    def lr(self) -> float:
        """The `lr` of the first parameter group that moves."""
        moving = [float(group["lr"]) for group in self._moving() if group["lr"]]
        return moving[0] if moving else float(self.groups[0]["lr"])

    @property
    def sign(self) -> int:
        """1 to minimise, −1 to maximise, 0 where the groups differ."""
        signs = {-1 if group["maximize"] else 1 for group in self._moving()}
        return signs.pop() if len(signs) == 1 else 0

    @property
    def penalty(self) -> float:
        """Σ (weight_decay/2)‖x‖² over the parameter groups, of the parameters that move."""
        return sum(
            0.5 * float(group["weight_decay"]) * norm2([p for p in group["params"] if p.requires_grad]).item()
            for group in self._moving()
            if group["weight_decay"]
        )

    def _moving(self) -> list[dict[str, Any]]:
        """The groups that have a parameter that requires a gradient."""
        return [group for group in self.groups if any(p.requires_grad for p in group["params"])]

    @property
    def all_params(self) -> list[Tensor]:
        """All parameters, also those that require no gradient."""
        return [p for group in self.groups for p in group["params"]]

    def outline(self) -> list[Any]:
        """The options of every group and the shapes of its parameters: equal where optimizers are made alike."""
        names = ("lr", "weight_decay", "decoupled_weight_decay", "maximize")
        return [
            [*(float(group[name]) for name in names), *((*p.shape,) for p in group["params"])] for group in self.groups
        ]

    def refresh(self) -> bool:
        """See whether parameters were added, frozen or thawed since. Looked up at every use, they would cost more.

        Returns whether some were added or thawed. What is kept of these from an earlier time is forgotten.
        """
        params = [p for group in self.groups for p in group["params"] if p.requires_grad]
        if len(params) == len(self.params) and not any(map(is_not, params, self.params)):
            return False
        before = set(map(id, self.params))
        thawed = [p for p in params if id(p) not in before] if before else []
        for p in thawed:
            self._optimizer.state.pop(p, None)
        self.params, self.randomness = params, Randomness(params)
        self._vectors.clear()
        return bool(thawed)

    def forget(self) -> None:
        """The optimizer's state was replaced."""
        self._vectors.clear()

    def vector(self, name: str) -> list[Tensor]:
        """The tensors of that name, one per parameter, made on first use: means and moments zero, points equal to x."""
        if name not in self._vectors:
            self._vectors[name] = [self._held(p, name) for p in self.params]
        return self._vectors[name]

    def _held(self, p: Tensor, name: str) -> Tensor:
        held: dict[str, Tensor] = self._optimizer.state[p]
        if name not in held:
            if name.startswith(("mean", "second")):
                held[name] = torch.zeros_like(p, dtype=_wide(p))
            else:  # an average of many points needs more than half precision
                held[name] = p.detach().to(_wide(p) if name == "output" else p.dtype, copy=True)
        return held[name]

    def table_row(self, block: int, blocks: int) -> list[Tensor]:
        """The gradient that the table holds of a block, as views; the table is made on first use."""
        for p in self.params:
            if "table" not in self._optimizer.state[p]:
                self._optimizer.state[p]["table"] = p.new_zeros(blocks, *p.shape, dtype=_wide(p))
        return [self._optimizer.state[p]["table"][block] for p in self.params]

    def renew(self, row: list[Tensor], gradient: list[Tensor], share: float, blocks: int) -> list[Tensor]:
        """SAGA's v = w(g − row) + m, w = share·blocks; the row becomes g and m the mean of the table again.

        `share` is the block's part of the n samples; w is 1 where all blocks are equal, and keeps v unbiased else.
        """
        mean = self.vector("mean")
        add(gradient, row, -1)
        add(row, gradient)
        v = [m.clone() for m in mean]
        add(v, gradient, share * blocks)
        add(mean, gradient, share)
        return v

    def store(self, name: str) -> None:
        """Copy x to the vector of that name."""
        copy_to(self.vector(name), self.params)

    def restore(self, name: str) -> None:
        """Copy the vector of that name to x."""
        copy_to(self.params, self.vector(name))

    def drop_traces(self, name: str) -> None:
        """Numbers of a vector below 1e-30 become 0, on a CPU.

        What is remembered of gradients that have become 0 (those of pixels that are always black) decays by β with
        every step, and is subnormal after some hundred of them: a CPU then takes many times as long for an operation.
        """
        for t in self.vector(name):
            if t.device.type == "cpu":
                t.masked_fill_(t.abs() < TRACE, 0)

    @property
    def finite(self) -> bool:
        return all_finite(self.params)

    def evaluate(self, closure: Closure, seed: int, reuse: bool = False) -> tuple[Any, list[Tensor]]:
        """The loss of the closure and the gradient of f where the parameters are; in a context of `randomness`.

        With `reuse`, a closure that leaves no gradient leaves those in place that were there before: `present_gradient`
        then has the gradient of f, and [] is returned.
        """
        params, before = self.params, self._before if reuse else []
        self._before = []
        for p in params:
            p.grad = None
        suspect, self._left = self._left, None
        if suspect is not None:
            planted = suspect.grad = torch.zeros_like(suspect)
        self.randomness.seed(seed)
        with torch.enable_grad():
            loss = closure()
        if suspect is not None:
            self._check_cleared(suspect, planted)
            if suspect.grad is planted and planted._version == 0:
                suspect.grad = None  # there was no backward()
        left = []
        for p in params:
            left.append(p.grad)
            p.grad = None
        if before and all(g is None for g in left):
            if loss is not None:
                check_loss(loss)
            for p, g in zip(params, before, strict=True):
                p.grad = g
            return loss, []
        check_loss(loss)
        gradient = [dense(p, g) for p, g in zip(params, left, strict=True)]
        if all(g is None for g in left):
            raise RuntimeError("the closure left no gradient: call loss.backward() in it before it returns the loss")
        return loss, self.regularised(gradient)

    def look_for_gradients(self) -> None:
        """See whether a parameter has a gradient before the closure runs, other than `show_direction` left there.

        It is lost, and that is right where the closure begins with zero_grad(), as the next `evaluate` finds out. If it
        does not, gradients were to be accumulated.
        """
        self._left, self._before = None, []
        for p in self.params:
            if p.grad is None or self._shown.get(id(p)) == (id(p.grad), p.grad._version):
                continue
            self._before = self._before or [q.grad for q in self.params]
            if p.grad.layout is not torch.strided or p.grad.any():
                self._left = p
                return

    def _check_cleared(self, p: Tensor, planted: Tensor) -> None:
        """Refuse a closure that has added its gradient to the zeros that were there, without clearing them first."""
        if p.grad is planted and planted._version == 1:
            raise RuntimeError(
                "a parameter has a gradient before the closure runs, and the closure does not clear it: gradients "
                "cannot be accumulated over batches. Take a larger batch_size instead, or call optimizer.zero_grad() "
                "at the beginning of the closure"
            )

    def present_gradient(self) -> list[Tensor]:
        """The gradient of f from those that backward() has left in the parameters, which stay; [] where it left none.

        A parameter without one has the gradient 0.
        """
        left = [p.grad for p in self.params]
        if all(g is None for g in left):
            return []
        kept = [dense(p, g) for p, g in zip(self.params, left, strict=True)]
        return self.regularised([k.clone() if k is g else k for k, g in zip(kept, left, strict=True)])

    def regularised(self, gradient: list[Tensor]) -> list[Tensor]:
        """The gradient with the sign to maximise and the exact gradient of (weight_decay/2)‖x‖², of groups that ask."""
        if not any(group["maximize"] or group["weight_decay"] for group in self.groups):
            return gradient
        start = 0
        for group in self.groups:
            params = [p for p in group["params"] if p.requires_grad]
            part = gradient[start : start + len(params)]
            if not params:  # all frozen, or none: torch's calls for many tensors refuse an empty list
                continue
            if group["maximize"]:
                torch._foreach_neg_(part)
            if group["weight_decay"]:
                add(part, params, group["weight_decay"])
            start += len(params)
        return gradient

    def evaluate_at(self, closure: Closure, seed: int, name: str = "") -> tuple[Any, list[Tensor]]:
        """The same at the point of that name, or at x, without a trace in the buffers."""
        with self.pointed_at(name, self.buffers.copies()):
            return self.evaluate(closure, seed)

    @contextmanager
    def pointed_at(self, name: str, buffers: list[Tensor]) -> Iterator[None]:
        """A context in which parameters point at their tensors of that name, if one is given, and buffers at these."""
        params = self.params if name else []
        own = [p.data for p in params]
        try:
            _point(params, [t.to(p.dtype) for p, t in zip(params, self.vector(name), strict=True)] if name else [])
            with self.buffers.pointed_at(buffers):
                yield
        finally:
            _point(params, own)

    @property
    def adaptive(self) -> list[int]:
        """The places of the parameters that have a second moment, by the step rule."""
        if isinstance(self.rule, Orthogonal):
            return [k for k, p in enumerate(self.params) if not is_matrix(tuple(p.shape))]
        return [] if isinstance(self.rule, Plain) else list(range(len(self.params)))

    def second_moments(self) -> list[Tensor]:
        """The second moments, of the parameters that have one."""
        if "second" not in self._vectors:
            self._vectors["second"] = [self._held(self.params[k], "second") for k in self.adaptive]
        return self._vectors["second"]

    def added(self, v: list[Tensor], mean: list[Tensor], numbers: StepNumbers) -> list[Tensor]:
        """The gradient that a step adds to what v remembers of `mean`, for the parameters that have a second moment."""
        memory, places = numbers.memory, self.adaptive
        if not 0 < memory < 1:
            return [v[k].clone() for k in places]
        found = [v[k] / (1 - memory) for k in places]
        if mean and places:
            add(found, [mean[k] for k in places], -memory / (1 - memory))
        return found

    def descend(self, v: list[Tensor], added: list[Tensor], numbers: StepNumbers) -> None:
        """x ← x − η·P(v), v clipped first where that is asked for; x enters the average where there is one."""
        if self._clipping is not None:
            self._clipping.clip(v)
        direction = v if isinstance(self.rule, Plain) else self._preconditioned(self.rule, v, added, numbers)
        start = 0
        for group in self.groups:
            params = [p for p in group["params"] if p.requires_grad]
            if params:
                eta = numbers.step_size(float(group["lr"]))
                self._shrink(group, eta)
                add(params, direction[start : start + len(params)], -eta)
            start += len(params)
        self._take_into_average(numbers)

    def decay(self, group: dict[str, Any], p: Tensor) -> float:
        """The decoupled weight decay of a parameter in units of 1/η: with a share of η it has that share of it."""
        share = self.rule.share if isinstance(self.rule, Orthogonal) and not is_matrix(tuple(p.shape)) else 1.0
        return share * float(group["decoupled_weight_decay"])

    def _shrink(self, group: dict[str, Any], eta: float) -> None:
        """x ← (1 − η·decay)·x."""
        if group["decoupled_weight_decay"]:
            moving = [p for p in group["params"] if p.requires_grad]
            for decay in {self.decay(group, p) for p in moving}:
                scale([p for p in moving if self.decay(group, p) == decay], 1 - eta * decay)

    def _take_into_average(self, numbers: StepNumbers) -> None:
        if numbers.average is not None:
            output = self.vector("output")
            lerp(output, [p.to(t.dtype) for p, t in zip(self.params, output, strict=True)], numbers.average)

    @property
    def fusable(self) -> bool:
        """Whether torch's fused operation for Adam can take the steps of the adaptive rule."""
        wide = (torch.float32, torch.float64)
        plain = all(p.device.type == "cpu" and p.dtype in wide and p.is_contiguous() for p in self.params)
        return type(self.rule) is Adaptive and plain and self._clipping is None and bool(self.params)

    def descend_fused(self, gradient: list[Tensor], anew: bool, numbers: StepNumbers) -> list[Tensor]:
        """x ← x − η·P(v) with v = (1−β)·gradient + βm by one operation of torch's; m ← v, and the gradient becomes v.

        With `anew`, m is 0 before the step.
        """
        assert isinstance(self.rule, Adaptive)
        mean, second = self.vector("mean1"), self.second_moments()
        if anew:
            clear(mean)
        if numbers.moment == 1:
            clear(second)
        start = 0
        for group in self.groups:
            params = [p for p in group["params"] if p.requires_grad]
            own = slice(start, start + len(params))
            start += len(params)
            if not params:
                continue
            eta = numbers.step_size(float(group["lr"]))
            steps = [torch.tensor(float(numbers.moment))] * len(params)
            torch._fused_adamw_(
                params, [g.contiguous() for g in gradient[own]], mean[own], second[own], [], steps,
                lr=eta, beta1=numbers.memory, beta2=self.rule.beta2, weight_decay=group["decoupled_weight_decay"],
                eps=self.rule.eps, amsgrad=False, maximize=False,
            )  # fmt: skip
        self._take_into_average(numbers)
        copy_to(gradient, mean)  # into memory that is there: a copy would have to ask for it at every step
        return gradient

    def _preconditioned(
        self, rule: Adaptive | Orthogonal, v: list[Tensor], added: list[Tensor], numbers: StepNumbers
    ) -> list[Tensor]:
        second = self.second_moments()
        if numbers.moment == 1 and second:
            clear(second)
        return precondition(rule, v, added, second, self.correction(numbers))

    def correction(self, numbers: StepNumbers) -> Correction:
        """The factors that make up for moments that began at 0, at this step."""
        beta2 = 0.0 if isinstance(self.rule, Plain) else self.rule.beta2
        return correction(numbers.moment, numbers.memory if numbers.from_zero else 0.0, beta2)

    def step_along_mean(self, weight: float, numbers: StepNumbers) -> None:
        """x ← x − η·P(weight·m), for which no gradient is evaluated."""
        v = [weight * m for m in self.vector("mean")]
        self.descend(v, self.added(v, [], numbers), numbers)

    def step_sizes(self, step_size: Callable[[float], float]) -> list[float]:
        """η of every parameter that moves."""
        return [step_size(float(group["lr"])) for group in self.groups for p in group["params"] if p.requires_grad]

    def show_direction(self, v: list[Tensor]) -> None:
        """Let `p.grad` hold v."""
        self._shown = {}
        for p, direction in zip(self.params, v, strict=True):
            p.grad = direction if direction.dtype == p.dtype else direction.to(p.dtype)
            self._shown[id(p)] = id(p.grad), p.grad._version


def _wide(p: Tensor) -> torch.dtype:
    """The dtype in which a gradient of p is kept: sums of many terms need more than half precision."""
    return torch.float32 if p.dtype in HALF else p.dtype


def placed(saved: Tensor, p: Tensor) -> Tensor:
    """A copy of what was saved of a parameter, on its device and as precise, or more so where it is in half."""
    return saved.to(p.device, saved.dtype if p.dtype in HALF else p.dtype, copy=True)


def check_loss(loss: Any) -> None:
    """Refuse what a closure returned, unless it is one number."""
    if not isinstance(loss, (Tensor, float, int)) or (isinstance(loss, Tensor) and loss.numel() != 1):
        kind = "None" if loss is None else f"a {type(loss).__name__}"
        got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else kind
        manual = "; in Lightning's manual optimization, give step a closure" if loss is None else ""
        raise TypeError(f"the closure returned {got}: return the mean loss of the batch, one number{manual}")


def dense(p: Tensor, gradient: Tensor | None) -> Tensor:
    """A gradient as it is kept: strided, zero where there is none, and wide."""
    if gradient is None:
        return torch.zeros_like(p, dtype=_wide(p))
    if gradient.layout is not torch.strided:
        raise TypeError("a gradient is sparse: make the layer with sparse=False, an anchor's mean is dense anyway")
    return gradient.float() if gradient.dtype in HALF else gradient


def _point(tensors: list[Tensor], targets: list[Tensor]) -> None:
    for t, target in zip(tensors, targets, strict=True):
        t.data = target
    torch.clear_autocast_cache()
