"""When to end a search by what is sure to end at the solution: an exact factor of all rows, or of their combinations.

It has a known price, in passes. What the search still needs has to be told from the fall of ‖∇f‖ so far. That falls by
a constant factor from pass to pass where the curvatures of f lie within bounds, and by a power of the number of passes
where they come near to 0: then every halving of what is left takes twice as long. The truth is mostly between the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

EARLY, SHARE, EVERY = (3, 6), 0.25, 4
"""When to look for the first time at what is left: after this share of the price in passes, within bounds; and after
how many passes more each time. A look takes as long as a pass over small data."""
LONGER = 1.5
"""The passes that have to be expected without it, in units of its price."""
SLOWING = 0.25
"""The weight of a fall by a power of the passes in what is expected, beside one by a constant factor."""
SLOWEST = 10.0
"""The most passes that a fall by a power counts as, in units of the others: after few of them it says little."""
OVERALL = 0.3
"""The passes that have to be expected by the fall of ‖∇f‖ on the whole way, in units of the price: ‖∇f‖ may stand still
for a while, and go on falling. It counts until the search has taken as long as the price."""
OVERDUE = 0.5
"""The passes that have to be expected, in units of the price, once the search has taken as long as that."""


def first_look(price: float) -> float:
    """The passes after which what is left is looked at for the first time."""
    least, most = EARLY
    return min(max(least, SHARE * price), most)


def sure_end_pays(least: Sequence[float], tol: float, price: float) -> bool:
    """Whether a search is expected to need more passes than a sure end takes.

    Args:
        least: the least ‖∇f‖ so far, at the start and after each pass.
        tol: the ‖∇f‖ at which the search ends.
        price: the passes that the sure end takes.
    """
    passes, now = len(least) - 1, least[-1]
    if not 0 < now < math.inf:
        return False
    left, half = math.log(now / max(tol, 1e-15 * now)), len(least) // 2
    fall, overdue = math.log(least[half] / now), passes >= price
    if left <= 0:
        return False
    if not overdue and left * passes <= math.log(least[0] / now) * OVERALL * price:
        return False
    if not left < 500 * fall:  # it stands still
        return True
    steady, slowing = left / fall * (passes - half), passes * math.expm1(min(500.0, left / fall * math.log(2)))
    slowing = min(slowing, SLOWEST * steady)
    if overdue and steady > OVERDUE * price:
        return True
    return (1 - SLOWING) * math.log(steady) + SLOWING * math.log(slowing) > math.log(LONGER * price)
