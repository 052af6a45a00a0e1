"""The tables of a workload: its summary, its settings, the runs that did not finish; and where all of them ran."""

from __future__ import annotations

from typing import Any

from vcsg.study.records import Row, RunRecord
from vcsg.study.report.markup import Markup, text
from vcsg.study.report.table import Cell, final_cell, number, spread_cell, table, words
from vcsg.study.targets import METRICS, Target
from vcsg.study.view.curves import error_metric
from vcsg.study.view.sections import Section
from vcsg.study.view.style import place_of
from vcsg.study.view.summary import Line, groups
from vcsg.study.view.words import SPACE, amount, metric_name, short, target_text


def summary(section: Section) -> Markup:
    """One row per protocol and method: the way to every target, and where it ended."""
    ends = [metric for metric in METRICS if any(metric in line.final for line in section.lines)]
    wanted = [target.metric for target in section.targets]
    lesser = [metric for metric in ("test_loss", "test_error_top5") if metric not in wanted and "test_error" in ends]
    ends = [metric for metric in ends if metric not in lesser]
    first = [metric for metric in (error_metric(section.runs, section.targets),) if metric in ends]
    ends = [*first, *(metric for metric in ends if metric not in first)]
    protocols = ["protocol"] if len(section.protocols) > 1 else []
    heads = ["method", *protocols, *(f"final {metric_name(metric)}" for metric in first)]
    for target in section.targets:
        heads += [f"time to a {target_text(target)}", "passes to it", "gradients to it", "ratio to best"]
    heads += [*(f"final {metric_name(metric)}" for metric in ends if metric not in first), "time in all", "seeds"]
    rows = [_summary_row(line, section.targets, first, ends, bool(protocols)) for line in section.lines]
    several = any(line.seeds > 1 for line in section.lines)
    return table("Medians over the seeds, with the lowest and the highest" if several else "One seed", heads, rows)


def _summary_row(line: Line, targets: list[Target], first: list[str], ends: list[str], protocols: bool) -> list[Cell]:
    cells = [words(line.label), *([words(line.protocol or "–")] if protocols else [])]
    cells += [final_cell(line.final.get(metric), metric) for metric in first]
    for target in map(str, targets):
        cells += [spread_cell(line.to_target[target][unit], unit) for unit in ("seconds", "passes", "ifo")]
        ratio = line.ratio[target]
        cells.append(number(ratio, "–" if ratio is None else f"{short(ratio)}×"))
    cells += [final_cell(line.final.get(name), name) for name in (*ends, "seconds") if name not in first]
    return [*cells, _seeds(line)]


def facts(section: Section) -> str:
    """What all runs of a workload have in common, in a line."""
    configs = [run.config for run in section.runs]
    seeds = ", ".join(map(str, sorted({config.seed for config in configs})))
    budgets = list(dict.fromkeys(_budget(config.budget) for config in configs))
    said = [
        f"n = {max(config.n for config in configs):,} samples",
        f"seed{'s' * (',' in seeds)} {seeds}",
        f"budget {' or '.join(budgets)} for each run",
    ]
    named = [name for name in section.protocols if name]
    return "; ".join([*said, *([f"protocol{'s' * (len(named) > 1)} {', '.join(named)}"] if named else [])]) + "."


def _budget(budget: Row) -> str:
    """A budget in words, such as `30 passes`."""
    units = {"passes": "passes", "seconds": "s", "ifo": "gradients"}
    return " or ".join(
        f"{value:,g}{SPACE}{units.get(name, name)}" for name, value in budget.items() if value is not None
    )


def _seeds(line: Line) -> Cell:
    """The number of seeds, and how those ended that did not finish."""
    total = sum(line.status.values())
    others = [f"{count} {status}" for status, count in line.status.items() if status != "finished"]
    return number(total, f"{total} ({', '.join(others)})" if others else str(total))


def settings(section: Section) -> Markup:
    """The options of every method; seeds share a row, with the least and the largest of their step sizes and L."""
    heads = ("method", "protocol", "name", "seeds", "options", "step size lr", "L", "budget", "n", "parameters")
    ordered = sorted(groups(section.runs).items(), key=lambda item: (item[0][1], place_of(*item[0][2:])))
    return table("Settings of all runs", heads, [_settings_row(own) for _, own in ordered])


def _settings_row(runs: list[RunRecord]) -> list[Cell]:
    config = runs[0].config
    options = {key: value for key, value in config.options.items() if key not in ("lr", "L")}
    return [
        words(config.label),
        words(config.protocol or "–"),
        words(config.method),
        words(", ".join(str(run.config.seed) for run in runs)),
        words(pairs(options) or "defaults"),
        _from_to([run.config.options.get("lr") for run in runs]),
        _from_to([_smoothness(run) for run in runs]),
        words(pairs(config.budget)),
        number(config.n, f"{config.n:,}"),
        number(config.parameters, f"{config.parameters:,}"),
    ]


def _smoothness(run: RunRecord) -> float | None:
    """The L that a run ended with, or was given."""
    last: Row = run.epochs[-1] if run.epochs else {}
    found = last.get("L") or run.config.options.get("L")
    return None if found is None else float(found)


def _from_to(values: list[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    if not known:
        return number(None, "")
    return number(min(known), "–".join(dict.fromkeys(f"{value:.3g}" for value in (min(known), max(known)))))


def pairs(options: dict[str, Any]) -> str:
    """Options as text: {"b": 16} is `b = 16`."""
    shown = {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in options.items()}
    return ", ".join(f"{key} = {value}" for key, value in shown.items())


def unfinished(runs: list[RunRecord]) -> Markup:
    """The runs that failed or were interrupted, by name; nothing where there are none."""
    heads = ("method", "protocol", "seed", "ended", "after", "why")
    rows = [
        [
            words(run.config.label),
            words(run.config.protocol or "–"),
            number(run.config.seed, str(run.config.seed)),
            words("running, or killed" if run.status == "running" else run.status),
            number(run.final.get("passes"), f"{amount('passes', run.final.get('passes'))} passes"),
            words(run.message),
        ]
        for run in runs
        if run.status != "finished"
    ]
    return table("They count as not having reached what they did not reach", heads, rows) if rows else text()


def environments(runs: list[RunRecord]) -> Markup:
    """The machines and versions, each once."""
    kinds: dict[str, tuple[Row, list[RunRecord]]] = {}
    for run in runs:
        known = run.environment | {"threads": run.config.threads}
        kinds.setdefault(repr(sorted(known.items())), (known, []))[1].append(run)
    names = list(dict.fromkeys(name for known, _ in kinds.values() for name in known))
    rows = [
        [
            number(len(own), str(len(own))),
            *(words(str(known.get(name, "–"))) for name in names),
            words(min(run.started for run in own)),
        ]
        for known, own in kinds.values()
    ]
    return table("Machines and versions", ("runs", *names, "first started"), rows, sortable=len(rows) > 1)
