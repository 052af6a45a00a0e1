"""The numbers of a study: what every method needed to reach a target, where it ended, and what the paper claims.

A number over seeds is a median. A run that did not reach the target counts as +∞ in it, so a method that reaches it
with fewer than half of its seeds has no median, rather than a flattering one.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vcsg.study.records import RunRecord
from vcsg.study.targets import METRICS, Target
from vcsg.study.view.configurations import Key, compared, line_of

UNITS = ("seconds", "passes", "ifo")
"""The units in which the way to a target is measured."""
PAPERS = {"svrg": "paper-svrg", "sgd": "paper-sgd"}
"""The baselines of the paper's claims, as the protocol "paper" runs them."""

MISSED = "did not reach it within the budget"

Claim = Mapping[str, Any]
"""A claim as study.json has it: {"metric", "target", "speedup": {"scsg": 2, …}, "seconds": 16 or None}."""


@dataclass(frozen=True)
class Spread:
    """One number over the runs of a method."""

    median: float | None
    """The median, in which a target that was not reached counts as +∞; None where it is +∞."""
    low: float | None
    high: float | None
    """The lowest and the highest, over the runs that have the value."""
    count: int
    """The number of runs that have the value."""
    of: int
    """The number of all runs."""


@dataclass(frozen=True)
class Line:
    """One method of one protocol on one workload, with the same settings over its seeds."""

    workload: str
    protocol: str
    method: str
    label: str
    seeds: int
    to_target: dict[str, dict[str, Spread]]
    """What it took to the first evaluation that reaches a target, by target and unit."""
    final: dict[str, Spread]
    """The last evaluation, by metric and unit. A run that failed has no final metric, which counts as +∞."""
    ratio: dict[str, float | None]
    """The median seconds over the best median of the workload in any protocol, by target."""
    at_least: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """A lower bound of the median by target and unit, from all that a run spent where it did not reach the target.
    None where the run failed, for then it is not known."""
    status: dict[str, int] = field(default_factory=dict)
    """How the runs ended: {"finished": 2, "failed": 1}."""


@dataclass(frozen=True)
class Speedup:
    """How many times as much the other method needs as VCSG, by medians."""

    value: float | None
    """The ratio; None where it is not known."""
    bound: str = ""
    """"≥" where only VCSG reached the target, "≤" where only the other did, "" where the value is measured."""

    def __str__(self) -> str:
        value = self.value
        if value is None:
            return "–"
        number = f"{value:.2g}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:.0f}"
        return f"{self.bound} {number}×".strip()


@dataclass(frozen=True)
class ClaimRow:
    """One claim of the paper beside what was measured in one protocol."""

    workload: str
    protocol: str
    target: str
    rival: str
    """The other method: "scsg", "svrg" or "sgd"."""
    label: str
    """The label of the rival as it was run; "" where it was not run."""
    claimed: float | None
    seconds: Speedup
    ifo: Speedup
    claimed_seconds: float | None
    """VCSG's own time, where the paper gives it."""
    own_seconds: Spread
    """VCSG's own time as measured."""
    remark: str
    """A remark where the numbers alone do not say everything, else ""."""


def groups(runs: Iterable[RunRecord]) -> dict[Key, list[RunRecord]]:
    """The runs to compare (not those of a search) by workload, protocol, method and label, in the order given."""
    found: dict[Key, list[RunRecord]] = {}
    for run in runs:
        if run.config.role == "run":
            found.setdefault(line_of(run), []).append(run)
    return found


def summarise(runs: list[RunRecord], targets: list[Target]) -> list[Line]:
    """A line per workload, protocol, method and settings: workloads and protocols as they come, the fastest first.

    A run that failed or was interrupted is one more in every `Spread.of`. A seed that was run several times with the
    same settings counts once.
    """
    found = groups(compared(runs))
    reached = {key: {str(target): _to_target(own, target) for target in targets} for key, own in found.items()}
    best = _best(reached)
    lines = [
        Line(
            *key,
            seeds=len({run.config.seed for run in own}),
            to_target=reached[key],
            final=_finals(own),
            ratio={t: _ratio(units["seconds"].median, best.get((key[0], t))) for t, units in reached[key].items()},
            at_least={str(t): _at_least(own, t) for t in targets},
            status=dict(Counter(run.status for run in own)),
        )
        for key, own in found.items()
    ]
    places = {key[:2]: place for place, key in reversed(list(enumerate(found)))}
    workloads = {key[0]: place for place, key in reversed(list(enumerate(found)))}
    return sorted(lines, key=lambda line: (workloads[line.workload], places[line.workload, line.protocol], rank(line)))


def rank(line: Line) -> tuple[float, ...]:
    """A key for sorting: by the time to the first target, then by the seeds that reached it, then by where it ended."""
    first = next(iter(line.to_target.values()), None)
    by_time = [_or_infinity(first["seconds"].median), -first["seconds"].count] if first else []
    ends = [
        line.final[metric].median
        for metric in ("test_error", "test_loss", "grad_norm2", "train_loss")
        if metric in line.final
    ]
    return (*by_time, _or_infinity(ends[0] if ends else None))


def claim_rows(claim: Claim, lines: list[Line]) -> list[ClaimRow]:
    """The speed-up of VCSG over each method of a claim, in every protocol of the lines, which are of one workload.

    In the protocol "paper" SVRG and SGD are the paper's own baselines. Where a method has several lines, its fastest
    is taken, for VCSG as for the others.
    """
    target = str(Target(claim["metric"], claim["target"]))
    for line in lines:
        if target not in line.to_target:
            raise ValueError(f"the lines know {', '.join(line.to_target) or 'no target'}: summarise with {target} too")
    rows = []
    for protocol in dict.fromkeys(line.protocol for line in lines):
        own = [line for line in lines if line.protocol == protocol]
        vcsg = _fastest(own, "vcsg", target)
        for rival, claimed in claim["speedup"].items():
            other = (_fastest(own, PAPERS[rival], target) if protocol == "paper" and rival in PAPERS else None) or (
                _fastest(own, rival, target)
            )
            if vcsg is not None:
                rows.append(_claim_row(claim, target, rival, claimed, vcsg, other))
    return rows


def _claim_row(
    claim: Claim, target: str, rival: str, claimed: float | None, vcsg: Line, other: Line | None
) -> ClaimRow:
    return ClaimRow(
        workload=vcsg.workload,
        protocol=vcsg.protocol,
        target=target,
        rival=rival,
        label=other.label if other else "",
        claimed=claimed,
        seconds=_speedup(vcsg, other, target, "seconds"),
        ifo=_speedup(vcsg, other, target, "ifo"),
        claimed_seconds=claim.get("seconds"),
        own_seconds=vcsg.to_target[target]["seconds"],
        remark=_remark(vcsg, other, rival, target),
    )


def _speedup(vcsg: Line, other: Line | None, target: str, unit: str) -> Speedup:
    if other is None:
        return Speedup(None)
    own, its = vcsg.to_target[target][unit].median, other.to_target[target][unit].median
    if own is not None and its is not None:
        return Speedup(_ratio(its, own))
    if own is not None:
        return Speedup(_ratio(other.at_least[target][unit], own), "≥")
    if its is not None:
        return Speedup(_ratio(its, vcsg.at_least[target][unit]), "≤")
    return Speedup(None)


def _remark(vcsg: Line, other: Line | None, rival: str, target: str) -> str:
    """A remark on a comparison, beside its number."""
    if other is None:
        return f"{rival.upper()} was not run"
    if all(_outcome(line, target) == MISSED for line in (vcsg, other)):
        return f"neither {vcsg.label} nor {other.label} reached it within the budget"
    outcomes = [(line.label, _outcome(line, target)) for line in (vcsg, other)]
    return "; ".join(f"{label} {outcome}" for label, outcome in outcomes if outcome)


def _outcome(line: Line, target: str) -> str:
    """What became of a method on its way to a target; "" where all runs reached it."""
    spread, failed = line.to_target[target]["seconds"], line.status.get("failed", 0)
    if spread.count == spread.of:
        return ""
    if failed == spread.of:
        return "failed"
    if spread.count:
        return f"reached it with {spread.count} of {spread.of} seeds"
    return f"{MISSED} ({failed} of {spread.of} runs failed)" if failed else MISSED


def _fastest(lines: list[Line], method: str, target: str) -> Line | None:
    own = [line for line in lines if line.method == method]
    return min(own, key=lambda line: _or_infinity(line.to_target[target]["seconds"].median), default=None)


def _to_target(runs: list[RunRecord], target: Target) -> dict[str, Spread]:
    rows = [run.reach(target.metric, target.value) for run in runs]
    return {unit: _spread([row[unit] if row else math.inf for row in rows], len(runs)) for unit in UNITS}


def _best(reached: dict[Key, dict[str, dict[str, Spread]]]) -> dict[tuple[str, str], float]:
    """The least median seconds by workload and target, where there is one."""
    best: dict[tuple[str, str], float] = {}
    for (workload, *_), by_target in reached.items():
        for target, units in by_target.items():
            median = units["seconds"].median
            if median is not None:
                best[workload, target] = min(median, best.get((workload, target), math.inf))
    return best


def _at_least(runs: list[RunRecord], target: Target) -> dict[str, float | None]:
    def spent(run: RunRecord, unit: str) -> float:
        row = run.reach(target.metric, target.value)
        if row is None and run.status == "failed":
            return math.inf
        return float((row or run.final).get(unit) or 0.0)

    return {unit: _finite(statistics.median(spent(run, unit) for run in runs)) for unit in UNITS}


def _finals(runs: list[RunRecord]) -> dict[str, Spread]:
    """The last values of all runs. Runs that failed, and values that are not finite, count as +∞ in the median."""
    known = {name for run in runs for name in run.final}
    return {name: _spread(_final(runs, name), len(runs)) for name in (*METRICS, *UNITS) if name in known}


def _final(runs: list[RunRecord], name: str) -> list[float]:
    lost = [run.status == "failed" and name in METRICS for run in runs]
    counted = [(run, failed) for run, failed in zip(runs, lost, strict=True) if failed or name in run.final]
    return [math.inf if failed or run.final[name] is None else run.final[name] for run, failed in counted]


def _spread(values: Sequence[float], of: int) -> Spread:
    finite = [value for value in values if math.isfinite(value)]
    median = statistics.median(values) if values else math.inf
    return Spread(_finite(median), min(finite, default=None), max(finite, default=None), len(finite), of)


def _ratio(value: float | None, over: float | None) -> float | None:
    if value is None or over is None:
        return None
    return 1.0 if value == over else value / over if over else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _or_infinity(value: float | None) -> float:
    return math.inf if value is None else value
