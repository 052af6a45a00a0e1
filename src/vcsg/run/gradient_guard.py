"""Whether a closure changes gradients after backward() has made them, or a hook does while it makes them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from vcsg.run.looking import BETWEEN, LOOKS
from vcsg.run.vectors import norm

STEPS_PER_READING = 4
"""In one of how many steps the versions of gradients are read."""
LOOKS_AFTER_A_CHANGE, CHANGES = 32, 8
"""How many evaluations are looked at after one whose gradients have a version that is new, and how often for each."""


class GradientGuard:
    """Refuses a closure that changes gradients after backward() has made them, whenever it begins to.

    A method with an anchor compares gradients of two points, or means of many; clipped or rescaled ones do not compare.
    The first evaluations are looked at, and one step of every BETWEEN, by hooks. In some of the others the version of
    each gradient is read, which torch counts up with every operation in place: where it is none that a look has found
    harmless, the next evaluations are looked at.
    """

    def __init__(self) -> None:
        self.looks = LOOKS
        self._steps = 0
        self._seen: Counter[int] = Counter()
        """How often the sum of all versions was this one, and led to looks."""
        self._tried: set[tuple[int, ...]] = set()
        """The hooks of parameters that were tried: each parameter with the numbers of its hooks."""

    def guarded(self, closure: Callable[[], Any], params: Sequence[Tensor]) -> Callable[[], Any]:
        """The closure of a step, looked at as long as there is reason to."""
        self._steps += 1
        if self.looks or self._steps % BETWEEN == 0:
            return lambda: self._look(closure, params)
        return closure if self._steps % STEPS_PER_READING else lambda: self._read(closure, params)

    def _read(self, closure: Callable[[], Any], params: Sequence[Tensor]) -> Any:
        loss, versions = closure(), _versions(params)
        if self._seen[versions] < CHANGES:
            self._seen[versions] += 1
            self.looks = LOOKS_AFTER_A_CHANGE
        return loss

    def _look(self, closure: Callable[[], Any], params: Sequence[Tensor]) -> Any:
        made: dict[int, tuple[int, int, Tensor]] = {}
        came: dict[int, Tensor] = {}

        def note(p: Tensor) -> None:
            if p.grad is not None and p.grad.layout is torch.strided:
                made[id(p)] = id(p.grad), p.grad._version, norm([p.grad])

        handles: list[RemovableHandle] = []
        for p in params:
            handles.append(p.register_post_accumulate_grad_hook(note))  # type: ignore[no-untyped-call]
            if p._backward_hooks:
                handles.append(p.register_hook(lambda g, p=p: came.update({id(p): g})))  # type: ignore[no-untyped-call]
                _put_first(p._backward_hooks, handles[-1])
        try:
            loss = closure()
        finally:
            for handle in handles:
                handle.remove()
        left = [p for p in params if p.grad is not None and id(p) in made]
        for p in left:
            assert p.grad is not None
            _check_same(made[id(p)][2].item(), norm([p.grad]).item())
            hooks = id(p), *(p._backward_hooks or ())
            if id(p) in came and hooks not in self._tried and _check_hooks(came[id(p)], p):
                self._tried.add(hooks)
        if all((id(p.grad), p.grad._version) == made[id(p)][:2] for p in left if p.grad is not None):
            self._seen[_versions(params)] = CHANGES
            self.looks -= self.looks > 0
        else:
            self.looks = max(self.looks, 1)  # a wrapper may have written the same numbers once more, or a bound be far
        return loss


def _versions(params: Sequence[Tensor]) -> int:
    return sum([p.grad._version for p in params if p.grad is not None])


def _put_first(hooks: dict[int, Any], handle: RemovableHandle) -> None:
    """Have a hook called before the others, which were there earlier."""
    own, others = hooks.pop(handle.id), dict(hooks)
    hooks.clear()
    hooks.update({handle.id: own, **others})


def _check_same(before: float, after: float) -> None:
    if before != after and not math.isnan(before):
        raise ValueError(
            f"the closure changes gradients after backward() has made them: the norm of one was {before:.4g} "
            f"and is {after:.4g}. Clipped or rescaled gradients of two points do not compare: give the "
            "optimizer clip_norm=, which shortens the step, and scale the loss in place of its gradient "
            "(Lightning: leave gradient_clip_val out)"
        )


def _check_hooks(came: Tensor, p: Tensor) -> bool:
    """Refuse hooks that change a gradient other than by a linear function and a term of its own, as clipping does.

    Hooks that do not make the same of the same gradient, because they draw or count, cannot be told. Returns whether
    they were tried, which calls them once more each time.
    """
    assert p.grad is not None
    assert p._backward_hooks is not None
    if torch.equal(came, p.grad) or not torch.isfinite(came).all():
        return False
    hooks = list(p._backward_hooks.values())
    nothing, half, whole, again = (_through(hooks, scale * came) for scale in (0.0, 0.5, 1.0, 1.0))
    if not torch.equal(whole, again):
        return True
    off, tolerance = (whole - 2 * half + nothing).abs().max().item(), max(1e-3, 8 * torch.finfo(came.dtype).eps)
    if off > tolerance * (whole.abs().max() + nothing.abs().max()).item():
        raise ValueError(
            "a hook of a parameter changes its gradient out of proportion: what it makes of half of it is off by "
            f"{off:.4g}. Clipped gradients of two points do not compare: remove the hook, and give the optimizer "
            "clip_norm=, which shortens the step"
        )
    return True


def _through(hooks: Sequence[Callable[[Tensor], Tensor | None]], gradient: Tensor) -> Tensor:
    for hook in hooks:
        changed = hook(gradient)
        gradient = gradient if changed is None else changed
    return gradient
