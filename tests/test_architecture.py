"""The order of the modules: an import only ever points to one further in."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ORDER = [
    "files",
    "names",
    "vectors",
    "weights",
    "schedules",
    "family",
    "variance",
    "smoothness",
    "sampling",
    "run",
    "eager",
    "distributed",
    "epochs",
    "steps",
    "kernels",
    "graphs",
    "graphed",
    "optimizer",
    "presets",
    "training",
    "linear",
    "workloads",
    "study",
    "cli",
    "__main__",
]
CORE = {"torch", "numpy", "vcsg"}
EXTRAS = {
    "kernels.py": {"triton"},
    "graphed.py": {"triton"},
    "training": {"matplotlib", "rich"},
    "linear": {"llvmlite", "numba", "scipy", "sklearn", "threadpoolctl"},
    "workloads": {"PIL", "pooch"},
    "study": {"matplotlib", "plotly", "rich", "safetensors"},
    "cli.py": {"typer"},
}
"""What else a part needs. `training`, `workloads`, figures and report import theirs where they are used alone."""
SOURCE = Path(__file__).parent.parent / "src" / "vcsg"


def modules() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def imports(path: Path) -> set[str]:
    """Every module that a file imports, dotted, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.name)
def test_imports_point_inwards(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    allowed = {*ORDER[: ORDER.index(own)], own}
    used = {name.split(".")[1] for name in imports(path) if name.startswith("vcsg.")}
    assert used <= allowed, f"{own} may not import {sorted(used - allowed)}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.name)
def test_the_core_needs_torch_and_numpy_only(path: Path) -> None:
    import sys

    outside = {name.split(".")[0] for name in imports(path)} - CORE - set(sys.stdlib_module_names)
    assert outside <= EXTRAS.get(path.relative_to(SOURCE).parts[0], set())


def test_every_module_has_its_place() -> None:
    assert {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in modules()} == set(ORDER)
