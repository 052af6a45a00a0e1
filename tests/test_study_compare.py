"""Whole studies: what a run leaves, that runs repeat, that protocols keep their rules, that a study goes on."""

from __future__ import annotations

import html
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from study_sample import PROBLEM, network

import vcsg
from vcsg.study import methods, plan
from vcsg.study.budgets import Budget
from vcsg.study.compare import conduct, make_study, run_alone
from vcsg.study.outcome import read_sections
from vcsg.study.plan import Study
from vcsg.study.protocols import size_option
from vcsg.study.records import RunRecord, load
from vcsg.study.report import searches
from vcsg.study.running import miniature, runs, tasks
from vcsg.study.running.estimates import estimate
from vcsg.study.running.workers import Outcome
from vcsg.study.settings import parse
from vcsg.study.targets import Target
from vcsg.study.view.tables import remarks
from vcsg.training.evaluation import mode
from vcsg.training.interrupt import Interrupt
from vcsg.training.progress import Silent

OWN = parse(["sgd.b=8"])
SMALL = parse(["vcsg.b_min=4", "scsg.b=4", "svrg.b=8", "sgd.b=8"])


def quiet() -> Console:
    return Console(quiet=True)


def study(folder: Path, workload: str = PROBLEM, names: str = "vcsg,sgd", passes: float = 3, **options: Any) -> Study:
    made = {"methods": names.split(","), "budget": Budget(passes=passes), "every": 1.0, **options}
    return make_study(workload, folder, **made)


def done(made: Study) -> Outcome:
    found = conduct(made, quiet())
    assert (found.interrupted, found.failures) == (False, {})
    return found


def content(folder: Path) -> dict[str, Any]:
    """All records of a folder by path, without times."""
    found: dict[str, Any] = {}
    for record in load(folder):
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in record.evaluations]
        notes = json.loads(json.dumps(record.notes))
        for note in notes.values():
            if isinstance(note, dict):
                note.pop("seconds", None)
        found[str(record.path.relative_to(folder))] = (record.config, record.status, rows, record.epochs, notes)
    return found


# --- one run


def test_a_run_is_that_of_fit_and_leaves_all_of_it(tmp_path: Path) -> None:
    """The same weights as by `vcsg.fit`; the last row as evaluated by hand at these weights."""
    name = network(tmp_path)
    made = study(tmp_path / "out", name, "svrg", settings=parse(["b=8", "L=5.0"]), seeds=[2])
    record = run_alone(made, quiet())
    (read,) = load(tmp_path / "out")
    assert (record.status, read.status, read.config) == ("finished", "finished", record.config)
    assert (read.config.n, read.config.tests, read.config.protocol, read.config.role) == (60, 30, "", "run")
    assert read.environment["torch"] == torch.__version__

    workload = miniature.load_workload(name, None, "cpu")
    model = miniature.initial_model(workload, 2)
    result = vcsg.fit(
        model, None, workload.train, "svrg", objective=workload.objective, b=8, L=5.0, passes=3, seed=2, every=math.inf
    )
    saved = load_file(tmp_path / "out" / "weights.safetensors")
    assert all(torch.equal(saved[key], value) for key, value in model.state_dict().items())
    assert [row["epoch"] for row in read.epochs] == [r.epoch for r in result.records]

    last = read.final
    assert (last["ifo"], last["passes"]) == (result.ifo, result.passes)
    with mode(model, False):
        loss = workload.objective(model, workload.train)
        gradient = torch.autograd.grad(loss, list(model.parameters()))
        tested = workload.measure(model, workload.test)
    assert last["train_loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert last["grad_norm2"] == pytest.approx(sum(float(g.square().sum()) for g in gradient), rel=1e-4)
    for key, value in tested.items():
        assert last[key] == pytest.approx(value, rel=1e-5)


def test_rows_come_early_and_then_at_equal_distances(tmp_path: Path) -> None:
    """SGD with mini-batches of 1 is at every multiple of 1/60 of a pass: evaluations are where they are due."""
    run_alone(study(tmp_path / "out", names="sgd", passes=3, settings=parse(["b=1", "L=1.0"])), quiet())
    (read,) = load(tmp_path / "out")
    due = [math.ceil(60 * passes) for passes in (0, 1 / 8, 1 / 4, 1 / 2, 1, 2, 3)]
    assert [row["ifo"] for row in read.evaluations] == due
    assert all("grad_norm2" in row for row in read.evaluations), "an analytic problem has it everywhere"


def test_evaluations_change_nothing(tmp_path: Path) -> None:
    name = network(tmp_path)
    for folder, every in (("often", 0.05), ("seldom", 100.0)):
        run_alone(study(tmp_path / folder, name, "vcsg", settings=parse(["b_min=4"]), every=every), quiet())
    often, seldom = (load_file(tmp_path / folder / "weights.safetensors") for folder in ("often", "seldom"))
    assert all(torch.equal(often[key], seldom[key]) for key in often)


def test_the_command_of_a_run_makes_it_again(tmp_path: Path) -> None:
    """Its options are those of the record, L included."""
    made = study(tmp_path / "out", network(tmp_path), "sgd-momentum", seeds=[1])
    record = run_alone(made, quiet())
    assert record.notes["L"]["ifo"] > 0
    assert f"--set L={record.config.options['L']}" in record.config.command
    assert "--method sgd-momentum --seed 1 --budget 3passes --every 1" in record.config.command


def test_a_folder_has_room_for_one_run(tmp_path: Path) -> None:
    made = study(tmp_path / "out", names="sgd")
    run_alone(made, quiet())
    with pytest.raises(FileExistsError, match="holds a run already"):
        run_alone(made, quiet())
    with pytest.raises(ValueError, match="holds a single run"):
        conduct(made, quiet())


def test_one_that_diverges_is_recorded_and_does_not_end_the_others(tmp_path: Path) -> None:
    made = study(
        tmp_path, network(tmp_path), "sgd-momentum,sgd,gd", settings=parse(["sgd-momentum.lr=1e30", "sgd.b=8"])
    )
    assert not conduct(made, quiet()).failures
    found = {record.config.method: record for record in load(tmp_path)}
    assert found["sgd-momentum"].status == "failed"
    assert found["sgd-momentum"].message.startswith("diverged: the loss is")
    assert found["sgd-momentum"].notes["diverged"]
    assert found["sgd"].status == found["gd"].status == "finished"
    assert all(task.done(made) for task in tasks.plan(made)), "it would diverge again"


def test_one_that_gives_up_after_its_roll_backs_has_diverged_too(tmp_path: Path) -> None:
    made = study(tmp_path, PROBLEM, "svrg", passes=60, settings=parse(["svrg.b=8", "L=1e-30"]))
    done(made)
    (record,) = load(tmp_path)
    assert record.message.startswith("diverged: gave up after")


def test_what_went_wrong_otherwise_is_recorded_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = study(tmp_path, PROBLEM, "sgd")

    def broken(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(runs, "gradient_norm2", broken)
    conduct(made, quiet())
    (record,) = load(tmp_path)
    assert (record.status, record.message) == ("failed", "no room")
    assert "MemoryError" in record.notes["traceback"]
    monkeypatch.undo()
    done(made)
    (record,) = load(tmp_path)
    assert record.status == "finished", "another try may do better"


def test_warnings_of_a_run_are_kept_and_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """L is ten times too small: the step is halved until the run goes well."""
    made = study(tmp_path, PROBLEM, "gd", passes=30, settings=parse(["L=0.02"]))
    done(made)
    (record,) = load(tmp_path)
    assert record.status == "finished"
    assert all(text.startswith("diverged: ") for text in record.notes["warnings"])
    assert not caplog.records


# --- a study


def test_runs_repeat_whatever_else_runs(tmp_path: Path) -> None:
    """The same records but for times: again, in two processes at once, and of a method by itself."""
    name = network(tmp_path)
    rules: dict[str, Any] = {"names": "vcsg,sgd,tuned:adamw", "protocols": ["paper"], "seeds": [0, 1], "trials": 3}
    rules["settings"] = parse(["vcsg.b_min=4"])
    first, second, parallel = (study(tmp_path / f, name, jobs=j, **rules) for f, j in (("a", 1), ("b", 1), ("c", 2)))
    for made in (first, second, parallel):
        done(made)
    assert content(first.folder) == content(second.folder) == content(parallel.folder)
    assert len(content(first.folder)) == 2 * 3 + 3
    alone = study(tmp_path / "d", name, **{**rules, "names": "vcsg", "seeds": [1]})
    done(alone)
    path = "runs/paper/vcsg/seed-1"
    assert content(alone.folder)[path] == content(first.folder)[path]


def test_every_method_starts_at_the_same_point_and_every_seed_at_another(tmp_path: Path) -> None:
    made = study(tmp_path, network(tmp_path), "vcsg,scsg,svrg,sgd,adamw", seeds=[0, 1], settings=SMALL)
    done(made)
    starts = {(r.config.seed, r.evaluations[0]["train_loss"], r.evaluations[0]["ifo"]) for r in load(tmp_path)}
    assert len(starts) == 2
    assert len({loss for _, loss, _ in starts}) == 2


def test_the_paper_gives_all_methods_one_L_and_says_what_it_cost(tmp_path: Path) -> None:
    name = network(tmp_path)
    made = study(tmp_path, name, "vcsg,scsg,svrg,sgd", protocols=["paper"], seeds=[0, 1], settings=parse(["scsg.b=4"]))
    done(made)
    given = {seed: {r.config.options["L"] for r in load(tmp_path) if r.config.seed == seed} for seed in (0, 1)}
    assert all(len(values) == 1 for values in given.values())
    assert given[0] != given[1]
    alone = estimate(name, None, "cpu", 1, "vcsg", {"paper": True}, 1, Interrupt(), Silent)
    assert alone is not None
    assert given[1] == {alone.L}
    for record in load(tmp_path):
        assert record.notes["L"]["ifo"] >= 60
        assert "estimated as vcsg does" in record.notes["L"]["source"]
    labels = {record.config.label for record in load(tmp_path)}
    assert labels == {"VCSG as printed", "SCSG, b=4", "the paper's SVRG", "the paper's SGD"}


def test_the_estimate_is_what_vcsg_itself_finds(tmp_path: Path) -> None:
    """VCSG's own first record, in a run that is not given L."""
    name = network(tmp_path)
    made = study(tmp_path / "own", name, "vcsg", passes=4, seeds=[1])
    run_alone(made, quiet())
    (record,) = load(tmp_path / "own")
    found = estimate(name, None, "cpu", 1, "vcsg", {}, 1, Interrupt(), Silent)
    assert found is not None
    assert found.L == record.epochs[0]["L"]
    assert found.ifo == record.epochs[0]["ifo"]


def test_a_known_L_is_given_for_nothing(tmp_path: Path) -> None:
    made = study(tmp_path, PROBLEM, "vcsg,svrg", protocols=["paper"])
    done(made)
    assert not (tmp_path / "smoothness").exists()
    for record in load(tmp_path):
        assert record.config.options["L"] == 1.0
        assert record.notes["L"] == {"L": 1.0, "source": "known for this workload", "ifo": 0, "seconds": 0.0}


def test_every_search_has_the_same_budget_and_sees_no_test_samples(tmp_path: Path) -> None:
    names = "vcsg,scsg,svrg,sgd,sgd-momentum,adamw"
    rules: dict[str, Any] = {"protocols": ["tuned"], "seeds": [3, 1], "settings": SMALL, "trials": 4}
    made = study(tmp_path, network(tmp_path), names, passes=4, **rules)
    done(made)
    for name in names.split(","):
        trials = load(tmp_path / "search" / name)
        assert [t.notes["trial"] for t in trials] == [1, 2, 3, 4]
        assert {t.config.seed for t in trials} == {3}
        assert {t.config.role for t in trials} == {"search"}
        assert all(4 <= t.final["passes"] < 4.6 for t in trials if t.status == "finished")
        seen = {key for t in trials for row in t.evaluations for key in row}
        assert seen == {"passes", "ifo", "seconds", "epoch", "train_loss"}
        finals = load(tmp_path / "runs" / "tuned" / name)
        best = min((t for t in trials if t.status == "finished"), key=lambda t: t.final["train_loss"])
        assert {r.config.options["lr"] for r in finals} == {best.config.options["lr"]}
        search = finals[0].notes["search"]
        assert search["trials"] == len(search["factors"]) == len(search["losses"]) == 4
        assert search["ifo"] == sum(t.final["ifo"] for t in trials)
        assert not (trials[0].path / "weights.safetensors").exists()


def test_a_search_finds_the_best_step_of_a_known_problem(tmp_path: Path) -> None:
    """Gradient descent: factors are of 1/L, and at 4/L it goes back and doubles L, to where 1/L already is."""
    made = study(tmp_path, "synthetic:n=200,d=5/least-squares", "gd", passes=30, protocols=["tuned"])
    done(made)
    (record,) = load(tmp_path / "runs")
    losses = dict(zip(record.notes["search"]["factors"], record.notes["search"]["losses"], strict=True))
    assert record.notes["search"]["default_step"] == 1.0
    assert losses[record.notes["search"]["factor"]] == min(losses.values())
    assert losses[0.25] > losses[1.0] > losses[record.notes["search"]["factor"]]


def test_a_search_over_b_tries_every_size_and_the_runs_have_the_best(tmp_path: Path) -> None:
    """Methods without an option b are searched over the step alone, VCSG over its least b; the number of trials is said
    before they begin."""
    names, sizes = "gd,sgd,vcsg,sgd-momentum,schedule-free-adamw", (8, 16, 32)
    rules: dict[str, Any] = {"protocols": ["tuned"], "seeds": [3, 1], "trials": 3, "search_b": sizes}
    made = study(tmp_path, network(tmp_path), names, passes=4, **rules)
    told = io.StringIO()
    assert conduct(made, Console(file=told, width=200)).failures == {}
    announced = "Search over the step size and b = 8, 16, 32: 9 short runs of 4passes for each of SGD; VCSG; SGD, mom"
    assert announced in told.getvalue()
    assert "search for SGD, 9 of 9, b = 32, step ×" in told.getvalue()
    assert len(load(tmp_path / "search" / "gd")) == 3
    for name in names.split(",")[1:]:
        size = size_option(name)
        trials = sorted(load(tmp_path / "search" / name), key=lambda t: int(t.notes["trial"]))
        assert [t.notes["trial"] for t in trials] == list(range(1, 10))
        assert [t.config.options[size] for t in trials] == [8] * 3 + [16] * 3 + [32] * 3
        assert all(4 <= t.final["passes"] < 5 for t in trials if t.status == "finished")
        best = min((t for t in trials if t.status == "finished"), key=lambda t: t.final["train_loss"])
        runs = load(tmp_path / "runs" / "tuned" / name)
        chosen = {(r.config.options[size], r.config.options["lr"], r.config.label) for r in runs}
        label = methods.label(name, {size: best.notes["b"]})
        assert chosen == {(best.notes["b"], best.config.options["lr"], label)}
        search = runs[0].notes["search"]
        assert (search["b"], search["trials"], search["b_tried"]) == (best.notes["b"], 9, [8] * 3 + [16] * 3 + [32] * 3)
        assert search["ifo"] == sum(t.final["ifo"] for t in trials)
    done(made)


def test_table_and_report_show_a_search_over_b(tmp_path: Path) -> None:
    """Beside a method without an option b, whose cells of b are empty."""
    rules: dict[str, Any] = {"protocols": ["tuned"], "trials": 3, "search_b": (8, 16)}
    done(study(tmp_path, network(tmp_path), "gd,adamw", **rules))
    (section,) = read_sections([tmp_path])
    best = load(tmp_path / "runs" / "tuned" / "adamw")[0].config.options
    assert "9 short runs chose the step sizes and mini-batch sizes of the protocol" in searches.cost(section.search)
    chosen, trials = _rows(searches.chosen(section)), _rows(searches.trials(section))
    assert [row[:3] for row in chosen] == [
        ["method", "trials", "chosen b"], ["AdamW", "6", str(best["b"])], ["GD", "3", "–"],
    ]  # fmt: skip
    assert chosen[1][3] == f"{best['lr']:.3g}"
    assert "b is the smallest or the largest that was tried" in chosen[1][-1]
    assert [row[:3] for row in trials[1:7]] == [["AdamW", str(k + 1), "8" if k < 3 else "16"] for k in range(6)]
    said = " ".join(remarks(section.runs, []))
    assert "tuned: 3 to 6 short runs per method chose the step sizes and mini-batch sizes" in said
    assert re.search(rf"AdamW, b={best['b']}: .*b = {best['b']} at the edge of those tried", said)


def _rows(table: object) -> list[list[str]]:
    """The cells of a table, row by row."""
    found = [re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in str(table).split("</tr>")]
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in row] for row in found if row]


@pytest.mark.parametrize("after", [3, 60])
def test_a_search_over_b_goes_on_where_it_was_interrupted(tmp_path: Path, after: int) -> None:
    rules: dict[str, Any] = {"names": "sgd,adamw", "protocols": ["tuned"], "trials": 3, "search_b": (8, 16)}
    name = network(tmp_path)
    whole, made = study(tmp_path / "whole", name, **rules), study(tmp_path / "part", name, **rules)
    done(whole)
    plan.begin(made)
    finished = perform_until(made, Stop(after))
    done(made)
    assert content(made.folder) == content(whole.folder)
    for name, stamp in finished.items():
        assert _stamp(made.folder / name) == stamp, "what was there was made again"
    other = {**rules, "search_b": (8, 32)}
    with pytest.raises(ValueError, match="methods was tuned/sgd b 8, 16, tuned/adamw b 8, 16, now"):
        conduct(study(tmp_path / "part", network(tmp_path), **other), quiet())


@pytest.mark.parametrize(("target", "everywhere"), [("grad_norm2", True), ("test_error", False)])
def test_gradients_are_measured_everywhere_where_a_target_asks(tmp_path: Path, target: str, everywhere: bool) -> None:
    made = study(tmp_path, network(tmp_path), "sgd", settings=parse(["b=8"]), targets=[Target(target, 0.1)])
    done(made)
    (record,) = load(tmp_path)
    measured = ["grad_norm2" in row for row in record.evaluations]
    assert measured == [everywhere] * (len(measured) - 1) + [True]


# --- going on


class Stop:
    """The wish to stop, after so many questions."""

    def __init__(self, after: int) -> None:
        self.left = after

    @property
    def asked(self) -> bool:
        self.left -= 1
        return self.left < 0


def perform_until(made: Study, wish: Stop) -> dict[str, Any]:
    """The tasks one by one until the wish comes; when the files were written of those that are done."""
    finished: dict[str, Any] = {}
    try:
        for task in tasks.plan(made):
            task.perform(made, wish, Silent)
            finished[task.name] = _stamp(made.folder / task.name)
    except KeyboardInterrupt:
        return finished
    raise AssertionError("the study was over before it was interrupted")


INTERRUPTED: dict[str, Any] = {"names": "tuned:sgd,vcsg", "protocols": ["paper"], "seeds": [0, 1], "trials": 3}
INTERRUPTED["settings"] = parse(["vcsg.b_min=4", "sgd.b=8"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """A workload, and what a study of it leaves that was never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    name = network(folder)
    made = study(folder / "study", name, **INTERRUPTED)
    done(made)
    return name, content(made.folder)


@pytest.mark.parametrize("after", [0, 5, 40, 150])
def test_a_study_goes_on_where_it_was_interrupted(
    tmp_path: Path, whole: tuple[str, dict[str, Any]], after: int
) -> None:
    workload, expected = whole
    made = study(tmp_path, workload, **INTERRUPTED)
    plan.begin(made)
    finished = perform_until(made, Stop(after))
    done(made)
    assert content(made.folder) == expected
    for name, stamp in finished.items():
        assert _stamp(made.folder / name) == stamp, "what was there was made again"
    done(made)


def _stamp(path: Path) -> list[tuple[str, int]]:
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return [(str(file), file.stat().st_mtime_ns) for file in files]


def test_a_run_that_was_killed_is_readable_and_made_again(tmp_path: Path) -> None:
    made = study(tmp_path, PROBLEM, "vcsg,sgd")
    done(made)
    path = tmp_path / "runs" / "default" / "vcsg" / "seed-0"
    head = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(head | {"status": "running"}))
    whole = (path / "evaluations.jsonl").read_bytes()
    (path / "evaluations.jsonl").write_bytes(whole[:-20])
    killed = next(record for record in load(tmp_path) if record.config.method == "vcsg")
    assert (killed.status, len(killed.evaluations)) == ("running", whole.count(b"\n") - 1)
    before = _stamp(tmp_path / "runs" / "default" / "sgd")
    done(made)
    assert {record.status for record in load(tmp_path)} == {"finished"}
    assert _stamp(tmp_path / "runs" / "default" / "sgd") == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": [1, 0]}, "seeds was 0, now 1, 0"),
        ({"passes": 4}, "budget was passes 3, now passes 4"),
        ({"settings": parse(["vcsg.b_min=2"])}, "now default/vcsg b_min 2"),
        ({"every": 0.5}, "every was 1.0, now 0.5"),
        ({"targets": [Target("test_error", 0.5)]}, "targets was , now test-error=0.5"),
        ({"workload": "synthetic:n=50,d=4/least-squares"}, "workload was synthetic:n=60"),
    ],
)
def test_another_study_in_the_folder_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    plan.begin(study(tmp_path))
    with pytest.raises(ValueError, match=f"holds another study .*{message}"):
        conduct(study(tmp_path, **change), quiet())


def test_a_study_grows_by_methods_and_seeds(tmp_path: Path) -> None:
    done(study(tmp_path, PROBLEM, "vcsg"))
    first = tmp_path / "runs" / "default" / "vcsg" / "seed-0"
    before = _stamp(first)
    done(study(tmp_path, PROBLEM, "vcsg,sgd", seeds=[0, 1]))
    everything = {(m, k) for m in ("vcsg", "sgd") for k in (0, 1)}
    assert {(r.config.method, r.config.seed) for r in load(tmp_path)} == everything
    assert _stamp(first) == before
    done(study(tmp_path, PROBLEM, "vcsg,tuned:gd", command="a part", trials=7))
    assert {(r.config.method, r.config.seed) for r in load(tmp_path)} == {*everything, ("gd", 0)}
    kept = plan.read(tmp_path)
    assert kept["methods"] == ["default/vcsg", "default/sgd", "tuned/gd"]
    assert (kept["seeds"], kept["protocols"], kept["commands"]) == ([0, 1], ["default", "tuned"], ["a part"])
    with pytest.raises(ValueError, match="search_budget was passes 3, now passes 2"):
        conduct(study(tmp_path, PROBLEM, "tuned:gd", search_budget=Budget(passes=2)), quiet())


def test_short_runs_that_take_no_step_are_refused(tmp_path: Path) -> None:
    """All steps are equally good where a run ends with its first anchor; GD takes its step there, and SGD has none."""
    for name, passes in (("svrg", 1), ("vcsg", 0.5)):
        words = f"{name}, protocol tuned: the short runs of a search have {passes}passes, and the first anchor"
        budget = Budget(passes=passes)
        with pytest.raises(ValueError, match=f"{words} takes 1 passes, so that none would take a step: give each"):
            study(tmp_path, PROBLEM, f"tuned:{name}", search_budget=budget, search_b=[8])
    assert not list(tmp_path.iterdir())
    for name, passes in (("svrg", 2), ("sgd", 1), ("sgd-momentum", 1)):
        study(tmp_path, PROBLEM, f"tuned:{name}", search_budget=Budget(passes=passes), search_b=[8])
    study(tmp_path, PROBLEM, "tuned:gd", search_budget=Budget(passes=1))
    study(tmp_path, PROBLEM, "vcsg", search_budget=Budget(passes=0.5))  # without a search


def test_a_run_ends_where_it_has_reached_every_target(tmp_path: Path) -> None:
    """Its records are those of the whole run up to there, one step later the end."""
    whole = study(tmp_path / "whole", PROBLEM, "sgd,gd", passes=20, settings=OWN, every=0.5)
    done(whole)
    rows = {r.config.method: r.evaluations for r in load(tmp_path / "whole")}
    values = sorted(row["train_loss"] for row in rows["sgd"])
    targets = [Target("train_loss", values[len(values) // 2]), Target("grad_norm2", 0.5 * rows["sgd"][0]["grad_norm2"])]
    with pytest.raises(ValueError, match="there is none: give one"):
        study(tmp_path / "short", PROBLEM, "sgd", stop_at_target=True)
    done(study(tmp_path / "short", PROBLEM, "sgd,gd", passes=20, settings=OWN, every=0.5, targets=targets,
               stop_at_target=True))  # fmt: skip
    ended = {r.config.method: r for r in load(tmp_path / "short")}
    assert ended["sgd"].notes["stopped"] == "target"
    first = [next(k for k, row in enumerate(rows["sgd"]) if row[t.metric] <= t.value) for t in targets]
    kept = ended["sgd"].evaluations
    assert len(kept) == max(first) + 2
    assert [row["train_loss"] for row in kept[:-1]] == [row["train_loss"] for row in rows["sgd"][: max(first) + 1]]
    assert kept[-1]["ifo"] == kept[-2]["ifo"] + 8
    assert any("runs were ended where" in sentence for sentence in remarks(list(ended.values()), targets))


def test_searches_are_made_before_the_runs_and_more_at_a_time(tmp_path: Path) -> None:
    made = study(tmp_path, PROBLEM, "tuned:vcsg,tuned:scsg", trials=3, search_jobs=2)
    done(made)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")}
    searched = [time for path, time in times.items() if "search" in path.parts]
    assert len(searched) == 6
    assert max(searched) < min(time for path, time in times.items() if "runs" in path.parts)


@pytest.mark.parametrize(("names", "passes"), [("tuned:sgd,scsg", 3.0), ("tuned:sgd,tuned:scsg", 8.0)])
def test_searches_are_longer_where_an_anchor_is_searched(tmp_path: Path, names: str, passes: float) -> None:
    made = study(tmp_path, PROBLEM, names, passes=12, settings=parse(["sgd.b=8"]))
    assert made.trial_budget.passes == passes


def test_the_number_of_jobs_is_no_part_of_a_study(tmp_path: Path) -> None:
    done(study(tmp_path))
    done(study(tmp_path, jobs=2))
    assert plan.read(tmp_path)["jobs"] == 2


def test_failures_of_what_others_need_are_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = study(tmp_path, network(tmp_path), "vcsg,svrg,default:adamw", protocols=["paper"])

    def broken(*_: object) -> None:
        raise FloatingPointError("no L to be had")

    monkeypatch.setattr(tasks, "estimate", broken)
    found = conduct(made, quiet())
    assert found.failures["smoothness/paper/vcsg/seed-0.json"] == "no L to be had"
    assert "it needs smoothness" in found.failures["runs/paper/vcsg/seed-0"]
    assert [record.config.method for record in load(tmp_path)] == ["adamw"]


# --- what is checked before anything runs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ""}, "no method ''"),
        ({"workload": "mnist-mini/lenet"}, "no model or problem 'lenet'"),
        ({"workload": "minst/lenet-5"}, "no data set 'minst'.*did you mean 'mnist'"),
        ({"device": "tpu9"}, "device 'tpu9': give cpu, cuda"),
        ({"every": 0.0}, "every = 0.0: give the passes"),
        ({"jobs": 0}, "jobs = 0: give a whole number, at least 1"),
        ({"trials": 2}, "trials = 2: give a whole number, at least 3"),
        ({"protocols": ["tuned"], "search_b": [8, 99]}, "vcsg, protocol tuned: .*99"),
        ({"protocols": ["tuned"], "search_b": [0]}, "search-b = 0: give whole numbers, each at least 1"),
        ({"settings": parse(["sgd.b=61"])}, "sgd, protocol default: b = 61 does not fit n = 60"),
        ({"settings": parse(["comparison=lema"])}, "vcsg, protocol default: comparison = 'lema': choose one of norm"),
        ({"settings": parse(["chunk=0"])}, "chunk = 0: give a whole number"),
        ({"settings": parse(["rho=2"])}, "rho = 2: give a number strictly between 0 and 1"),
    ],
)
def test_bad_studies_are_refused_and_leave_nothing(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study(tmp_path / "out", **change)
    assert not (tmp_path / "out").exists()


def test_no_cuda_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="torch finds no CUDA device here; give cpu"):
        study(tmp_path, device="cuda")


def test_every_method_can_be_run(tmp_path: Path) -> None:
    """By its name, with its defaults."""
    made = study(tmp_path, names=",".join(methods.names()), passes=2)
    done(made)
    found: dict[str, RunRecord] = {record.config.method: record for record in load(tmp_path)}
    assert list(found) == sorted(methods.names())
    assert {record.status for record in found.values()} == {"finished"}
    assert all(record.final["ifo"] >= 120 for record in found.values())


def test_the_clock_stands_while_records_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row and every epoch takes a tenth of a second more to write, and no run has seen it."""
    import time

    plain = runs.RunWriter._append

    def slow(self: runs.RunWriter, name: str, row: dict[str, Any]) -> None:
        time.sleep(0.1)
        plain(self, name, row)

    monkeypatch.setattr(runs.RunWriter, "_append", slow)
    begun = time.monotonic()
    made = study(tmp_path, names="svrg", settings=parse(["b=8"]))
    done(made)
    (record,) = load(tmp_path)
    written = 0.1 * (len(record.evaluations) + len(record.epochs))
    assert record.final["seconds"] + written <= time.monotonic() - begun
