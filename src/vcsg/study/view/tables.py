"""The outcome of a study as a table for a terminal, from its records alone; a narrow one gets fewer columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from vcsg.study.methods import anchored
from vcsg.study.records import Row, RunRecord
from vcsg.study.targets import Target
from vcsg.study.view.summary import Line, Spread, summarise

WIDTH = 132
"""The width of the text where there is no terminal, in characters."""


@dataclass(frozen=True)
class Column:
    heading: str
    cell: Callable[[Line], str]
    rank: int
    """The rank of a column: the highest are left out first where there is no room, 0 is always shown."""
    right: bool = True


class Lasting(Console):
    """A console that may be closed, as by `head`: nothing more is shown, and files are written all the same."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self.file.fileno())


def console(stderr: bool = False, quiet: bool = False) -> Console:
    """A console on stdout or stderr. Without a terminal its text has a fixed width, no colour and no control codes."""
    made = Lasting(stderr=stderr, quiet=quiet)
    return made if made.is_terminal else Lasting(stderr=stderr, quiet=quiet, width=WIDTH, no_color=True)


def tables(runs: list[RunRecord], targets: list[Target], width: int) -> list[Table]:
    """The tables of runs: one per workload and target, or one per workload where there is no target."""
    lines = summarise(runs, targets)
    made = []
    for workload in dict.fromkeys(line.workload for line in lines):
        own = [line for line in lines if line.workload == workload]
        heading = title(workload, [run for run in runs if run.config.workload == workload])
        each: list[Target | None] = list(targets) or [None]
        made += [_fitting(heading, own, target, width) for target in each]
    return made


def title(workload: str, runs: list[RunRecord]) -> str:
    """The name of a workload, its number of samples, and the seeds of its runs."""
    seeds = sorted({run.config.seed for run in runs if run.config.role == "run"})
    named = ", ".join(map(str, seeds))
    size = f"n = {runs[0].config.n:,}"
    size = "" if workload.endswith(size) else f" ({size})"
    return f"{workload}{size}, seed{'s' * (len(seeds) > 1)} {named}"


def _fitting(heading: str, lines: list[Line], target: Target | None, width: int) -> Table:
    """A table with as many columns as the width has room for."""
    known = columns(lines, target)
    for rank in sorted({column.rank for column in known}, reverse=True):
        table = _table(heading, lines, [column for column in known if column.rank <= rank])
        if Console(width=1000).measure(table).maximum <= width:
            break
    return table


def _table(heading: str, lines: list[Line], shown: list[Column]) -> Table:
    made = Table(title=heading, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left", title_style="bold")
    for column in shown:
        made.add_column(column.heading, justify="right" if column.right else "left", no_wrap=True)
    for line in lines:
        made.add_row(*(column.cell(line) for column in shown))
    return made


def columns(lines: list[Line], target: Target | None) -> list[Column]:
    """The columns that tell of lines of one workload: the way to the target, or what was spent, and the end."""
    protocols = len({line.protocol for line in lines})
    made = [Column("method", lambda line: named(line), 0, right=False)]
    if protocols > 1:
        made.append(Column("protocol", lambda line: line.protocol, 1, right=False))
    made += _spent() if target is None else _to_target(str(target))
    known = {metric for line in lines for metric in line.final}
    finals = {
        "train_loss": ("training\nloss", lambda v: f"{v:.2g}", 3),
        "test_error": ("test\nerror", lambda v: f"{v:.2%}", 0),
        "test_error_top5": ("top-5\nerror", lambda v: f"{v:.2%}", 0 if target and "top5" in target.metric else 5),
        "grad_norm2": ("‖∇f‖²", lambda v: f"{v:.2g}", 4 if "test_error" in known else 0),
    }
    made += [
        Column(heading, _final(metric, show), rank)
        for metric, (heading, show, rank) in finals.items()
        if metric in known
    ]
    if target is None and "test_error" in known:
        best = min((e for line in lines if (e := line.final["test_error"].median) is not None), default=None)
        made.append(Column("ratio\nto best", _error_ratio(best), 2))
    return made


def named(line: Line) -> str:
    """The label of a method, and how many of its runs did not finish."""
    lost = [f"{count} {status}" for status, count in line.status.items() if status != "finished"]
    return line.label + (f" ({', '.join(lost)})" if lost else "")


def _spent() -> list[Column]:
    return [
        Column("passes", _final("passes", lambda v: f"{v:.1f}"), 1),
        Column("gradients", _final("ifo", count), 6),
        Column("seconds", _final("seconds", duration), 0),
    ]


def _to_target(target: str) -> list[Column]:
    """The columns of the way to a target: medians over the seeds, with their ranges."""

    def cell(unit: str, show: Callable[[float], str]) -> Callable[[Line], str]:
        return lambda line: spread(line.to_target[target][unit], show)

    def reached(line: Line) -> str:
        found = line.to_target[target]["seconds"]
        if found.of == 1:
            return "yes" if found.count else "not reached"
        return f"{found.count} of {found.of} seeds" if found.count else "not reached"

    def ratio(line: Line) -> str:
        value = line.ratio[target]
        return "–" if value is None else f"{value:.2f}"

    return [
        Column(f"{target}\nreached", reached, 0, right=False),
        Column("passes\nto it", cell("passes", lambda v: f"{v:.1f}"), 1),
        Column("gradients\nto it", cell("ifo", count), 6),
        Column("seconds\nto it", cell("seconds", duration), 0),
        Column("ratio\nto best", ratio, 2),
    ]


def _final(metric: str, show: Callable[[float], str]) -> Callable[[Line], str]:
    return lambda line: spread(line.final[metric], show) if metric in line.final else "–"


def _error_ratio(best: float | None) -> Callable[[Line], str]:
    def cell(line: Line) -> str:
        median = line.final["test_error"].median if "test_error" in line.final else None
        return f"{median / best:.2f}" if median is not None and best else "–"

    return cell


def spread(found: Spread, show: Callable[[float], str]) -> str:
    """The median, and in a second line the range over the seeds."""
    if found.median is None:
        return "–"
    if found.of == 1 or found.low is None or found.high is None:
        return show(found.median)
    low, high = show(found.low), show(found.high)
    return show(found.median) if low == high else f"{show(found.median)}\n{low.removesuffix('%')}–{high}"


def count(value: float) -> str:
    """A number of gradients, shortened."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def duration(seconds: float) -> str:
    """A time in seconds, with about three digits."""
    return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.1f}" if seconds < 1000 else f"{seconds:.0f}"


def remarks(runs: list[RunRecord], targets: Iterable[Target]) -> list[str]:
    """What a reader of the table in a terminal has to know, and what went wrong."""
    seeds = {run.config.seed for run in runs if run.config.role == "run"}
    medians = ["Numbers are medians over the seeds, with the least and the largest below them where they differ."]
    return (medians if len(seeds) > 1 else []) + notes(runs, targets) + _about_failures(runs)


def notes(runs: list[RunRecord], targets: Iterable[Target]) -> list[str]:
    """How runs were evaluated, and where L and step sizes came from: the same in a terminal and in the report."""
    own = [run for run in runs if run.config.role == "run"]
    said = []
    if list(targets):
        every = " or ".join(f"{passes:.3g}" for passes in sorted({run.config.every for run in own}))
        said.append(
            f"Runs are evaluated every {every} passes; evaluations count neither as time nor as gradients. A target is "
            "reached at the first evaluation that meets it. Ratios are of the seconds."
        )
    return said + _about_L(own) + _about_searches(own) + _about_stops(own)


def _about_L(runs: list[RunRecord]) -> list[str]:
    """Where a given L came from, and what its estimate cost."""
    said = []
    given = [run for run in runs if "L" in run.notes and "search" not in run.notes]
    for protocol in dict.fromkeys(run.config.protocol for run in given):
        own = [run for run in given if run.config.protocol == protocol]
        values = " / ".join(f"{L:.3g}" for L in dict.fromkeys(run.notes["L"]["L"] for run in own))
        cost = max(run.notes["L"]["ifo"] / run.config.n for run in own)
        whom = "all methods" if protocol == "paper" else " and ".join(dict.fromkeys(run.config.label for run in own))
        source = f"estimated; the estimate took {cost:.1f} passes, which the table does not count" if cost else "known"
        said.append(f"{protocol or 'L'}: L = {values} (by seed) for {whom}, {source}.")
    return said


def _about_searches(runs: list[RunRecord]) -> list[str]:
    tuned = {run.config.label: run for run in runs if "search" in run.notes}
    if not tuned:
        return []
    found = [f"{name}: {_chosen(run)}" for name, run in tuned.items()]
    spent = [run.notes["search"]["ifo"] + run.notes.get("L", {}).get("ifo", 0) for run in tuned.values()]
    passes = max(spent) / next(iter(tuned.values())).config.n
    counts = sorted({run.notes["search"]["trials"] for run in tuned.values()})
    trials = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    searched = any(len(set(run.notes["search"].get("b_tried", []))) > 1 for run in tuned.values())
    sizes = " and mini-batch sizes" if searched else ""
    return [
        f"tuned: {trials} short runs per method chose the step sizes{sizes}; they took up to {passes:.0f} passes, "
        f"which the table does not count. {'; '.join(found)}."
    ]


def _about_stops(runs: list[RunRecord]) -> list[str]:
    """What runs that ended at their target say about the columns of the end."""
    stopped = [run for run in runs if run.notes.get("stopped") == "target"]
    if not stopped:
        return []
    return [
        f"{len(stopped)} of {len(runs)} runs were ended where they had reached every target: what stands for the end "
        "is not after equal budgets."
    ]


def b_at_edge(search: Row) -> bool:
    """Whether a search chose the smallest or the largest of several mini-batch sizes."""
    return bool(search.get("b_at_edge")) and len(set(search.get("b_tried", []))) > 1


def _chosen(run: RunRecord) -> str:
    search = run.notes["search"]
    doubts = [f"{search['factor']:.3g} × the default"]
    if search["at_edge"]:
        doubts.append("at the edge of what was tried")
    if b_at_edge(search):
        doubts.append(f"b = {search['b']} at the edge of those tried")
    if search.get("epoch") == 1 and anchored(run.config.method):
        doubts.append("judged within the first epoch")
    return f"{search['lr']:.3g} ({', '.join(doubts)})"


def _about_failures(every: list[RunRecord]) -> list[str]:
    runs = [run for run in every if run.config.role == "run"]
    said = [
        f"{run.config.label}, seed {run.config.seed}: {run.message or run.status}."
        for run in runs
        if run.status in ("failed", "interrupted", "running")
    ]
    for run in runs:
        warnings = run.notes.get("warnings", [])
        diverged = sum(text.startswith("diverged") for text in warnings)
        told = [text for text in warnings if not text.startswith("diverged")]
        if diverged:
            times = "once; it" if diverged == 1 else f"{diverged} times; each time it"
            told.insert(0, f"diverged {times} went back and halved its step.")
        said += [f"{run.config.label}, seed {run.config.seed}: {text}" for text in told]
    return said
