"""The pages of results against the records beside them: every figure of their tables is computed again."""

from __future__ import annotations

import math
import re
import statistics
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from vcsg.experiments.payoff import payoff_cells
from vcsg.experiments.payoff.gradient_estimators import ESTIMATORS
from vcsg.experiments.payoff.payoff_words import markdown, sentences, setup, title
from vcsg.study.records import RunRecord, load

FOLDER = Path(__file__).parent.parent / "docs" / "results" / "networks"
STUDIES = {
    "cifar10-lenet-5-h200": ("test_error", 0.3),
    "cifar10-vgg-16-h200": ("test_error", 0.2),
    "tiny-imagenet-h200": ("test_error_top5", 0.55),
    "mnist-h200": ("test_error", 0.02),
    "mnist-cpu": ("test_error", 0.02),
    "mnist-mini-cpu": ("test_error", 0.05),
}
"""The studies of networks, with the metric and the target of each."""

SHORT = {
    "cifar10-lenet-5-h200": "| 30 % in {} |",
    "tiny-imagenet-h200": "55 % in {} |",
    "mnist-h200": "in {} on an H200 |",
    "mnist-cpu": "2 % in {} on a CPU",
}
"""The time of `auto`, as the summary of all results has it."""


def table(records: list[RunRecord], metric: str, target: float) -> list[str]:
    """A line for each method: how many seeds reached the target, the median passes and seconds, the end."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.config.role == "run":
            assert record.status == "finished"
            groups.setdefault(f"{record.config.label}, {record.config.protocol}", []).append(record)
    return [line(name, own, metric, target) for name, own in sorted(groups.items())]


def line(name: str, records: list[RunRecord], metric: str, target: float) -> str:
    reached = [row for record in records if (row := record.reach(metric, target)) is not None]
    ends = sorted(100 * record.final[metric] for record in records)
    end = f"{statistics.median(ends):.2f} %" + (f" ({ends[0]:.2f}–{ends[-1]:.2f})" if len(ends) > 1 else "")
    told = f"{len(reached)} of {len(records)}"
    if len(reached) < len(records):
        return f"| {name} | {told} | – | – | {end} |"
    seconds = sorted(row["seconds"] for row in reached)
    spread = f" ({seconds[0]:.3g}–{seconds[-1]:.3g})" if len(seconds) > 1 else ""
    passes = statistics.median(row["passes"] for row in reached)
    return f"| {name} | {told} | {passes:.2f} | {statistics.median(seconds):.3g} s{spread} | {end} |"


def summary(records: list[RunRecord], metric: str, target: float) -> str:
    """`auto` beside the rival that reaches the target first with every seed, and the rival that ends lowest."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.config.role == "run":
            groups.setdefault(record.config.label.split(", b=")[0], []).append(record)
    ends = {name: statistics.median(100 * r.final[metric] for r in own) for name, own in groups.items()}
    times = {
        name: statistics.median(row["seconds"] for row in reached if row is not None)
        for name, own in groups.items()
        if None not in (reached := [r.reach(metric, target) for r in own])
    }
    ours, our_end = times.pop("auto"), ends.pop("auto")
    best, lowest = min(times, key=times.__getitem__, default=""), min(ends, key=ends.__getitem__)
    rival = f"{best}, {times[best]:.2g} s | {ours / times[best]:.2f}" if best else "none came there | –"
    return f"{ours:.2g} s | {rival} | {our_end:.3g} %, {ends[lowest]:.3g} % ({lowest}) |"


@pytest.mark.parametrize("name", STUDIES)
def test_the_tables_of_networks_are_those_of_the_records(name: str, tmp_path: Path) -> None:
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    lines = table(load(tmp_path), *STUDIES[name])
    page = (FOLDER / "README.md").read_text()
    assert lines
    assert "\n".join(lines) in page, "\n".join(lines)
    told = summary(load(tmp_path), *STUDIES[name])
    assert told in page, told
    if name == "cifar10-vgg-16-h200":
        runs = [run for run in load(tmp_path) if run.config.role == "run" and "b=64" in run.config.label]
        steps: dict[str, list[float]] = {}
        for run in runs:
            steps.setdefault(run.config.method, []).append(1000 * run.final["seconds"] / (16 * math.ceil(50_000 / 64)))
        costs = f"{min(steps['prodigy']):.0f} ms a step in its fastest run on VGG-16 with b = 64, which shared the GPU"
        assert f"{costs}, where AdamW takes {statistics.median(steps['adamw']):.1f}." in page
    if name in SHORT:
        assert SHORT[name].format(told.partition(" |")[0]) in (FOLDER.parent / "README.md").read_text()


def test_what_the_front_page_says_of_networks_on_a_gpu() -> None:
    """The least lead of `auto` over the best rival, and the times of both, as the page of networks has them."""
    page, front = (FOLDER / "README.md").read_text(), (FOLDER.parents[2] / "README.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|") and "H200 |" in line]
    assert len(rows) == 4
    ratios = [float(row[4]) for row in rows if row[4] != "–"]
    assert f"at least {math.floor(10 / max(ratios)) / 10:.1f} times as fast" in " ".join(front.split())
    for row in rows:
        rival, _, seconds = row[3].rpartition(", ")
        told = rival.replace("SGD, momentum 0.9", "SGD with momentum")
        ours = float(row[2].removesuffix(" s"))
        assert f"{ours:.2f} s" in front or f"{ours:.1f} s" in front
        assert not rival or f"{told} {seconds}" in front


def test_where_networks_end_as_the_front_page_has_it() -> None:
    """The test error of `auto` and that of the rival with the lowest, for all six studies."""
    page, front = (FOLDER / "README.md").read_text(), (FOLDER.parents[2] / "README.md").read_text()
    ends = re.findall(r"^\|.* (?:H200|CPU) \|.*\| (\S+ %), (\S+ %) \((.+)\) \|$", page, re.MULTILINE)
    assert len(ends) == len(STUDIES)
    for own, least, rival in ends:
        told = rival.replace("SGD, momentum 0.9", "SGD with momentum").removesuffix(" (torch)")
        assert f"| {own}, {told} {least} |" in front


def test_the_page_on_variance_reduction_is_that_of_its_records() -> None:
    """Sentences and tables, as the experiment makes them; its own tests hold these against the records of runs."""
    folder = FOLDER.parent / "variance-reduction"
    page = (folder / "README.md").read_text()
    found = payoff_cells.read(folder / "payoff.json")
    assert found
    for one in found:
        told = [*sentences(one), *(sentences(replace(one, goal=one.goal / 10))[:1] if one.key == "convex" else [])]
        for text in (*(f"- {sentence}" for sentence in told), f"## {title(one)}", setup(one), markdown(one)):
            assert text in page, text


def test_what_the_page_says_of_networks_and_variance_reduction() -> None:
    """Its sentences about the network, each by the costs themselves."""
    found = payoff_cells.read(FOLDER.parent / "variance-reduction" / "payoff.json")
    (net,) = (one for one in found if one.key == "network")
    costs = {(c.estimator, c.rule, c.b): c.cost(net.goal, "passes") for c in net.cells}
    reducing = [key for key, one in ESTIMATORS.items() if one.reduces]
    for rule in net.rules:
        for b in net.sizes:
            without = min(costs["sgd", rule, b], costs["momentum", rule, b])
            assert without < min(costs[key, rule, b] for key in reducing), "one without variance reduction came first"
            assert costs["momentum", rule, b] < min(costs[key, rule, b] for key in reducing), "momentum came before all"
    assert (costs["momentum", "plain", 16], costs["momentum", "orthogonal", 16]) == (2.0, 1.0)
    assert min(costs[key, "plain", b] for key in reducing for b in net.sizes) == pytest.approx(3.5, abs=0.01)
    assert min(costs[key, "orthogonal", b] for key in reducing for b in net.sizes) == pytest.approx(1.5, abs=0.01)
    momentum = [costs["momentum", rule, b] for rule in net.rules for b in net.sizes]
    best = [min(costs[key, rule, b] for key in reducing) for rule in net.rules for b in net.sizes]
    told = f"| momentum {min(momentum):.2g} to {max(momentum):.2g} passes | the best"
    assert f"{told} {min(best):.2g} to {max(best):.2g} |" in (FOLDER.parent / "README.md").read_text()
    front = f"momentum takes {min(momentum):.2g} to {max(momentum):.2g}, the best method with variance reduction"
    read = " ".join((FOLDER.parents[2] / "README.md").read_text().split())
    assert f"{front} {min(best):.2g} to {max(best):.2g} (" in read
    seconds = {c.estimator: c.cost(net.goal, "seconds") for c in net.cells if (c.rule, c.b) == ("orthogonal", 256)}
    ratios = [seconds[key] / seconds["sgd"] for key in reducing]
    assert sum(ratio < 1 for ratio in ratios) > len(ratios) / 2
    assert round(1 - min(ratios), 2) == 0.2, "by up to a fifth"


MEASURED = {
    "| CIFAR-10, LeNet-5, 30 % (H200)": ("cifar10-lenet-5-h200", "test_error", 0.3),
    "| CIFAR-10, VGG-16, 20 % (H200)": ("cifar10-vgg-16-h200", "test_error", 0.2),
    "| Tiny ImageNet (72,000 images), VGG-16, top-5 55 % (H200)": ("tiny-imagenet-h200", "test_error_top5", 0.55),
    "| Tiny ImageNet, top-5 45 % (H200)": ("tiny-imagenet-h200", "test_error_top5", 0.45),
    "| MNIST, LeNet-300-100, 2 % (H200)": ("mnist-h200", "test_error", 0.02),
    "| MNIST, LeNet-300-100, 2 % (CPU)": ("mnist-cpu", "test_error", 0.02),
    "| mnist-mini, LeNet-300-100, 5 % (CPU)": ("mnist-mini-cpu", "test_error", 0.05),
}
"""The rows of the table in docs/control.md, with the study, the metric and the target of each."""
COLUMNS = ("auto", "sgd-momentum", "adamw", "torch-muon", "schedule-free-adamw", "prodigy")


@pytest.mark.parametrize("start", MEASURED)
def test_the_table_of_the_guide_is_that_of_the_records(start: str, tmp_path: Path) -> None:
    """Every cell: the median time where all seeds reached the target, or what they took without; and the error."""
    name, metric, target = MEASURED[start]
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    runs = [run for run in load(tmp_path) if run.config.role == "run"]
    page = (FOLDER.parents[1] / "control.md").read_text()
    (row,) = (text for text in page.splitlines() if text.startswith(f"{start} |"))
    cells = [cell.strip().replace("**", "") for cell in row.strip("|").split("|")][1:]
    for method, cell in zip(COLUMNS, cells, strict=True):
        own = [run for run in runs if run.config.method == method]
        rows = [reached for run in own if (reached := run.reach(metric, target))]
        assert len(own) == 3
        told = f"{len(rows)} seed{'s' if len(rows) > 1 else ''} of 3"
        if len(rows) == 3:
            told, time = "", statistics.median(reached["seconds"] for reached in rows)
        elif not rows:
            told, time = "not in ", statistics.median(run.final["seconds"] for run in own)
        assert cell.startswith(told)
        end = statistics.median(100 * run.final[metric] for run in own)
        shown = re.findall(r"([\d.]+) (s|%)(?![a-z])", cell)
        assert [unit for _, unit in shown] in (["s", "%"], ["s"], ["%"])
        for number, unit in shown:
            decimals = len(number.partition(".")[2])
            assert abs(float(number) - (time if unit == "s" else end)) <= 0.5000001 * 10**-decimals, (method, time, end)
