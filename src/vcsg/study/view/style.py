"""How methods look, the same in every figure and in the report."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from vcsg.study.records import RunRecord

# Okabe and Ito's colours, told apart by every kind of colour vision; their yellow is too pale for a line.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
GREY = "#8C8C8C"
BROWN = "#7A4B1E"

DASHES: dict[str, tuple[float, ...]] = {
    "solid": (),
    "dash": (4.5, 1.6),
    "dashdot": (5, 1.5, 1, 1.5),
    "dot": (1, 1.3),
    "longdash": (9, 2.2),
    "longdashdot": (9, 1.8, 1, 1.8),
}
"""plotly's names, and the lengths of line and gap in units of the line's width."""


@dataclass(frozen=True)
class Look:
    """The line of a method. The dashes tell the methods of one figure apart in grey as well."""

    colour: str
    dash: str = "solid"

    @property
    def on_dark(self) -> str:
        """The colour on a dark ground."""
        return {BLACK: "#E8E8E8", BLUE: "#2B83CF", BROWN: "#B98350"}.get(self.colour, self.colour)


LOOKS = {
    "vcsg": Look(VERMILLION),
    "scsg": Look(BLUE, "dash"),
    "svrg": Look(SKY, "dashdot"),
    "paper-svrg": Look(PURPLE, "dashdot"),
    "sgd": Look(GREEN, "dot"),
    "paper-sgd": Look(ORANGE, "dot"),
    "sgd-momentum": Look(BLACK, "longdashdot"),
    "adamw": Look(PURPLE, "longdash"),
    "torch-muon": Look(GREY, "longdash"),
    "schedule-free-adamw": Look(GREEN, "longdash"),
    "prodigy": Look(BROWN, "dot"),
    "auto": Look(ORANGE),
    "gd": Look(BLACK),
    "batching-svrg": Look(BLUE),
    "weighted-svrg": Look(GREEN, "dash"),
    "biased-svrg": Look(ORANGE, "dash"),
    "alpha-svrg": Look(ORANGE, "longdash"),
    "spider": Look(GREEN),
    "page": Look(PURPLE),
    "storm": Look(SKY),
    "saga": Look(ORANGE, "dashdot"),
    "snvrg": Look(BLACK, "dash"),
}

OURS = ("auto", "vcsg")
"""The methods that stand out where there are many."""
MANY = 8
"""With more curves than this in one panel, those of `OURS` are thicker than the others."""

REGIMES = {"start": "#4D4D4D", "first": "#F0E442", "second": BLUE}
"""The colours of VCSG's regimes: dark, light and in between, so that they differ in grey too."""


def looks(runs: Iterable[RunRecord]) -> dict[tuple[str, str], Look]:
    """The looks of all methods, by method and label.

    Where a method has two labels in one panel, the second has the next kind of dash.
    """
    panels: dict[tuple[str, str, str], list[str]] = {}
    for config in (run.config for run in runs):
        labels = panels.setdefault((config.workload, config.protocol, config.method), [])
        if config.label not in labels:
            labels.append(config.label)
    kinds, found = list(DASHES), dict[tuple[str, str], Look]()
    for (_, _, method), labels in panels.items():
        for place, label in enumerate(sorted(labels)):
            look = look_of(method)
            dash = kinds[(kinds.index(look.dash) + place) % len(kinds)]
            if place or (method, label) not in found:
                found[method, label] = replace(look, dash=dash)
    return found


def place_of(method: str, label: str = "") -> tuple[int, str, str]:
    """A key for sorting: the methods in the order of `LOOKS`, others after them by name."""
    names = list(LOOKS)
    return names.index(method) if method in LOOKS else len(names), method, label


def look_of(method: str) -> Look:
    """The look of a method by name; a method that is not listed always gets the same look too."""
    if method in LOOKS:
        return LOOKS[method]
    choice = zlib.crc32(method.encode())
    colours, kinds = [BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK], list(DASHES)
    return Look(colours[choice % len(colours)], kinds[choice // len(colours) % len(kinds)])
