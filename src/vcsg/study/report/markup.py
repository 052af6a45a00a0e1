"""HTML in which text is escaped unless it is marked as HTML already: what a record says can never become markup."""

from __future__ import annotations

import html
from collections.abc import Iterable


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Iterable["Child"]
VOID = {"img", "input"}


def tag(name: str, /, *children: Child, **attributes: str | bool) -> Markup:
    """An element. `class_` is class, `data_value` is data-value; True is an attribute without value, False none."""
    parts = [name]
    for key, value in attributes.items():
        word = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(word)
        elif value is not False:
            parts.append(f'{word}="{html.escape(value)}"')
    if name in VOID:
        return Markup(f"<{' '.join(parts)}>")
    return Markup(f"<{' '.join(parts)}>{text(*children)}</{name}>")


def text(*children: Child) -> Markup:
    """The children one after the other, those escaped that are not HTML."""
    return Markup("".join(_one(child) for child in children))


def _one(child: Child) -> str:
    if isinstance(child, Markup):
        return child
    return html.escape(child) if isinstance(child, str) else text(*child)
