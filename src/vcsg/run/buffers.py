"""The buffers of a model, and how what forward passes do to them is undone, whether in place or by assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

Change = tuple[Tensor, Tensor]
"""A buffer, and what it was before an evaluation."""


class Buffers:
    """Buffers by their places: the dictionary that holds each of them, and its name there.

    Those of a module are in the module's own dictionaries. A forward pass may change them in place
    (`self.k.add_(1)`) or assign others (`self.k = self.k + 1`); here that is the same. Of tensors that are given
    without their module no place is known, and only what is done to them in place can be undone. A buffer that holds
    nothing yet is not kept: the first forward pass makes it.
    """

    def __init__(self, given: nn.Module | Iterable[Tensor] = ()) -> None:
        self.of_module = isinstance(given, nn.Module)
        """Whether their places in a module are known."""
        holders: list[Any] = (
            [module._buffers for module in given.modules()]
            if isinstance(given, nn.Module)
            else [dict(enumerate(given))]
        )
        self._places = [(held, name) for held in holders for name, b in held.items() if b is not None]

    def __bool__(self) -> bool:
        return bool(self._places)

    def _present(self) -> list[tuple[Any, Any, Tensor]]:
        """Every place with the tensor that it holds now; without those whose shape no forward pass has told yet."""
        present = ((held, name, held[name]) for held, name in self._places if name in held)
        return [(held, name, b) for held, name, b in present if b is not None and not is_lazy(b)]

    @property
    def tensors(self) -> list[Tensor]:
        """What the places hold now."""
        return [b for _, _, b in self._present()]

    def copies(self) -> list[Tensor]:
        """Copies of them."""
        return [b.detach().clone() for b in self.tensors]

    @contextmanager
    def pointed_at(self, memory: list[Tensor]) -> Iterator[None]:
        """A context in which the buffers have the memory of these tensors. They are what they were after it."""
        present = self._present()
        own = [b.data for _, _, b in present]
        try:
            for (_, _, b), target in zip(present, memory, strict=True):
                b.data = target
            yield
        finally:
            for (held, name, b), data in zip(present, own, strict=True):
                held[name] = b
                b.data = data

    @contextmanager
    def kept(self) -> Iterator[tuple[Callable[[], None], Callable[[], list[Change]]]]:
        """A context that puts the buffers back where it ends by an error; it yields `undo` and `changes`.

        The first puts them back without an error, the second has each buffer with what it was before.
        """
        present, before = self._present(), self.copies()

        def undo() -> None:
            with torch.no_grad():
                for (held, name, b), old in zip(present, before, strict=True):
                    held[name] = b
                    b.copy_(old)

        def changes() -> list[Change]:
            return [(held[name], old) for (held, name, _), old in zip(present, before, strict=True)]

        try:
            yield undo, changes
        except BaseException:
            undo()
            raise

    def hold(self, tensors: list[Tensor]) -> None:
        """The places hold these tensors again, which take the values of what was assigned there since.

        One of another form stays where it was assigned, and so does one for a tensor that two places hold.
        """
        assigned = [
            (held, name, b, new.detach().clone())
            for (held, name, new), b in zip(self._present(), tensors, strict=True)
            if new is not b and _form(new) == _form(b) and sum(t is b for t in tensors) == 1
        ]
        with torch.no_grad():
            for held, name, b, values in assigned:
                held[name] = b
                b.copy_(values)


def _form(b: Tensor) -> tuple[Any, ...]:
    return b.shape, b.dtype, b.device, b.layout
