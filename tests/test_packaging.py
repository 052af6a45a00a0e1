"""What a package index gets: the wheel and the sources, their description, and tests that run from the sources."""

from __future__ import annotations

import email
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HOME = "https://example.org/vcsg"
MADE = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "*-output", "shared")
"""What building and testing leave behind, and what begins with a dot."""

pytestmark = pytest.mark.skipif(
    not {"build", "setuptools", "twine"} <= {found.name for found in importlib.metadata.distributions()},
    reason="needs build, setuptools and twine",
)


def run(*command: str, folder: Path, source: Path | None = None) -> str:
    """Standard output of a Python program; `source` is where it finds the library."""
    path = {} if source is None else {"PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=os.environ | path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with wheel and sources, built from a copy of this tree."""
    folder = tmp_path_factory.mktemp("packaging")
    shutil.copytree(ROOT, folder / "tree", ignore=MADE)
    run("-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), folder=folder / "tree")
    return folder / "dist"


@pytest.fixture(scope="module")
def sources(products: Path) -> Path:
    """The sources, unpacked."""
    with tarfile.open(*products.glob("*.tar.gz")) as archive:
        archive.extractall(products.parent, filter="data")
    (folder,) = products.parent.glob("vcsg-*")
    return folder


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_string(archive.read(name).decode())


def test_the_index_accepts_both(products: Path) -> None:
    files = [str(path) for path in products.iterdir()]
    assert len(files) == 2
    run("-m", "twine", "check", "--strict", *files, folder=products)


def test_the_wheel_has_the_library_with_its_data_and_nothing_else(products: Path) -> None:
    with zipfile.ZipFile(*products.glob("*.whl")) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    library = ROOT / "src"
    tree = {p.relative_to(library).as_posix() for p in (library / "vcsg").rglob("*") if p.is_file()}
    assert packed == {name for name in tree if "__pycache__" not in name}


def test_the_sources_have_every_file_of_the_tree(sources: Path) -> None:
    for folder in ("benchmarks", "docs", "examples", "src/vcsg", "tests"):
        tree = {p.relative_to(ROOT) for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts}
        missing = sorted(str(path) for path in tree if not (sources / path).is_file())
        assert not missing, f"MANIFEST.in leaves out {missing}"
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "mkdocs.yml", "pyproject.toml"):
        assert (sources / name).is_file(), name


def test_the_tests_run_from_the_sources(sources: Path) -> None:
    selected = ["tests/test_architecture.py", "tests/test_docs.py", "-k", "not example"]
    said = run("-m", "pytest", "-q", "-p", "no:cacheprovider", *selected, folder=sources, source=sources / "src")
    assert " passed" in said
    assert "failed" not in said


def test_no_link_of_the_description_leads_nowhere(products: Path) -> None:
    text = metadata(*products.glob("*.whl")).get_payload()
    assert isinstance(text, str)
    assert text.startswith("# vcsg")
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        assert link.startswith("https://"), link


def test_links_of_the_description_lead_to_the_repository_where_it_has_an_address(tmp_path: Path) -> None:
    for name in ("README.md", "LICENSE", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "src/vcsg/workloads").mkdir(parents=True)
    for name in ("version.py", "workloads/mnist_mini.txt"):
        shutil.copy(ROOT / "src/vcsg" / name, tmp_path / "src/vcsg" / name)
    with (tmp_path / "README.md").open("a") as readme:
        readme.write("\n![a picture](docs/img/demo.png)\n\n```python\nmethods[0](lr)\n```\n")
    settings = re.sub(r"\[project\.urls\]\n(?:\w.*\n)*", "", (ROOT / "pyproject.toml").read_text())
    (tmp_path / "pyproject.toml").write_text(f'{settings}\n[project.urls]\nRepository = "{HOME}/"\n')
    code = "from setuptools.build_meta import prepare_metadata_for_build_wheel as f; print(f('.'))"
    place = run("-c", code, folder=tmp_path).splitlines()[-1]
    found = email.message_from_string((tmp_path / place / "METADATA").read_text())
    text = found.get_payload()
    assert isinstance(text, str)
    assert f"]({HOME}/blob/HEAD/docs/using.md)" in text
    assert f"]({HOME}#what-was-measured)" in text
    assert f"![a picture]({HOME}/raw/HEAD/docs/img/demo.png)" in text
    assert "methods[0](lr)" in text
    assert found["Project-URL"] == f"Repository, {HOME}/"


def test_the_supported_versions_of_python_are_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [c.rsplit(" ", 1)[1] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert project["requires-python"] == f">={named[0]}"
    assert named == [f"3.{minor}" for minor in range(11, 11 + len(named))]
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in named


def test_linear_models_need_no_torch() -> None:
    pytest.importorskip("numba")
    code = """
import sys


class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, NoTorch())
import numpy as np
from vcsg.linear import LinearClassifier
rows = np.random.default_rng(0).normal(size=(200, 3))
model = LinearClassifier(alpha=1e-3).fit(rows, rows[:, 0] > 0)
assert model.score(rows, rows[:, 0] > 0) > 0.95
import vcsg
assert vcsg.methods()
try:
    vcsg.fit
except ImportError as error:
    print(type(error).__name__)
"""
    assert run("-c", code, folder=ROOT, source=ROOT / "src") == "ModuleNotFoundError\n"
