"""Runs of one method with other settings are other lines, wherever they are put together; seeds count once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from records_sample import config, write_run
from rich.console import Console

from vcsg.study import report
from vcsg.study.outcome import print_outcome
from vcsg.study.records import Row, load
from vcsg.study.targets import Target
from vcsg.study.view.figures import figures
from vcsg.study.view.findings import findings
from vcsg.study.view.markdown_page import write_page
from vcsg.study.view.sections import Section, sections
from vcsg.study.view.summary import summarise

TARGET = Target("test_error", 0.3)


def made(folder: Path, errors: Sequence[float], **fields: object) -> Path:
    """A run with an evaluation of each error, a pass of 100 samples and a second apart."""
    method, label = str(fields.pop("method", "svrg")), str(fields.pop("label", "SVRG, b=64"))
    notes, status = fields.pop("notes", {}), str(fields.pop("status", "finished"))
    assert isinstance(notes, dict)
    found: list[Row] = [
        {"ifo": 100 * k, "passes": float(k), "seconds": float(k), "train_loss": error, "test_error": error}
        for k, error in enumerate(errors)
    ]
    return write_run(folder, config("w/net", method, label, **fields), found, notes=notes, status=status)


def step(folder: Path, lr: float, passes: int = 2, error: float = 0.1, seed: int = 0) -> Path:
    """A run with a step size and a budget of the user's own."""
    errors = [0.9] * passes + [error]
    return made(folder, errors, options={"b": 64, "lr": lr}, budget={"passes": float(passes)}, seed=seed)


def seen(folder: Path) -> Section:
    (found,) = sections([folder])
    return found.aiming_at([TARGET])


def labels(folder: Path) -> list[str]:
    return sorted(line.label for line in seen(folder).lines)


def said(folder: Path) -> str:
    return " ".join(findings(seen(folder))).replace("\u00a0", " ")


class TestLabels:
    def test_step_sizes_are_two_lines(self, tmp_path: Path) -> None:
        step(tmp_path / "a", 2.9, error=0.1)
        step(tmp_path / "b", 0.05, passes=4, error=0.6)
        lines = {line.label: line for line in seen(tmp_path).lines}
        assert list(lines) == ["SVRG, b=64, lr=2.9", "SVRG, b=64, lr=0.05"]  # the budget is not named besides
        assert lines["SVRG, b=64, lr=2.9"].final["test_error"].median == 0.1
        assert lines["SVRG, b=64, lr=0.05"].final["test_error"].median == 0.6
        assert {line.to_target[str(TARGET)]["seconds"].of for line in lines.values()} == {1}

    def test_seeds_of_one_setting_are_one_line(self, tmp_path: Path) -> None:
        for seed in (0, 1):
            step(tmp_path / f"a{seed}", 2.9, seed=seed)
        assert labels(tmp_path) == ["SVRG, b=64"]
        for seed in (0, 1):
            step(tmp_path / f"b{seed}", 0.5, seed=seed)
        found = {line.label: line.seeds for line in seen(tmp_path).lines}
        assert found == {"SVRG, b=64, lr=0.5": 2, "SVRG, b=64, lr=2.9": 2}

    def test_a_budget_is_named_where_it_alone_differs(self, tmp_path: Path) -> None:
        step(tmp_path / "a", 2.9, passes=2)
        step(tmp_path / "b", 2.9, passes=4)
        assert labels(tmp_path) == ["SVRG, b=64, budget=2passes", "SVRG, b=64, budget=4passes"]
        step(tmp_path / "c", 0.05, passes=4)
        assert labels(tmp_path) == [
            "SVRG, b=64, lr=0.05",
            "SVRG, b=64, lr=2.9, budget=2passes",
            "SVRG, b=64, lr=2.9, budget=4passes",
        ]

    @pytest.mark.parametrize(("name", "values"), [("device", ("cpu", "cuda")), ("threads", (1, 4))])
    def test_where_a_run_was_asked_to_compute_is_a_setting(
        self, name: str, values: tuple[object, object], tmp_path: Path
    ) -> None:
        for value in values:
            made(tmp_path / str(value), [0.9, 0.2], **{name: value})
        assert labels(tmp_path) == [f"SVRG, b=64, {name}={value}" for value in values]

    def test_the_seeds_of_a_study_are_one_line(self, tmp_path: Path) -> None:
        for seed, passes in enumerate((4.0, 9.0)):
            place = tmp_path / "study" / "runs" / "default" / "svrg" / f"seed-{seed}"
            made(place, [0.9, 0.2], protocol="default", seed=seed, budget={"passes": passes})
        assert labels(tmp_path) == ["SVRG, b=64"]

    def test_a_default_beside_what_was_given(self, tmp_path: Path) -> None:
        made(tmp_path / "a", [0.9, 0.2])
        made(tmp_path / "b", [0.9, 0.2], options={"L": 5})
        assert labels(tmp_path) == ["SVRG, b=64", "SVRG, b=64, L=5"]

    def test_an_estimated_L_is_no_setting(self, tmp_path: Path) -> None:
        for seed, L in enumerate((4.0, 7.0)):
            notes = {"L": {"L": L, "source": "estimated", "ifo": 10, "seconds": 0.1}}
            place = tmp_path / f"study-{seed}" / "runs" / "paper" / "svrg" / f"seed-{seed}"
            made(place, [0.9, 0.2], options={"L": L}, protocol="paper", seed=seed, notes=notes)
        assert labels(tmp_path) == ["SVRG, b=64"]

    def test_two_searches_that_chose_other_steps(self, tmp_path: Path) -> None:
        for seed, lr in enumerate((0.0123456789, 0.4)):
            place = tmp_path / f"study-{seed}" / "runs" / "tuned" / "svrg" / f"seed-{seed}"
            made(place, [0.9, 0.2], options={"lr": lr}, protocol="tuned", seed=seed)
        assert labels(tmp_path) == ["SVRG, b=64, lr=0.0123457", "SVRG, b=64, lr=0.4"]

    def test_trials_of_a_search_change_no_label(self, tmp_path: Path) -> None:
        made(tmp_path / "run", [0.9, 0.2], options={"lr": 0.4}, protocol="tuned")
        made(tmp_path / "trial", [0.9, 0.4], options={"lr": 0.1}, protocol="tuned", role="search")
        assert labels(tmp_path) == ["SVRG, b=64"]
        assert [line.label for line in summarise(load(tmp_path), [TARGET])] == ["SVRG, b=64"]

    def test_other_methods_protocols_and_workloads_keep_theirs(self, tmp_path: Path) -> None:
        step(tmp_path / "a", 2.9)
        made(tmp_path / "b", [0.9, 0.2], options={"lr": 0.1}, protocol="tuned")
        made(tmp_path / "c", [0.9, 0.2], options={"lr": 0.2}, method="sgd", label="SGD")
        assert labels(tmp_path) == ["SGD", "SVRG, b=64", "SVRG, b=64"]

    def test_records_read_once_get_the_names_that_all_of_them_need(self, tmp_path: Path) -> None:
        step(tmp_path / "a", 2.9)
        step(tmp_path / "b", 0.5)
        (before,) = sections([tmp_path])
        assert len(before.lines) == 2
        step(tmp_path / "c", 2.9, seed=1)
        (after,) = sections([tmp_path], before.records)
        assert sorted((line.label, line.seeds) for line in after.lines) == [
            ("SVRG, b=64, lr=0.5", 1),
            ("SVRG, b=64, lr=2.9", 2),
        ]


class TestRepeatedSeeds:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Two seeds of `auto`; one of them again, ended at its target."""
        for seed in (0, 1):
            made(tmp_path / f"whole-{seed}", [0.9, 0.2, 0.05], method="auto", label="auto", seed=seed)
        made(tmp_path / "again", [0.9, 0.2], method="auto", label="auto", notes={"stopped": "target"})
        return tmp_path

    def test_a_seed_counts_once(self, folder: Path) -> None:
        (line,) = seen(folder).lines
        assert (line.seeds, sum(line.status.values())) == (2, 2)
        spread = line.to_target[str(TARGET)]["seconds"]
        assert (spread.count, spread.of) == (2, 2)
        assert [line] == summarise(load(folder), [TARGET])

    def test_it_is_the_run_that_went_furthest(self, folder: Path) -> None:
        (line,) = seen(folder).lines
        assert line.final["passes"].low == line.final["passes"].high == 2.0
        assert line.final["test_error"].high == 0.05

    def test_it_is_said(self, folder: Path) -> None:
        sentence = "Run more than once with the same settings: auto, seed 0. The run that went furthest counts."
        assert sentence in said(folder)

    def test_nothing_is_said_of_seeds_that_were_run_once(self, tmp_path: Path) -> None:
        step(tmp_path / "a", 2.9)
        step(tmp_path / "b", 2.9, seed=1)
        assert "more than once" not in said(tmp_path)


class TestViews:
    """Every view names the same lines."""

    NAMES = ("SVRG, b=64, lr=2.9", "SVRG, b=64, lr=0.05")

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        step(tmp_path / "records" / "a", 2.9, passes=2, error=0.1)
        step(tmp_path / "records" / "b", 0.05, passes=4, error=0.6)
        return tmp_path / "records"

    def test_the_terminal(self, folder: Path) -> None:
        console = Console(width=132)
        with console.capture() as captured:
            print_outcome(console, [seen(folder)])
        rows = {name: line for line in captured.get().splitlines() for name in self.NAMES if f" {name}  " in line}
        assert "yes" in rows[self.NAMES[0]]
        assert "10.00%" in rows[self.NAMES[0]]
        assert "not reached" in rows[self.NAMES[1]]
        assert "60.00%" in rows[self.NAMES[1]]

    def test_the_findings(self, folder: Path) -> None:
        told = said(folder)
        assert "SVRG, b=64, lr=2.9 came first to a test error of 30 %: 2.0 s of training." in told
        assert "The runs had different budgets (2passes, 4passes): their ends are not after equal work." in told

    def test_the_page_in_markdown(self, folder: Path) -> None:
        page = write_page([seen(folder)], folder / "page.md").read_text(encoding="utf-8")
        assert "| SVRG, b=64, lr=2.9 | yes |" in page
        assert "| SVRG, b=64, lr=0.05 | not reached |" in page

    def test_the_figures(self, folder: Path) -> None:
        drawn: dict[str, Figure] = {}
        for name, make in figures(load(folder), [TARGET]):
            drawn[name] = make()
        (legend,) = drawn["fig1"].legends
        assert sorted(text.get_text() for text in legend.get_texts()) == sorted(self.NAMES)
        dashes = {line.get_label(): line.get_linestyle() for line in legend.get_lines()}
        colours = {line.get_color() for line in legend.get_lines()}
        assert len(colours) == 1
        assert len({str(line._unscaled_dash_pattern) for line in legend.get_lines()}) == len(dashes) == 2  # type: ignore[attr-defined]
        bars = drawn["to-target-w-net-test-error-0.3"].axes[0]
        assert sorted(tick.get_text() for tick in bars.get_yticklabels()) == sorted(self.NAMES)

    def test_the_report(self, folder: Path) -> None:
        page = report.write([seen(folder)], [folder], folder / "r.html").read_text(encoding="utf-8")
        for name in self.NAMES:
            assert f'"name":"{name}"' in page  # a curve
            assert re.search(rf"<th[^>]*>{name}</th>", page)  # a row
        assert '"name":"SVRG, b=64"' not in page
        assert ">SVRG, b=64<" not in page

    def test_one_figure_of_all_protocols_tells_settings_apart_too(self, tmp_path: Path) -> None:
        made(tmp_path / "study", [0.9, 0.2], protocol="default")
        made(tmp_path / "alone", [0.9, 0.4], options={"lr": 0.05})
        both = dict(figures(load(tmp_path)))["fig2"]()
        texts = {text.get_text() for axes in both.axes for text in axes.texts}
        assert {"SVRG, b=64", "SVRG, b=64, lr=0.05"} <= texts


class TestSomeSeeds:
    """A target that some seeds reached is not said to be missed."""

    def test_of_the_only_method(self, tmp_path: Path) -> None:
        step(tmp_path / "a", 2.9, error=0.1)
        step(tmp_path / "b", 2.9, error=0.6, seed=1)
        assert "SVRG, b=64 reached a test error of 30 % with 1 of 2 seeds." in said(tmp_path)
        assert "not reach" not in said(tmp_path)

    def test_none(self, tmp_path: Path) -> None:
        step(tmp_path / "a", 2.9, error=0.6)
        assert "SVRG, b=64 did not reach a test error of 30 % within its budget." in said(tmp_path)

    def test_two_lines_of_vcsg_are_told_of_by_name(self, tmp_path: Path) -> None:
        made(tmp_path / "s", [0.9, 0.1], method="sgd", label="SGD")
        for lr in (0.1, 0.2):
            made(tmp_path / f"v{lr}", [0.9, 0.6], method="vcsg", label="VCSG", options={"lr": lr})
        told = said(tmp_path)
        assert "VCSG, lr=0.1 did not reach it within its budget. VCSG, lr=0.2 did not reach it" in told
