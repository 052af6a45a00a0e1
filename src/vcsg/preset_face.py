"""The face of a preset: docstring and signature of an optimizer whose method is that of one function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

from vcsg.method.definition import Method


def preset_signature(method: Callable[..., Method], optimizer: Callable[..., None]) -> inspect.Signature:
    """The signature of a preset: the arguments of every optimizer, and after the first two the method's own."""
    common = inspect.signature(optimizer).parameters.values()
    own = [p.replace(kind=p.KEYWORD_ONLY) for p in inspect.signature(method).parameters.values()]
    kept = [p for p in common if p.name not in ("self", "method", "options")]
    return inspect.Signature([*kept[:2], *own, *kept[2:]])


def preset_doc(method: Callable[..., Method], optimizer_doc: str | None) -> str:
    """The docstring of a preset: what the method is, and every option, its own and the common ones."""
    text, _, own = inspect.cleandoc(method.__doc__ or "").partition("\n\nArgs:\n")
    listed = inspect.cleandoc(optimizer_doc or "").partition("Args:\n")[2] + "\n"
    entries = re.findall(r"^    \S.*\n(?:     .*\n)*", listed, re.MULTILINE)
    common = [entry for entry in entries if not entry.lstrip().startswith(("method:", "options:"))]
    return f"{text}\n\nArgs:\n{''.join(common[:2])}{own.rstrip() + chr(10) if own else ''}{''.join(common[2:])}"
