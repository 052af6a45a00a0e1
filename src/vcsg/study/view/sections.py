"""Records by workload: the runs in some folders, read once, and what the study.json beside them asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from vcsg.study import plan
from vcsg.study.records import RunRecord, load
from vcsg.study.targets import Target
from vcsg.study.view.configurations import compared, named_by_samples, of_workload, repeated
from vcsg.study.view.summary import Claim, Line, summarise


@dataclass
class Section:
    """One workload: its runs, and what was asked of them."""

    workload: str
    records: list[RunRecord] = field(default_factory=list)
    """The runs as they were read."""
    search: list[RunRecord] = field(default_factory=list)
    """The short runs that chose a step size."""
    asked: list[Target] = field(default_factory=list)
    """The targets that a user asked for."""
    claim: Claim | None = None
    """What the paper says of this workload."""
    commands: list[str] = field(default_factory=list)
    """The commands that made the records."""
    jobs: int = 1
    """How many runs shared the machine."""

    @property
    def targets(self) -> list[Target]:
        """The targets that were asked for, and that of the paper's claim."""
        claimed = [Target(self.claim["metric"], self.claim["target"])] if self.claim else []
        return list(dict.fromkeys([*self.asked, *claimed]))

    @cached_property
    def runs(self) -> list[RunRecord]:
        """The runs to compare: labels tell their settings apart, and each seed counts once."""
        return compared(self.records)

    @property
    def repeated(self) -> list[str]:
        """The seeds that were run more than once with the same settings."""
        return repeated(self.records)

    @cached_property
    def lines(self) -> list[Line]:
        """One line per protocol, method and settings, with its numbers over the seeds."""
        return summarise(self.runs, self.targets)

    @property
    def protocols(self) -> list[str]:
        return list(dict.fromkeys(line.protocol for line in self.lines))

    @property
    def evaluated(self) -> list[RunRecord]:
        """The runs that came to a first evaluation."""
        return [run for run in self.runs if run.evaluations]

    def has_runs_in(self, folder: Path) -> bool:
        """Whether a run was read from below the folder, or the short run of a search."""
        return any(folder in run.path.resolve().parents for run in (*self.records, *self.search))

    def of(self, protocol: str) -> list[Line]:
        """The lines of one protocol."""
        return [line for line in self.lines if line.protocol == protocol]

    def aiming_at(self, targets: Sequence[Target]) -> Section:
        """The same runs, looked at with other targets."""
        return replace(self, asked=list(targets))


def sections(folders: Sequence[Path], known: Iterable[RunRecord] = ()) -> list[Section]:
    """The workloads of all runs in or below the folders, in the order of their paths.

    Every study.json in or below the folders belongs to the runs of its workload beside it; runs need none. Each record
    is read once; one that is `known` already is not read again.
    """
    found: dict[str, Section] = {}
    for run in named_by_samples(load(*folders, known=known)):
        section = found.setdefault(run.config.workload, Section(run.config.workload))
        (section.search if run.config.role == "search" else section.records).append(run)
    for path in sorted({path.resolve() for folder in folders for path in folder.rglob("study.json")}):
        _add(found, path)
    return list(found.values())


def _add(found: dict[str, Section], path: Path) -> None:
    """Note what a study.json says in the section of its workload."""
    study = plan.read(path.parent)
    own = [s for s in found.values() if of_workload(s.workload, study["workload"]) and s.has_runs_in(path.parent)]
    targets = [Target(target["metric"], target["value"]) for target in study.get("targets") or []]
    for section in own or [found.setdefault(study["workload"], Section(study["workload"]))]:
        section.asked += [target for target in dict.fromkeys(targets) if target not in section.asked]
        section.claim = study.get("claim") or section.claim
        section.jobs = max(section.jobs, study.get("jobs") or 1)
        section.commands += [line for line in plan.commands_of(study) if line not in section.commands]
