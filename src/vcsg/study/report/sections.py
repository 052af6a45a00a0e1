"""What a report is about: the runs in the folders, by workload, and what the study.json beside them asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vcsg.study.records import FORMAT, Row, RunRecord, load
from vcsg.study.targets import METRICS, Target
from vcsg.study.view.summary import Claim, Line, summarise


@dataclass
class Section:
    """One workload of the report."""

    workload: str
    runs: list[RunRecord] = field(default_factory=list)
    search: list[RunRecord] = field(default_factory=list)
    """The short runs that chose a step size."""
    targets: list[Target] = field(default_factory=list)
    claim: Claim | None = None
    """What the paper says of this workload."""
    commands: list[str] = field(default_factory=list)
    """That made the records."""
    jobs: int = 1
    """Runs that shared the machine."""
    lines: list[Line] = field(default_factory=list)

    @property
    def protocols(self) -> list[str]:
        return list(dict.fromkeys(line.protocol for line in self.lines))

    def of(self, protocol: str) -> list[Line]:
        return [line for line in self.lines if line.protocol == protocol]


def sections(folders: Sequence[Path]) -> list[Section]:
    """The workloads of the folders, in the order of their paths.

    Every study.json in or below the folders belongs to the workload that it names; runs need none.
    """
    found: dict[str, Section] = {}
    for run in load(*folders):
        section = found.setdefault(run.config.workload, Section(run.config.workload))
        (section.search if run.config.role == "search" else section.runs).append(run)
    for path in sorted({path.resolve() for folder in folders for path in folder.rglob("study.json")}):
        _add(found, path)
    for section in found.values():
        section.lines = summarise(section.runs, section.targets)
    return list(found.values())


def _add(found: dict[str, Section], path: Path) -> None:
    study = read_study(path)
    section = found.setdefault(study["workload"], Section(study["workload"]))
    targets = [Target(target["metric"], target["value"]) for target in study.get("targets") or []]
    claim = study.get("claim")
    if claim:
        section.claim = claim
        targets.append(Target(claim["metric"], claim["target"]))
    section.targets += [target for target in dict.fromkeys(targets) if target not in section.targets]
    section.jobs = max(section.jobs, study.get("jobs") or 1)
    if study.get("command") and study["command"] not in section.commands:
        section.commands.append(study["command"])


def read_study(path: Path) -> Row:
    """A study.json, checked as far as the report goes by it."""
    try:
        study: Row = json.loads(path.read_text(encoding="utf-8"))
        if study["format"] > FORMAT:
            raise ValueError(f"{path} has format {study['format']}, this version reads up to {FORMAT}: upgrade vcsg")
        targets = [(target["metric"], target["value"]) for target in study.get("targets") or []]
        claim = study.get("claim")
        targets += [(claim["metric"], claim["target"])] if claim else []
        if study["workload"] and not {metric for metric, _ in targets} <= set(METRICS):
            raise KeyError(f"metrics are {', '.join(METRICS)}")
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not that of a study ({error!r}): remove it, or leave the folder out") from error
    return study
