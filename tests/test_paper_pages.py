"""The pages on the paper's data sets against the records beside them: every row of their tables is computed again."""

from __future__ import annotations

import math
import re
import statistics
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from vcsg.study.records import RunRecord, load
from vcsg.study.targets import Target
from vcsg.study.view.sections import Section, sections
from vcsg.study.view.summary import claim_rows

RESULTS = Path(__file__).parent.parent / "docs" / "results"
Values = list[float]

MNIST, CIFAR = Target("test_error", 0.025), Target("test_error", 0.3)
CIFAR_NEAR, CIFAR_NEARER = Target("test_error", 0.5), Target("test_error", 0.4)
TINY = Target("test_error_top5", 0.55)


def way(unit: str, target: Target) -> Callable[[list[RunRecord]], Values]:
    """What every run took to a target, infinity for one that did not reach it; nothing where most did not."""

    def values(runs: list[RunRecord]) -> Values:
        rows = [run.reach(target.metric, target.value) for run in runs]
        return [row[unit] if row else math.inf for row in rows] if sum(map(bool, rows)) > len(runs) / 2 else []

    return values


def end(metric: str, scale: float = 1.0) -> Callable[[list[RunRecord]], Values]:
    """Where every run ended."""
    return lambda runs: [scale * run.final[metric] for run in runs]


def budget(runs: list[RunRecord]) -> Values:
    """The passes that each run was allowed."""
    return [run.config.budget["passes"] for run in runs]


@dataclass(frozen=True)
class Page:
    """A page with a table: the archives of its records, beside it or on other pages; its target; and its columns.

    They stand behind the columns method and protocol, and one of how many seeds reached the target, if there is one.
    """

    archives: tuple[str, ...]
    target: Target | None
    columns: tuple[Callable[[list[RunRecord]], Values], ...]


PAGES = {
    "mnist/README.md": Page(
        ("mnist/records.tar.xz", "mnist/records-scsg-b1.tar.xz", "mnist/records-vcsg-b16.tar.xz"),
        MNIST,
        (way("passes", MNIST), way("seconds", MNIST), end("train_loss"), end("test_error", 100)),
    ),
    "cifar10/README.md": Page(
        ("cifar10/records.tar.xz",),
        CIFAR,
        (*(way(unit, target) for target in (CIFAR, CIFAR_NEARER) for unit in ("passes", "seconds")),
         end("train_loss"), end("test_error", 100)),
    ),
    "cifar10-vgg-16/README.md": Page(
        ("cifar10-vgg-16/records.tar.xz", "networks/cifar10-vgg-16-h200.tar.xz"),
        CIFAR,
        (way("passes", CIFAR), budget, end("train_loss"), end("test_error", 100)),
    ),
    "tiny-imagenet/README.md": Page(
        ("tiny-imagenet/records-72000.tar.xz", "networks/tiny-imagenet-h200.tar.xz"),
        TINY,
        (way("passes", TINY), budget, end("train_loss"), end("test_error_top5", 100)),
    ),
    "tiny-imagenet/17000.md": Page(
        ("tiny-imagenet/records.tar.xz", "tiny-imagenet/records-default.tar.xz"),
        None,
        (end("train_loss"), end("test_error_top5", 100), end("test_error", 100), end("seconds")),
    ),
}  # fmt: skip


def text_of(page: str) -> str:
    """The words of a page, on one line."""
    return " ".join((RESULTS / page).read_text(encoding="utf-8").split())


def records_of(page: str, folder: Path) -> list[Path]:
    """The studies of a page, unpacked."""
    for place in PAGES[page].archives:
        with tarfile.open(RESULTS / place) as archive:
            archive.extractall(folder, filter="data")
    return sorted(path.parent for path in folder.rglob("study.json"))


def rows_of(page: str) -> list[list[str]]:
    """The cells of every line of a table whose second cell is a protocol."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    return [cells for cells in found if len(cells) > 2 and cells[1] in ("paper", "tuned", "default")]


def fits(shown: str, value: float) -> bool:
    """Whether a number on a page is the value, rounded to the digits that it has."""
    decimals = len(shown.partition(".")[2])
    return abs(float(shown) - value) <= 0.5000001 * 10**-decimals


def check(cell: str, values: Values) -> None:
    """A cell has the median and, in brackets, the lowest and the highest; or a dash, or the median alone.

    Where a run did not reach the target, "from" and the lowest."""
    numbers = re.findall(r"\d+(?:\.\d+)?", cell)
    if not values:
        assert cell == "–"
        return
    expected = [value for value in (statistics.median(values), min(values), max(values)) if math.isfinite(value)]
    assert ("(from" in cell) == (max(values) == math.inf)
    assert len(numbers) in (1, len(expected)), cell
    assert all(map(fits, numbers, expected)), (cell, expected)


@pytest.mark.parametrize("name", PAGES)
def test_the_rows_of_a_page_are_those_of_its_records(name: str, tmp_path: Path) -> None:
    page = PAGES[name]
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for run in load(*records_of(name, tmp_path)):
        if run.config.role == "run":
            label = run.config.label.replace("b_min=", "b ≥ ").replace("b=", "b = ")
            groups.setdefault((label, run.config.protocol), []).append(run)
    rows = rows_of((RESULTS / name).read_text(encoding="utf-8"))
    assert {(label, protocol) for label, protocol, *_ in rows} == set(groups)
    for label, protocol, *cells in rows:
        runs = groups[label, protocol]
        ends = {f", broken off after {run.final['passes']:.0f}" for run in runs if run.status != "finished"}
        told = [cell for cell in cells if "broken off" in cell]
        assert len(ends) == len(told)
        for end, cell in zip(ends, told, strict=True):
            assert cell.endswith(end)
            cells[cells.index(cell)] = cell.removesuffix(end)
        if page.target is not None:
            reached = sum(run.reach(page.target.metric, page.target.value) is not None for run in runs)
            assert cells.pop(0) == (f"{reached} of {len(runs)}" if reached else "none")
        assert len(cells) == len(page.columns)
        for cell, column in zip(cells, page.columns, strict=True):
            check(cell, column(runs))


@pytest.mark.parametrize(("name", "target"), [("mnist/README.md", MNIST), ("cifar10/README.md", CIFAR_NEAR)])
def test_claims_beside_what_was_measured(name: str, target: Target, tmp_path: Path) -> None:
    """The speed-ups of VCSG over the three others, as the paper sets all four."""
    (section,) = sections([path for path in records_of(name, tmp_path) if path.name == name.partition("/")[0]])
    aimed = section.aiming_at([target])
    claim = {**(aimed.claim or {}), "target": target.value}
    page = (RESULTS / name).read_text(encoding="utf-8")
    rows = [row for row in claim_rows(claim, aimed.lines) if row.protocol == "paper"]
    assert len(rows) == 3
    for row in rows:
        cells = [_words(str(one)) for one in (row.seconds, row.ifo)]
        line = f"| faster than {row.label.replace('b=', 'b = ')} | {row.claimed:g} × | {' | '.join(cells)} |"
        assert line in page, line
    (own,) = (line for line in aimed.lines if (line.protocol, line.method) == ("paper", "vcsg"))
    (cells,) = (line for line in page.splitlines() if line.startswith("| VCSG |") and "passes (" in line)
    found = [re.findall(r"\d+(?:\.\d+)?", cell) for cell in cells.split("|")[-3:-1]]
    for numbers, unit in zip(found, ("seconds", "passes"), strict=True):
        spread = own.to_target[str(target)][unit]
        assert spread.median is not None
        assert spread.low is not None
        assert spread.high is not None
        assert all(map(fits, numbers, (spread.median, spread.low, spread.high)))


def _words(speedup: str) -> str:
    return speedup.replace("≥", "more than").replace("×", " ×")


def best_of_searches(name: str, trials_each: int, tmp_path: Path) -> tuple[list[RunRecord], dict[str, float]]:
    """All runs of a page, and the least training loss of each search, which the page has a row of."""
    runs = load(*(path for path in records_of(name, tmp_path) if path.name == name.partition("/")[0]))
    trials: dict[str, list[RunRecord]] = {}
    for run in runs:
        if run.config.role == "search":
            trials.setdefault(run.config.label.replace(", b_min=16", "").replace(", b=16", ""), []).append(run)
    page = (RESULTS / name).read_text(encoding="utf-8")
    losses = {}
    for label, own in trials.items():
        assert len(own) == trials_each
        best = min(own, key=lambda run: run.final["train_loss"])
        losses[label] = best.final["train_loss"]
        least = " (the least)" if label == "VCSG" else ""
        cells = f"{best.notes['b']}{least} | {best.config.options['lr']:.3g} | {best.notes['factor']:.3g}"
        assert f"| {label} | {cells} | {losses[label]:.4f} |" in page, (label, cells, losses[label])
    return runs, losses


def runs_by_method(runs: list[RunRecord]) -> dict[tuple[str, str], list[RunRecord]]:
    made: dict[tuple[str, str], list[RunRecord]] = {}
    for run in runs:
        if run.config.role == "run":
            made.setdefault((run.config.protocol, run.config.method), []).append(run)
    return made


def test_the_searches_on_mnist(tmp_path: Path) -> None:
    """The best of every search, by its training loss; and what the page says of the runs that followed."""
    runs, losses = best_of_searches("mnist/README.md", 15, tmp_path)
    page = (RESULTS / "mnist" / "README.md").read_text(encoding="utf-8")
    assert len(losses) == 7
    assert min(losses[name] for name in ("SVRG", "SCSG", "VCSG")) > 5 * losses["SGD, momentum 0.9"]
    made = runs_by_method(runs)
    ends = {key: [run.final["test_error"] for run in own] for key, own in made.items()}
    assert max(ends.pop(("default", "auto"))) < min(map(min, ends.values())), "auto ends lower than all others"
    reducing = {name: statistics.median(ends["tuned", name]) for name in ("vcsg", "scsg", "svrg")}
    assert min(reducing, key=reducing.__getitem__) == "vcsg"
    told = [" ".join(run.notes.get("warnings", [])).count("diverged") for run in made["tuned", "scsg"]]
    assert told == [0, 10, 3]
    assert "it diverged, 10 and 3 times" in page
    slow, quick = (
        statistics.median(way("seconds", MNIST)(made[key])) for key in (("paper", "vcsg"), ("tuned", "sgd-momentum"))
    )
    assert round(slow / quick) == 18, "an eighteenth of the time"


def test_the_searches_on_cifar10(tmp_path: Path) -> None:
    """The best of every search; how VCSG with its defaults fares beside VCSG as printed; and what overfits."""
    runs, losses = best_of_searches("cifar10/README.md", 11, tmp_path)
    page = text_of("cifar10/README.md")
    assert len(losses) == 7
    made = runs_by_method(runs)
    ends = {key: statistics.median(100 * run.final["test_error"] for run in own) for key, own in made.items()}
    assert min(ends, key=ends.__getitem__) == ("default", "auto")
    seconds = {key: way("seconds", CIFAR)(own) for key, own in made.items()}
    times = sorted(statistics.median(own) for own in seconds.values() if own)
    assert round(times[1] / times[0]) == 8, "an eighth of the time of the next"
    assert "It is ahead of VCSG as printed up to 4.5 passes, then wavers between 35 and 52 %" in page
    for passes, ahead in (
        (2.0, True),
        (3.0, True),
        (4.0, True),
        (4.5, True),
        (5.0, False),
        (8.0, False),
        (15.0, False),
    ):
        own, printed = (
            statistics.median(errors_at(made[key], passes)) for key in (("default", "vcsg"), ("paper", "vcsg"))
        )
        assert (own < printed) == ahead, passes
    later = [error for k in range(9, 31) for error in errors_at(made["default", "vcsg"], k / 2)]
    assert 35 <= min(later) < 36
    assert 51 <= max(later) < 52
    beside = [run for run in runs if run.config.role == "search" and run.notes["b"] == 256]
    large = min(run.final["train_loss"] for run in beside if run.config.method == "torch-muon")
    assert f"Muon chose b = 16 by a training loss of {losses['Muon (torch)']:.4f} beside {large:.4f} with" in page
    fitted = ("sgd", "sgd-momentum", "adamw", "torch-muon")
    deep = [statistics.median(run.final["train_loss"] for run in made["tuned", method]) for method in fitted]
    assert f"are at a training loss of {min(deep):.2f} to {max(deep):.2f} by then" in page
    for method in fitted:
        least = statistics.median(min(row["test_error"] for row in run.evaluations) for run in made["tuned", method])
        assert 1.5 <= ends["tuned", method] - 100 * least < 1.95, "1.5 to 1.9 points"


def errors_at(runs: list[RunRecord], passes: float) -> Values:
    """The test error in % of every run at its evaluation after so many passes."""
    return [100 * min(run.evaluations, key=lambda row: abs(row["passes"] - passes))["test_error"] for run in runs]


def of(section: Section, protocol: str, method: str) -> list[RunRecord]:
    return [run for run in section.runs if (run.config.protocol, run.config.method) == (protocol, method)]


def test_what_the_page_on_tiny_imagenet_says_of_vcsg(tmp_path: Path) -> None:
    """L and ε at the start, ‖∇f‖² after the first epoch and later, and the size that anchors shrink to."""
    (section,) = sections(records_of("tiny-imagenet/17000.md", tmp_path))
    own = of(section, "paper", "vcsg")
    page = (RESULTS / "tiny-imagenet" / "17000.md").read_text(encoding="utf-8")
    smoothness = [run.notes["L"]["L"] for run in own]
    assert "estimated as 9,700 to 14,200" in page
    assert (round(min(smoothness), -2), round(max(smoothness), -2)) == (9700, 14200)
    eps = [run.epochs[0]["eps"] for run in own]
    assert "ε, 5,300 to 14,100" in page
    assert (round(min(eps), -2), round(max(eps), -2)) == (5300, 14100)
    second = [run.epochs[1]["gradient_norm2"] for run in own]
    assert "‖∇f‖² was measured as 1,005 to 6,081 after the first" in page
    assert (round(min(second)), round(max(second))) == (1005, 6081)
    later = [statistics.median(epoch["gradient_norm2"] for epoch in run.epochs[2:]) for run in own]
    assert "the median over the rest of a run is 2 to 3" in page
    assert 1.5 < min(later) <= max(later) < 3.5
    assert {min(epoch["B"] for epoch in run.epochs) for run in own} == {32}
    losses = {run.config.seed: run.evaluations[0]["train_loss"] for run in own}
    assert "the loss of the\n  initial nets is 7 to 11" in page
    assert (round(min(losses.values())), round(max(losses.values()))) == (7, 11)


def test_what_the_page_on_72000_images_says(tmp_path: Path) -> None:
    """Where the paper's four ended, L and the first steps; the passes to 90 and 55 %; what the searches chose."""
    page = text_of("tiny-imagenet/README.md")
    records = load(*records_of("tiny-imagenet/README.md", tmp_path))
    made = runs_by_method(records)
    four = [made["paper", method][0] for method in ("vcsg", "scsg", "paper-svrg", "paper-sgd")]
    assert "they are at 97 % after 3 to 6 passes" in page
    assert {round(100 * run.final["test_error_top5"]) for run in four} == {97}
    assert [round(run.final["passes"]) for run in four] == [5, 6, 6, 3]
    first, second = four[0].epochs[:2]
    assert "with steps of 1.3e-07: L is estimated as 9,745" in page
    assert (first["passes"], round(first["L"]), f"{first['step_size']:.1e}") == (1.0, 9745, "1.3e-07")
    assert 3.9 < second["passes"] - second["anchor_size"] / 72_000 < 4.5, "four of which its first epoch takes"

    def passes(method: str, target: Target, protocol: str = "tuned") -> float:
        own = made[protocol, method]
        return statistics.median(way("passes", target)(own) or [math.inf])

    near = Target("test_error_top5", 0.9)
    assert (
        "to 90 % it took 4 passes in the median (4 to 7), SVRG 8 with two seeds of three, and SCSG 9 with one" in page
    )
    assert [round(passes(method, near), 1) for method in ("vcsg", "svrg")] == [4.0, 8.0]
    arrived = {
        method: sorted(
            round(row["passes"]) for run in made["tuned", method] if (row := run.reach(near.metric, near.value))
        )
        for method in ("vcsg", "svrg", "scsg")
    }
    assert arrived == {"vcsg": [4, 4, 7], "svrg": [8, 8], "scsg": [9]}
    assert "in 33 passes" in page
    assert "SGD with momentum takes 6, AdamW 5, and `auto`, with nothing set, 1.5." in page
    told = (("default", "vcsg", 33), ("tuned", "sgd-momentum", 6), ("tuned", "adamw", 5), ("default", "auto", 1.5))
    for protocol, method, least in told:
        assert round(passes(method, TINY, protocol), 2) == least
    (longer,) = made["default", "vcsg"]
    assert {longer.config.options["lr"]} == {run.config.options["lr"] for run in made["tuned", "vcsg"]}
    assert f"after {longer.final['seconds']:.0f} s" in page
    chosen = {method: made["tuned", method][0].notes["search"] for method in ("vcsg", "scsg", "svrg")}
    assert [round(one["factor"]) for one in chosen.values()] == [128, 128, 1024]
    assert [max(one["factors"]) == one["factor"] for one in chosen.values()] == [False, False, True]
    assert {epoch["b"] for epoch in longer.epochs} == {64}, "the least size that is allowed"
    sizes = [epoch["B"] / 72_000 for epoch in longer.epochs]
    assert "From epoch 5 on its anchors have a tenth of all samples, and in the end a sixth" in page
    assert min(sizes[1:4]) > 0.3
    assert [round(size, 2) for size in (min(sizes[4:]), sizes[4], sizes[-1])] == [0.1, 0.1, 0.18]
    assert "S\\* falls fifty-fold at first, and then grows" in page
    variances = [epoch["variance"] for epoch in longer.epochs]
    assert 50 <= variances[0] / min(variances) < 60
    assert min(variances) == min(variances[:4]) < variances[-1] / 10
    warned = [" ".join(run.notes.get("warnings", [])).count("diverged") for run in made["tuned", "scsg"]]
    assert warned == [0, 0, 2]


def test_what_the_page_on_cifar10_with_vgg16_says(tmp_path: Path) -> None:
    """How far VCSG as printed is ahead, its first epoch, the ends of the tuned methods, and the searches."""
    page = text_of("cifar10-vgg-16/README.md")
    made = runs_by_method(load(*records_of("cifar10-vgg-16/README.md", tmp_path)))
    (own,) = made["paper", "vcsg"]
    near = own.reach("test_error", 0.6)
    assert near is not None
    assert "To 60 % it took 6 passes" in page
    assert round(near["passes"], 1) == 6.0
    others = [run for method in ("scsg", "paper-svrg", "paper-sgd") for run in made["paper", method]]
    assert all(run.reach("test_error", 0.6) is None and round(run.final["passes"]) == 8 for run in others)
    first, second = own.epochs[:2]
    assert f"its steps are short, {first['step_size']:.1e}; later ones are {second['step_size']:.1e}" in page
    assert f"Its seconds under that load, {near['seconds']:.0f}, say nothing" in page
    assert f"(1 pass, {first['L']:,.0f} at the start)" in page
    assert f"The first {second['passes'] - second['anchor_size'] / 50_000:.1f} of those passes" in page
    errors = [100 * row["test_error"] for row in own.evaluations if row["passes"] < second["passes"]]
    assert f"took it from {errors[0]:.1f} to {errors[-1]:.1f} %" in page
    ends = {method: statistics.median(errors_at(made["tuned", method], 16)) for method in ("vcsg", "scsg", "svrg")}
    assert min(ends, key=ends.__getitem__) == "vcsg"
    assert round(ends["vcsg"]) == 37
    rivals = ("schedule-free-adamw", "adamw", "torch-muon", "sgd-momentum", "prodigy")
    taken = [statistics.median(way("passes", CIFAR)(made["tuned", method])) for method in rivals]
    assert (min(taken), max(taken)) == (2.0, 5.0)
    assert "`auto`, with nothing set, 1 pass and 0.9 s" in page
    auto = [statistics.median(way(unit, CIFAR)(made["default", "auto"])) for unit in ("passes", "seconds")]
    assert [round(one, 1) for one in auto] == [1.0, 0.9]
    chosen = {method: made["tuned", method][0].notes["search"] for method in ("vcsg", "scsg", "svrg")}
    assert [round(one["factor"]) for one in chosen.values()] == [32, 256, 1024]
    assert [max(one["factors"]) == one["factor"] for one in chosen.values()] == [False, False, True]
    told = [" ".join(run.notes.get("warnings", [])).count("diverged") for run in made["tuned", "scsg"]]
    assert told == [1, 2, 17]
    assert "it diverged once, twice and 17 times" in page


def test_measuring_L_again_on_tiny_imagenet(tmp_path: Path) -> None:
    """L of the defaults at the start and at the end, and what the second measurement cost."""
    (section,) = sections(records_of("tiny-imagenet/17000.md", tmp_path))
    own = of(section, "default", "vcsg")
    again = [run for run in own if run.config.options.get("measure_again")]
    assert (len(own), len(again)) == (4, 2)
    page = (RESULTS / "tiny-imagenet" / "17000.md").read_text(encoding="utf-8")
    for run in own:
        assert {epoch["L"] for epoch in run.epochs} == {run.epochs[0]["L"]}, "a second value was not taken"
        assert f"{run.epochs[0]['L']:,.0f}" in page
    for run in again:
        (once,) = (other for other in own if other not in again and other.config.seed == run.config.seed)
        pairs = zip(run.epochs, once.epochs, strict=False)
        first = next(a["passes"] - b["passes"] for a, b in pairs if a["passes"] != b["passes"])
        assert f"{first:.2f} passes" in page.replace("\n  ", " ")
