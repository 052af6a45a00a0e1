"""What came out, in sentences made from the numbers, whatever they are."""

from __future__ import annotations

import math
from collections.abc import Callable

from vcsg.method import methods
from vcsg.study.report.sections import Section
from vcsg.study.targets import Target
from vcsg.study.view.curves import error_metric
from vcsg.study.view.summary import PAPERS, Line, Spread
from vcsg.study.view.words import amount, measured, metric_name, short, target_text

PROTOCOLS = {"paper": "as the paper sets it", "tuned": "step size tuned", "default": "with its defaults"}


def sentences(section: Section) -> list[str]:
    """Who came first, whether variance reduction paid, and whether the paper's order is confirmed."""
    if not section.lines:
        return [f"{section.workload}: no run has been made yet."]
    if not section.targets:
        return [*_lowest(section), *_cautions(section)]
    target = section.targets[0]
    found = _first(section, target) or [_nobody(target), *_lowest(section)]
    return [*found, *_variance_reduction(section, target), *_papers_order(section), *_cautions(section)]


def reduces_variance(method: str) -> bool:
    """Whether a method weighs gradients at an anchor, as a control variate; torch's own do not."""
    known = methods()
    return method in known and any(weights.anchor for weights in known[method].choices)


def _first(section: Section, target: Target) -> list[str]:
    """The fastest, and how far behind VCSG was."""
    ranked = sorted((line for line in section.lines if _seconds(line, target) < math.inf), key=_by_seconds(target))
    if not ranked:
        return []
    best = ranked[0]
    took = amount("seconds", _seconds(best, target))
    said = [f"{best.label}{_how(best)} came first to a {target_text(target)}: {took} of training{_over(best)}."]
    rivals = sorted((line for line in section.lines if line.method == "vcsg"), key=_by_seconds(target))
    if best.method != "vcsg" and rivals:
        said.append(f"VCSG {_behind(rivals, best, target)}.")
    return said


def _behind(lines: list[Line], best: Line, target: Target) -> str:
    said, least = [], _seconds(best, target)
    for line in (line for line in lines if _seconds(line, target) < math.inf):
        own = _seconds(line, target)
        times = f", {short(own / least)} times as long" if least else ""
        said.append(f"took {amount('seconds', own)}{times}{_how(line)}")
    missed = [line for line in lines if _seconds(line, target) == math.inf]
    if missed:
        said.append(f"did not reach it within its budget{_how(*missed)}")
    return listed(said)


def _nobody(target: Target) -> str:
    return f"No method reached a {target_text(target)} within its budget."


def _lowest(section: Section) -> list[str]:
    """The lowest final value, where no target decides."""
    metric = error_metric(section.runs, section.targets)
    metric = metric if any(metric in line.final for line in section.lines) else "train_loss"
    ends = [(line.final[metric].median, line) for line in section.lines if metric in line.final]
    known = [(value, line) for value, line in ends if value is not None]
    if not known:
        return []
    value, best = min(known, key=lambda end: end[0])
    return [f"The lowest final {metric_name(metric)} had {best.label}{_how(best)}: {measured(metric, value)}."]


def _variance_reduction(section: Section, target: Target) -> list[str]:
    """The fastest method with an anchor beside the fastest without, both tuned: anything else would not be fair."""
    tuned = section.of("tuned")
    inside = min((line for line in tuned if reduces_variance(line.method)), key=_by_seconds(target), default=None)
    outside = min((line for line in tuned if not reduces_variance(line.method)), key=_by_seconds(target), default=None)
    if inside is None or outside is None:
        return []
    if _seconds(inside, target) == _seconds(outside, target) == math.inf:
        return ["With tuned step sizes no method reached it, so whether variance reduction pays is not decided."]
    own, other = (_spread(line, target) for line in (inside, outside))
    verdict = "paid" if _seconds(inside, target) < _seconds(outside, target) else "did not pay"
    if _overlap(own, other):
        verdict = "neither paid nor cost clearly (the seeds overlap)"
    return [f"With tuned step sizes variance reduction {verdict}: {_took(inside, target)}, {_took(outside, target)}."]


def _took(line: Line, target: Target) -> str:
    units = line.to_target[str(target)]
    if units["seconds"].median is None:
        return f"{line.label} did not reach it"
    took = f"{amount('seconds', units['seconds'].median)} ({amount('passes', units['passes'].median)} passes)"
    return f"{line.label} took {took}"


def _papers_order(section: Section) -> list[str]:
    """The order of the paper's four methods, with its own baselines; where it claims the same of two, either is."""
    claim, lines = section.claim, section.of("paper")
    if not claim or not lines:
        return []
    target, speedups = Target(claim["metric"], claim["target"]), {"vcsg": 1.0, **claim["speedup"]}
    ran = {name: line for name in speedups if (line := _fastest(lines, name, target))}
    names = sorted(ran, key=lambda name: speedups[name])
    pairs = [(a, b) for a in names for b in names if speedups[a] < speedups[b]]
    if not pairs:
        return []
    wrong = [(a, b) for a, b in pairs if _seconds(ran[a], target) > _seconds(ran[b], target)]
    tied = any(_seconds(ran[a], target) == _seconds(ran[b], target) for a, b in pairs)
    verdict = "confirmed as far as it can be seen" if tied else "confirmed"
    if wrong:
        verdict = f"not confirmed: {'; '.join(f'{ran[b].label} was faster than {ran[a].label}' for a, b in wrong)}"
    order = ", ".join(name.upper() for name in names)
    return [f"The paper's order ({order}) is {verdict}. With its own baselines, {_times(list(ran.values()), target)}."]


def _times(lines: list[Line], target: Target) -> str:
    """Who took how long, and who did not come so far."""
    there = [line for line in sorted(lines, key=_by_seconds(target)) if _seconds(line, target) < math.inf]
    missing = [line.label for line in lines if _seconds(line, target) == math.inf]
    said = [f"{line.label} took {amount('seconds', _seconds(line, target))}" for line in there]
    if missing:
        said.append(f"{listed(missing)} did not reach it")
    return listed(said)


def listed(words: list[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _cautions(section: Section) -> list[str]:
    said = []
    if max(line.seeds for line in section.lines) == 1:
        said.append("One seed per method: a demonstration, not a study.")
    broken = sum(run.status != "finished" for run in section.runs)
    if broken:
        is_named = "run did not finish; it is" if broken == 1 else "runs did not finish; they are"
        said.append(f"{broken} {is_named} named below.")
    if section.jobs > 1:
        said.append(f"{section.jobs} runs at once shared the machine, which their times show.")
    machines = {(run.environment.get("device"), run.environment.get("processor")) for run in section.runs}
    if len(machines) > 1:
        said.append("The runs come from different machines: their times do not compare.")
    return said


def _fastest(lines: list[Line], name: str, target: Target) -> Line | None:
    own = [line for line in lines if line.method == PAPERS.get(name, name)]
    return min(own or [line for line in lines if line.method == name], key=_by_seconds(target), default=None)


def _how(*lines: Line) -> str:
    """In brackets, the rules under which the lines were run."""
    words = " or ".join(PROTOCOLS.get(line.protocol, line.protocol) for line in lines if line.protocol)
    return f" ({words})" if words else ""


def _over(line: Line) -> str:
    return f", the median of {line.seeds} seeds" if line.seeds > 1 else ""


def _spread(line: Line, target: Target) -> Spread:
    return line.to_target[str(target)]["seconds"]


def _seconds(line: Line, target: Target) -> float:
    median = _spread(line, target).median
    return math.inf if median is None else median


def _by_seconds(target: Target) -> Callable[[Line], float]:
    return lambda line: _seconds(line, target)


def _overlap(a: Spread, b: Spread) -> bool:
    """Whether the ranges of two numbers over several seeds have something in common."""
    if a.low is None or a.high is None or b.low is None or b.high is None or min(a.count, b.count) < 2:
        return False
    return max(a.low, b.low) <= min(a.high, b.high)
