"""The state of an optimizer: what of it is saved, what is refused of a saved one, and how its tensors are loaded."""

from __future__ import annotations

import itertools
from typing import Any

from torch.optim.optimizer import Optimizer

from vcsg.run.point import placed


def without_means(held: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """The tensors of each parameter but m, of which each rank has a part where an anchor is split."""
    return {index: {k: t for k, t in tensors.items() if k != "mean"} for index, tensors in held.items()}


def saved_run(state_dict: dict[str, Any]) -> dict[str, Any]:
    """What a saved state holds of the run; refused where it is of another kind of optimizer."""
    saved: dict[str, Any] | None = state_dict.get("vcsg")
    if saved is None:
        raise ValueError(
            "this is not the state of a vcsg optimizer that has begun: it has no entry 'vcsg'. Where its n was not "
            "known yet, make the optimizer with n=len(dataset) and batch_size=, or call optimizer.expect(loader) first "
            "(for Accelerate, vcsg.integrations.prepare does)"
        )
    return saved


def check_settings(saved: dict[str, Any], own: dict[str, Any]) -> None:
    """Refuse a state that was saved with other settings than the optimizer's own."""
    for name, value in sorted(own.items(), key=lambda item: item[0] == "method"):  # a method's name says least of why
        if saved.get(name) != value:
            theirs, ours = repr(saved.get(name)), repr(value)
            if name == "method":
                theirs, ours = _parting(str(saved.get(name)), value), _parting(value, str(saved.get(name)))
            raise ValueError(
                f"the state was saved with {name} = {theirs}, this optimizer has {ours}: make it with the same options"
            )


def _parting(method: str, other: str) -> str:
    """The name of a method, and the first word of its description in which it differs from another."""
    words, others = method.split(", "), other.split(", ")
    first = next((k for k, (a, b) in enumerate(zip(words, others, strict=False)) if a != b), 0)
    return ", … ".join([words[0], words[first]] if first else words[:1]) + ", …)"


def check_shapes(optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
    """Refuse a state of a model of other shapes, which torch would load."""
    indices = itertools.chain.from_iterable(group["params"] for group in state_dict["param_groups"])
    params = itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups)
    for k, (index, p) in enumerate(zip(indices, params, strict=False)):  # torch refuses another number of them
        for name, held in state_dict["state"].get(index, {}).items():
            if name != "table" and held.shape != p.shape:
                raise ValueError(
                    f"the state was saved with parameter {k} of shape {tuple(held.shape)}, this optimizer's has "
                    f"{tuple(p.shape)}: make it for the same model, its parameters in the same order"
                )


def place_tensors(optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
    """Copy the saved tensors of each parameter, in the width that they have.

    Torch casts what it loads to the parameter's dtype; means and tables of half-precision ones are wider.
    """
    indices = itertools.chain.from_iterable(group["params"] for group in state_dict["param_groups"])
    params = itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups)
    for index, p in zip(indices, params, strict=True):
        held = state_dict["state"].get(index, {})
        optimizer.state[p] = {name: placed(value, p) for name, value in held.items()}
