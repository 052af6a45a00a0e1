"""The headline of the report: the paper's claims beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from vcsg.study.report.markup import Markup, tag, text
from vcsg.study.report.table import Cell, number, spread_cell, table, words
from vcsg.study.targets import Target
from vcsg.study.view.sections import Section
from vcsg.study.view.summary import ClaimRow, Speedup, claim_rows
from vcsg.study.view.words import amount, target_text

NOTE = (
    "Speed-ups are ratios of medians over seeds. ≥: only VCSG reached the target, so the other would need at least "
    "what it spent; ≤: only the other did. Time is that of training, on the machine below and not the paper's; "
    "gradients of single samples are the measure that depends on no machine. In the protocol “paper” SVRG and SGD are "
    "the paper's baselines, with their weight ½."
)


def claims(sections: list[Section]) -> Markup:
    """A row for every claim, the protocols side by side; nothing where there is no claim."""
    claimed = [(section, claim_rows(section.claim, section.lines)) for section in sections if section.claim]
    protocols = list(dict.fromkeys(row.protocol for _, found in claimed for row in found))
    rows: list[list[Cell]] = []
    for section, found in claimed:
        rows += [*_own_time(section, found, protocols), *_speedups(section, found, protocols)]
    if not rows:
        return text()
    heads = ["workload", "target", "VCSG faster than", "claimed"]
    for protocol in protocols:
        heads += [f"{protocol or 'measured'}: time", f"{protocol or 'measured'}: gradients"]
    return text(table("How much faster VCSG is", [*heads, "remarks"], rows), tag("p", NOTE, class_="note"))


def _speedups(section: Section, found: list[ClaimRow], protocols: list[str]) -> Iterator[list[Cell]]:
    for rival in dict.fromkeys(row.rival for row in found):
        own = {row.protocol: row for row in found if row.rival == rival}
        claimed = next(iter(own.values())).claimed
        cells = [*_which(section), words(rival.upper()), number(claimed, _times(section, claimed))]
        for protocol in protocols:
            row = own.get(protocol)
            cells += [_speedup(row.seconds if row else None), _speedup(row.ifo if row else None)]
        remarks = [f"{name}: {row.remark}" if name else row.remark for name, row in own.items() if row.remark]
        yield [*cells, words("; ".join(remarks))]


def _own_time(section: Section, found: list[ClaimRow], protocols: list[str]) -> Iterator[list[Cell]]:
    """A row with VCSG's own time, where the paper gives it."""
    own = {row.protocol: row for row in found if row.claimed_seconds is not None}
    if not own:
        return
    seconds = next(iter(own.values())).claimed_seconds
    cells = [*_which(section), words("(its own time)"), Cell(amount("seconds", seconds), None, True)]
    for protocol in protocols:
        row = own.get(protocol)
        cells += [spread_cell(row.own_seconds, "seconds") if row else number(None, ""), number(None, "")]
    yield [*cells, words("the paper's machine is not known")]


def _speedup(speedup: Speedup | None) -> Cell:
    value = speedup.value if speedup else None
    return number(value, tag("strong", str(speedup)))


def _which(section: Section) -> tuple[Cell, Cell]:
    claim = section.claim or {}
    return words(section.workload), Cell(target_text(Target(claim["metric"], claim["target"])), claim["target"])


def _times(section: Section, claimed: float | None) -> str:
    up_to = "up to " if section.claim and section.claim.get("up_to") else ""
    return "–" if claimed is None else f"{up_to}{claimed:g}×"
