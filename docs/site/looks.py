"""How formulas and pictures look on the site, from pages that are written for a reader of the repository."""

from __future__ import annotations

import posixpath
import re
import struct
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

LEFT_ALONE = re.compile(
    r"((?s:^````?.*?^````?$)|^ {4}.*$|`+[^`]*`+|\]\([^)]*\)|\]\[[^\]]*\]|</?[a-z]+(?: [^<>\n]*)?>|https?://\S+|^#.*$)",
    re.MULTILINE,
)
"""Code, the targets of links, tags, headings (their anchors are to stay) and indented lines."""
SUPERSCRIPT = re.compile(r"\^(?:\{([^{}]+)\}|([\w¼½¾⅓⅔]+))")
SUBSCRIPT = re.compile(r"(?<!\w)([^\W\d_]{1,2}[\u0300-\u036f]?)_(?:\{([^{}]+)\}|([A-Za-z0-9])(?!\w))")
PICTURE = re.compile(r'(<img alt="[^"]*" src="([^":]+\.png)")([^>]*>)')
DRAWN, SHOWN = 200, 134
"""Dots per inch that a picture is drawn with where it does not say, and that it is shown with: text of 7 pt is read."""


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Set formulas."""
    return formulas(markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show pictures in the size that they were drawn for."""
    return pictures(html, Path(config.docs_dir), posixpath.dirname(page.file.dest_uri))


def formulas(prose: str) -> str:
    """The prose with n^{2/3} and B_j set as superscripts and subscripts, outside of code, links and headings."""
    parts = LEFT_ALONE.split(prose)
    parts[::2] = [SUBSCRIPT.sub(_lowered, SUPERSCRIPT.sub(_raised, part)) for part in parts[::2]]
    return "".join(parts)


def _raised(match: re.Match[str]) -> str:
    return f"<sup>{match[1] or match[2]}</sup>"


def _lowered(match: re.Match[str]) -> str:
    return f"{match[1]}<sub>{match[2] or match[3]}</sub>"


def pictures(html: str, docs: Path, folder: str) -> str:
    """The page in that folder with every picture as wide as it was drawn for, and a link to it in full size."""

    def shown(match: re.Match[str]) -> str:
        start, address, end = match.groups()
        file = docs / posixpath.normpath(posixpath.join(folder, address))
        if not file.is_file():
            return match[0]
        return f'<a class="picture" href="{address}" title="In full size">{start} width="{width(file)}"{end}</a>'

    return PICTURE.sub(shown, html)


def width(file: Path) -> int:
    """The pixels that a PNG file takes on the page, from its own and how many of them it has per metre."""
    data = file.read_bytes()
    pixels: int = struct.unpack(">I", data[16:20])[0]
    place = data.find(b"pHYs")
    dots = struct.unpack(">I", data[place + 4 : place + 8])[0] * 0.0254 if place > 0 else DRAWN
    return min(pixels, round(pixels * SHOWN / dots))
