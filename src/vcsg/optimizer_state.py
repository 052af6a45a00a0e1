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
            "known yet, make the optimizer with n=len(dataset) and batch_size=, or call optimizer.expect(loader) first"
        )
    return saved


def check_settings(saved: dict[str, Any], own: dict[str, Any]) -> None:
    """Refuse a state that was saved with other settings than the optimizer's own."""
    for name, value in own.items():
        if saved.get(name) != value:
            raise ValueError(
                f"the state was saved with {name} = {saved.get(name)!r}, this optimizer has {value!r}: "
                "make it with the same options"
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
