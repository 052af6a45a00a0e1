"""One line of a summary for each workload: the paper's claim, its four methods as printed and tuned, and what to use.

Every word follows from the records, so that a page which has the line can be held against them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from vcsg.study.targets import Target
from vcsg.study.view.sections import Section
from vcsg.study.view.summary import PAPERS, Claim, Line, rank
from vcsg.study.view.words import SPACE, amount, measured, target_text

FOUR = ("vcsg", "scsg", "svrg", "sgd")
"""The methods of the paper's comparison."""
HEADS = ("claimed for VCSG", "as printed", "tuned", "what to use")


@dataclass(frozen=True)
class Verdict:
    """What the records of one workload say of the paper's claim."""

    claim: str
    printed: str
    """The paper's four methods under the protocol paper."""
    tuned: str
    """The same under the protocol tuned."""
    use: str
    """The method that came to the target first without tuning, and the first of all where that is another."""

    def row(self, title: str) -> str:
        """The verdict as a line of a table in Markdown."""
        return f"| {' | '.join((title, *astuple(self)))} |"


def head() -> str:
    """The head of the table in Markdown."""
    return f"| | {' | '.join(HEADS)} |\n|{'---|' * (len(HEADS) + 1)}"


def verdict(section: Section) -> Verdict:
    """The verdict on the claim about a workload, which a study has written down beside its records."""
    if section.claim is None:
        raise ValueError(f"the paper claims nothing of {section.workload}: give the records of `vcsg reproduce`")
    claim = section.claim
    target = Target(claim["metric"], claim["target"])
    return Verdict(
        _claimed(claim, target),
        _told([_fastest(section.of("paper"), PAPERS.get(name, name)) for name in FOUR], target),
        _told([_fastest(section.of("tuned"), name) for name in FOUR], target),
        _use(section.lines, target),
    )


def _claimed(claim: Claim, target: Target) -> str:
    speedups = ", ".join(f"{times:g} × than {name.upper()}" for name, times in claim["speedup"].items())
    if claim.get("up_to"):
        speedups = f"by up to {max(claim['speedup'].values()):g} ×"
    seconds = f" in {claim['seconds']:g} s" if claim.get("seconds") else ""
    return _plain(f"{target_text(target)}{seconds}, faster {speedups}")


def _told(lines: Iterable[Line | None], target: Target) -> str:
    return "; ".join(_way(line, target) for line in lines if line is not None) or "not run"


def _way(line: Line, target: Target) -> str:
    """What a method took to the target; where it did not get there with most of its seeds, where it ended."""
    seconds, passes = (line.to_target[str(target)][unit] for unit in ("seconds", "passes"))
    if seconds.median is not None:
        took = f"{line.label}: {amount('seconds', seconds.median)}, {amount('passes', passes.median)} passes"
        return _plain(took + (f" ({seconds.count} of {seconds.of} seeds)" if seconds.count < seconds.of else ""))
    reached = f"{seconds.count} of {seconds.of} seeds" if seconds.count else "not reached"
    end = line.final.get(target.metric)
    where = f", ends at {measured(target.metric, end.median)}" if end and end.median is not None else ""
    return _plain(f"{line.label}: {reached}{where}")


def _use(lines: list[Line], target: Target) -> str:
    """The fastest with nothing to tune, and the fastest of all, each once."""
    untuned = [line for line in lines if line.protocol == "default"]
    firsts = [min(own, key=lambda line: _time(line, target)) for own in (untuned, lines) if own]
    shown = dict.fromkeys(
        _way(line, target) + (f" ({line.protocol})" if line.protocol != "default" else ", nothing tuned")
        for line in firsts
        if math.isfinite(_time(line, target)[0])
    )
    return "; ".join(shown) or "none came there"


def _time(line: Line, target: Target) -> tuple[float, ...]:
    median = line.to_target[str(target)]["seconds"].median
    return (math.inf if median is None else median, *rank(line))


def _fastest(lines: list[Line], method: str) -> Line | None:
    return min((line for line in lines if line.method == method), key=rank, default=None)


def _plain(text: str) -> str:
    return text.replace(SPACE, " ")
