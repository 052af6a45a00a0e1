"""The paper's experiments: which methods, a folder that is filled by several calls, and the line of the summary."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from records_sample import write_study
from rich.console import Console
from study_sample import network

from vcsg.study import plan
from vcsg.study import reproduce as paper
from vcsg.study.budgets import Budget
from vcsg.study.compare import conduct
from vcsg.study.outcome import read_sections
from vcsg.study.plan import Study
from vcsg.study.records import load
from vcsg.study.view.verdicts import head, verdict
from vcsg.workloads.claims import CLAIMS, Claim


def test_the_methods_that_a_call_chooses() -> None:
    everything = paper.choose([], [])
    assert everything[:5] == ["paper:vcsg", "paper:scsg", "paper:svrg", "paper:sgd", "tuned:vcsg"]
    assert {"tuned:torch-muon", "default:auto", "default:vcsg"} <= set(everything)
    assert len(everything) == len(set(everything)) == 14
    assert paper.choose([], ["default"]) == ["default:vcsg", "default:sgd", "default:auto"]
    assert paper.choose(["vcsg", "auto", "default:scsg"], []) == [
        "paper:vcsg", "tuned:vcsg", "default:vcsg", "default:auto", "default:scsg",
    ]  # fmt: skip
    assert paper.choose(["adamw"], ["tuned", "default"]) == ["tuned:adamw"]
    assert [paper.searched(names) for names in (everything, ["paper:vcsg"])] == [True, False]
    with pytest.raises(ValueError, match="adamw is not run under paper: name a protocol, such as default:adamw"):
        paper.choose(["adamw"], ["paper"])
    with pytest.raises(ValueError, match="no method 'svgr': did you mean 'svrg'"):
        paper.choose(["svgr"], [])
    with pytest.raises(ValueError, match="no protocol 'printed'"):
        paper.choose([], ["printed"])


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A tiny net in the place of a data set of the paper, with a claim of its own, and a short budget."""
    workload = network(tmp_path)
    monkeypatch.setitem(paper.PAIRINGS, "tiny", workload)
    monkeypatch.setitem(CLAIMS, workload, Claim("test_error", 0.45, {"scsg": 2.0, "svrg": 3.0, "sgd": 4.0}, 16.0))
    return {"budget": Budget(passes=4), "every": 1.0, "trials": 3, "search_b": (8,)}


def make(folder: Path, options: dict[str, Any], *names: str, **changes: Any) -> Study:
    given = options if paper.searched(names) else {**options, "search_b": ()}
    study = paper.paper_study("tiny", folder, methods=list(names), **{**given, **changes})
    found = conduct(study, Console(quiet=True))
    assert (found.interrupted, found.failures) == (False, {})
    return study


def test_a_folder_is_filled_by_several_calls(tmp_path: Path, tiny: dict[str, Any]) -> None:
    """Methods, protocols and seeds come in parts; what is done stays, and every search has the same length."""
    folder = tmp_path / "out"
    make(folder, tiny, "paper:vcsg", "paper:sgd", command="first")
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("evaluations.jsonl")}
    assert len(stamps) == 2
    first = make(folder, tiny, "tuned:sgd-momentum", "default:auto", command="second")
    second = make(folder, tiny, "tuned:svrg", seeds=[0, 1], command="third")
    assert first.trial_budget == second.trial_budget == Budget(passes=4)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    runs = {(r.config.protocol, r.config.method, r.config.seed) for r in load(folder / "runs")}
    assert runs == {
        ("paper", "vcsg", 0), ("paper", "paper-sgd", 0), ("tuned", "sgd-momentum", 0), ("default", "auto", 0),
        ("tuned", "svrg", 0), ("tuned", "svrg", 1),
    }  # fmt: skip
    kept = plan.read(folder)
    assert kept["commands"] == ["first", "second", "third"]
    assert kept["methods"] == ["paper/vcsg", "paper/paper-sgd", "default/auto", "tuned/sgd-momentum", "tuned/svrg"]
    assert kept["seeds"] == [0, 1]
    (section,) = read_sections([folder])
    assert section.commands == ["first", "second", "third"]
    assert verdict(section).use.endswith(("nothing tuned", "(tuned)", "(paper)", "none came there"))
    with pytest.raises(ValueError, match="search_budget was passes 4, now passes 2"):
        make(folder, tiny, "tuned:sgd", search_budget=Budget(passes=2))


def test_the_line_of_the_summary_is_that_of_the_records(tmp_path: Path) -> None:
    """Every number of it, computed again from the evaluations of the runs."""
    (section,) = read_sections([write_study(tmp_path)])
    found, claim = verdict(section), section.claim
    assert claim is not None
    assert found.claim == "test error of 2.5 % in 16 s, faster 2 × than SCSG, 3 × than SVRG, 4 × than SGD"
    firsts: dict[tuple[str, str], tuple[float, float]] = {}
    ends: dict[tuple[str, str], float] = {}
    for protocol in ("paper", "tuned"):
        for method in {r.config.method for r in section.runs if r.config.protocol == protocol}:
            own = [r for r in section.runs if (r.config.protocol, r.config.method) == (protocol, method)]
            rows = [next((row for row in r.evaluations if row["test_error"] <= 0.025), None) for r in own]
            times, passes = (
                statistics.median(math.inf if row is None else row[unit] for row in rows)
                for unit in ("seconds", "passes")
            )
            firsts[protocol, own[0].config.label] = times, passes
            ends[protocol, own[0].config.label] = statistics.median(r.evaluations[-1]["test_error"] for r in own)
    for protocol, cell in (("paper", found.printed), ("tuned", found.tuned)):
        parts = dict(part.split(": ", 1) for part in cell.split("; "))
        assert len(parts) == 4
        for label, told in parts.items():
            times, passes = firsts[protocol, label]
            if math.isinf(times):
                assert told == f"not reached, ends at {100 * ends[protocol, label]:.2f} %" or "of 3 seeds" in told
            else:
                seconds, _, rest = told.partition(" s, ")
                assert float(seconds) == pytest.approx(times, rel=0.05)
                assert float(rest.partition(" passes")[0]) == pytest.approx(passes, rel=0.05)
    best = min(firsts, key=lambda key: firsts[key][0])
    assert found.use.startswith(f"{best[1]}: ")
    assert found.use.endswith(f"({best[0]})")
    lines = [*head().splitlines(), found.row("[MNIST](mnist/README.md)")]
    assert {line.count("|") for line in lines} == {6}
    section.claim = None
    with pytest.raises(ValueError, match="the paper claims nothing of mnist/lenet-300-100"):
        verdict(section)
