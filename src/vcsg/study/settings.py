"""Options of methods as a user writes them: `--set eps=0.01`, `--set scsg.b=16`, or the same in a TOML file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcsg.names import suggestion
from vcsg.study import methods
from vcsg.study.methods import Options

WORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class MethodSettings:
    """Options for every method that has them, and options for single methods."""

    common: Options = field(default_factory=dict)
    own: dict[str, Options] = field(default_factory=dict)

    def of(self, method: str) -> Options:
        """The options of a method; its own override the common ones."""
        known = methods.parameters(method)
        return {key: value for key, value in self.common.items() if key in known} | self.own.get(method, {})

    def check(self, used: Iterable[str]) -> None:
        """Refuse an option that no method of the study has."""
        used = list(used)
        for method, options in self.own.items():
            if method not in used:
                raise ValueError(f"an option is set for {method!r}, which is not run: {suggestion(method, used)}")
            methods.check_options(method, options)
        known = list(dict.fromkeys(key for method in used for key in methods.parameters(method)))
        for key in self.common:
            if key not in known:
                has = f"{used[0]} has no" if len(used) == 1 else f"none of {', '.join(used)} has an"
                raise ValueError(f"{has} option {key!r}: {suggestion(key, known)}")
        for method in used:
            methods.check_options(method, self.of(method))


def parse(settings: Iterable[str], config: str | os.PathLike[str] | None = None) -> MethodSettings:
    """Read options from a file and from the command line, which overrides the file.

    In the file, `eps = 0.01` is for every method that has it, and a table `[scsg]` for one of them.
    """
    made = MethodSettings() if config is None else _read(Path(config))
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"--set {text!r}: write NAME=VALUE, such as eps=0.01, or scsg.b=16 for one method")
        method, _, key = name.strip().rpartition(".")
        (made.own.setdefault(method, {}) if method else made.common)[key] = _value(value.strip())
    return made


def _read(path: Path) -> MethodSettings:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"--config {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"--config {path} is not TOML: {error}") from error
    made = MethodSettings()
    for key, value in found.items():
        if isinstance(value, dict):
            made.own[key] = {name: _plain(path, name, item) for name, item in value.items()}
        else:
            made.common[key] = _plain(path, key, value)
    return made


def _plain(path: Path, name: str, value: Any) -> Any:
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError(f"--config {path}: {name} = {value!r}: give a number, a word, or true or false")
    return None if value == "none" else value


def _value(text: str) -> Any:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
