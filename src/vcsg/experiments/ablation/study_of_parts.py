"""The ablation as a whole: its sizes, its runs, and what is made of the records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from vcsg.experiments import sheet
from vcsg.experiments.ablation import network
from vcsg.experiments.ablation.ablated_costs import AblationSetting, comparisons
from vcsg.experiments.ablation.ablation_table import print_setting, print_verdicts
from vcsg.experiments.ablation.convex import ConvexDesign, convex_costs, convex_pieces
from vcsg.experiments.ablation.network import NetworkDesign
from vcsg.experiments.ablation.variants import CHAIN, VARIANTS
from vcsg.experiments.complexity.families import DIMENSION
from vcsg.experiments.conducting import conduct
from vcsg.experiments.drawing import draw_all
from vcsg.training.interrupt import Interrupt

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS = ("network", "convex")
_CHAIN = tuple(one.key for one in reversed(CHAIN))
_ALL = tuple(dict.fromkeys([*_CHAIN, *(one.key for one in VARIANTS)]))
"""VCSG itself comes first: a part of the runs is then a comparison already."""


@dataclass(frozen=True)
class AblationDesign:
    """What is run, on the network and on the convex problem."""

    network: NetworkDesign
    convex: ConvexDesign


SIZES = {
    "quick": AblationDesign(NetworkDesign(_CHAIN, 1, 3, 0.5, 2.0), ConvexDesign(1000, 1e-2, 2, 400)),
    "default": AblationDesign(NetworkDesign(_ALL, 2, 12, 0.5, 0.2), ConvexDesign(10_000, 1e-3, 5, 1000)),
    "full": AblationDesign(NetworkDesign(_ALL, 5, 30, 0.25, 0.05), ConvexDesign(50_000, 1e-4, 10, 2000)),
}
"""What each size runs."""


class Ablation:
    """The ablation in a folder."""

    def __init__(self, size: str, folder: Path, jobs: int, command: str, only: str = "") -> None:
        if size not in SIZES:
            raise ValueError(f"size {size!r}: choose one of {', '.join(SIZES)}")
        if only and only not in SETTINGS:
            raise ValueError(f"only = {only!r}: choose {' or '.join(SETTINGS)}, or leave it out for both")
        if jobs < 1:
            raise ValueError(f"jobs = {jobs}: give a whole number, at least 1")
        self._design, self._folder, self._jobs, self._command = SIZES[size], folder, jobs, command
        self._wanted = (only,) if only else SETTINGS

    def measure(self, console: Console, interrupt: Interrupt) -> tuple[bool, dict[str, str]]:
        """Do what is left to do; returns whether all is done, and why runs failed, by name."""
        own, study = self._design.convex, None
        if "network" in self._wanted:  # what is wrong with it is found before anything runs
            study = network.make_study(self._design.network, self._network, self._jobs, self._command)
        if "convex" in self._wanted and not conduct(
            convex_pieces(own), own, own.identity(), self._folder, self._jobs, console, interrupt
        ):
            return False, {}
        if study is None:
            return True, {}
        done = network.conduct_study(study, console, interrupt)
        return not done.interrupted, done.failures

    @property
    def _network(self) -> Path:
        return self._folder / "network"

    def settings(self) -> list[AblationSetting]:
        """What the records say of each setting, the network first."""
        makers = {"network": self._network_setting, "convex": self._convex_setting}
        return [makers[name]() for name in SETTINGS if name in self._wanted]

    def _network_setting(self) -> AblationSetting:
        own = self._design.network
        level = max(network.common_level(self._network), own.target)
        return AblationSetting(
            "network",
            network.WORKLOAD,
            f"a training loss of {own.target:g}",
            network.network_costs(self._network, own.target),
            own.passes,
            network.network_costs(self._network, level) if math.isfinite(level) else {},
            f"a training loss of {level:.3g}",
            "seeds",
        )

    def _convex_setting(self) -> AblationSetting:
        own = self._design.convex
        costs = convex_costs(self._folder, own)
        goal = f"‖∇f‖² ≤ {own.eps:g}"
        return AblationSetting("convex", f"least squares, n = {own.n:,}", goal, costs, own.passes, costs, goal, "draws")

    def show(self, console: Console, report: bool = True) -> list[Path]:
        """Print tables and verdicts; with `report`, draw the figures and write the page. Returns the files."""
        found = self.settings()
        for setting in found:
            print_setting(console, setting)
        print_verdicts(console, found)
        if not report or not any(comparisons(setting) for setting in found):
            return []
        from vcsg.experiments.ablation.ablation_figure import ratio_figure
        from vcsg.experiments.ablation.ablation_page import ablation_body

        figures: dict[str, Callable[[], Figure]] = {
            setting.key: partial(ratio_figure, setting) for setting in found if comparisons(setting)
        }
        made = draw_all(figures, self._folder / "figures")
        page = ablation_body(found, list(self._setups()), self._command)
        return [*made, sheet.write_page("The parts of VCSG, one by one", page, self._folder / "report.html")]

    def _setups(self) -> Iterator[str]:
        net, convex = self._design.network, self._design.convex
        if "network" in self._wanted:
            yield (
                f"Network: {network.WORKLOAD}, {net.seeds} seeds, {net.passes:g} passes each, evaluated every "
                f"{net.every:g} passes. Every variant estimates L at the same first anchor with the same mini-batches, "
                "so that all have one L per seed. ε and σ are derived from the variance, as VCSG does by default. The "
                "way from SVRG to VCSG is compared at the lowest training loss that all four methods reached, where "
                "that is above the goal."
            )
        if "convex" in self._wanted:
            yield (
                f"Convex: least squares with d = {DIMENSION}, n = {convex.n:,}, L known, {convex.draws} draws of the "
                f"problem and of the samples, ε = {convex.eps:g} given to all. Calls are counted as in `vcsg "
                "complexity`, to a tenth."
            )
        yield (
            "Every change is made to VCSG with the library's defaults, one at a time. The control has VCSG's step, "
            "batch sizes and lengths of the inner loop, and SVRG's weights (1, −1, 1)."
        )
