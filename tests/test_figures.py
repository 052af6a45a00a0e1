"""The figures for print, by what is drawn in them rather than by their pixels."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from records_sample import CIFAR, MNIST, analytic, config, epochs, rows, write_run, write_study

import vcsg.study.view.figures
from vcsg.study.records import Row, RunRecord, load
from vcsg.study.reproduce import METHODS
from vcsg.study.targets import Target
from vcsg.study.view.curves import POINTS, ceiling, curve, curves, path
from vcsg.study.view.epoch_series import anchored_runs, epochs_of
from vcsg.study.view.figures import FORMATS, draw, figures, file_name, together
from vcsg.study.view.figures.anchors import inside
from vcsg.study.view.figures.axes import SETTINGS, plain
from vcsg.study.view.figures.bars import to_target
from vcsg.study.view.figures.overview import against_time, gradient, overview
from vcsg.study.view.label_places import apart, within
from vcsg.study.view.style import LOOKS, look_of, looks
from vcsg.study.view.summary import groups, summarise
from vcsg.study.view.words import amount, bar_text, short

MNIST_NAME, CIFAR_NAME = "mnist/lenet-300-100", "cifar10/lenet-5"
TARGETS = {MNIST_NAME: [Target("test_error", 0.025)], CIFAR_NAME: [Target("test_error", 0.3)]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    """Two workloads, two protocols, several methods and seeds."""
    folder = tmp_path_factory.mktemp("records")
    write_study(folder / "mnist", passes=10, search=True)
    write_study(folder / "cifar", CIFAR_NAME, CIFAR, seeds=2, passes=10, n=50_000, search=False)
    return load(folder)


def made(*evaluations: Row, status: str = "finished", **fields: object) -> RunRecord:
    """A run in memory."""
    chosen = config("w", str(fields.pop("method", "sgd")), str(fields.pop("label", "SGD")), **fields)
    return RunRecord(Path("r"), chosen, {}, "2026", status, evaluations=list(evaluations))


def row(passes: float, **metrics: float | None) -> Row:
    return {"passes": passes, "seconds": 2 * passes, "ifo": round(100 * passes), **metrics}


def names(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


class TestFiles:
    def test_png_and_pdf(self, runs: list[RunRecord], tmp_path: Path) -> None:
        one = groups(runs)[MNIST_NAME, "paper", "vcsg", "VCSG"][:1]
        folder = tmp_path / "new" / "figures"
        paths = draw(one, folder, TARGETS)
        assert {file.name for file in paths} == {file.name for file in folder.iterdir()}
        magic = {".png": b"\x89PNG", ".pdf": b"%PDF"}
        assert all(file.read_bytes().startswith(magic[file.suffix]) for file in paths)
        stems = {file.stem for file in paths}
        assert {"fig1-paper", "fig1-paper-ifo", "fig2-paper", "fig2-paper-ifo"} <= stems
        assert {"to-target-mnist-lenet-300-100-test-error-0.025", "inside-mnist-lenet-300-100-paper-vcsg"} <= stems

    def test_one_figure_has_the_methods_of_all_protocols(self, runs: list[RunRecord]) -> None:
        """With a word for the protocol beside each name."""
        assert "fig2" in dict(figures(runs))
        assert "fig2" not in dict(figures([run for run in runs if run.config.protocol == "paper"]))
        labels = {run.config.label for run in together(runs)}
        assert {"VCSG, as printed", "VCSG, tuned"} <= labels
        assert {run.config.protocol for run in together(runs)} == {""}

    @pytest.mark.parametrize("suffix", FORMATS)
    def test_the_same_records_make_the_same_file(self, suffix: str, runs: list[RunRecord], tmp_path: Path) -> None:
        for name in ("a", "b"):
            figure = against_time(runs, "paper", TARGETS)
            figure.savefig(tmp_path / f"{name}.{suffix}", metadata=FORMATS[suffix])
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()

    def test_no_runs_make_no_figures(self, tmp_path: Path) -> None:
        assert draw([], tmp_path, []) == []

    def test_every_figure_is_named_once(self, runs: list[RunRecord]) -> None:
        made = [name for name, _ in figures(runs, TARGETS)]
        assert len(made) == len(set(made))
        assert sum(name.startswith("inside") for name in made) == 12  # 3 anchored methods, 2 protocols, 2 workloads

    def test_names_are_plain(self) -> None:
        assert file_name("inside", "synthetic:n=20,d=3/least-squares", "", "α-SVRG, b=2") == (
            "inside-synthetic-n-20-d-3-least-squares-svrg-b-2"
        )

    def test_neither_plotly_nor_pyplot_is_needed(self) -> None:
        sources = Path(vcsg.study.view.figures.__file__).parent.glob("*.py")
        nodes = [node for source in sources for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))]
        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        assert "matplotlib.figure" in imported
        assert not [name for name in imported if name.startswith("plotly") or name.endswith("pyplot")]


class TestOverview:
    def test_a_row_per_workload(self, runs: list[RunRecord]) -> None:
        figure = overview(runs, "paper", TARGETS)
        assert len(figure.axes) == 6
        assert [axes.get_ylabel() for axes in figure.axes[:2]] == ["test error (%)", "training loss"]
        assert figure.axes[0].get_xlabel() == "passes (n gradients each)"
        assert figure.axes[2].get_xlabel() == "time per pass (s)"
        assert [axes.get_yscale() for axes in figure.axes[:2]] == ["log", "log"]
        assert {axes.get_title(loc="left") for axes in figure.axes[::3]} == {MNIST_NAME, CIFAR_NAME}
        assert names(figure) == ["VCSG", "SCSG", "the paper's SVRG", "the paper's SGD"]

    def test_lines_are_medians_in_percent(self, runs: list[RunRecord]) -> None:
        own = [run for run in runs if run.config.workload == MNIST_NAME]
        figure = overview(own, "tuned", TARGETS)
        drawn = {str(line.get_label()): line for line in figure.axes[0].lines}
        assert set(drawn) >= {"VCSG", "SCSG", "SVRG", "SGD", "SGD, momentum 0.9"}
        line = drawn["VCSG"]
        seeds = groups(own)[MNIST_NAME, "tuned", "vcsg", "VCSG"]
        x = float(np.asarray(line.get_xdata())[7])
        values = [np.interp(x, *path(run, "passes", "test_error")) / 100 for run in seeds]
        assert np.asarray(line.get_ydata())[7] == pytest.approx(100 * np.median(values))
        assert line.get_color() == "#D55E00"
        assert len(figure.axes[0].collections) == 5  # a band each

    def test_gradients_across(self, runs: list[RunRecord]) -> None:
        figure = overview(runs, "paper", TARGETS, unit="ifo")
        assert figure.axes[0].get_xlabel() == "gradients of single samples (thousands)"
        assert figure.axes[0].get_xlim()[1] == pytest.approx(500_000, rel=0.02)

    def test_the_target_is_marked(self, runs: list[RunRecord]) -> None:
        figure = overview([run for run in runs if run.config.workload == MNIST_NAME], "paper", TARGETS)
        left = figure.axes[0]
        assert [text.get_text() for text in left.texts] == ["2.5\u00a0%"]
        assert left.get_ylim()[0] < 2.5 < left.get_ylim()[1]

    def test_time_per_pass(self, runs: list[RunRecord]) -> None:
        own = [run for run in runs if run.config.workload == MNIST_NAME]
        right = overview(own, "paper", {}).axes[2]
        labels = [label.get_text() for label in right.get_yticklabels()]
        assert labels == ["VCSG", "SCSG", "the paper's SVRG", "the paper's SGD"]
        seeds = [run.final for run in own if (run.config.protocol, run.config.method) == ("paper", "vcsg")]
        paces = [final["seconds"] / final["passes"] for final in seeds]
        assert right.patches[0].get_width() == pytest.approx(np.median(paces))  # type: ignore[attr-defined]

    def test_without_a_test_set_the_gradient_takes_its_place(self, tmp_path: Path) -> None:
        found = load(analytic(tmp_path))
        figure = overview(found, "paper", {})
        assert figure.axes[0].get_ylabel() == "‖∇f‖²"
        assert figure.axes[2].get_xlabel() == "time per pass (ms)"

    def test_a_panel_with_nothing_to_draw_says_so(self) -> None:
        figure = overview(
            [made(row(0, train_loss=1.0), row(1, train_loss=0.5))], "", {"w": [Target("test_error", 0.1)]}
        )
        assert [text.get_text() for text in figure.axes[0].texts] == ["no test error was measured"]


class TestAgainstTime:
    def test_one_workload_has_the_whole_width_and_names_beside_its_curves(self, runs: list[RunRecord]) -> None:
        own = [run for run in runs if run.config.workload == MNIST_NAME]
        with matplotlib.rc_context(SETTINGS):
            figure = against_time(own, "tuned", TARGETS)
            figure.draw_without_rendering()
        axes = figure.axes[0]
        assert figure.get_figwidth() == 7.2
        assert axes.get_xlabel() == "training time (s)"
        assert str(figure.get_suptitle()).startswith("lower and further left is better · protocol: tuned")
        labels = {text.get_text(): text for text in axes.texts}
        assert labels.pop("target: 2.5\u00a0%").xy[0] == 0  # type: ignore[attr-defined]
        ends = {one.label: one.median[-1] for one in curves(own, "tuned", "seconds", "test_error")}
        assert sorted(labels, key=lambda name: labels[name].get_position()[1]) == sorted(
            ends, key=lambda name: ends[name]
        )
        boxes = sorted((text.get_window_extent() for text in labels.values()), key=lambda box: box.y0)
        assert all(low.y1 < high.y0 + 1 for low, high in itertools.pairwise(boxes))
        assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)

    def test_a_panel_per_workload(self, runs: list[RunRecord]) -> None:
        figure = against_time(runs, "paper", TARGETS, unit="ifo")
        assert figure.get_figwidth() == 7.2
        assert len([axes for axes in figure.axes if axes.get_visible()]) == 2

    def test_the_metric_is_that_of_the_target(self) -> None:
        found = [made(row(0, test_error=0.9, test_error_top5=0.8), row(1, test_error=0.5, test_error_top5=0.3))]
        axes = against_time(found, "", {"w": [Target("test_error_top5", 0.55)]}).axes[0]
        assert axes.get_ylabel() == "top-5 test error (%)"
        assert np.asarray(axes.lines[0].get_ydata()).tolist() == [80, 30]


class TestAxes:
    def test_times_far_apart_are_on_a_logarithmic_axis(self) -> None:
        fast = made(*(row(p, test_error=0.9 - 0.1 * p) for p in range(6)))
        slow = made(*(row(10 * p, test_error=0.9 - 0.1 * p) for p in range(6)), method="scsg", label="SCSG")
        axes = against_time([fast, slow], "", {}).axes[0]
        assert axes.get_xscale() == "log"
        assert axes.get_xlim() == (2.0, 100.0)  # from the first evaluation after the start
        assert against_time([fast], "", {}).axes[0].get_xscale() == "linear"
        assert against_time([fast, slow], "", {}, unit="ifo").axes[0].get_xscale() == "linear"

    def test_a_run_that_went_astray_does_not_hide_the_others(self) -> None:
        astray = made(row(0, train_loss=2.0), row(1, train_loss=1e20), row(2, train_loss=1.0))
        axes = overview([astray], "", {}).axes[1]
        assert axes.get_ylabel() == "training loss,\nabove 20 cut off"
        assert axes.get_ylim()[1] < 25
        assert ceiling(curves([astray], "", "passes", "train_loss")) == 20

    def test_a_legend_is_no_wider_than_its_figure(self) -> None:
        labels = [f"a method with a long name, b={k}" for k in range(6)]
        found = [made(row(0, test_error=0.9), row(1, test_error=0.5), label=label) for label in labels]
        with matplotlib.rc_context(SETTINGS):
            figure = overview(found, "", {})
            figure.draw_without_rendering()
            assert figure.legends[0].get_window_extent().width <= figure.bbox.width


class TestToTarget:
    def test_bars_and_their_texts(self, runs: list[RunRecord]) -> None:
        figure = to_target(runs, MNIST_NAME, TARGETS[MNIST_NAME][0])
        assert len(figure.axes) == 4  # two protocols, seconds and passes
        lines = [line for line in summarise(runs, TARGETS[MNIST_NAME]) if line.workload == MNIST_NAME]
        own = [line for line in lines if line.protocol == "paper"]
        seconds = figure.axes[0]
        assert [label.get_text() for label in seconds.get_yticklabels()] == [line.label for line in own]
        medians = [line.to_target["test-error=0.025"]["seconds"].median for line in own]
        for bar, median, text in zip(seconds.patches, medians, seconds.texts, strict=True):
            if median is None:
                assert bar.get_hatch()
                assert text.get_text() == " not reached"
            else:
                assert not bar.get_hatch()
                assert bar.get_width() == pytest.approx(median)  # type: ignore[attr-defined]
        assert None in medians
        assert figure.axes[0].get_xlim() == figure.axes[2].get_xlim()

    def test_some_seeds_and_failures_are_said(self) -> None:
        found = [
            made(row(0, test_error=0.9), row(1, test_error=0.1), seed=0),
            made(row(0, test_error=0.9), row(1, test_error=0.5), seed=1),
            made(row(0, test_error=0.9), method="gd", label="GD", status="failed"),
        ]
        lines = {line.method: line for line in summarise(found, [Target("test_error", 0.2)])}
        assert bar_text(lines["sgd"], "test-error=0.2", "seconds") == "not reached (1 of 2)"
        assert bar_text(lines["gd"], "test-error=0.2", "seconds") == "failed"
        to_target(found, "w", Target("test_error", 0.2))


class TestInside:
    def test_what_is_drawn(self, runs: list[RunRecord]) -> None:
        run = next(run for run in anchored_runs(runs) if run.config.method == "vcsg")
        figure = inside(run)
        *_, left, right = figure.axes
        labels = [str(line.get_label()) for line in left.lines]
        assert labels == ["batch size $B_j$", "mini-batch size $b_j$"]
        assert [str(line.get_label()) for line in right.lines][:3] == [
            "variance S*",
            "rough bound of ‖∇f‖²",
            next(str(line.get_label()) for line in right.lines if "estimate" in str(line.get_label())),
        ]
        assert any(str(line.get_label()).startswith("ε = ") for line in right.lines)
        assert np.asarray(left.lines[0].get_ydata()).tolist() == [row["B"] for row in run.epochs]
        assert len(figure.axes[0].collections) == len({row["regime"] for row in run.epochs})

    def test_regimes_cover_the_run(self, runs: list[RunRecord]) -> None:
        run = next(run for run in anchored_runs(runs) if run.config.method == "vcsg")
        found = epochs_of(run)
        spans = sorted(span for regime in found.regimes for span in found.spans(regime))
        assert spans[0][0] == pytest.approx(0)
        assert sum(width for _, width in spans) == pytest.approx(found.end)

    def test_negative_estimates_are_gaps_and_said(self, tmp_path: Path) -> None:
        made_up = epochs(1000, 5)
        shape = MNIST["paper"]["vcsg"]
        write_run(
            tmp_path / "r", config("w", "vcsg", "VCSG", n=1000), rows(shape, 0, passes=5, every=1, n=1000), made_up
        )
        (run,) = load(tmp_path)
        run.epochs[2]["gradient_norm2"] = -0.5
        run.epochs[3]["variance"] = None
        right = inside(run).axes[-1]
        (estimate,) = (line for line in right.lines if "estimate" in str(line.get_label()))
        assert "gaps: ≤ 0" in str(estimate.get_label())
        assert np.isnan(np.asarray(estimate.get_ydata())[2])

    def test_a_method_without_regimes_or_target(self, runs: list[RunRecord]) -> None:
        run = next(run for run in anchored_runs(runs) if run.config.method == "svrg")
        figure = inside(run)
        assert not figure.axes[0].collections
        assert not any("ε" in str(line.get_label()) for line in figure.axes[-1].lines)

    def test_many_epochs_are_thinned_and_the_share_is_said(self, runs: list[RunRecord]) -> None:
        run = next(run for run in anchored_runs(runs) if run.config.method == "vcsg")
        found = epochs_of(run, points=10)
        assert len(found.passes) == 10
        assert found.share == f" (10 of {len(run.epochs):,} drawn)"

    def test_methods_without_anchors_have_no_inside(self, runs: list[RunRecord]) -> None:
        assert {run.config.method for run in anchored_runs(runs)} == {"vcsg", "scsg", "svrg", "paper-svrg"}


def test_gradient_against_passes(tmp_path: Path) -> None:
    found = load(analytic(tmp_path))
    name = "synthetic/nonconvex-logistic"
    axes = gradient(found, name, "paper", [Target("grad_norm2", 1e-5)]).axes[0]
    assert axes.get_ylabel() == "‖∇f‖²"
    assert [text.get_text() for text in axes.texts] == ["$10^{-5}$"]
    assert file_name("gradient", name, "paper") in [made for made, _ in figures(found)]


class TestLabelPlaces:
    def test_those_with_room_stay(self) -> None:
        assert apart([0.9, 0.1, 0.5], 0.1) == pytest.approx([0.9, 0.1, 0.5])

    def test_those_without_are_spread_around_their_mean(self) -> None:
        assert apart([0.5, 0.5, 0.5], 0.1) == pytest.approx([0.4, 0.5, 0.6])
        assert apart([0.2, 0.52, 0.5], 0.1) == pytest.approx([0.2, 0.56, 0.46])

    def test_no_other_places_are_nearer(self) -> None:
        """The least squares among all grids of places in order, by enumeration."""
        wanted, gap = [0.3, 0.32, 0.38], 0.1
        found = apart(wanted, gap)
        order = sorted(range(3), key=lambda k: wanted[k])
        steps = np.arange(0, 0.9, 0.02)
        best = min(
            sum((place - wanted[k]) ** 2 for place, k in zip(places, order, strict=True))
            for places in itertools.product(steps, repeat=3)
            if all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(places))
        )
        assert all(found[b] - found[a] >= gap - 1e-9 for a, b in itertools.pairwise(order))
        assert sum((a - b) ** 2 for a, b in zip(found, wanted, strict=True)) <= best + 1e-12

    def test_they_are_moved_back_inside(self) -> None:
        assert within([0.95, 1.05], 0.0, 1.0) == pytest.approx([0.9, 1.0])
        assert within([-0.1, 0.5], 0.0, 1.0) == pytest.approx([0.0, 0.6])
        assert within([], 0.0, 1.0) == []


class TestCurves:
    def test_the_median_ends_with_the_first_run(self) -> None:
        found = curve(
            [made(row(0, e=1.0), row(1, e=0.5), row(2, e=0.1), seed=0), made(row(0, e=2.0), row(1, e=1.0))],
            "passes",
            "e",
        )
        assert found.x.tolist() == [0, 1]
        assert found.median.tolist() == [1.5, 0.75]
        assert (found.low.tolist(), found.high.tolist()) == ([1, 0.5], [2, 1])
        (rest,) = found.rests  # the other goes on by itself, from where the median ends to its own end
        assert (rest.x.tolist(), rest.y.tolist()) == ([1, 2], [0.5, 0.1])

    def test_what_goes_on_is_drawn_to_its_end(self) -> None:
        """By time the first seed ends at 4 s and the second, interpolated there, at 8 s."""
        quick = made(row(0, test_error=0.9), row(2, test_error=0.3), seed=0)
        late = made(row(0, test_error=0.8), row(3, test_error=0.5), row(4, test_error=0.2), seed=1)
        found = curve([quick, late], "seconds", "test_error")
        assert found.x[-1] == 4
        (rest,) = found.rests
        assert rest.x.tolist() == [4, 6, 8]
        assert rest.y.tolist() == pytest.approx([60, 50, 20])
        axes = against_time([quick, late], "", {}).axes[0]
        assert axes.get_xlim() == (0, 8)
        assert "single seeds, once the first has ended" in names(against_time([quick, late], "", {}))

    def test_runs_that_end_together_have_no_rest(self) -> None:
        runs = [made(row(0, e=1.0), row(end, e=0.5)) for end in (1.0, 1.004)]
        assert curve(runs, "passes", "e").rests == ()

    def test_where_a_run_failed_does_not_choose_the_axis(self) -> None:
        whole = made(*(row(p, test_error=0.9 - 0.1 * p) for p in range(6)))
        broken = made(row(0, test_error=0.9), row(0.01, test_error=0.9), label="broken", status="failed")
        assert against_time([whole, broken], "", {}).axes[0].get_xscale() == "linear"

    def test_runs_are_interpolated_to_each_others_evaluations(self) -> None:
        found = curve(
            [made(row(0, e=0.0), row(2, e=2.0)), made(row(0, e=0.0), row(1, e=3.0), row(2, e=4.0))], "passes", "e"
        )
        assert found.x.tolist() == [0, 1, 2]
        assert found.median.tolist() == [0, 2, 3]

    def test_a_value_that_is_not_finite_is_no_value(self) -> None:
        runs = [made(row(0, e=1.0), row(1, e=value), row(2, e=1.0)) for value in (0.5, 0.25, None)]
        found = curve(runs, "passes", "e")
        assert found.median.tolist() == [1.0, 0.5, 1.0]
        assert found.high.tolist() == [1.0, 0.5, 1.0]
        alone = curve(runs[2:], "passes", "e")
        assert np.isnan(alone.median).tolist() == [False, True, False]

    def test_unfinished_runs_stand_apart(self) -> None:
        whole = [made(row(0, e=1.0), row(1, e=0.5))]
        broken = [
            made(row(0, e=1.0), row(1, e=9.0), status="failed"),
            made(status="failed"),
            made(row(0, e=1.0), status="running"),
        ]
        found = curve(whole + broken, "passes", "e")
        assert found.median.tolist() == [1.0, 0.5]
        assert [tail.status for tail in found.tails] == ["failed", "running"]

    def test_long_runs_are_thinned(self) -> None:
        found = curve([made(*(row(p, e=1.0) for p in range(5 * POINTS)))], "passes", "e")
        assert len(found.x) == POINTS
        assert found.x[-1] == 5 * POINTS - 1

    def test_nothing_measured_is_no_curve(self) -> None:
        assert curves([made(row(0, e=1.0)), made(status="failed")], "", "passes", "test_error") == []


DEGENERATE = {
    "one evaluation": [made(row(0, train_loss=1.0, test_error=0.5))],
    "no evaluation": [made()],
    "failed at once": [made(status="failed"), made(row(0, train_loss=2.0, test_error=0.9), label="other")],
    "interrupted": [
        made(row(0, train_loss=2.0, test_error=0.9), row(1, train_loss=1.0, test_error=0.5), status="interrupted")
    ],
    "killed": [made(row(0, train_loss=2.0, test_error=0.9), status="running")],
    "zero error": [made(row(0, train_loss=1.0, test_error=0.5), row(1, train_loss=0.0, test_error=0.0))],
    "all zero": [made(row(0, train_loss=0.0, test_error=0.0), row(1, train_loss=0.0, test_error=0.0))],
    "negative loss": [made(row(0, train_loss=1.0, test_error=0.5), row(1, train_loss=-3.0, test_error=0.4))],
    "not finite": [made(row(0, train_loss=None, test_error=None), row(1, train_loss=None, test_error=None))],
    "constant": [made(row(0, train_loss=1.0, test_error=0.5), row(1, train_loss=1.0, test_error=0.5))],
    "huge range": [made(row(0, train_loss=1e12, test_error=0.5), row(1, train_loss=1e-12, test_error=0.1))],
    "no time": [made({"passes": 0.0, "seconds": 0.0, "ifo": 0, "train_loss": 1.0, "test_error": 0.1})],
    "no test set": [made(row(0, train_loss=1.0), row(1, train_loss=0.5))],
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_runs_are_drawn(name: str, tmp_path: Path) -> None:
    """Every figure, and as a file: layout and ticks happen when it is saved."""
    targets = [Target("test_error", 0.2), Target("train_loss", -1.0)]
    for title, make in figures(DEGENERATE[name], targets):
        if title.endswith("ifo"):
            continue
        with matplotlib.rc_context(SETTINGS):
            make().savefig(tmp_path / "f.png", dpi=30)


def test_marks_of_unfinished_runs_are_explained() -> None:
    found = [
        made(row(0, test_error=0.9), row(1, test_error=0.5), status=s, seed=k)
        for k, s in enumerate(("failed", "interrupted"))
    ]
    assert names(overview(found, "", {})) == ["SGD", "failed here", "interrupted here"]


def test_zeros_on_a_logarithmic_axis_are_said() -> None:
    axes = overview(DEGENERATE["zero error"], "", {}).axes[0]
    assert axes.get_yscale() == "log"
    assert axes.get_ylabel() == "test error (%), zeros left out"
    assert overview(DEGENERATE["negative loss"], "", {}).axes[1].get_yscale() == "linear"


class TestLooks:
    def test_no_two_methods_look_alike(self) -> None:
        assert len(set(LOOKS.values())) == len(LOOKS)

    def test_methods_that_share_a_figure_differ_by_more_than_the_length_of_a_dash(self) -> None:
        usual = {"paper-svrg", "paper-sgd", "schedule-free-adamw", "prodigy"}.union(*METHODS.values())
        kinds = [(LOOKS[method].colour, LOOKS[method].dash.removeprefix("long")) for method in usual]
        assert len(set(kinds)) == len(usual)

    def test_a_method_has_always_the_same_look(self) -> None:
        assert look_of("my-method") == look_of("my-method")
        tuned = made(label="VCSG, b_min=16", method="vcsg", protocol="tuned")
        found = looks([made(label="VCSG", method="vcsg", protocol="paper"), tuned])
        assert set(found.values()) == {LOOKS["vcsg"]}

    def test_two_labels_of_a_method_side_by_side_differ_in_dashes(self) -> None:
        found = looks([made(label="VCSG", method="vcsg"), made(label="VCSG, b_min=16", method="vcsg")])
        assert len({look.dash for look in found.values()}) == 2
        assert {look.colour for look in found.values()} == {LOOKS["vcsg"].colour}


def test_numbers_in_words() -> None:
    assert [short(x) for x in (0, 0.0312, 0.5, 1, 9.96, 10.4, 1234)] == [
        "0",
        "0.031",
        "0.5",
        "1.0",
        "10.0",
        "10",
        "1,234",
    ]
    assert [amount("ifo", x) for x in (1_234_567, 20_864, 999)] == ["1.23\u00a0M", "20.9\u00a0k", "999"]
    assert amount("seconds", 2) == "2.0\u00a0s"
    assert amount("seconds", None) == "–"
    assert [plain(x) for x in (0.01, 20, 1e-5, 2e6)] == ["0.01", "20", "$10^{-5}$", "$2\\cdot10^{6}$"]
