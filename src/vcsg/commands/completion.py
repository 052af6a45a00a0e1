"""What a shell may complete: names of workloads, methods, data sets and devices, read when they are asked for."""

from __future__ import annotations


def workloads(incomplete: str) -> list[str]:
    """The workloads whose names begin so."""
    from vcsg.workloads import names

    return [listing.name for listing in names() if listing.name.startswith(incomplete)]


def data_sets(incomplete: str) -> list[str]:
    """The data sets whose names begin so."""
    from vcsg.workloads import data_sets as known

    return [name for name in known() if name.startswith(incomplete)]


def paper_data_sets(incomplete: str) -> list[str]:
    """The data sets of the paper whose names begin so."""
    from vcsg.study.reproduce import PAIRINGS

    return [name for name in PAIRINGS if name.startswith(incomplete)]


def method(incomplete: str) -> list[str]:
    """The methods whose names begin so."""
    from vcsg.study.methods import names

    return [name for name in names() if name.startswith(incomplete)]


def methods(incomplete: str) -> list[str]:
    """The same for the last word of a list that is separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in method(last)]


def protocols(incomplete: str) -> list[str]:
    """The protocols whose names begin so, for the last word of a list that is separated by commas."""
    from vcsg.study.protocols import PROTOCOLS

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in PROTOCOLS if name.startswith(last)]


def devices(incomplete: str) -> list[str]:
    """The devices of this machine whose names begin so."""
    import torch

    known = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    known += [f"cuda:{k}" for k in range(torch.cuda.device_count())]
    return [name for name in known if name.startswith(incomplete)]
