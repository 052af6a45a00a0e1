"""The documentation site: it builds without a warning, has every public name, and needs nothing from elsewhere."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from chromium import FOUND, chromium

ROOT = Path(__file__).parent.parent
NEEDED = {"mkdocs-material", "mkdocstrings-python"}
FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")
pytestmark = pytest.mark.skipif(
    not NEEDED <= {found.name for found in importlib.metadata.distributions()},
    reason="needs what pip install 'vcsg[docs]' brings",
)


def build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, env=quiet, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    for page in pages:
        built = page.with_name("index.html" if page.name == "README.md" else f"{page.stem}.html")
        assert (site / built).is_file(), built
    for name in ("overview", "changelog", "contributing", "license", "examples"):
        assert (site / f"{name}.html").is_file()


@pytest.mark.parametrize(
    "module", ["vcsg", "vcsg.linear", "vcsg.method", "vcsg.workloads", "vcsg.theory", "vcsg.extend"]
)
def test_the_reference_has_every_public_name(site: Path, module: str) -> None:
    page = (site / "api" / f"{module}.html").read_text()
    names = importlib.import_module(module).__all__
    rooms = {"linear", "method", "theory", "workloads"} if module == "vcsg" else set()
    assert {name for name in names if f'id="{module}.{name}"' not in page} == rooms


def test_a_preset_has_the_text_of_its_method(site: Path) -> None:
    page = (site / "api" / "vcsg.html").read_text()
    entry = page[page.index('id="vcsg.SGD"') :]
    assert "Stochastic gradient descent" in entry[: entry.index('id="vcsg.', 20)]


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not FETCHED.findall(page.read_text()), page.relative_to(site)


def test_formulas_pictures_and_names_of_files_are_set_for_readers(site: Path) -> None:
    theory, tiny = ((site / page).read_text() for page in ("theory.html", "results/tiny-imagenet/17000.html"))
    assert "ε<sup>−3/2</sup> ∧ n<sup>1/4</sup>/ε" in theory
    assert "∇f<sub>I</sub>(y)" in theory
    assert re.search(r'<a href="paper.html[^"]*">The paper: readings and errata</a>', theory)
    assert not re.search(r"\^\{|_\{", re.sub(r"<code>.*?</code>|<pre.*?</pre>", "", theory, flags=re.DOTALL))
    shown = re.search(r'<a class="picture" href="(fig2-paper.png)"[^>]*><img [^>]*width="469"', tiny)
    assert shown, "700 dots of 200 per inch are 3.5 inches"
    assert (site / "results/tiny-imagenet" / shown[1]).is_file()
    code = (site / "overview.html").read_text()
    assert "v = a·∇f_I(x) + b·∇f_I(y) + c·m" in re.sub(r"</?span[^>]*>", "", code)  # and code stays as it is


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("[a](nowhere.md) [b](index.md#no-such) [c][vcsg.absent]", ["nowhere.md", "#no-such", "vcsg.absent"]),
        ("::: vcsg.absent", ["vcsg.absent could not be found"]),
    ],
)
def test_what_leads_nowhere_fails_the_build(tmp_path: Path, text: str, complaints: list[str]) -> None:
    (tmp_path / "docs" / "site").mkdir(parents=True)
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{text}\n")
    shutil.copy(ROOT / "docs/site/docstrings.py", tmp_path / "docs/site")
    (tmp_path / "src").symlink_to(ROOT / "src")
    settings = [f"INHERIT: {ROOT / 'mkdocs.yml'}", "docs_dir: docs", "hooks: []", "extra_css: []", "nav: [index.md]"]
    (tmp_path / "mkdocs.yml").write_text("\n".join(settings) + "\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    for complaint in complaints:
        assert complaint in done.stderr


@pytest.mark.skipif(FOUND is None, reason="needs Chromium")
def test_pages_fit_a_desk_and_a_phone_and_can_be_searched(site: Path) -> None:
    with chromium() as browser:
        for name in ("index", "gallery", "methods", "api/vcsg.linear"):
            for width in (1280, 390):
                browser.open(site / f"{name}.html", width)
                assert browser.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
                assert browser.evaluate("[...document.images].every(i => i.naturalWidth > 0)"), name
                assert not browser.complaints()
                assert all(address.startswith(("file:", "data:")) for address in browser.requests())
        browser.open(site / "index.html")
        browser.evaluate("document.querySelector('.md-search__input').focus()")
        browser.call("Input.insertText", text="elastic net")
        browser.until("document.querySelector('.md-search-result__item') !== null")
