"""What can be seen of a closure from outside: how many rows its model is given."""

from __future__ import annotations

import logging
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

LOOKS = 2
"""How many evaluations at the start of a run are looked at."""
BETWEEN = 997
"""Of how many steps one is looked at after that."""

logger = logging.getLogger("vcsg")


class RowCounter:
    """Counts the rows that the first module called in a closure is given, which are the samples of its batch.

    That module is remembered: from the second time on it alone is looked at, and a compiled model runs as ever.
    """

    def __init__(self) -> None:
        self.rows: int | None = None
        """The length of the first tensor that a module was given in this step; None where none was."""
        self._module: weakref.ref[nn.Module] | None = None

    def counted(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure of a step, counted at its first evaluation."""
        self.rows = None
        return _first(self._evaluate, closure)

    @property
    def module(self) -> nn.Module | None:
        return None if self._module is None else self._module()

    def _evaluate(self, closure: Callable[[], Any]) -> Any:
        with ExitStack() as stack:
            self._remove: Callable[[], None] = _hooked(stack, self.module, self._look)
            try:
                return closure()
            finally:
                self._remove = _nothing
                if self.rows is None:
                    self._module = None

    def _look(self, module: nn.Module, given: Any) -> None:
        tensors = [t for t in given if isinstance(t, Tensor) and t.dim() and not _hides_rows(t)]
        if tensors and self.rows is None:
            self.rows, self._module = len(tensors[0]), weakref.ref(module)
        if tensors or hasattr(module, "_orig_mod"):
            self._remove()  # so that the modules inside, compiled ones above all, are called as ever

    def __getstate__(self) -> dict[str, Any]:
        return {"rows": None, "_module": None}


class ModelRows:
    """Refuses a closure that hands its model fewer rows than its batch has samples.

    The model is the first module called that has all parameters in it. Rows of several calls are added up, as a batch
    may be evaluated in parts. More rows than samples are no fault (nodes of graphs, two views of an image, all samples
    of which some are picked), nor is a tensor with the samples along another axis, nor a call with tensors by name.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._model: weakref.ref[nn.Module] | None = None

    @property
    def model(self) -> nn.Module | None:
        return None if self._model is None else self._model()

    def checked(self, closure: Callable[[], Any], params: Sequence[Tensor], samples: int) -> Callable[[], Any]:
        """The closure of a step with so many samples, looked at now and then, at its first evaluation."""
        self._steps += 1
        if samples < 2 or (self._steps > LOOKS and self._steps % BETWEEN):
            return closure
        return _first(lambda own: self._evaluate(own, params, samples), closure)

    def _evaluate(self, closure: Callable[[], Any], params: Sequence[Tensor], samples: int) -> Any:
        calls: list[list[tuple[int, ...]]] = []
        remove: Callable[[], None] = _nothing

        def look(module: nn.Module, given: Any) -> None:
            nonlocal remove
            model = self.model
            if model is None and _holds(module, params):
                self._model = weakref.ref(module)
                remove()  # so that the modules inside, compiled ones above all, are called as ever
                remove = _hooked(stack, module, look)
                model = module
            if model is module:
                seen = [] if _has_named() else given
                tensors = [t for t in seen if isinstance(t, Tensor) and not t.is_nested]
                calls.append([] if any(map(_hides_rows, tensors)) else [tuple(t.shape) for t in tensors])

        with ExitStack() as stack:
            remove = _hooked(stack, self.model, look)
            loss = closure()
        if not calls:
            self._model = None
        elif all(shapes and all(shape and samples not in shape for shape in shapes) for shapes in calls):
            _check_rows(sum(max(shape[0] for shape in shapes) for shapes in calls), samples)
        return loss

    def __getstate__(self) -> dict[str, Any]:
        return {"_steps": 0, "_model": None}


def _first(look: Callable[[Callable[[], Any]], Any], closure: Callable[[], Any]) -> Callable[[], Any]:
    """The closure, whose first evaluation goes by way of `look`."""
    first = True

    def evaluate() -> Any:
        nonlocal first
        looked_at, first = first, False
        return look(closure) if looked_at else closure()

    return evaluate


def _hides_rows(tensor: Tensor) -> bool:
    """Whether a tensor is inside torch.vmap, where it has no axis of samples."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def _has_named() -> bool:
    """Whether the call that a hook is told of has tensors by name, of which torch does not tell it; True if unknown."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name in ("inner", "_call_impl", "_wrapped_call_impl"):
        if frame.f_code.co_name == "_call_impl":
            return any(isinstance(value, Tensor) for value in frame.f_locals.get("kwargs", {}).values())
        frame = frame.f_back
    return True


def telling_of_new_buffers(closure: Callable[[], Any], model: nn.Module) -> Callable[[], Any]:
    """The closure, which warns at its first evaluation where that makes a buffer of the model another tensor."""

    def look(own: Callable[[], Any]) -> Any:
        before = dict(model.named_buffers())
        loss = own()
        assigned = [name for name, b in model.named_buffers() if name in before and before[name] is not b]
        if assigned:
            logger.warning(
                "the model assigns its buffer %s anew in a forward pass: evaluations at the anchor change it too; make "
                "the optimizer with buffers=model, or let the model change the buffer in place",
                assigned[0],
            )
        return loss

    return _first(look, closure)


def has_statistics(module: nn.Module) -> bool:
    """Whether a forward pass of the module changes running statistics, as those of BatchNorm."""
    return any(own.training and getattr(own, "running_mean", None) is not None for own in module.modules())


def _holds(module: nn.Module, params: Sequence[Tensor]) -> bool:
    own = {id(p) for p in module.parameters()}
    return all(id(p) in own for p in params)


def _check_rows(rows: int, samples: int) -> None:
    if rows < samples:
        raise ValueError(
            f"the model was given {rows} rows, and the batch has {samples} samples: let the closure evaluate all of "
            f"them, or where rows are not samples, say how many there are: optimizer.step(closure, samples={samples})"
        )


def _hooked(stack: ExitStack, module: nn.Module | None, look: Callable[[nn.Module, Any], None]) -> Callable[[], None]:
    """Have a function look at what this module is given, or where none is known every one; returns what ends that."""
    if module is None or isinstance(module, torch.jit.ScriptModule):  # which takes no hook of its own
        stack.enter_context(warnings.catch_warnings())
        # That it fires an extra time, as torch says of compiled models, does no harm.
        warnings.filterwarnings("ignore", message="Using `torch.compile", category=UserWarning)
        handle = register_module_forward_pre_hook(look)
    else:
        handle = module.register_forward_pre_hook(look)
    stack.callback(handle.remove)
    return handle.remove


def _nothing() -> None:
    """Do nothing: there is no hook to remove."""
