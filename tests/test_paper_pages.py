"""The pages on the paper's data sets against the records beside them: every row of their tables is computed again."""

from __future__ import annotations

import math
import re
import statistics
import tarfile
from collections.abc import Callable
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


PAGES = {
    "mnist": (
        MNIST,
        [way("passes", MNIST), way("seconds", MNIST), end("train_loss"), end("test_error", 100)],
    ),
    "cifar10": (
        CIFAR,
        [*(way(unit, target) for target in (CIFAR, CIFAR_NEARER) for unit in ("passes", "seconds")),
         end("train_loss"), end("test_error", 100)],
    ),
    "tiny-imagenet": (
        None,
        [end("train_loss"), end("test_error_top5", 100), end("test_error", 100), end("seconds")],
    ),
}  # fmt: skip
"""The columns of the table of each page, behind method and protocol: how many seeds reached the target, and these."""


def records_of(name: str, folder: Path) -> list[Path]:
    """The studies of a page, unpacked."""
    for path in sorted((RESULTS / name).glob("records*.tar.xz")):
        with tarfile.open(path) as archive:
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
    target, columns = PAGES[name]
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for run in load(*records_of(name, tmp_path)):
        if run.config.role == "run":
            label = run.config.label.replace("b_min=", "b ≥ ").replace("b=", "b = ")
            groups.setdefault((label, run.config.protocol), []).append(run)
    rows = rows_of((RESULTS / name / "README.md").read_text(encoding="utf-8"))
    assert {(label, protocol) for label, protocol, *_ in rows} == set(groups)
    for label, protocol, *cells in rows:
        runs = groups[label, protocol]
        assert all(run.status == "finished" for run in runs)
        if target is not None:
            reached = sum(run.reach(target.metric, target.value) is not None for run in runs)
            assert cells.pop(0) == (f"{reached} of {len(runs)}" if reached else "none")
        assert len(cells) == len(columns)
        for cell, column in zip(cells, columns, strict=True):
            check(cell, column(runs))


@pytest.mark.parametrize(("name", "target"), [("mnist", MNIST), ("cifar10", CIFAR_NEAR)])
def test_claims_beside_what_was_measured(name: str, target: Target, tmp_path: Path) -> None:
    """The speed-ups of VCSG over the three others, as the paper sets all four."""
    (section,) = sections([path for path in records_of(name, tmp_path) if path.name == name])
    aimed = section.aiming_at([target])
    claim = {**(aimed.claim or {}), "target": target.value}
    page = (RESULTS / name / "README.md").read_text(encoding="utf-8")
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
    runs = load(*(path for path in records_of(name, tmp_path) if path.name == name))
    trials: dict[str, list[RunRecord]] = {}
    for run in runs:
        if run.config.role == "search":
            trials.setdefault(run.config.label.replace(", b_min=16", "").replace(", b=16", ""), []).append(run)
    page = (RESULTS / name / "README.md").read_text(encoding="utf-8")
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
    runs, losses = best_of_searches("mnist", 15, tmp_path)
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
    runs, losses = best_of_searches("cifar10", 11, tmp_path)
    page = " ".join((RESULTS / "cifar10" / "README.md").read_text(encoding="utf-8").split())
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
    (section,) = sections(records_of("tiny-imagenet", tmp_path))
    own = of(section, "paper", "vcsg")
    page = (RESULTS / "tiny-imagenet" / "README.md").read_text(encoding="utf-8")
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


def test_the_paper_s_four_with_72000_images(tmp_path: Path) -> None:
    """Every row, from a study that was broken off; L, the first steps, and SCSG with its step searched."""
    with tarfile.open(RESULTS / "tiny-imagenet" / "begun-72000.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    page = (RESULTS / "tiny-imagenet" / "README.md").read_text(encoding="utf-8")
    own = {
        run.config.method: run for run in load(tmp_path / "tiny-imagenet-72000" / "paper") if run.config.role == "run"
    }
    labels = ["VCSG as printed", "SCSG, b = 16", "the paper's SVRG", "the paper's SGD"]
    for method, label in zip(("vcsg", "scsg", "paper-svrg", "paper-sgd"), labels, strict=True):
        run, row = own[method], own[method].evaluations[-1]
        passes = f"{row['passes']:.0f}" + ("" if run.status == "finished" else ", broken off")
        assert f"| {label} | {passes} | {row['train_loss']:.2f} | {100 * row['test_error_top5']:.1f} % |" in page
    first, second = own["vcsg"].epochs[:2]
    assert (first["passes"], round(first["L"]), f"{first['step_size']:.1e}") == (1.0, 9745, "1.3e-07")
    assert 3.9 < second["passes"] - second["anchor_size"] / 72_000 < 4.5, "four of which its first epoch takes"
    (searched,) = (run for run in load(tmp_path / "tiny-imagenet-72000" / "tuned") if run.config.role == "run")
    row = searched.evaluations[-1]
    assert (round(row["passes"]), f"{100 * row['test_error_top5']:.1f}") == (5, "94.1")
    factors = [run for run in load(tmp_path / "tiny-imagenet-72000" / "tuned") if run.config.role == "search"]
    assert len(factors) == 7
    assert min(factors, key=lambda run: run.final["train_loss"]).notes["factor"] == 64


def test_measuring_L_again_on_tiny_imagenet(tmp_path: Path) -> None:
    """L of the defaults at the start and at the end, and what the second measurement cost."""
    (section,) = sections(records_of("tiny-imagenet", tmp_path))
    own = of(section, "default", "vcsg")
    again = [run for run in own if run.config.options.get("measure_again")]
    assert (len(own), len(again)) == (4, 2)
    page = (RESULTS / "tiny-imagenet" / "README.md").read_text(encoding="utf-8")
    for run in own:
        assert {epoch["L"] for epoch in run.epochs} == {run.epochs[0]["L"]}, "a second value was not taken"
        assert f"{run.epochs[0]['L']:,.0f}" in page
    for run in again:
        (once,) = (other for other in own if other not in again and other.config.seed == run.config.seed)
        pairs = zip(run.epochs, once.epochs, strict=False)
        first = next(a["passes"] - b["passes"] for a, b in pairs if a["passes"] != b["passes"])
        assert f"{first:.2f} passes" in page.replace("\n  ", " ")
