"""What the variants cost in one setting, beside VCSG, and the verdict that follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from vcsg.experiments.ablation.variants import BASE, CHAIN, CONTROL, STEP, SVRG, VARIANTS, Variant

Costs = Mapping[str, Mapping[int, float]]
"""What every variant took, by variant and by seed or draw; ∞ where it did not get there."""
NOTABLE = 1.1
"""The ratio from which on a change is called one: the resolution of the counts."""


@dataclass(frozen=True)
class AblationSetting:
    """One problem on which the variants ran."""

    key: str
    """"network" or "convex"."""
    title: str
    goal: str
    """What had to be reached, in words."""
    costs: Costs
    """Passes to the goal."""
    budget: float
    """The passes that a run might take."""
    chain: Costs
    """Passes of the methods from SVRG to VCSG to a level that all of them reach."""
    level: str
    """That level, in words."""
    runs: str
    """What the runs of a variant are: "draws" or "seeds"."""


@dataclass(frozen=True)
class Comparison:
    """A variant beside VCSG."""

    variant: Variant
    cost: float
    """The median."""
    ratios: tuple[float, ...]
    """Its cost over that of VCSG for every seed that both have; at least that where it did not get there."""
    reached: int
    runs: int

    @property
    def ratio(self) -> float:
        """The geometric mean of the ratios."""
        return math.exp(sum(map(math.log, self.ratios)) / len(self.ratios)) if self.ratios else math.nan

    @property
    def complete(self) -> bool:
        """Whether every run got there, so that the ratio is one and not a bound."""
        return self.reached == self.runs


def comparisons(setting: AblationSetting) -> list[Comparison]:
    """All variants that have runs, in the order of the table."""
    base = setting.costs.get(BASE.key, {})
    found = []
    for variant in VARIANTS:
        own = setting.costs.get(variant.key, {})
        if not own:
            continue
        shared = [seed for seed in own if 0 < base.get(seed, math.inf) < math.inf and own[seed] > 0]
        ratios = [min(own[seed], setting.budget) / base[seed] for seed in shared]
        reached = sum(map(math.isfinite, own.values()))
        found.append(Comparison(variant, median(own.values()), tuple(ratios), reached, len(own)))
    return found


def ratio_text(one: Comparison) -> str:
    """The ratio to VCSG with its range over the seeds, such as `1.32 (1.20 to 1.41)`."""
    if not one.ratios:
        return "–"
    bound = "" if one.complete else "≥ "
    spread = f" ({min(one.ratios):.2f} to {max(one.ratios):.2f})" if len(one.ratios) > 1 and one.complete else ""
    return f"{bound}{one.ratio:.2f}{spread}"


def sentences(setting: AblationSetting) -> list[str]:
    """The verdict, from the records."""
    return [*_chain(setting), *_changes(setting)] or [f"{setting.title}: no run is done yet."]


def gains(chain: Costs) -> dict[str, float]:
    """The factors by which the cost falls from each method of the chain to the next, over the seeds they share.

    "step": SVRG at VCSG's step; "batches": VCSG's batch sizes besides; "weights": VCSG's weights besides; "all".
    """
    seeds = set.intersection(*(set(chain.get(variant.key, {})) for variant in CHAIN))
    if not seeds:
        return {}
    if not all(0 < chain[variant.key][seed] < math.inf for variant in CHAIN for seed in seeds):
        return {}
    logs = {v.key: sum(math.log(chain[v.key][seed]) for seed in seeds) / len(seeds) for v in CHAIN}
    falls = {"step": (SVRG, STEP), "batches": (STEP, CONTROL), "weights": (CONTROL, BASE), "all": (SVRG, BASE)}
    return {name: math.exp(logs[a.key] - logs[b.key]) for name, (a, b) in falls.items()}


def _chain(setting: AblationSetting) -> Iterator[str]:
    found = gains(setting.chain)
    if not found:
        return
    total, step, weights = found["all"], found["step"], found["weights"]
    head = (
        f"{setting.title}: to {setting.level}, SVRG takes {total:.2f} times the passes of VCSG. On the way from one to "
        f"the other VCSG's step divides them by {step:.2f}, its batch sizes by {found['batches']:.2f}, its weights by "
        f"{weights:.2f}."
    )
    if total < NOTABLE:
        yield f"{head} So there is no gain to explain."
        return
    share = math.log(step) / math.log(total)
    if step > NOTABLE * total:
        tail = "all of the gain is the size of the step, and the rest of VCSG gives some of it back"
    elif step * NOTABLE > total:
        tail = "the gain is only the size of the step"
    else:
        tail = f"{share:.0%} of the gain, in logarithms, is only the size of the step"
    verdict = "help" if weights > NOTABLE else "hurt" if weights < 1 / NOTABLE else "make no difference"
    yield f"{head} So {tail}; at the same step and batches, VCSG's weights {verdict} beside SVRG's."


def _changes(setting: AblationSetting) -> Iterator[str]:
    """Which single changes make VCSG better or worse, the same way with every seed."""
    others = [one for one in comparisons(setting) if one.ratios and one.variant.part not in ("", SVRG.part)]
    better = [one for one in others if one.complete and max(one.ratios) < 1 / NOTABLE]
    worse = [one for one in others if min(one.ratios) > NOTABLE]
    if not others:
        return
    said = []
    for words, own in (("cheaper", better), ("dearer", worse)):
        if own:
            said.append(f"{words} with {_named(own)}")
    rest = len(others) - len(better) - len(worse)
    said.append(f"no clear change with the other {rest}" if said else "none makes a clear change")
    yield (
        f"{setting.title}: of {len(others)} single changes to VCSG, {'; '.join(said)} (a change is clear where it is "
        f"more than {NOTABLE - 1:.0%} with every one of the {setting.runs})."
    )


def _named(own: Sequence[Comparison]) -> str:
    ordered = sorted(own, key=lambda one: one.ratio)
    return ", ".join(f"{_short(one.variant)} ({ratio_text(one).split(' (')[0]} ×)" for one in ordered)


def _short(variant: Variant) -> str:
    part = variant.part.partition(" (")[0]
    return f"{part}: {variant.label}"
