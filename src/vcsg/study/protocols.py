"""The rules under which methods are compared: which methods, with which options, and where their step size comes from.

default: every method with the defaults of this library; L is estimated by each for itself, within its budget.
paper:   as the paper sets them: VCSG as printed, its own baselines in place of SVRG and SGD, and one L for all.
tuned:   mini-batches of comparable sizes, and the step size by a search, of the same budget for every method; the
         mini-batch size too, where sizes to search are given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from vcsg.method import make
from vcsg.method.step_rules import step_rule
from vcsg.names import suggestion
from vcsg.study import methods
from vcsg.study.baselines import BASELINES
from vcsg.study.methods import Options
from vcsg.study.settings import MethodSettings

PROTOCOLS = ("default", "paper", "tuned")
PAPER = {"svrg": "paper-svrg", "sgd": "paper-sgd"}
"""The baselines of the paper, with the weight ½."""
OPTIONS: dict[str, dict[str, Options]] = {
    "default": {},
    "paper": {"vcsg": {"paper": True}, "scsg": {"b": 16}},
    "tuned": {
        "vcsg": {"b_min": 16},
        "scsg": {"b": 16},
        "svrg": {"b": 64},
        "sgd": {"b": 64},
        "sgd-momentum": {"b": 64},
        "adamw": {"b": 64},
        "torch-muon": {"b": 64},
        "schedule-free-adamw": {"b": 64},
        "prodigy": {"b": 64},
    },
}
"""Options by protocol and method; other methods keep their defaults.

The paper does not say which mini-batches SCSG had. It gets about the n^¼ of the others, for at b = 1 most of its time
goes into Python. Per gradient b = 1 did better (docs/results); --set scsg.b=1 runs it so."""


SIZES = {"vcsg": "b_min"}
"""The option that a search over mini-batch sizes sets, where it is not b: VCSG chooses b itself, above b_min."""


def size_option(method: str) -> str:
    """The option that a search over mini-batch sizes sets."""
    return SIZES.get(method, "b")


@dataclass(frozen=True)
class Entry:
    """A method under a protocol: one line of the table."""

    protocol: str
    method: str
    options: Options
    """The options that are the same for all seeds and known before anything is run."""
    search_b: tuple[int, ...] = ()
    """The mini-batch sizes to search, of which `options` has the first."""

    def option(self, name: str) -> Any:
        """The value of an option, given or by default."""
        return self.options.get(name, methods.parameters(self.method)[name].default)

    @property
    def label(self) -> str:
        """The name in tables; a mini-batch size that is to be searched is no part of it."""
        return methods.label(
            self.method,
            {key: v for key, v in self.options.items() if key != size_option(self.method) or not self.search_b},
        )

    def with_b(self, b: int) -> Entry:
        """The entry with a mini-batch size that a search has found."""
        return replace(self, options={**self.options, size_option(self.method): b}, search_b=())

    @property
    def path(self) -> str:
        """The path of its runs, below "runs" in a study's folder."""
        return f"{self.protocol}/{self.method}"


def entries(
    names: Iterable[str], protocols: Iterable[str], settings: MethodSettings, search_b: tuple[int, ...] = ()
) -> tuple[Entry, ...]:
    """The entries of a study: methods under every protocol, or under one alone, as in "tuned:sgd-momentum".

    With `search_b`, the protocol tuned searches these mini-batch sizes for every method that has an option b, and as
    the least b for VCSG.
    """
    protocols = list(protocols)
    pairs = [pair for name in names for pair in _pairs(name, protocols)]
    settings.check(dict.fromkeys(method for _, method in pairs))
    found = [_entry(protocol, method, settings, search_b) for protocol, method in dict.fromkeys(pairs)]
    if search_b and not any(entry.search_b for entry in found):
        sizes = ", ".join(map(str, search_b))
        raise ValueError(f"search-b = {sizes}: no method under the protocol tuned has an option b; leave it out")
    if len({entry.options.get("L") for entry in found if entry.protocol == "paper"}) > 1:
        raise ValueError("the protocol paper gives all methods one L: set L for all of them, or for none")
    # By protocol, for that is how they are read.
    return tuple(entry for protocol in PROTOCOLS for entry in found if entry.protocol == protocol)


def check_protocol(name: str) -> None:
    if name not in PROTOCOLS:
        raise ValueError(f"no protocol {name!r}: {suggestion(name, list(PROTOCOLS))}")


def _pairs(name: str, protocols: list[str]) -> list[tuple[str, str]]:
    prefix, _, method = name.rpartition(":")
    methods.check_name(method)
    own = [prefix] if prefix else protocols
    for protocol in own:
        check_protocol(protocol)
        if protocol == "paper" and method in BASELINES:
            raise ValueError(f"{method} is not of the paper: run it as default:{method} or tuned:{method}")
    return [(protocol, PAPER.get(method, method) if protocol == "paper" else method) for protocol in own]


def _entry(protocol: str, method: str, settings: MethodSettings, search_b: tuple[int, ...]) -> Entry:
    given = settings.of(method)
    if protocol == "tuned" and {"lr", "L"} & set(given):
        raise ValueError(f"the protocol tuned chooses the step size: leave lr and L of {method} out, or use default")
    if protocol == "paper" and "lr" in given:
        raise ValueError(f"the protocol paper has step sizes of its own: leave lr of {method} out, or use default")
    options = OPTIONS[protocol].get(method, {}) | given
    if protocol != "tuned" or not search_b or size_option(method) not in methods.parameters(method):
        return Entry(protocol, method, options)
    size = size_option(method)
    if size in given:
        raise ValueError(f"search-b chooses the mini-batch size: leave {size} of {method} out, or do without search-b")
    return Entry(protocol, method, {**options, size: search_b[0]}, search_b)


def smoothness_method(entry: Entry, among: Iterable[Entry]) -> tuple[str, Options] | None:
    """The method, and its options, that estimates the L which an entry has to be given; None where it needs none.

    `paper`: VCSG for all, so that there is one L. `tuned`: the method itself, for the step that the search begins
    with. SGD with momentum has its L from plain SGD with the same mini-batches, and AdamW has none.
    """
    if {"lr", "L"} & set(entry.options) or not methods.needs_L(entry.method, entry.options):
        return None
    if entry.protocol == "paper":
        printed = OPTIONS["paper"]["vcsg"]
        return "vcsg", next((e.options for e in among if (e.protocol, e.method) == ("paper", "vcsg")), printed)
    if entry.method in BASELINES:
        return "sgd", {"b": entry.option("b")} if "b" in methods.parameters(entry.method) else {}
    return (entry.method, entry.options) if entry.protocol == "tuned" else None


def default_step(entry: Entry, L: float | None) -> float:
    """The step size that the search calls 1: what `lr` alone would be (see `vcsg.FiniteSumOptimizer`)."""
    if entry.method in BASELINES:
        given = entry.options if L is None else {**entry.options, "L": L}
        return BASELINES[entry.method]([torch.zeros(1, 1, requires_grad=True)], 1, seed=0, **given).lr
    own = {key: value for key, value in entry.options.items() if key not in methods.COMMON}
    method = make(entry.method, **own)
    if "step" in entry.options:
        method = replace(method, step=step_rule(entry.options["step"]))
    if L is None or not method.needs_L:
        return float(entry.options.get("lr", method.base))
    return method.base / L
