"""Docstrings as Markdown: presets have those of their methods, examples are code, and S* begins no emphasis."""

from __future__ import annotations

import ast
import re
import textwrap
from typing import Any

import griffe

EXAMPLE = re.compile(r"^Example:\n((?:    .*\n?|\n)+)", re.MULTILINE)
STAR = re.compile(r"(?<=\w)\*(?=[\s,.:;)/]|$)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Makes docstrings ready for the pages."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Write what follows `Example:` as a block of code, and stars after a letter as themselves."""
        if obj.docstring is not None:
            text = EXAMPLE.sub(_as_code, STAR.sub(r"\*", obj.docstring.value))
            obj.docstring.value = text

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Give every preset the docstring of the function that it takes its method from."""
        if pkg.name != "vcsg":
            return
        catalogue, presets = pkg["method.catalogue"], pkg["presets"]
        for node in ast.parse(presets.filepath.read_text()).body:
            if isinstance(node, ast.ClassDef):
                (function,) = (k.value.attr for k in node.keywords if isinstance(k.value, ast.Attribute))
                presets[node.name].docstring = catalogue[function].docstring


def _as_code(match: re.Match[str]) -> str:
    code = textwrap.dedent(match[1]).strip("\n")
    return f"Example:\n    ```python\n{textwrap.indent(code, '    ')}\n    ```\n"
