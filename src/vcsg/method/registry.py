"""Methods by name: `register` adds one, `make` builds one with options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

from vcsg.method.definition import Method
from vcsg.names import nearest

Factory = TypeVar("Factory", bound=Callable[..., Method])
_REGISTRY: dict[str, Callable[..., Method]] = {}


def register(function: Factory) -> Factory:
    """Make a function returning a `Method` known by its name, with dashes for underscores."""
    _REGISTRY[function.__name__.replace("_", "-")] = function
    return function


def methods() -> dict[str, Method]:
    """Every registered method by name, with its default options."""
    return {name: function() for name, function in _REGISTRY.items()}


def factory(name: str) -> Callable[..., Method]:
    """The function that makes the registered method `name`; its parameters are the method's options."""
    if name not in _REGISTRY:
        raise ValueError(f"no method {name!r}: {nearest(name, _REGISTRY)}")
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
            raise TypeError(f"{name} has no option {option!r}: {nearest(option, known)}")
    return function(**options)
