"""Methods by name: `register` adds one, `make` builds one with options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar, overload

from vcsg.method.definition import Method
from vcsg.names import check_new, suggestion

Factory = TypeVar("Factory", bound=Callable[..., Method])
_REGISTRY: dict[str, Callable[..., Method]] = {}
ELSEWHERE = {
    "momentum": "choose vcsg.Momentum, where it is beta=",
    "nesterov": "choose vcsg.Momentum",
    "betas": "the two are beta= and beta2=",
    "learning_rate": "that is lr=",
    "epochs": "give passes= to `batches` or `fit`",
    "optimizer": "give the name of a method as method=",
    "scheduler": "step it in a loop of your own",
    "shuffle": "samples are always drawn at random",
    "sampler": "samples are drawn uniformly; a weight of each belongs in the loss",
    "num_workers": "for `fit` that is workers=",
    "callbacks": "one function for the record of every epoch is callback=",
    "verbose": "for `fit` that is progress=",
    **dict.fromkeys(("val", "val_data", "validation_data", "eval_data"), "for `fit` that is test="),
}
"""What options of other libraries are called here."""


@overload
def register(function: Factory, /, *, replace: bool = False) -> Factory: ...


@overload
def register(*, replace: bool = False) -> Callable[[Factory], Factory]: ...


def register(function: Factory | None = None, /, *, replace: bool = False) -> Factory | Callable[[Factory], Factory]:
    """Make a function returning a `Method` known by its name, with dashes for underscores.

    Use it as `@register`. A name that exists already is refused, except by `@register(replace=True)`.
    """
    if function is None:
        return lambda given: _add(given, replace)
    return _add(function, replace)


def _add(function: Factory, replace: bool) -> Factory:
    name = function.__name__.replace("_", "-")
    check_new("method", name, _REGISTRY, replace)
    for option, parameter in inspect.signature(function).parameters.items():
        if parameter.default is parameter.empty:
            raise TypeError(f"the option {option!r} of the method {name!r} has no default: give it one")
    _REGISTRY[name] = function
    return function


def methods() -> dict[str, Method]:
    """Every registered method by name, with its default options."""
    return {name: function() for name, function in _REGISTRY.items()}


def factory(name: str) -> Callable[..., Method]:
    """The function that makes the registered method `name`; its parameters are the method's options."""
    if name not in _REGISTRY:
        raise ValueError(f"no method {name!r}: {suggestion(name, _REGISTRY)}")
    return _REGISTRY[name]


def make(name: str, **options: object) -> Method:
    """The registered method `name` with the given options."""
    return build(factory(name), options)


def build(function: Callable[..., Method], options: Mapping[str, object]) -> Method:
    """function(**options), where an unknown option names the nearest known one."""
    known = list(inspect.signature(function).parameters)
    for option in options:
        if option not in known:
            name = function.__name__.replace("_", "-")
            elsewhere = f"{ELSEWHERE[option]}. " if option in ELSEWHERE else ""
            raise TypeError(f"{name} has no option {option!r}: {elsewhere}{suggestion(option, known)}")
    return function(**options)
