"""The plan of a study with its estimated times: what is counted, and that it is measured without a trace."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from study_sample import PROBLEM, network
from typer.testing import CliRunner

from vcsg.cli import app
from vcsg.study import methods, settings
from vcsg.study.budgets import Budget
from vcsg.study.compare import conduct, look_ahead, make_study
from vcsg.study.plan import Study
from vcsg.study.running import forecast as forecasting
from vcsg.study.running.forecast import Pace, forecast
from vcsg.study.running.miniature import first_samples, initial_model, load_workload, run_in_miniature, warm_up
from vcsg.study.view.plan_table import duration, plan_sentence
from vcsg.study.view.tables import console
from vcsg.training.interrupt import Interrupt
from vcsg.training.limits import Limits


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "SECONDS", 0.02)


def study(folder: Path, budget: str = "2passes", protocols: tuple[str, ...] = ("default", "tuned")) -> Study:
    return make_study(
        network(folder),
        folder / "study",
        methods=["vcsg", "sgd"],
        protocols=protocols,
        budget=Budget.parse(budget),
        seeds=(0, 1),
        every=0.5,
        trials=3,
        settings=settings.parse(["sgd.b=8"], None),
    )


def test_every_run_and_every_trial_is_counted_with_its_evaluations(tmp_path: Path) -> None:
    """n = 60, 30 test samples; a pass takes 6 s, the loss of a sample 0.01 s."""
    made = study(tmp_path)
    paces = {entry.path: Pace(6.0, 0.01) for entry in made.entries}
    lines = {(line.protocol, line.label): line for line in forecast(made, paces, tests=30)}
    run = lines["default", "VCSG"]
    assert (run.runs, run.passes) == (2, 2)
    # 2 / 0.5 evaluations, 3 early ones and the start, over 90 samples each; 60 gradients at the end, 3 losses' worth
    assert run.seconds == pytest.approx(2 * 6 + (4 + 3 + 1) * 90 * 0.01 + 3 * 60 * 0.01)
    assert run.total == 2 * run.seconds
    search = lines["tuned", "SGD, b=8: search"]
    assert (search.runs, search.passes) == (3, 2)  # a search has at least 8 passes where the budget has them
    assert search.seconds == pytest.approx(2 * 6 + 2 * 60 * 0.01)
    assert lines["", "estimates of L"].runs == 2  # once for each search
    assert set(lines) == {
        ("", "estimates of L"),
        *((entry.protocol, entry.label) for entry in made.entries),
        *(("tuned", f"{entry.label}: search") for entry in made.entries if entry.protocol == "tuned"),
    }


def test_a_budget_of_seconds_is_that_long(tmp_path: Path) -> None:
    made = study(tmp_path, "12s", ("default",))
    (line, _) = forecast(made, {entry.path: Pace(6.0, 0.0) for entry in made.entries}, tests=30)
    assert (line.passes, line.seconds) == (2, 12)


def test_it_is_measured_without_a_trace_and_what_is_done_is_left_out(tmp_path: Path) -> None:
    made = study(tmp_path, "0.2passes", ("default",))
    lines = look_ahead(made)
    assert not made.folder.exists()
    assert [line.label for line in lines] == ["VCSG", "SGD, b=8"]
    assert all(line.seconds > 0 for line in lines)
    conduct(made, console(quiet=True))
    assert look_ahead(made) == []
    assert plan_sentence(made, []) == "All runs are made already: nothing is left to do."


def test_compare_shows_the_plan_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["compare", PROBLEM, "--methods", "vcsg,sgd-momentum", "--budget", "2passes", "--seeds", "3", "--jobs", "2"]
    done = CliRunner().invoke(app, [*words, "--plan"])
    assert done.exit_code == 0, done.output
    assert "The plan: synthetic:n=60,d=4/least-squares (n = 60) on cpu, 3 seeds" in done.output
    assert "6 runs, about " in done.output
    assert "; 2 at a time, about" in done.output
    assert not list(tmp_path.iterdir())


def test_reproduce_shows_the_plan_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On blank images in the place of MNIST, with a budget that is soon spent; `--plan` stops there."""
    import gzip
    import struct

    import numpy as np

    for part, count in (("train", 60_000), ("t10k", 10_000)):
        labels = np.resize(np.arange(10, dtype=np.uint8), count)
        content = {"images-idx3": struct.pack(">4i", 2051, count, 28, 28) + bytes(count * 784)}
        content |= {"labels-idx1": struct.pack(">2i", 2049, count) + labels.tobytes()}
        for name, data in content.items():
            (tmp_path / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(data, 1))
    monkeypatch.setenv("VCSG_CACHE", str(tmp_path / "cache"))
    words = ["reproduce", "--data-set", "mnist", "--data-dir", str(tmp_path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*words, "--plan"])
    assert done.exit_code == 0, done.output
    assert "The plan: mnist/lenet-300-100 (n = 60,000) on cpu, 3 seeds" in done.output
    for words in ("VCSG as printed", "the paper's SGD", "AdamW", "search", "147 runs, about "):
        assert words in done.output
    assert not (tmp_path / "out").exists()


def test_durations_have_two_digits() -> None:
    times = (0.0, 0.0123, 0.4, 5.43, 66.0, 100.0, 5000.0, 20_000.0)
    assert [duration(t) for t in times] == ["0 s", "0.012 s", "0.40 s", "5.4 s", "66 s", "1.7 min", "83 min", "5.6 h"]


@pytest.mark.parametrize("name", methods.names())
def test_every_method_is_run_in_miniature_before_its_first_run(name: str, tmp_path: Path) -> None:
    """On samples enough for its own b, by the steps that the run takes: torch's random numbers are left alone."""
    if name in ("schedule-free-adamw", "prodigy"):
        pytest.importorskip({"prodigy": "prodigyopt"}.get(name, "schedulefree"))
    workload = network(tmp_path)
    before = torch.get_rng_state()
    warm_up(workload, None, "cpu", name, None)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_in_miniature_counts_and_hardly_moves(tmp_path: Path) -> None:
    """Three passes over 24 of the 60 samples, with mini-batches of 8: 9 steps of SGD."""
    workload = load_workload(network(tmp_path), None, "cpu")
    head = first_samples(workload, 24, "cpu")
    rows = run_in_miniature(workload, head, "cpu", "sgd", {"b": 8}, Limits(passes=3.0), Interrupt())
    assert (rows[0]["ifo"], rows[-1]["ifo"]) == (0, 72)
    first, second = (initial_model(workload, 0) for _ in range(2))
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))
