"""The experiments of the paper (l.381), on the data sets that are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vcsg import workloads
from vcsg.names import suggestion
from vcsg.study.compare import make_study
from vcsg.study.methods import check_name
from vcsg.study.plan import Study
from vcsg.study.protocols import check_protocol
from vcsg.study.search import LEAST_PASSES
from vcsg.study.targets import Target
from vcsg.workloads.claims import CLAIMS

PAIRINGS = {
    "mnist": "mnist/lenet-300-100",
    "cifar10": "cifar10/lenet-5",
    "cifar10-vgg-16": "cifar10/vgg-16",
    "tiny-imagenet": "tiny-imagenet/vgg-16",
}
"""The workloads by the names that a user gives: a data set, or one with a second network.

The paper does not say which network it ran on which data set."""
METHODS = {
    "paper": ("vcsg", "scsg", "svrg", "sgd"),
    "tuned": ("vcsg", "scsg", "svrg", "sgd", "sgd-momentum", "adamw", "torch-muon"),
    "default": ("vcsg", "sgd", "auto"),
}
"""The methods of each protocol: the paper's four as printed; the corrected ones beside rivals, all tuned; and what
needs no tuning. SCSG and SVRG are not among these, for by default their mini-batch is a single sample: on a network
that takes hours. They can be asked for, as default:scsg."""
BUDGET = "30passes"


def choose(names: Sequence[str], protocols: Sequence[str]) -> list[str]:
    """The methods as PROTOCOL:METHOD: those that are named, or all, under the protocols that are named, or all."""
    for protocol in protocols:
        check_protocol(protocol)
    wanted = [protocol for protocol in METHODS if protocol in protocols or not protocols]
    if not names:
        return [f"{protocol}:{method}" for protocol in wanted for method in METHODS[protocol]]
    found: list[str] = []
    for name in names:
        own = [f"{protocol}:{name}" for protocol in wanted if name in METHODS[protocol]]
        if ":" not in name and not own:
            check_name(name)
            raise ValueError(f"{name} is not run under {', '.join(wanted)}: name a protocol, such as default:{name}")
        found += own or [name]
    return list(dict.fromkeys(found))


def searched(chosen: Sequence[str]) -> bool:
    """Whether a method of those chosen is under the protocol tuned."""
    return any(name.startswith("tuned:") for name in chosen)


def available(names: Sequence[str], data_dir: str | None) -> tuple[list[str], list[str]]:
    """Of the names in `PAIRINGS`, those whose data are found, and those whose are missing; all if none is given."""
    for name in names:
        if name not in PAIRINGS:
            raise ValueError(f"the paper has no data set {name!r}: {suggestion(name, list(PAIRINGS))}")
    listed = {listing.name: listing for listing in workloads.names(data_dir)}
    asked = list(dict.fromkeys(names)) or list(PAIRINGS)
    found = [name for name in asked if PAIRINGS[name] in listed and listed[PAIRINGS[name]].files is not None]
    return found, [name for name in asked if name not in found]


def paper_study(name: str, folder: Path, *, methods: Sequence[str], **options: Any) -> Study:
    """The study of one workload, with the target of the paper's claim.

    Every search has the same length, whichever methods a call asks for: a folder may be filled by several calls.
    """
    claim = CLAIMS[PAIRINGS[name]]
    targets = [Target(claim.metric, claim.target)]
    study = make_study(PAIRINGS[name], folder, methods=methods, targets=targets, **options)
    if study.search_budget is not None:
        return study
    return replace(study, search_budget=study.budget.part(study.share, study.n, LEAST_PASSES))
