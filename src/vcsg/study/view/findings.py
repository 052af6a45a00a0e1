"""What came out of a study, in sentences made from the numbers."""

from __future__ import annotations

import math

from vcsg.study.methods import anchored, names
from vcsg.study.records import RunRecord
from vcsg.study.targets import Target
from vcsg.study.view.summary import Line, summarise
from vcsg.study.view.tables import duration


def verdict(runs: list[RunRecord], targets: list[Target]) -> list[str]:
    """Of one workload."""
    lines = [line for line in summarise(runs, targets) if set(line.status) == {"finished"}]
    if len(lines) < 2:
        return ["Fewer than two methods are complete: there is nothing to compare."]
    tests = max(run.config.tests for run in runs)
    said = [sentence for target in targets for sentence in _to_target(lines, str(target))]
    metric = "test_error" if all("test_error" in line.final for line in lines) else "grad_norm2"
    return said + _ends(lines, metric, tests) + _beside_vcsg(lines, metric)


def _to_target(lines: list[Line], target: str) -> list[str]:
    """Who was first, and what VCSG took."""

    def seconds(line: Line) -> float:
        median = line.to_target[target]["seconds"].median
        return math.inf if median is None else median

    first = min(lines, key=seconds)
    if math.isinf(seconds(first)):
        return [f"No method reached {target} with most of its seeds: give a larger budget, or another target."]
    others = [line for line in lines if line.method == "vcsg" and line is not first]
    return [
        f"First at {target}: {_name(first, lines)}, {duration(seconds(first))} s.",
        *(f"{_name(line, lines)} {_took(seconds(line), seconds(first))}." for line in others),
    ]


def _took(seconds: float, least: float) -> str:
    if math.isinf(seconds):
        return "did not reach it"
    return f"took {duration(seconds)} s, {seconds / least:.1f} times as long"


def _ends(lines: list[Line], metric: str, tests: int) -> list[str]:
    """The lowest error, how certain it is, and whether variance reduction paid."""
    best = min(lines, key=lambda line: _end(line, metric))
    lowest = _end(best, metric)
    if math.isinf(lowest):
        return []
    noise = math.sqrt(lowest * (1 - lowest) / tests) if metric == "test_error" else 0.0
    doubt = f" (standard error over {tests:,} test samples: {noise:.2%})" if metric == "test_error" else ""
    what = "test error" if metric == "test_error" else "‖∇f‖²"
    said = [f"Lowest {what}: {_name(best, lines)}, {_show(best, metric)}{doubt}."]
    others = [line for line in lines if _anchored(line) != _anchored(best)]
    # Under the same rules, where there is one.
    rival = min(others, key=lambda line: (line.protocol != best.protocol, _end(line, metric)), default=None)
    return said if rival is None else said + _beside(best, rival, lines, metric, noise)


def _beside(best: Line, rival: Line, lines: list[Line], metric: str, noise: float) -> list[str]:
    """The best method, and the best of those with an anchor where it has none, or without where it has one."""
    kind = "with" if _anchored(rival) else "without"
    rules = ", by the same rules," if len({line.protocol for line in lines}) > 1 else ""
    close = _end(rival, metric) - _end(best, metric) <= 2 * math.sqrt(2) * noise
    paid = f"variance reduction {'did not pay' if _anchored(rival) else 'paid'} here"
    found = f"{_show(rival, metric)}: {'too close to call' if close else paid}"
    if (best.protocol == "tuned") == (rival.protocol == "tuned"):
        return [f"The best method {kind} an anchor{rules} was {_name(rival, lines)}, {found}."]
    tuned, other = (best, rival) if best.protocol == "tuned" else (rival, best)
    return [
        f"The best method {kind} an anchor was {_name(rival, lines)}, {found}.",
        f"That is uneven: the step size of {tuned.label} was searched for, that of {other.label} was not.",
    ]


def _beside_vcsg(lines: list[Line], metric: str) -> list[str]:
    """VCSG beside the other methods with an anchor, under the same rules."""
    said = []
    for own in (line for line in lines if line.method == "vcsg"):
        others = [line for line in lines if _anchored(line) and line.protocol == own.protocol and line is not own]
        for words, wins in (("is ahead of", True), ("is not ahead of", False)):
            named = [f"{o.label} ({_show(o, metric)})" for o in others if (_end(own, metric) < _end(o, metric)) == wins]
            if named:
                said.append(f"{_name(own, lines)} ({_show(own, metric)}) {words} {'; '.join(named)}.")
    return said


def _name(line: Line, among: list[Line]) -> str:
    """With its protocol, where there are several."""
    several = len({other.protocol for other in among}) > 1
    return f"{line.label} ({line.protocol})" if several else line.label


def _end(line: Line, metric: str) -> float:
    median = line.final[metric].median if metric in line.final else None
    return math.inf if median is None else median


def _show(line: Line, metric: str) -> str:
    value = _end(line, metric)
    return "–" if math.isinf(value) else f"{value:.2%}" if metric == "test_error" else f"{value:.2g}"


def _anchored(line: Line) -> bool:
    return line.method in names() and anchored(line.method)
