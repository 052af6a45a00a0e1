"""How the calls of every method grow, claimed beside measured, and what that says in sentences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vcsg.experiments.complexity.cells import STEPS, Design
from vcsg.experiments.complexity.claimed_powers import RATES, ClaimedPowers
from vcsg.experiments.complexity.contenders import CONTENDERS, GRID, GRID_TEXT, Contender
from vcsg.experiments.complexity.exponents import CONFIDENCE, Exponents, Interval, claimed, exponents
from vcsg.experiments.complexity.observations import Observation, at_edge, by_method, median_calls


@dataclass(frozen=True)
class Growth:
    """The exponents of one method with one kind of step."""

    contender: Contender
    steps: str
    measured: Exponents
    claim: tuple[float, float] | None
    """The claimed exponents in n and 1/ε over the same n and ε; None where nothing is claimed."""

    @property
    def rate(self) -> ClaimedPowers | None:
        return RATES.get(self.contender.method)

    @property
    def axes(self) -> tuple[tuple[float | None, Interval | None], ...]:
        """Claimed and measured, in n and in 1/ε."""
        p, q = self.claim or (None, None)
        return (p, self.measured.n), (q, self.measured.eps)


def growths(observations: Sequence[Observation], design: Design) -> list[Growth]:
    """The exponents of every method, from all families together, each with a constant of its own."""
    found = []
    for (name, steps), own in by_method(observations).items():
        rate = RATES.get(CONTENDERS[name].method)
        claim = claimed(rate, design.sizes, design.targets) if rate else None
        found.append(Growth(CONTENDERS[name], steps, exponents(own), claim))
    return found


def verdict(claim: float | None, found: Interval | None) -> str:
    """Where a claimed exponent lies: "as claimed" within the interval, "below" or "above" what was claimed."""
    if claim is None or found is None or math.isnan(found.low):
        return ""
    return "as claimed" if found.low <= claim <= found.high else "below" if found.high < claim else "above"


def interval_text(found: Interval | None) -> str:
    """An exponent with its interval, such as `0.66 (0.63 to 0.70)`."""
    if found is None:
        return "–"
    spread = "" if math.isnan(found.low) else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.value:.2f}{spread}".replace("-", "−")


def sentences(found: Sequence[Growth], observations: Sequence[Observation], design: Design, searched: int) -> list[str]:
    """What the records say."""
    if not observations:
        return ["No run is done yet."]
    said = [*_against_claims(found), *_vcsg(found), *_fewest(observations, design)]
    return [*said, _censored(observations, design), *_search(observations, searched)]


def _against_claims(found: Iterable[Growth]) -> Iterator[str]:
    theory = [one for one in found if one.steps == "theory" and one.claim]
    for place, name in ((0, "n"), (1, "1/ε")):
        judged = {one.contender.label: verdict(*one.axes[place]) for one in theory}
        parts = [
            f"{words} for {', '.join(own)}"
            for word, words in (
                ("as claimed", "as claimed"),
                ("below", "below the claim"),
                ("above", "above the claim"),
            )
            if (own := [label for label, said in judged.items() if said == word])
        ]
        if parts:
            yield f"With the steps of theory, the exponent in {name} is {'; '.join(parts)}."


def _vcsg(found: Iterable[Growth]) -> Iterator[str]:
    """VCSG's exponents beside those of the methods that it is said to improve on."""
    by_name = {one.contender.name: one for one in found if one.steps == "theory"}
    if "vcsg" not in by_name:
        return
    vcsg, rivals = by_name["vcsg"], [by_name[name] for name in ("scsg", "svrg") if name in by_name]
    own, claim = vcsg.measured.n, vcsg.claim
    others = [f"{one.contender.label} {interval_text(one.measured.n)}" for one in rivals if one.measured.n]
    if own and claim and others:
        yield (
            f"VCSG's calls grow with n to the power {interval_text(own)}, where {claim[0]:.2f} is claimed; "
            f"{' and '.join(others)}."
        )


def _fewest(observations: Sequence[Observation], design: Design) -> Iterator[str]:
    """Which methods took the fewest calls, over all families, n and ε."""
    for steps, words in STEPS.items():
        cells: dict[tuple[str, int, float], dict[str, list[Observation]]] = {}
        for one in observations:
            if one.steps == steps:
                cells.setdefault((one.family, one.n, one.eps), {}).setdefault(one.contender, []).append(one)
        first = Counter[str]()
        for methods in cells.values():
            calls = {name: median_calls(own) for name, own in methods.items()}
            if calls and min(calls.values()) < math.inf:
                first[min(calls, key=lambda name: calls[name])] += 1
        if first:
            parts = [f"{CONTENDERS[name].label} in {count}" for name, count in first.most_common()]
            first_of = f"With {words}, the fewest calls of {len(cells)} cells (family, n, ε) were those of"
            yield f"{first_of} {', '.join(parts)}."


def _censored(observations: Sequence[Observation], design: Design) -> str:
    missed = Counter(CONTENDERS[one.contender].label for one in observations if one.censored)
    if not missed:
        return f"Every one of {len(observations):,} runs reached its ε."
    names = ", ".join(f"{label} {count}" for label, count in missed.most_common())
    return (
        f"{sum(missed.values())} of {len(observations):,} runs did not reach their ε within {budget_text(design)} "
        f"({names}); they are in the fits as censored, so not as missing, and exponents are left out where fewer than "
        "half of a method's runs got there."
    )


def budget_text(design: Design) -> str:
    """What a run may spend, in words."""
    return f"{design.passes:g} passes and {design.calls / 1e6:g} million calls"


def _search(observations: Sequence[Observation], searched: int) -> Iterator[str]:
    edge, chosen = at_edge(observations, GRID)
    if chosen:
        spent = sum(one.calls for one in observations if one.steps == "best")
        yield (
            f"The best constants are those of c/L with c in {{{GRID_TEXT}}}, chosen for "
            f"every method, family, n and ε alike by runs on a problem of their own; that took {searched / 1e6:,.0f} "
            f"million calls, which are not counted (the runs themselves: {spent / 1e6:,.0f} million). "
            f"{edge} of {chosen} choices are at an end of the grid."
        )


NOTE = (
    f"Exponents are those of calls ∝ n^p·ε^(−q), with {CONFIDENCE:.0%} bootstrap intervals over the draws of problems "
    "and samples. A claim is fitted in the same way at the same n and ε, all its constants 1."
)
