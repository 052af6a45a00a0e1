"""Clipping of v, and word of it where it makes steps far shorter that have a length of their own."""

from __future__ import annotations

import logging

from torch import Tensor

from vcsg.method.step_rules import Orthogonal, Plain, StepRule
from vcsg.run.vectors import norm, scale

SHORTER, IN_A_ROW = 10.0, 32
"""How many times shorter clipping may make such steps, and in how many of them in a row, before a warning."""

logger = logging.getLogger("vcsg")


class Clipping:
    """Shortens a v that is longer than `largest`.

    An adaptive step divides v by the root of second moments, those of gradients that are not clipped. So its length
    does not depend on that of gradients, until v is clipped: a bound that gradients are far above all the time leaves
    next to nothing of it. An orthogonal step of matrices does not depend on the length of v, clipped or not, and that
    of other parameters is adaptive.
    """

    def __init__(self, largest: float, rule: StepRule) -> None:
        self._largest, self._rule = largest, rule
        self._in_a_row, self._shortest = 0, 0.0

    def clip(self, v: list[Tensor]) -> None:
        length = norm(v).item()
        if length > self._largest:
            scale(v, self._largest / length)
        if not isinstance(self._rule, Plain) and self._in_a_row < IN_A_ROW:
            self._look_at(length)

    def _look_at(self, length: float) -> None:
        """Say that steps in a row are far shorter than without clipping; once in a run."""
        if not length > SHORTER * self._largest:
            self._in_a_row = 0
            return
        self._shortest = min(length, self._shortest) if self._in_a_row else length
        self._in_a_row += 1
        if self._in_a_row == IN_A_ROW:
            logger.warning(
                "clip_norm = %.4g, and v was %.2g or longer in %d steps in a row: %s, whose length does not depend on "
                "that of v, became %.2g times shorter%s. Leave clip_norm= out, or give %.2g or more",
                self._largest,
                self._shortest,
                IN_A_ROW,
                "orthogonal steps" if isinstance(self._rule, Orthogonal) else "adaptive steps",
                self._shortest / self._largest,
                " for all but matrices" if isinstance(self._rule, Orthogonal) else "",
                SHORTER * self._shortest,
            )
