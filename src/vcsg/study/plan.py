"""The plan of a study: what is compared, under which rules, and what its folder holds.

study.json                            what was asked for
smoothness/PROTOCOL/METHOD/seed-K.json   an L that was estimated for a protocol
search/METHOD/trial-K/                the short runs that chose a step size, and b where that was searched
runs/PROTOCOL/METHOD/seed-K/          the runs
figures/, report.html                 what was made of them
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from vcsg.files import write_text
from vcsg.study import imports
from vcsg.study.budgets import Budget
from vcsg.study.methods import anchored
from vcsg.study.protocols import PROTOCOLS, Entry, size_option
from vcsg.study.records import FORMAT, Row
from vcsg.study.search import LEAST_PASSES, SHARE, TRIALS
from vcsg.study.targets import METRICS, Target
from vcsg.training.saving import CHECKPOINT_SECONDS
from vcsg.version import __version__


@dataclass(frozen=True)
class Study:
    """Every entry with every seed, with the same initial weights per seed and the same budget."""

    folder: Path
    workload: str
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...]
    budget: Budget
    every: float
    """Passes between evaluations."""
    targets: tuple[Target, ...] = ()
    trials: int = TRIALS
    """Short runs in every search for a step size; for the first mini-batch size, where several are searched."""
    share: float = SHARE
    """The share of the budget that each of these short runs gets."""
    search_budget: Budget | None = None
    """What each of these short runs may spend, in place of that share."""
    stop_at_target: bool = False
    """Whether a run ends at the evaluation by which it has reached every target."""
    device: str = "cpu"
    threads: int = 1
    data_dir: str | None = None
    n: int = 0
    L: float | None = None
    """The smoothness constant, where the workload knows it."""
    claim: Row | None = None
    command: str = ""
    """The command that makes the study."""
    imports: tuple[str, ...] = ()
    """Files and modules of the user's own that the study needs, loaded already; see `vcsg.study.imports`."""
    jobs: int = field(default=1, compare=False)
    """How many runs are made at a time."""
    search_jobs: int | None = field(default=None, compare=False)
    """How many searches are made at a time, whose runs are not judged by their seconds; None: as many as `jobs`."""
    checkpoint_seconds: float = field(default=CHECKPOINT_SECONDS, compare=False)
    """Seconds between two checkpoints of a run."""

    @property
    def gradients(self) -> bool:
        """Whether ‖∇f‖² is measured at every evaluation: a target asks for it, or the problem is an analytic one."""
        return self.L is not None or any(target.metric == "grad_norm2" for target in self.targets)

    @property
    def trial_budget(self) -> Budget:
        """The budget of the short runs of all searches: longer where a method with anchors is among those searched."""
        if self.search_budget is not None:
            return self.search_budget
        searched = [entry.method for entry in self.entries if entry.protocol == "tuned"]
        return self.budget.part(self.share, self.n, LEAST_PASSES if any(map(anchored, searched)) else 1.0)

    def identity(self) -> Row:
        """Everything that must stay the same when a study is continued, as JSON holds it."""
        found: Row = {
            "workload": self.workload,
            "methods": {entry.path: _asked(entry) for entry in self.entries},
            "seeds": list(self.seeds),
            "budget": self.budget.as_dict(),
            "every": self.every,
            "targets": [str(target) for target in self.targets],
            "trials": self.trials,
            "trial_share": self.share,
            "device": self.device,
            "threads": self.threads,
            "vcsg": __version__,
            "torch": torch.__version__,
        }
        if any(entry.protocol == "tuned" for entry in self.entries):
            found["search_budget"] = self.trial_budget.as_dict()
        if self.stop_at_target:
            found["stop_at_target"] = True
        if self.imports:
            found["imports"] = imports.digests(self.imports)
        return dict(json.loads(json.dumps(found)))

    def as_json(self) -> Row:
        return {
            "format": FORMAT,
            "commands": [self.command] if self.command else [],
            "workload": self.workload,
            "protocols": [name for name in PROTOCOLS if any(entry.protocol == name for entry in self.entries)],
            "targets": [asdict(target) for target in self.targets],
            "claim": self.claim,
            "methods": [entry.path for entry in self.entries],
            "seeds": list(self.seeds),
            "budget": self.budget.as_dict(),
            "jobs": self.jobs,
            "imports": list(self.imports),
            "identity": self.identity(),
        }


def _asked(entry: Entry) -> Row:
    sizes = {size_option(entry.method): list(entry.search_b)} if entry.search_b else {}
    return {**entry.options, **sizes}


KINDS = {"run.json": "a single run", "study.json": "a study", "design.json": "an experiment"}
"""What a folder holds, by the file that is in it."""


def check_place(folder: Path, own: str = "study.json") -> None:
    """Refuse a folder that holds something else than what has the file `own`."""
    for name, what in KINDS.items():
        if name != own and (folder / name).exists():
            raise ValueError(f"{folder} holds {what}: give another folder for {KINDS.get(own, 'this')}")


def begin(study: Study) -> None:
    """Write study.json; a study that is in the folder already has to be the same one, but for its methods and seeds.

    A study may grow by methods and by seeds, and a part of it may be asked for: what is there stays, and study.json
    names all of it. Its first seed stays, with which searches are made.
    """
    check_place(study.folder)
    path, found = study.folder / "study.json", study.as_json()
    if path.exists():
        earlier = read(study.folder)
        differences = _differences(earlier["identity"], found["identity"])
        if differences:
            raise ValueError(
                f"{study.folder} holds another study ({'; '.join(differences)}): give another folder, or remove it"
            )
        found = _together(earlier, found)
    study.folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(found, indent=1) + "\n")


def _together(earlier: Row, asked: Row) -> Row:
    """What study.json says of a study that was asked for in parts."""
    before, now = earlier["identity"], asked["identity"]
    both = {**before, **now, "methods": {**before["methods"], **now["methods"]}}
    both["seeds"] = _union(before["seeds"], now["seeds"])
    return asked | {
        "commands": _union(commands_of(earlier), asked["commands"]),
        "protocols": _union(earlier["protocols"], asked["protocols"]),
        "methods": list(both["methods"]),
        "seeds": both["seeds"],
        "imports": _union(earlier.get("imports") or [], asked["imports"]),
        "identity": both,
    }


def _union(first: list[Any], second: list[Any]) -> list[Any]:
    return list(dict.fromkeys([*first, *second]))


def commands_of(study: Row) -> list[str]:
    """The commands that made a study, as study.json has them."""
    return list(study.get("commands") or filter(None, [study.get("command")]))


def read(folder: Path) -> Row:
    """Read the study.json of a folder."""
    path = folder / "study.json"
    try:
        found = dict(json.loads(path.read_text(encoding="utf-8")))
        if found["format"] > FORMAT:
            raise ValueError(f"{path} has format {found['format']}, this version reads up to {FORMAT}: upgrade vcsg")
        _check_content(found)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not the file of a study ({error!r}): remove it, or choose another folder"
        ) from error
    return found


def _check_content(study: Row) -> None:
    """Raise a KeyError where a study.json lacks a workload, or has a target without a value or a known metric."""
    targets = [(target["metric"], target["value"]) for target in study.get("targets") or []]
    claim = study.get("claim")
    targets += [(claim["metric"], claim["target"])] if claim else []
    if study["workload"] and not {metric for metric, _ in targets} <= set(METRICS):
        raise KeyError(f"metrics are {', '.join(METRICS)}")


def _differences(earlier: Row, asked: Row) -> list[str]:
    return [
        f"{name} was {_short(earlier.get(name))}, now {_short(value)}"
        for name, value in (dict.fromkeys(earlier) | asked).items()
        if earlier.get(name) != value and not _fits(name, earlier.get(name), value)
    ]


def _fits(name: str, earlier: Any, asked: Any) -> bool:
    """Whether what is asked for can stand beside what was there before."""
    if name == "methods":
        return isinstance(earlier, dict) and all(earlier[path] == asked[path] for path in earlier.keys() & asked.keys())
    if name == "search_budget":
        return earlier is None or asked is None  # no method was searched before, or none is now
    if name == "imports":
        return asked is None or (isinstance(earlier, dict) and earlier.items() <= asked.items())
    return name == "seeds" and earlier[:1] == asked[:1]


def _short(value: Any) -> str:
    if isinstance(value, dict):
        parts = [f"{key} {_short(item)}" if item != {} else str(key) for key, item in value.items()]
        return ", ".join(parts)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
