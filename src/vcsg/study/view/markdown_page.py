"""The outcome of a study as a page in Markdown, for a repository or a wiki: from the records alone, like the others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from vcsg.files import write_text
from vcsg.study.view.findings import findings
from vcsg.study.view.sections import Section
from vcsg.study.view.summary import ClaimRow, claim_rows
from vcsg.study.view.tables import columns, notes, title
from vcsg.study.view.words import SPACE

CLAIM_HEADS = ("protocol", "VCSG faster than", "claimed", "measured, seconds", "measured, gradients", "remark")

LEAST = 5
"""The rank from which on columns are left out: what they tell, others tell too."""


def write_page(found: Sequence[Section], path: Path, pictures: Iterable[Path] = ()) -> Path:
    """Write the page, with links to pictures that were drawn for it; returns its path."""
    shown = [f"![{picture.stem}]({_beside(picture, path)})" for picture in pictures if picture.suffix == ".png"]
    parts = ["\n\n".join(blocks(section)) for section in found]
    write_text(path, "\n\n".join([*parts, *shown]) + "\n")
    return path


def blocks(section: Section) -> list[str]:
    """The parts of the page on one workload: title, commands, findings, the paper's claims, tables, notes."""
    said = "\n".join(f"- {_plain(sentence)}" for sentence in findings(section))
    commands = ["```sh\n" + "\n".join(section.commands) + "\n```"] if section.commands else []
    claims = [claim_table(section)] if section.claim else []
    tables = [result_table(section, number) for number in range(len(section.targets) or 1)]
    return [f"# {title(section.workload, section.runs)}", *commands, said, *claims, *tables, *_notes(section)]


def claim_table(section: Section) -> str:
    """What the paper claims beside what was measured, in every protocol."""
    assert section.claim is not None
    return _table(CLAIM_HEADS, [_claim_cells(row) for row in claim_rows(section.claim, section.lines)])


def _claim_cells(row: ClaimRow) -> list[str]:
    claimed = "–" if row.claimed is None else f"{row.claimed:g} ×"
    other = row.label or row.rival.upper()
    return [row.protocol, other, claimed, str(row.seconds), str(row.ifo), row.remark]


def result_table(section: Section, target: int = 0) -> str:
    """One line for each method, fastest first in its protocol: the way to a target by its number, and the end."""
    aim = section.targets[target] if section.targets else None
    shown = [column for column in columns(section.lines, aim) if column.rank < LEAST]
    heads = [column.heading.replace("\n", " ") for column in shown]
    return _table(heads, [[_on_one_line(column.cell(line)) for column in shown] for line in section.lines])


def _notes(section: Section) -> list[str]:
    several = any(line.seeds > 1 for line in section.lines)
    medians = ["Numbers are medians over the seeds, with the least and the largest in brackets."] if several else []
    return [_plain(" ".join([*medians, *notes(section.runs, section.targets)]))]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_plain(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _on_one_line(cell: str) -> str:
    """A cell of the terminal's table, whose second line is a range."""
    first, _, rest = cell.partition("\n")
    return f"{first} ({rest})" if rest else first


def _plain(text: str) -> str:
    return text.replace(SPACE, " ")


def _beside(picture: Path, page: Path) -> str:
    return Path(os.path.relpath(picture.resolve(), page.resolve().parent)).as_posix()
