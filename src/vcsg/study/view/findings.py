"""What records say, in sentences made from the numbers; the terminal and the report show the same ones.

Whether variance reduction paid is decided in one place and by one rule. The fastest method that reduces variance stands
beside the fastest that does not, under the same protocol where one has both kinds: tuned before default before paper.
The time to the first target that one of them reached decides; without a target, where they ended. Nothing is said where
no method reduces variance, or none does without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from vcsg.study.budgets import Budget
from vcsg.study.methods import anchored, reduces_variance
from vcsg.study.records import Row
from vcsg.study.targets import Target
from vcsg.study.view.configurations import line_of
from vcsg.study.view.sections import Section
from vcsg.study.view.summary import PAPERS, Line, Spread
from vcsg.study.view.words import SCALES, amount, measured, metric_name, short, target_text

RULES = {"paper": "as the paper sets it", "tuned": "step size tuned", "default": "not tuned"}
"""What a protocol means for a method, in words."""
FAIREST = ("tuned", "default", "paper", "")
"""The protocols in the order in which they are fit to compare kinds of methods."""
ENDS = ("test_error", "grad_norm2", "test_loss", "train_loss")
"""The metrics by which the ends of runs are compared: the first that all methods have."""
NOTHING = "Fewer than two methods are complete: there is nothing to compare."


def findings(section: Section) -> list[str]:
    """Who came first, where the methods ended, whether variance reduction paid, the paper's order, and cautions."""
    if not section.lines:
        return ["No run has been made yet."]
    lines = [line for line in section.lines if set(line.status) <= {"finished", "failed"}]
    lines = [line for line in lines if not _rests(section, line)]
    if lines == section.lines and len(lines) == 1:
        return [*_single(section), *_cautions(section)]
    if len(lines) < 2:
        return [NOTHING, *_cautions(section)]
    said = [sentence for target in section.targets for sentence in _first(lines, target)]
    metric = _end_metric(lines, section.targets)
    even = not any(run.notes.get("stopped") == "target" for run in section.runs)  # else ends are of different lengths
    said += _lowest(section, lines, metric) if even else []
    said += _variance_reduction(section, lines, metric)
    said += _beside_vcsg(lines, metric) if even else []
    return [*said, *_papers_order(section, lines), *_cautions(section)]


def listed(words: Sequence[str]) -> str:
    """The words as `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


# --- targets


def _first(lines: list[Line], target: Target) -> list[str]:
    """The fastest to a target, and how far behind VCSG was."""
    best = min(lines, key=_by_seconds(target))
    if math.isinf(_seconds(best, target)):
        most = " with most of its seeds" if max(line.seeds for line in lines) > 1 else ""
        return [f"No method reached a {target_text(target)} within its budget{most}."]
    took = amount("seconds", _seconds(best, target))
    median = f", the median of {best.seeds} seeds" if best.seeds > 1 else ""
    said = [f"{_name(best, lines)} came first to a {target_text(target)}: {took} of training{median}."]
    own = sorted((line for line in lines if line.method == "vcsg"), key=_by_seconds(target))
    if best.method == "vcsg" or not own:
        return said
    if len(own) == len({line.protocol for line in own}):
        return [*said, f"VCSG {_behind(own, best, lines, target)}."]
    return said + [f"{line.label} {_behind([line], best, lines, target)}." for line in own]


def _behind(own: list[Line], best: Line, lines: list[Line], target: Target) -> str:
    said, least = [], _seconds(best, target)
    for line in (line for line in own if math.isfinite(_seconds(line, target))):
        times = f", {short(_seconds(line, target) / least)} times as long" if least else ""
        said.append(f"took {amount('seconds', _seconds(line, target))}{times}{_rules(line, lines)}")
    missing = [line for line in own if math.isinf(_seconds(line, target))]
    said += [f"reached it{some}{_rules(line, lines)}" for line in missing if (some := _some(line, target))]
    missed = [_rules(line, lines) for line in missing if not _some(line, target)]
    if missed:
        said.append(f"did not reach it within its budget{' or'.join(missed)}")
    return listed(said)


def _seconds(line: Line, target: Target) -> float:
    """The median time to a target, which is +∞ where most seeds did not reach it."""
    median = line.to_target[str(target)]["seconds"].median
    return math.inf if median is None else median


def _some(line: Line, target: Target) -> str:
    """With how many of its seeds a method reached a target; "" where none did."""
    found = line.to_target[str(target)]["seconds"]
    return f" with {found.count} of {found.of} seeds" if found.count else ""


def _by_seconds(target: Target) -> Callable[[Line], float]:
    return lambda line: _seconds(line, target)


# --- ends


def _end_metric(lines: list[Line], targets: list[Target]) -> str:
    order = [*(target.metric for target in targets if target.metric in SCALES), *ENDS]
    ended = [line for line in lines if any(metric in line.final for metric in ENDS)]
    shared = [metric for metric in order if all(metric in line.final for line in ended)]
    return next(iter(shared), "train_loss")


def _single(section: Section) -> list[str]:
    """Where the only method ended, and when it reached the targets."""
    (line,) = section.lines
    metric = _end_metric([line], section.targets)
    reached = [sentence for target in section.targets for sentence in _reached(line, target)]
    ended = [f"{line.label} ended at a {metric_name(metric)} of {_shown(line, metric)}."]
    return reached + (ended if math.isfinite(_end(line, metric)) else [])


def _reached(line: Line, target: Target) -> list[str]:
    if math.isfinite(_seconds(line, target)):
        return [f"{line.label} reached a {target_text(target)} after {amount('seconds', _seconds(line, target))}."]
    if some := _some(line, target):
        return [f"{line.label} reached a {target_text(target)}{some}."]
    return [f"{line.label} did not reach a {target_text(target)} within its budget."]


def _lowest(section: Section, lines: list[Line], metric: str) -> list[str]:
    """The lowest final value, and how certain it is."""
    best = min(lines, key=lambda line: _end(line, metric))
    if math.isinf(_end(best, metric)):
        return []
    tests, noise = _tests(section), _noise(section, best, metric)
    doubt = f" (standard error over {tests:,} test samples: {measured(metric, noise)})" if noise else ""
    return [f"Lowest {metric_name(metric)} at the end: {_name(best, lines)}, {_shown(best, metric)}{doubt}."]


def _tests(section: Section) -> int:
    return max((run.config.tests for run in section.runs), default=0)


def _noise(section: Section, line: Line, metric: str) -> float:
    """The standard error of an error rate over the test samples; 0 for what is not an error rate."""
    end, tests = _end(line, metric), _tests(section)
    return math.sqrt(end * (1 - end) / tests) if metric in SCALES and tests and 0 <= end <= 1 else 0.0


def _end(line: Line, metric: str) -> float:
    median = line.final[metric].median if metric in line.final else None
    return math.inf if median is None else median


def _shown(line: Line, metric: str) -> str:
    value = _end(line, metric)
    return measured(metric, value if math.isfinite(value) else None)


# --- variance reduction


def _variance_reduction(section: Section, lines: list[Line], metric: str) -> list[str]:
    """Whether variance reduction paid, under the fairest protocol that has methods with it and without it."""
    reducing, plain = _kinds(lines)
    if not reducing or not plain:
        return []
    for protocol in FAIREST:
        own = _kinds([line for line in lines if line.protocol == protocol])
        if own[0] and own[1]:
            rules = f" (protocol {protocol})" if len({line.protocol for line in lines}) > 1 else ""
            return [sentence for sentence, _ in _paid(section, *own, metric, rules)]
    across = _paid(section, reducing, plain, metric, "")
    return [sentence for found, pair in across for sentence in (found, _uneven(*pair))]


def _kinds(lines: list[Line]) -> tuple[list[Line], list[Line]]:
    """The methods that reduce variance, and those that do not; a method that is not known here is neither."""
    kinds = [(line, reduces_variance(line.method)) for line in lines]
    return [line for line, kind in kinds if kind], [line for line, kind in kinds if kind is False]


def _paid(
    section: Section, reducing: list[Line], plain: list[Line], metric: str, rules: str
) -> list[tuple[str, tuple[Line, Line]]]:
    """The sentence with the two lines that it compares; none where one kind came to no finite end."""
    for target in section.targets:
        pair = min(reducing, key=_by_seconds(target)), min(plain, key=_by_seconds(target))
        if not all(math.isinf(_seconds(line, target)) for line in pair):
            return [(_paid_in_time(*pair, target, rules), pair)]
    pair = min(reducing, key=lambda line: _end(line, metric)), min(plain, key=lambda line: _end(line, metric))
    if section.targets:
        undecided = "No method reached a target, so whether variance reduction pays is not decided"
        return [(f"{undecided}{rules}.", pair)]
    if not all(math.isfinite(_end(line, metric)) for line in pair):
        return []
    return [(_paid_in_the_end(section, *pair, metric, rules), pair)]


def _paid_in_time(reducing: Line, plain: Line, target: Target, rules: str) -> str:
    own, other = (line.to_target[str(target)]["seconds"] for line in (reducing, plain))
    paid = "paid" if _seconds(reducing, target) < _seconds(plain, target) else "did not pay"
    if _overlap(own, other):
        paid = "neither paid nor cost clearly, for the times of the seeds overlap"
    times = f"{_took(reducing, target)}, {_took(plain, target)}"
    return f"By the time to a {target_text(target)}{rules}, variance reduction {paid}: {times}."


def _paid_in_the_end(section: Section, reducing: Line, plain: Line, metric: str, rules: str) -> str:
    best, gap = min(reducing, plain, key=lambda line: _end(line, metric)), _end(plain, metric) - _end(reducing, metric)
    noise = _noise(section, best, metric)
    close = abs(gap) <= 2 * math.sqrt(2) * noise if noise else _overlap(plain.final[metric], reducing.final[metric])
    verdict = f"variance reduction {'paid' if gap > 0 else 'did not pay'}"
    if close or not gap:
        verdict = "it is too close to call whether variance reduction paid"
    ends = f"{reducing.label} ended at {_shown(reducing, metric)}, {plain.label} at {_shown(plain, metric)}"
    return f"By the final {metric_name(metric)}{rules}, {verdict}: {ends}."


def _uneven(reducing: Line, plain: Line) -> str:
    tuned, other = (reducing, plain) if reducing.protocol == "tuned" else (plain, reducing)
    if tuned.protocol == "tuned":
        return f"That is uneven: the step size of {tuned.label} was searched for, that of {other.label} was not."
    return f"That is uneven: {tuned.label} ran by {_own_rules(tuned)}, {other.label} by {_own_rules(other)}."


def _own_rules(line: Line) -> str:
    return f"the protocol {line.protocol}" if line.protocol else "no protocol"


def _took(line: Line, target: Target) -> str:
    units = line.to_target[str(target)]
    if units["seconds"].median is None:
        some = _some(line, target)
        return f"{line.label} reached it{some}" if some else f"{line.label} did not reach it"
    seconds, passes = (amount(unit, units[unit].median) for unit in ("seconds", "passes"))
    return f"{line.label} took {seconds} ({passes} passes)"


def _overlap(a: Spread, b: Spread) -> bool:
    """Whether the ranges of two numbers over several seeds have something in common."""
    if a.low is None or a.high is None or b.low is None or b.high is None or min(a.count, b.count) < 2:
        return False
    return max(a.low, b.low) <= min(a.high, b.high)


def _beside_vcsg(lines: list[Line], metric: str) -> list[str]:
    """VCSG beside the other methods that reduce variance, under the same protocol."""
    said = []
    for own in (line for line in lines if line.method == "vcsg"):
        reducing, _ = _kinds([line for line in lines if line.protocol == own.protocol and line is not own])
        reducing = [line for line in reducing if math.isfinite(_end(line, metric))]
        if math.isinf(_end(own, metric)):
            continue
        for words, ahead in (("is ahead of", True), ("is not ahead of", False)):
            others = [line for line in reducing if (_end(own, metric) < _end(line, metric)) == ahead]
            named = "; ".join(f"{line.label} ({_shown(line, metric)})" for line in others)
            if named:
                who = f"{_name(own, lines)} ({_shown(own, metric)})"
                said.append(f"By the final {metric_name(metric)}, {who} {words} {named}.")
    return said


# --- the paper


def _papers_order(section: Section, lines: list[Line]) -> list[str]:
    """Whether the paper's methods, with its own baselines, came in its order; a tie in its claims is left open."""
    claim, lines = section.claim, [line for line in lines if line.protocol == "paper"]
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
    if all(math.isinf(_seconds(line, target)) for line in ran.values()):
        verdict = f"not decided: none of them came to a {target_text(target)}"
        return [f"The paper's order ({', '.join(name.upper() for name in names)}) is {verdict}."]
    if wrong:
        verdict = f"not confirmed: {'; '.join(f'{ran[b].label} was faster than {ran[a].label}' for a, b in wrong)}"
    order = ", ".join(name.upper() for name in names)
    return [f"The paper's order ({order}) is {verdict}. With its own baselines, {_times(list(ran.values()), target)}."]


def _times(lines: list[Line], target: Target) -> str:
    """Who took how long, and who did not reach the target."""
    reached = [line for line in sorted(lines, key=_by_seconds(target)) if _seconds(line, target) < math.inf]
    said = [f"{line.label} took {amount('seconds', _seconds(line, target))}" for line in reached]
    said += [
        f"{line.label} reached it{some}" for line in lines if line not in reached and (some := _some(line, target))
    ]
    missing = [line.label for line in lines if line not in reached and not _some(line, target)]
    if missing:
        said.append(f"{listed(missing)} did not reach it")
    return listed(said)


def _fastest(lines: list[Line], name: str, target: Target) -> Line | None:
    own = [line for line in lines if line.method == PAPERS.get(name, name)]
    return min(own or [line for line in lines if line.method == name], key=_by_seconds(target), default=None)


# --- cautions and names


def _rests(section: Section, line: Line) -> bool:
    """Whether no run of a method left its start, as where the first anchor took the whole budget."""
    own = [run for run in section.runs if line_of(run) == (line.workload, line.protocol, line.method, line.label)]
    done = [run.evaluations for run in own if run.status == "finished"]
    return bool(done) and all(len(rows) > 1 and all(_same(rows[0], row) for row in rows[1:]) for rows in done)


def _same(first: Row, later: Row) -> bool:
    """Whether all that two evaluations measured is the same, but for how far the run was."""
    return all(first[name] == later[name] for name in ("train_loss", *ENDS) if name in first and name in later)


def _cautions(section: Section) -> list[str]:
    said = []
    for line in (line for line in section.lines if _rests(section, line)):
        why = ", for its first anchor took the whole budget" if anchored(line.method) else ""
        said.append(f"{line.label} took no step{why}: nothing can be said of it.")
    if len(section.lines) > 1 and max(line.seeds for line in section.lines) == 1:
        said.append("Every method ran with one seed: this is a demonstration, not a study.")
    broken = sum(run.status != "finished" for run in section.runs)
    if broken:
        said.append(f"{broken} {'run' if broken == 1 else 'runs'} did not finish; the reasons are listed.")
    jobs = min(section.jobs, len(section.runs))
    if jobs > 1:
        said.append(f"{jobs} runs at a time shared the machine, so each took longer than it would alone.")
    if section.repeated:
        again = "; ".join(section.repeated)
        said.append(f"Run more than once with the same settings: {again}. The run that went furthest counts.")
    budgets = dict.fromkeys(str(Budget(**run.config.budget)) for run in section.runs)
    if len(budgets) > 1:
        said.append(f"The runs had different budgets ({', '.join(budgets)}): their ends are not after equal work.")
    machines = {(run.environment.get("device"), run.environment.get("processor")) for run in section.runs}
    if len(machines) > 1:
        said.append("The runs come from different machines, so their times cannot be compared.")
    return said


def _name(line: Line, among: list[Line]) -> str:
    """The label of a method, with its protocol in words where there are several."""
    return line.label + _rules(line, among)


def _rules(line: Line, among: list[Line]) -> str:
    several = len({other.protocol for other in among}) > 1
    return f" ({RULES.get(line.protocol, line.protocol)})" if several and line.protocol else ""
