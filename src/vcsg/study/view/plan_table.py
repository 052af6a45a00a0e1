"""The plan of a study as a table for a terminal: what will be run, and about how long it will take."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.table import Table

from vcsg.study.plan import Study
from vcsg.study.running.forecast import Forecast


def plan_title(study: Study) -> str:
    """What the plan is of."""
    seeds = f"{len(study.seeds)} seed{'s' * (len(study.seeds) > 1)}"
    return f"The plan: {study.workload} (n = {study.n:,}) on {study.device}, {seeds}"


def plan_table(lines: Sequence[Forecast]) -> Table:
    """A row for the runs of every method and for every search."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading, right in (("method", False), ("protocol", False), ("runs", True), ("passes\neach", True)):
        made.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for heading in ("time\neach", "time\nin all"):
        made.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        times = (duration(line.seconds), duration(line.total))
        made.add_row(line.label, line.protocol or "–", str(line.runs), f"{line.passes:.3g}", *times)
    return made


def plan_sentence(study: Study, lines: Sequence[Forecast]) -> str:
    """The total, in a sentence."""
    runs, total = sum(line.runs for line in lines if line.protocol), sum(line.total for line in lines)
    if not lines:
        return "All runs are made already: nothing is left to do."
    jobs = min(study.jobs, sum(line.runs for line in lines))
    several = f"; {jobs} at a time, about {duration(time_left(study, lines))}" if jobs > 1 else ""
    shared = " if the machine has the cores for them" if several else ""
    return (
        f"{runs} run{'s' * (runs != 1)}, about {duration(total)} with their evaluations{several}{shared}. That is "
        "estimated from a second of each method on this machine as it is now: it may well be half or twice as long."
    )


def time_left(study: Study, lines: Sequence[Forecast]) -> float:
    """The seconds that all of it takes, with as many runs at a time as there are: no less than the longest of them."""
    jobs = max(1, min(study.jobs, sum(line.runs for line in lines)))
    return max([sum(line.total for line in lines) / jobs, *(line.seconds for line in lines)])


def duration(seconds: float) -> str:
    """A time with two digits, in seconds, minutes or hours."""
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= 1.5 * size or unit == "s":
            value = seconds / size
            digits = max(0, 1 - math.floor(math.log10(value))) if value > 0 else 0
            return f"{value:.{min(digits, 3)}f} {unit}"
    raise AssertionError
