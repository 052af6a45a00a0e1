"""The words and numbers of axes and metrics, the same in figures, report and terminal."""

from __future__ import annotations

from vcsg.study.records import RunRecord
from vcsg.study.targets import Target
from vcsg.study.view.summary import Line, groups

AXES = {
    "passes": "passes (n gradients each)",
    "seconds": "training time (s)",
    "ifo": "gradients of single samples",
}
METRIC_NAMES = {
    "test_error": "test error (%)",
    "test_error_top5": "top-5 test error (%)",
    "test_loss": "test loss",
    "train_loss": "training loss",
    "grad_norm2": "‖∇f‖²",
}
SCALES = {"test_error": 100.0, "test_error_top5": 100.0}
"""The factors of metrics that are shown in percent."""


SPACE = "\u00a0"
"""The space between a number and its unit, where no line may break."""


def metric_name(metric: str) -> str:
    """The name of a metric, without its unit."""
    return METRIC_NAMES[metric].removesuffix(" (%)")


def short(value: float) -> str:
    """A number with two digits, or the whole number."""
    if value == 0 or value >= 10:
        return f"{value:,.0f}" if value < 1e7 else f"{value:.1e}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def amount(unit: str, value: float | None) -> str:
    """An amount of seconds, passes or gradients, with its unit."""
    if value is None:
        return "–"
    if unit == "ifo":
        scale, letter = (1e6, "M") if value >= 1e6 else (1e3, "k")
        return f"{value / scale:.3g}{SPACE}{letter}" if value >= 1e4 else f"{value:,.0f}"
    return f"{short(value)}{SPACE}s" if unit == "seconds" else short(value)


def measured(metric: str, value: float | None) -> str:
    """A value of a metric as text, errors in percent."""
    if value is None:
        return "–"
    return f"{SCALES[metric] * value:.2f}{SPACE}%" if metric in SCALES else f"{value:.3g}"


def target_text(target: Target) -> str:
    """A target as text, such as `test error of 2.5 %`."""
    return f"{metric_name(target.metric)} of {target_value(target)}"


def target_value(target: Target) -> str:
    """The value of a target as text, such as `2.5 %`."""
    return f"{SCALES[target.metric] * target.value:g}{SPACE}%" if target.metric in SCALES else f"{target.value:g}"


def bar_text(line: Line, target: str, unit: str) -> str:
    """The text at the end of a bar that shows the way to a target."""
    spread = line.to_target[target][unit]
    share = f" ({spread.count} of {spread.of})" if 0 < spread.count < spread.of else ""
    if spread.median is None:
        return f"{'failed' if line.status == {'failed': spread.of} else 'not reached'}{share}"
    return f"{amount(unit, spread.median)}{share}"


def bar_end(line: Line, target: str, unit: str) -> float:
    """How far a bar goes: to the median, or to what was spent without reaching the target."""
    spread = line.to_target[target][unit]
    if spread.median is not None:
        return spread.median
    spent = line.final[unit].median if unit in line.final else None
    return line.at_least[target][unit] or spent or 0.0


def seeds_text(runs: list[RunRecord]) -> str:
    """A text that says over how many seeds median and band are."""
    counts = sorted({len(own) for own in groups(runs).values()})
    if not counts or counts == [1]:
        return "one run per method" if counts else ""
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"median of {number} seeds, band from lowest to highest"


def thousands(end: float) -> tuple[float, str]:
    """The factor and the word of a unit in which numbers up to `end` are short."""
    return next(((s, w) for s, w in ((1e9, "billions"), (1e6, "millions"), (1e3, "thousands")) if end >= s), (1.0, ""))
