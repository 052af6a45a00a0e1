"""What a study says of itself: the table, how it is to be read, and the verdict, from records made up for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vcsg.study.records import RunConfig, RunRecord
from vcsg.study.targets import Target
from vcsg.study.view.findings import findings
from vcsg.study.view.sections import Section
from vcsg.study.view.summary import Spread
from vcsg.study.view.tables import count, duration, remarks, spread, tables


def run(method: str, error: float | None, seconds: float = 1.0, **changes: Any) -> RunRecord:
    """A run of two evaluations, the last with this test error."""
    seed, protocol, status = (
        changes.get("seed", 0),
        changes.get("protocol", "default"),
        changes.get("status", "finished"),
    )
    label = changes.get("label", method.upper())
    config = RunConfig("w/net", method, label, {}, seed, {"passes": 2.0}, 0.5, protocol, n=1000, tests=2000)
    rows = [
        {"passes": passes, "ifo": 1000 * passes, "seconds": passes * seconds / 2, "train_loss": loss, "grad_norm2": 0.1}
        for passes, loss in ((1.0, 0.7), (2.0, 0.5))
    ]
    for row, value in zip(rows, (0.9, error), strict=True):
        if error is not None:
            row["test_error"] = value
    notes = changes.get("notes", {})
    return RunRecord(Path("x"), config, {}, "", status, changes.get("message", ""), notes, rows)


def shown(runs: list[RunRecord], targets: list[Target], width: int = 200) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        for table in tables(runs, targets, width):
            console.print(table)
    return captured.get()


TARGET = Target("test_error", 0.1)


def test_the_table_has_what_was_needed_and_where_it_ended() -> None:
    runs = [run("vcsg", 0.05, 4.0), run("sgd", 0.08, 2.0), run("svrg", 0.3)]
    rows = {
        line.split()[0]: line.split()[1:] for line in shown(runs, [TARGET]).splitlines() if "E" in line or "G" in line
    }
    assert rows["SGD"] == ["yes", "2.0", "2k", "2.0", "1.00", "0.5", "8.00%", "0.1"]
    assert rows["VCSG"] == ["yes", "2.0", "2k", "4.0", "2.00", "0.5", "5.00%", "0.1"]
    assert rows["SVRG"] == ["not", "reached", "–", "–", "–", "–", "0.5", "30.00%", "0.1"]


def test_seeds_that_did_not_reach_the_target_are_told() -> None:
    runs = [run("vcsg", error, seed=seed) for seed, error in enumerate((0.05, 0.2, 0.3))]
    text = shown(runs, [TARGET])
    assert "1 of 3 seeds" in text
    assert re.search(r"20.00%.*\n.*5.00–30.00%", text)
    runs = [run("vcsg", error, seed=seed) for seed, error in enumerate((0.05, 0.06, 0.3))]
    assert re.search(r"2 of 3 seeds +2.0 ", shown(runs, [TARGET]))


def test_runs_that_did_not_end_are_told() -> None:
    runs = [run("vcsg", 0.05), run("vcsg", 0.5, seed=1, status="failed"), run("sgd", 0.3, status="interrupted")]
    text = shown(runs, [TARGET])
    assert "VCSG (1 failed)" in text
    assert "SGD (1 interrupted)" in text


def test_a_table_per_target_and_workload_and_less_where_it_is_narrow() -> None:
    runs = [run("vcsg", 0.05), run("sgd", 0.04)]
    assert shown(runs, [TARGET, Target("train_loss", 0.6)]).count("w/net (n = 1,000), seed 0") == 2
    assert "gradients" in shown(runs, [TARGET])
    narrow = shown(runs, [TARGET], 60)
    assert "gradients" not in narrow
    for kept in ("method", "reached", "seconds", "error"):
        assert kept in narrow
    assert all(len(line.rstrip()) <= 60 for line in narrow.splitlines())


def test_without_a_target_the_ratio_is_of_the_errors() -> None:
    text = shown([run("vcsg", 0.06), run("sgd", 0.04)], [])
    assert re.search(r"VCSG .* 1.50", text)
    assert re.search(r"SGD .* 1.00", text)


def test_without_test_samples_there_is_no_error() -> None:
    text = shown([run("vcsg", None), run("sgd", None)], [])
    assert "error" not in text
    assert "‖∇f‖²" in text


def test_numbers_are_short() -> None:
    assert [count(v) for v in (12, 1200, 60_100, 3_400_000, 2e9)] == ["12", "1.2k", "60.1k", "3.4M", "2G"]
    assert [duration(v) for v in (0.0123, 3.21, 120, 4321.1)] == ["0.012", "3.2", "120.0", "4321"]
    assert spread(Spread(0.2, 0.1, 0.3, 3, 3), lambda v: f"{v:.0%}") == "20%\n10–30%"
    assert spread(Spread(0.2, 0.2, 0.2, 3, 3), str) == "0.2"
    assert spread(Spread(None, 0.1, 0.1, 1, 3), str) == "–"
    assert spread(Spread(0.2, 0.2, 0.2, 1, 1), str) == "0.2"


def test_remarks_say_what_is_not_in_the_table() -> None:
    L = {"L": 7.5, "source": "", "ifo": 1500, "seconds": 1.0}
    search = {"trials": 7, "lr": 0.3, "factor": 4.0, "at_edge": True, "epoch": 1, "ifo": 20_000}
    runs = [
        run("vcsg", 0.05, protocol="paper", notes={"L": L}),
        run("scsg", 0.05, protocol="tuned", notes={"search": search, "L": L}, seed=1),
        run("sgd", 0.05, protocol="tuned", notes={"search": search, "L": L}, seed=1),
        run("adamw", 0.05, status="failed", message="diverged: the loss is nan"),
        run("gd", 0.05, notes={"warnings": ["diverged: at the first anchor", "diverged: at the second"]}),
        run("saga", 0.05, notes={"warnings": ["diverged: in step 2", "hardly anything was gained so far"]}),
    ]
    said = "\n".join(remarks(runs, [TARGET]))
    assert "medians over the seeds" in said
    assert "Runs are evaluated every 0.5 passes; evaluations count neither as time nor as gradients." in said
    assert (
        "paper: L = 7.5 (by seed) for all methods, estimated; the estimate took 1.5 passes, which the table does"
        in said
    )
    assert "7 short runs per method chose the step sizes; they took up to 22 passes" in said
    assert "SCSG: 0.3 (4 × the default, at the edge of what was tried, judged within the first epoch)" in said
    assert "SGD: 0.3 (4 × the default, at the edge of what was tried)" in said
    assert "ADAMW, seed 0: diverged: the loss is nan." in said
    assert "GD, seed 0: diverged 2 times; each time it went back and halved its step." in said
    assert "SAGA, seed 0: diverged once; it went back and halved its step." in said
    assert "SAGA, seed 0: hardly anything was gained so far" in said


def said(runs: list[RunRecord], targets: list[Target] | None = None, **changes: Any) -> list[str]:
    """The findings, with ordinary spaces."""
    found = findings(Section("w/net", runs, asked=targets or [], **changes))
    return [sentence.replace("\u00a0", " ") for sentence in found]


@pytest.mark.parametrize(
    ("runs", "sentences"),
    [
        (
            [run("sgd", 0.05), run("vcsg", 0.08), run("scsg", 0.12)],
            [
                "Lowest test error at the end: SGD, 5.00 % (standard error over 2,000 test samples: 0.49 %).",
                "By the final test error, variance reduction did not pay: VCSG ended at 8.00 %, SGD at 5.00 %.",
                "By the final test error, VCSG (8.00 %) is ahead of SCSG (12.00 %).",
            ],
        ),
        (
            [run("sgd", 0.08), run("vcsg", 0.05), run("scsg", 0.05)],
            [
                "By the final test error, variance reduction paid: VCSG ended at 5.00 %, SGD at 8.00 %.",
                "By the final test error, VCSG (5.00 %) is not ahead of SCSG (5.00 %).",
            ],
        ),
        (
            [run("sgd", 0.05), run("vcsg", 0.06)],
            ["By the final test error, it is too close to call whether variance reduction paid: VCSG ended at 6.00 %,"],
        ),
        (
            [run("sgd-momentum", 0.04, protocol="tuned", label="M"), run("vcsg", 0.09)],
            [
                "Lowest test error at the end: M (step size tuned), 4.00 %",
                "By the final test error, variance reduction did not pay: VCSG ended at 9.00 %, M at 4.00 %.",
                "That is uneven: the step size of M was searched for, that of VCSG was not.",
            ],
        ),
        (
            [run("sgd", 0.04, protocol="", label="S"), run("vcsg", 0.09)],
            ["That is uneven: S ran by no protocol, VCSG by the protocol default."],
        ),
        (
            [run("sgd-momentum", 0.04, protocol="tuned", label="M"), run("sgd", 0.16), run("vcsg", 0.09)],
            [
                "Lowest test error at the end: M (step size tuned), 4.00 %",
                "By the final test error (protocol default), variance reduction paid: VCSG ended at 9.00 %, SGD at 16.",
            ],
        ),
        (
            [run("sgd", 0.04, protocol="tuned"), run("svrg", 0.09, protocol="tuned"), run("vcsg", 0.08)],
            ["By the final test error (protocol tuned), variance reduction did not pay: SVRG ended at 9.00 %, SGD at"],
        ),
        (
            [run("sgd", None), run("vcsg", None)],
            ["Lowest ‖∇f‖² at the end: SGD, 0.1.", "By the final ‖∇f‖², it is too close to call whether variance"],
        ),
        ([run("sgd", 0.05), run("vcsg", 0.08, status="interrupted")], ["there is nothing to compare"]),
    ],
)
def test_the_findings_follow_from_the_numbers(runs: list[RunRecord], sentences: list[str]) -> None:
    found = "\n".join(said(runs))
    for sentence in sentences:
        assert sentence in found


def test_the_findings_say_who_was_first() -> None:
    runs = [run("sgd", 0.05, 2.0), run("vcsg", 0.08, 5.0)]
    assert said(runs, [TARGET])[:2] == [
        "SGD came first to a test error of 10 %: 2.0 s of training.",
        "VCSG took 5.0 s, 2.5 times as long.",
    ]
    assert said(runs, [Target("test_error", 0.06)])[1] == "VCSG did not reach it within its budget."
    assert said(runs, [Target("test_error", 0.01)])[0] == "No method reached a test error of 1 % within its budget."


def test_the_findings_say_of_how_many_seeds_where_they_are_few() -> None:
    runs = [run("sgd", 0.05, 2.0, seed=seed) for seed in range(3)]
    runs += [run("vcsg", 0.05 if seed == 1 else 0.2, 5.0, seed=seed) for seed in range(3)]
    found = "\n".join(said(runs, [TARGET]))
    assert "VCSG reached it with 1 of 3 seeds." in found
    assert "variance reduction did not pay: VCSG reached it with 1 of 3 seeds, SGD took 2.0 s" in found
    assert "not reach" not in found


def test_a_target_decides_over_the_end_and_there_is_one_verdict() -> None:
    """VCSG comes first to the target and ends above SGD: what is decided, and by which number, is said once."""
    runs = [run("vcsg", 0.09, 1.0, protocol="tuned"), run("sgd", 0.02, 5.0, protocol="tuned")]
    found = [sentence for sentence in said(runs, [TARGET]) if "variance reduction" in sentence]
    assert len(found) == 1
    assert "By the time to a test error of 10 %, variance reduction paid: VCSG took 1.0 s" in found[0]


@pytest.mark.parametrize("methods", ["gd sgd", "gd sgd-momentum adamw", "sgd paper-sgd", "vcsg svrg", "sgd mystery"])
@pytest.mark.parametrize("targets", [[], [TARGET]], ids=["end", "target"])
def test_variance_reduction_is_named_only_where_it_is_compared(methods: str, targets: list[Target]) -> None:
    """Gradient descent has an anchor and no mini-batch: it reduces no variance when it wins over SGD."""
    runs = [run(method, 0.02 * place, place) for place, method in enumerate(methods.split(), 1)]
    found = said(runs, targets)
    assert found
    assert not [sentence for sentence in found if "variance reduction" in sentence]


def test_a_method_that_failed_decides_nothing_by_its_end() -> None:
    runs = [run("sgd", 0.05, status="failed"), run("vcsg", 0.08), run("scsg", 0.09, status="failed")]
    found = said(runs)
    assert found[0].startswith("Lowest test error at the end: VCSG, 8.00 %")
    assert not [sentence for sentence in found if "variance reduction" in sentence or "ahead of" in sentence]
    runs[0].evaluations.clear()
    assert said(runs)[0] == found[0], "a run without any evaluation does not change what is compared"


def test_one_method_alone_is_told_without_a_comparison() -> None:
    assert said([run("sgd", 0.05)]) == ["SGD ended at a test error of 5.00 %."]


def test_runs_that_shared_the_machine_are_told() -> None:
    assert "2 runs at a time shared the machine" in said([run("sgd", 0.05), run("vcsg", 0.1)], jobs=2)[-1]


def test_a_method_that_took_no_step_is_not_compared() -> None:
    """Its first anchor may take the whole budget; what it then ends at is where it began."""
    resting = run("svrg", 0.9)
    for row in resting.evaluations:
        row["train_loss"] = 2.3
    found = said([resting, run("sgd", 0.05), run("adamw", 0.08)])
    assert "SVRG took no step, for its first anchor took the whole budget: nothing can be said of it." in found
    assert not any("variance reduction" in sentence for sentence in found)
    assert any(sentence.startswith("Lowest test error at the end: SGD") for sentence in found)
    alone = said([resting, run("sgd", 0.05)])
    assert alone[0] == "Fewer than two methods are complete: there is nothing to compare."


def test_runs_that_share_a_machine_are_no_more_than_there_are() -> None:
    two = [run("sgd", 0.05), run("adamw", 0.08)]
    assert any(sentence.startswith("2 runs at a time shared") for sentence in said(two, jobs=1000))
    assert not any("at a time shared" in sentence for sentence in said(two[:1], jobs=4))
