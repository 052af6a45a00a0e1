"""The page: its sections in order, put into page.html with the style, the script and plotly.js, all inline."""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import count
from pathlib import Path
from string import Template

from vcsg.study.records import RunRecord
from vcsg.study.report import results, searches
from vcsg.study.report.headline import claims
from vcsg.study.report.inside import inside
from vcsg.study.report.layout import Plot, same_y
from vcsg.study.report.markup import Child, Markup, tag, text
from vcsg.study.report.plots import name_curves, progress
from vcsg.study.report.target_plot import to_target
from vcsg.study.view.curves import Curve, curves, error_metric, has_path
from vcsg.study.view.epoch_series import anchored_runs
from vcsg.study.view.figures import file_name
from vcsg.study.view.findings import findings
from vcsg.study.view.sections import Section
from vcsg.study.view.style import looks
from vcsg.study.view.tables import notes
from vcsg.study.view.words import metric_name, seeds_text, target_text

CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}
"""Settings of plotly: the buttons above a figure."""
TABLE_NOTE = (
    "A run that did not reach the target counts as infinitely long, so there is a median where more than half of the "
    "seeds reached it. The ratio compares the time with the best of all protocols."
)
ENDED_NOTE = (
    "Seeds do not end at the same time: the median and its band go as far as all of them, and thin lines lead the "
    "others to their own ends, which have a dot."
)
UNFINISHED_NOTE = (
    "Runs that did not finish are thin lines by themselves: a cross where one failed, a ring where one stopped."
)
TARGET_NOTE = (
    "A bar ends at the first evaluation that reaches the target: the median over seeds, with a line from the lowest to "
    "the highest. A hatched bar shows what was spent without reaching it."
)
INSIDE_NOTE = (
    "Each dot is an epoch, drawn at its anchor; long runs show a part of them. A small anchor can miss the samples "
    "that carry the gradient: the rough bound is then too low."
)
UNITS = {"seconds": "time", "passes": "passes", "ifo": "gradients"}
"""The choices of a switch, by unit; the first is shown first."""


class Page:
    """The HTML page of one report."""

    def __init__(self, sections: list[Section], folders: Sequence[Path], pictures: Iterable[Path] = ()) -> None:
        self._sections = sections
        self._pictures = {path.stem: path for path in pictures if path.suffix == ".png"}
        self._command = shlex.join(["vcsg", "report", *map(str, folders)])
        self._looks = looks(run for section in sections for run in section.runs)
        self._ids = count(1)

    def html(self) -> str:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

        names = [section.workload for section in self._sections]
        subject = " and ".join(names) if len(names) < 3 else f"{len(names)} workloads"
        return Template(_asset("page.html")).substitute(
            title=text(f"Variance-reduced optimisation on {subject}" if names else "No runs"),
            style=_asset("page.css"),
            plotly=get_plotlyjs(),
            body=text(list(self._body())),
            script=_asset("page.js"),
        )

    def _body(self) -> Iterator[Child]:
        yield tag("section", self._findings(), class_="findings", id="findings")
        claimed = claims(self._sections)
        if claimed:
            yield tag("section", tag("h2", "Claimed and measured"), claimed, id="claims")
        for place, section in enumerate(self._sections, 1):
            content = self._workload(section) if section.lines else self._nothing(section)
            yield tag("section", tag("h2", section.workload), list(content), id=f"workload-{place}")
        runs = [run for section in self._sections for run in (*section.runs, *section.search)]
        if runs:
            ran = tag("h2", "Where it ran, and how to make it again"), results.environments(runs)
            yield tag("section", ran, self._commands(), id="environment")

    def _findings(self) -> Iterator[Child]:
        """The sentences of the terminal: the first is the verdict, and stands out."""
        for place, section in enumerate(self._sections, 1):
            name = tag("a", section.workload, href=f"#workload-{place}")
            verdict, *more = findings(section)
            named = (name, ". ") if len(self._sections) > 1 else ()
            yield tag("p", named, tag("strong", verdict), class_="verdict")
            if more:
                yield tag("ul", [(" ", tag("li", sentence)) for sentence in more])
        if not self._sections:
            yield tag("p", "There are no runs in the folders.")

    def _nothing(self, section: Section) -> Iterator[Child]:
        yield tag("p", "No run has been made yet.")

    def _workload(self, section: Section) -> Iterator[Child]:
        yield tag("p", results.facts(section), class_="note")
        yield results.summary(section)
        said = [TABLE_NOTE] if section.targets else []
        yield tag("p", " ".join(said + notes(section.runs, section.targets)), class_="note")
        yield from self._progress(section)
        yield from self._targets(section)
        yield from self._inside(section)
        if section.search:
            yield tag("h3", "The search for step sizes")
            yield tag("p", searches.cost(section.search))
            yield searches.chosen(section)
            yield tag("details", tag("summary", "All trials"), searches.trials(section))
        yield tag("h3", "Settings")
        yield results.settings(section)
        yield _notes(section)
        yield _single_commands(section)
        broken = results.unfinished(section.runs)
        if broken:
            yield tag("h3", "Runs that did not finish")
            yield broken

    def _progress(self, section: Section) -> Iterator[Child]:
        """The error, the training loss, and ‖∇f‖² where it was measured on the way."""
        runs, first = section.runs, error_metric(section.runs, section.targets)
        for metric in dict.fromkeys((first, "train_loss", "grad_norm2")):
            if metric == "grad_norm2" and not has_path(runs, metric):
                continue
            by_protocol = {name: curves(runs, name, "seconds", metric) for name in section.protocols}
            protocols = [name for name, found in by_protocol.items() if found]
            drawn = {name: progress(runs, name, metric, self._looks, section.targets) for name in protocols}
            if not drawn:
                continue
            same_y(drawn.values())
            for name, plot in drawn.items():
                name_curves(plot, runs, name, metric, self._looks)
            kind = {first: "fig2", "train_loss": "fig1"}.get(metric, "gradient")
            place = [section.workload] if kind == "gradient" else []
            pictures = [file_name(kind, *place, name) for name in protocols]
            note = _reading(runs, [curve for found in by_protocol.values() for curve in found], metric == first)
            yield self._figure(_capital(metric_name(metric)), drawn, list(UNITS), note, pictures)

    def _targets(self, section: Section) -> Iterator[Child]:
        for target in section.targets:
            key, lines = str(target), section.lines
            drawn = {name: to_target(section.of(name), lines, key, self._looks) for name in section.protocols}
            picture = file_name("to-target", section.workload, key)
            yield self._figure(f"To a {target_text(target)}", drawn, list(UNITS), TARGET_NOTE, [picture])

    def _inside(self, section: Section) -> Iterator[Child]:
        """VCSG first; other methods with anchors are folded away."""
        runs = sorted(anchored_runs(section.runs), key=lambda run: run.config.method != "vcsg")
        for method in dict.fromkeys(run.config.method for run in runs):
            own = [run for run in runs if run.config.method == method]
            labels = sorted({run.config.label for run in own}, key=len)
            drawn = {_place(run, named=len(labels) > 1): inside(run) for run in own}
            names = [(run.config.workload, run.config.protocol, run.config.label) for run in own]
            pictures = [file_name("inside", *name) for name in names]
            figure = self._figure(f"Inside {labels[0]}", drawn, [], INSIDE_NOTE, pictures)
            folded = tag("details", tag("summary", f"Inside {labels[0]}"), figure)
            yield figure if method == "vcsg" else folded

    def _figure(self, title: str, drawn: dict[str, Plot], units: list[str], note: str, pictures: list[str]) -> Markup:
        """Plots side by side, one per protocol, under one switch; without JavaScript, the pictures of the same."""
        boxes = [self._plot(title, name if len(drawn) > 1 else "", plot) for name, plot in drawn.items()]
        return tag(
            "figure",
            tag("h3", title),
            _switch(f"switch-{next(self._ids)}", units) if units else text(),
            tag("div", boxes, class_="plots"),
            tag("noscript", self._still(title, pictures)),
            tag("figcaption", note),
        )

    def _plot(self, title: str, name: str, plot: Plot) -> Markup:
        from plotly.graph_objects import Figure  # type: ignore[import-untyped]

        number = next(self._ids)
        made = Figure(plot).to_html(full_html=False, include_plotlyjs=False, div_id=f"plot-{number}", config=CONFIG)
        said = f"{', '.join(filter(None, (title, name)))}. {plot['layout']['meta']['said']}"
        drawn = tag("div", Markup(made), role="img", aria_label=said)
        return tag("div", tag("h4", name) if name else text(), drawn, class_="plot")

    def _still(self, title: str, names: list[str]) -> Iterator[Child]:
        """The pictures that were drawn of a figure, or a sentence where none was."""
        found = [self._pictures[name] for name in names if name in self._pictures]
        for path in found:
            content = f"data:image/png;base64,{b64encode(path.read_bytes()).decode()}"
            yield tag("img", src=content, alt=f"{title}, as in {path.name}")
        if not found:
            yield tag("p", "This figure is drawn by JavaScript; the table above has its numbers.", class_="note")

    def _commands(self) -> Markup:
        """The commands that made the records, and from them this page, with a button to copy them."""
        made = dict.fromkeys(command for section in self._sections for command in section.commands)
        button = tag("button", "Copy", type="button", class_="copy", aria_label="Copy the commands")
        return tag("div", tag("pre", "\n".join([*made, self._command])), button, class_="command")


def _reading(runs: list[RunRecord], drawn: list[Curve], at_length: bool) -> str:
    """How the curves are read; at length where they are the first of their kind."""
    said = [f"{_capital(seeds_text(runs))}."]
    if not at_length:
        return said[0]
    said += ["A click on a name hides its curve, or brings it back."]
    said += [ENDED_NOTE] if any(curve.rests for curve in drawn) else []
    return " ".join([*said, *([UNFINISHED_NOTE] if any(curve.tails for curve in drawn) else [])])


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _asset(name: str) -> str:
    return files("vcsg.study.report").joinpath(name).read_text(encoding="utf-8")


def _switch(name: str, units: list[str]) -> Markup:
    choices = [
        tag("label", tag("input", type="radio", name=name, value=unit, checked=place == 0), tag("span", UNITS[unit]))
        for place, unit in enumerate(units)
    ]
    return tag("fieldset", tag("legend", "by"), choices, class_="switch")


def _notes(section: Section) -> Markup:
    """The notes of all runs: where L came from, what a search found, what was warned of."""
    found = [f"{_title(run)}: {note}" for run in section.runs for note in _remarks(run)]
    items = [tag("li", line) for line in dict.fromkeys(found)]
    return tag("details", tag("summary", "Notes on the runs"), tag("ul", items)) if items else text()


def _place(run: RunRecord, named: bool) -> str:
    """The run that a plot shows, with its label where there are several."""
    config = run.config
    return ", ".join(filter(None, (config.protocol, config.label if named else "", f"seed {config.seed}")))


def _title(run: RunRecord) -> str:
    return f"{run.config.label} ({run.config.protocol})" if run.config.protocol else run.config.label


def _remarks(run: RunRecord) -> Iterator[str]:
    for name, note in run.notes.items():
        if isinstance(note, dict):
            note = results.pairs({key: value for key, value in note.items() if not isinstance(value, list)})
        elif isinstance(note, list):
            note = "; ".join(map(str, note))
        if name not in ("traceback", "stopped", "diverged") and note:
            yield str(note) if name == "L" else f"{name}: {note}"


def _single_commands(section: Section) -> Markup:
    commands = [run.config.command for run in section.runs if run.config.command]
    if not commands:
        return text()
    return tag("details", tag("summary", "Commands of the single runs"), tag("pre", "\n".join(commands)))
