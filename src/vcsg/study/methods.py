"""The methods and baselines that a study can run, by name: their options, and how an optimizer is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from vcsg.method import registry
from vcsg.method.step_rules import Plain, step_rule
from vcsg.names import suggestion
from vcsg.optimizer import FiniteSumOptimizer
from vcsg.run.record import Record
from vcsg.study.baselines import BASELINES
from vcsg.training.stepper import Stepper

Options = dict[str, Any]

COMMON = ("lr", "L", "step", "weight_decay", "decoupled_weight_decay", "clip_norm", "output", "variance", "chunk")
"""The options of `vcsg.FiniteSumOptimizer` that a study may set."""
LABELS = {
    "vcsg": "VCSG",
    "scsg": "SCSG",
    "svrg": "SVRG",
    "sgd": "SGD",
    "gd": "GD",
    "paper-svrg": "the paper's SVRG",
    "paper-sgd": "the paper's SGD",
    "spider": "SPIDER",
    "page": "PAGE",
    "storm": "STORM",
    "saga": "SAGA",
    "snvrg": "SNVRG",
    "alpha-svrg": "α-SVRG",
    "sgd-momentum": "SGD, momentum",
    "adamw": "AdamW",
    "torch-muon": "Muon (torch)",
    "schedule-free-adamw": "schedule-free AdamW",
    "prodigy": "Prodigy",
    "momentum": "momentum (ours)",
    "adam": "Adam (ours)",
    "muon": "Muon (ours)",
    "mars": "MARS",
}
"""The names of methods in tables; a method that is not listed goes by its own name."""
KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word", "None": "none"}


def names() -> list[str]:
    """The names of all methods and baselines."""
    return [*registry.methods(), *BASELINES]


def check_name(name: str) -> None:
    if name not in names():
        raise ValueError(f"no method {name!r}: {suggestion(name, names())}")


def anchored(name: str) -> bool:
    """Whether the method is one of the family and has an anchor."""
    return name in registry.methods() and registry.make(name).anchored(1)


def needs_L(name: str, options: Mapping[str, Any]) -> bool:
    """Whether the step size of a method comes from the smoothness constant."""
    if name in BASELINES:
        return "L" in parameters(name)
    step = options.get("step")
    return registry.make(name).needs_L if step is None else isinstance(step_rule(step), Plain)


def reduces_variance(name: str) -> bool | None:
    """Whether the method corrects mini-batch gradients by those at an anchor; None for a method not known here.

    It is read off the weights: those of the gradient here, of the one at the anchor and of the anchor's mean are all
    non-zero in some step. SGD has no anchor, and GD no mini-batch.
    """
    if name in registry.methods():
        return any(all(weights) for weights in registry.make(name).choices)
    return False if name in BASELINES else None


def parameters(name: str) -> dict[str, inspect.Parameter]:
    """The options of a method, its own first."""
    check_name(name)
    if name in BASELINES:
        own = inspect.signature(BASELINES[name]).parameters
        return {key: p for key, p in own.items() if key not in ("params", "n", "seed")}
    common = inspect.signature(FiniteSumOptimizer.__init__).parameters
    return dict(inspect.signature(registry.factory(name)).parameters) | {key: common[key] for key in COMMON}


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an option that the method does not have, or a value of the wrong kind; the method checks its range."""
    known = parameters(name)
    for key, value in options.items():
        if key not in known:
            raise ValueError(f"{name} has no option {key!r}: {suggestion(key, list(known))}")
        kinds = _kinds(known[key])
        if not any(_fits(value, kind) for kind in kinds):
            words = " or ".join(KINDS.get(kind, kind) for kind in kinds)
            raise ValueError(f"{key} = {value!r} (option of {name}): give {words}")


def _kinds(parameter: inspect.Parameter) -> list[str]:
    """The kinds of values that an option takes, read off its annotation."""
    noted = parameter.annotation
    return (noted if isinstance(noted, str) else inspect.formatannotation(noted)).split(" | ")


def _fits(value: Any, kind: str) -> bool:
    if kind == "None":
        return value is None
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, {"bool": bool, "str": str}.get(kind, object))


def make(
    name: str,
    model: nn.Module,
    n: int,
    options: Mapping[str, Any],
    seed: int,
    callback: Callable[[Record], None] | None = None,
) -> Stepper:
    """Make the optimizer of a model, by the name of the method."""
    check_options(name, options)
    if name in BASELINES:
        return BASELINES[name](model.parameters(), n, seed=seed, **options)
    return FiniteSumOptimizer(model.parameters(), n, name, buffers=model, seed=seed, callback=callback, **options)


def label(name: str, options: Mapping[str, Any]) -> str:
    """What tables and figures call the method: its name, and its options but for the step size."""
    shown = {key: value for key, value in options.items() if key not in ("lr", "L")}
    suffix = f" {shown.pop('momentum', 0.9)}" if name == "sgd-momentum" else ""
    suffix += " as printed" if shown.pop("paper", False) else ""
    parts = [LABELS.get(name, name) + suffix, *(f"{key}={value}" for key, value in shown.items())]
    return ", ".join(parts)
