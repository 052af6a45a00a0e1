"""The experiments of the paper (l.381), on the data sets that are found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vcsg import workloads
from vcsg.names import suggestion
from vcsg.study.compare import make_study
from vcsg.study.plan import Study
from vcsg.study.targets import Target
from vcsg.workloads.claims import CLAIMS

PAIRINGS = {
    "mnist": "mnist/lenet-300-100",
    "cifar10": "cifar10/lenet-5",
    "tiny-imagenet": "tiny-imagenet/vgg-16",
}
"""The workload for each data set. The paper does not say which network it ran on which data set."""
METHODS = ("vcsg", "scsg", "svrg", "sgd", "tuned:sgd-momentum", "tuned:adamw")
PROTOCOLS = ("paper", "tuned")
BUDGET = "30passes"


def available(data_sets: Sequence[str], data_dir: str | None) -> tuple[list[str], list[str]]:
    """The data sets that are found, and those that are missing; all of the paper's where none is named."""
    for name in data_sets:
        if name not in PAIRINGS:
            raise ValueError(f"the paper has no data set {name!r}: {suggestion(name, list(PAIRINGS))}")
    listed = {listing.name: listing for listing in workloads.names(data_dir)}
    asked = list(dict.fromkeys(data_sets)) or list(PAIRINGS)
    found = [name for name in asked if PAIRINGS[name] in listed and listed[PAIRINGS[name]].files is not None]
    return found, [name for name in asked if name not in found]


def paper_study(data_set: str, folder: Path, *, data_dir: str | None = None, **options: object) -> Study:
    """The study of one data set: both protocols, with the target of the paper's claim."""
    workload = PAIRINGS[data_set]
    claim = CLAIMS[workload]
    return make_study(
        workload,
        folder,
        methods=METHODS,
        protocols=PROTOCOLS,
        targets=[Target(claim.metric, claim.target)],
        data_dir=data_dir,
        **options,  # type: ignore[arg-type]
    )
