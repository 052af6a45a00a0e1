"""Files and modules of the user's own, for `--import`: they register methods, models, data sets and baselines.

A study remembers its imports, so that its worker processes and a later continuation know the same names.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from vcsg.method.registry import methods
from vcsg.study.baselines import BASELINES

_LOADED: dict[str, ModuleType] = {}
"""What was imported in this process, by resolved name: nothing is imported twice."""


def load(names: Iterable[str]) -> tuple[str, ...]:
    """Import every file or module; returns their names, with paths in full and each once."""
    resolved = tuple(dict.fromkeys(_resolve(name) for name in names))
    for name in resolved:
        if name not in _LOADED:
            _LOADED[name] = _import(name)
    both = [name for name in BASELINES if name in methods()]
    if both:
        raise ValueError(f"{both[0]!r} is the name of a method and of a baseline: rename one of them")
    return resolved


def remembered(folder: Path) -> tuple[str, ...]:
    """The imports of the study or run in a folder; none where there is no such thing."""
    try:
        if (folder / "study.json").exists():
            return tuple(json.loads((folder / "study.json").read_text(encoding="utf-8")).get("imports", ()))
        if (folder / "run.json").exists():
            return tuple(json.loads((folder / "run.json").read_text(encoding="utf-8"))["notes"].get("imports", ()))
    except (OSError, ValueError, KeyError, AttributeError):
        return ()  # whoever reads the file for its content says what is wrong with it
    return ()


def digests(names: Iterable[str]) -> dict[str, str]:
    """The imports by their short names, with a digest of each file: a study must not mix two versions of a method."""
    found = {}
    for name in names:
        path = name if _is_path(name) else _LOADED[name].__file__
        content = Path(path).read_bytes() if path else b""
        found[Path(name).name] = hashlib.sha256(content).hexdigest()[:12]
    return found


def _is_path(name: str) -> bool:
    return name.endswith(".py") or os.sep in name


def _resolve(name: str) -> str:
    """A path in full, so that it holds in any folder; the name of a module as it is."""
    if not _is_path(name):
        return name
    path = Path(name).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"--import {name}: there is no such file; give the path of a Python file, or a module's name")
    return str(path)


def _import(name: str) -> ModuleType:
    try:
        return _import_file(Path(name)) if _is_path(name) else _import_module(name)
    except (Exception, SystemExit) as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
        line = f", line {own[-1].lineno}" if own else ""
        raise ValueError(f"--import {name}{line}: {type(error).__name__}: {error}") from error


def _import_module(name: str) -> ModuleType:
    _add_to_path(Path.cwd())
    return importlib.import_module(name)


def _import_file(path: Path) -> ModuleType:
    """Run a file as a module of its own; it may import its neighbours."""
    _add_to_path(path.parent)
    name = f"vcsg_import_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file: its name has to end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _add_to_path(folder: Path) -> None:
    """Add a folder behind all others, so that nothing in it hides an installed module."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
