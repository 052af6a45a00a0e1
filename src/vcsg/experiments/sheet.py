"""A page of an experiment: one HTML file with the look of the study's report, its figures interactive, all inline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import count
from pathlib import Path
from string import Template

from vcsg.files import write_text
from vcsg.study.report.layout import Plot
from vcsg.study.report.markup import Child, Markup, tag, text

CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]]}
"""Settings of plotly: the buttons above a figure."""


def write_page(title: str, body: Sequence[Child], path: Path) -> Path:
    """Write a page. (Needs plotly.)"""
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the page needs plotly: pip install 'vcsg[study]'") from error
    page = Template(_asset("page.html")).substitute(
        title=text(title), style=_asset("page.css"), plotly=get_plotlyjs(), body=text(body), script=_asset("page.js")
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
    return path


def section(title: str, *content: Child) -> Markup:
    return tag("section", tag("h2", title), *content)


def findings(sentences: Iterable[str]) -> Markup:
    """What the records say, first on the page."""
    return tag("section", [tag("p", sentence) for sentence in sentences], class_="findings")


def note(sentence: str) -> Markup:
    return tag("p", sentence, class_="note")


def command(line: str) -> Markup:
    """The command that makes the page, with a button to copy it."""
    button = tag("button", "Copy", type="button", class_="copy", aria_label="Copy the command")
    return tag("div", tag("pre", line), button, class_="command")


_ids = count(1)


def figure(title: str, plots: dict[str, Plot], caption: str) -> Markup:
    """Plots side by side under one title, each with a name of its own. (Needs plotly.)"""
    from plotly.graph_objects import Figure  # type: ignore[import-untyped]

    boxes = []
    for name, plot in plots.items():
        made = Figure(plot).to_html(
            full_html=False, include_plotlyjs=False, div_id=f"experiment-plot-{next(_ids)}", config=CONFIG
        )
        label = ", ".join(filter(None, (title, name)))
        boxes.append(tag("div", tag("h4", name), Markup(made), class_="plot", role="group", aria_label=label))
    held = tag("div", boxes, class_="plots" if len(boxes) > 1 else "plots single")
    return tag("figure", tag("h3", title), held, tag("figcaption", caption))


def _asset(name: str) -> str:
    return files("vcsg.study.report").joinpath(name).read_text(encoding="utf-8")
