"""The documentation: every example runs, tables agree with the code, links lead somewhere."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import pytest
import torch

import vcsg
from vcsg import integrations
from vcsg.method import registry
from vcsg.study.baselines import BASELINES
from vcsg.workloads import datasets, models, problems, workload

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
ALONE = {"docs/paper.md", "docs/integrations.md"}
"""Pages whose blocks run each in a namespace of its own; on the others a block continues those before it."""
OPTIONAL = ("lightning", "accelerate", "transformers", "skorch", "tensorboard", "mlflow", "wandb")
"""Packages that a block may need and that need not be installed; the block is then skipped."""

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
METHODS = ROOT / "docs" / "methods.md"
LINEAR = ROOT / "docs" / "results" / "linear" / "README.md"
TRACKERS = {"MLFLOW_TRACKING_URI": "mlruns", "MLFLOW_ALLOW_FILE_STORE": "true", "WANDB_SILENT": "true"}
"""Settings of trackers that keep their files in the folder of the test."""
QUOTED = re.compile(r"([\d.]+) to ([\d.]+) × a step of plain SGD")
TRIPLE = re.compile(r"\(([^()]+), ([^()]+), ([^()]+)\)")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


REGISTRIES = [
    (registry, "_REGISTRY"),
    (datasets, "_SOURCES"),
    (models, "_MODELS"),
    (problems, "_FAMILIES"),
    (workload, "_REGISTERED"),
]
"""Where methods and workloads are registered."""


@dataclass
class Page:
    """The python blocks of a page with their first lines, and how far they have run."""

    path: Path
    blocks: list[tuple[int, str]]
    namespace: dict[str, Any] = field(default_factory=dict)
    registries: list[dict[str, Any]] = field(default_factory=lambda: [dict(getattr(*r)) for r in REGISTRIES])
    done: int = 0

    def run(self, index: int) -> None:
        """Run block `index`, and before it those that it continues. A traceback has the page's own lines."""
        if name(self.path) in ALONE:
            self.namespace, self.done = {}, index
        while self.done <= index:
            line, code = self.blocks[self.done]
            self.namespace["__name__"] = "__main__"
            exec(compile("\n" * (line - 1) + code, name(self.path), "exec"), self.namespace)
            self.done += 1


def fences(path: Path, language: str) -> list[tuple[int, str]]:
    """The blocks of a language with the number of their first line."""
    text = path.read_text()
    return [(text.count("\n", 0, m.start(2)) + 1, m[2]) for m in FENCE.finditer(text) if m[1] == language]


@cache
def load(path: Path) -> Page:
    return Page(path, fences(path, "python"))


def missing(code: str) -> list[str]:
    """The optional packages that a block imports and that are not installed."""
    imported = set(re.findall(r"[\w]+", "\n".join(re.findall(r"^(?:from|import) (\S+)", code, re.MULTILINE))))
    glue = "".join(re.findall(r"^from vcsg.integrations import (.*)$", code, re.MULTILINE))
    imported |= {extra for name, extra in integrations._EXTRAS.items() if name in glue}
    return [package for package in OPTIONAL if package in imported and find_spec(package) is None]


def blocks() -> list[Any]:
    return [
        pytest.param(
            page,
            index,
            id=f"{name(page)}:{line}",
            marks=pytest.mark.skipif(bool(lacking := missing(code)), reason=f"not installed: {', '.join(lacking)}"),
        )
        for page in PAGES
        for index, (line, code) in enumerate(fences(page, "python"))
    ]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """The examples' tensors are small: more threads save nothing, and cost much where the cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("path", "index"), blocks())
def test_example_runs(path: Path, index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = load(path)
    monkeypatch.chdir(tmp_path)
    for variable, value in TRACKERS.items():
        monkeypatch.setenv(variable, value)
    # What a page registers stays on that page.
    for (module, attribute), entries in zip(REGISTRIES, page.registries, strict=True):
        monkeypatch.setattr(module, attribute, entries)
    with patch.dict(BASELINES):
        page.run(index)


def table(page: Path, heading: str) -> list[dict[str, str]]:
    """The rows of the first table below a heading, by column."""
    section = re.split(r"^#", page.read_text().split(f"\n{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    lines = section[section.index("\n|") + 1 :].split("\n\n", 1)[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def weights(text: str) -> set[tuple[float, ...]]:
    return {tuple(float(w.replace("−", "-")) for w in triple) for triple in TRIPLE.findall(text)}


def shown(default: object) -> str:
    """A default as the pages write it: numbers to four digits, texts in double quotes."""
    if isinstance(default, float):
        return repr(float(f"{default:.4g}"))
    return f'"{default}"' if isinstance(default, str) else repr(default)


def listed(rows: list[dict[str, str]]) -> dict[str, str]:
    """Options and defaults of a table; a row may have several options."""
    return {name.strip(" `"): row["default"].strip("`") for row in rows for name in row["option"].split(",")}


def test_the_methods_are_listed_with_their_weights() -> None:
    rows = {row["method"].strip("`"): row for row in table(METHODS, "## All of them")}
    known = vcsg.methods()
    assert list(rows) == list(known)
    for key, method in known.items():
        row = rows[key]
        assert weights(row["(a, b, c)"]) == {tuple(round(w, 4) for w in choice) for choice in method.choices}, key
        assert row["unbiased"].rstrip("¹²") == ("yes" if method.unbiased else "no"), key
        preset = getattr(vcsg, row["class"].strip("`"))
        assert preset.factory.__name__ == key.replace("-", "_")


def test_every_method_is_explained() -> None:
    section = METHODS.read_text().split("\n## What each one is\n", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"\*\*`([a-z-]+)`\*\*", section) == list(vcsg.methods())


def test_the_options_of_each_method_are_listed_with_their_defaults() -> None:
    rows = table(METHODS, "## Options of each method")
    for key in vcsg.methods():
        parameters = inspect.signature(registry.factory(key)).parameters
        own = [row for row in rows if row["method"].strip("`") == key]
        assert listed(own) == {name: shown(p.default) for name, p in parameters.items()}, key
    assert {row["method"].strip("`") for row in rows} <= set(vcsg.methods())


def test_the_options_of_every_method_are_listed_with_their_defaults() -> None:
    own = inspect.signature(registry.factory("vcsg")).parameters
    parameters = inspect.signature(vcsg.VCSG).parameters
    shared = {name: shown(p.default) for name, p in parameters.items() if name not in ("params", "n", *own)}
    assert listed(table(ROOT / "docs" / "using.md", "## Options of every method")) == shared


def test_readme_quotes_the_linear_figures_of_their_page() -> None:
    ratios = linear_ratios("Large sets")
    slow = sum(r < 2 for r in ratios)
    readme = (ROOT / "README.md").read_text()
    assert f"{min(ratios):.1f} to {max(ratios):.0f} × as fast" in readme
    assert f"median {median(ratios):.1f} ×, below 2 × in {slow} of {len(ratios)} cells" in readme
    assert f"all of {len(ratios)} comparisons, {median(ratios):.1f} times in the median" in readme
    assert f"in all of {len(ratios)} comparisons." in (ROOT / "docs" / "README.md").read_text()


def test_the_guide_to_linear_models_quotes_the_figures_of_their_page() -> None:
    rows = table(ROOT / "docs" / "linear.md", "## What was measured")
    told = {link[1]: row["ratio"] for row in rows if (link := re.search(r"\]\(.*#(.+)\)", row["problem"]))}
    large = linear_ratios("Large sets")
    assert told.pop("large-sets") == f"{min(large)} to {max(large)} ×, median {median(large):.1f} ×"
    assert f"{len(large)} cells" in rows[0]["problem"]
    paths = table(LINEAR, "## Paths and cross-validation")
    best = [min(float(row[peer].strip(" ×")) for peer in ("scikit-learn", "celer", "skglm")) for row in paths]
    assert told.pop("paths-and-cross-validation") == f"{min(best)} to {max(best)} ×"
    sections = ("Shapes on which other solvers are at their best", "Small data", "The L1 penalty")
    assert told == {slug(name): "{} to {} ×".format(*extremes(linear_ratios(name))) for name in sections}


def linear_ratios(heading: str) -> list[float]:
    """The ratios in the table of a section: of single cells, or of the worst and the best cell of a line."""
    section = re.split(r"^#", LINEAR.read_text().split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    lines = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    return [float(r) for cell in re.findall(r"\*\*([\d.]+(?: to [\d.]+)?) ×\*\*", lines) for r in cell.split(" to ")]


def extremes(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def test_readme_quotes_the_step_times_of_their_page() -> None:
    rows = [row for row in table(ROOT / "docs" / "performance.md", "## Measured") if int(row["b"]) <= 16]
    ratios = [float(row[name]) for row in rows for name in ("SVRG / SGD", "VCSG / SGD")]
    faster = [float(row["eager / graphed"].strip(" ×")) for row in rows]
    low, high = map(float, QUOTED.findall((ROOT / "README.md").read_text())[0])
    assert low == round(min(ratios), 1)
    assert max(ratios) <= high < max(ratios) + 0.05
    assert f"{min(faster):.0f} to {max(faster):.0f} × as fast as step by step" in (ROOT / "README.md").read_text()


def test_readme_names_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shell = "\n".join(code for _, code in fences(ROOT / "README.md", "sh"))
    named = set(re.findall(r"^make ([a-z]+)", shell, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if re.match(r"https?://", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.is_file(), f"{link}: no such file"
        assert target.is_relative_to(ROOT), f"{link}: outside the repository"
        if anchor:
            headings = HEADING.findall(FENCE.sub("", target.read_text()))
            assert anchor in map(slug, headings), f"{link}: no such heading"


def test_pictures_are_small() -> None:
    pictures = list((ROOT / "docs" / "img").iterdir())
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 200_000, picture.name
