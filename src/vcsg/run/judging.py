"""How the losses of steps judge a run: an epoch that no anchor judges, and the point where the run ends.

Each function is given the state of the run, and of it changes the sums of losses and the watch alone. L is that of the
start, None where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vcsg.method.definition import Method
from vcsg.run.holder import Holder
from vcsg.run.state import CourseState
from vcsg.run.variance import MIN_CHUNKS, AnchorSum

LIKE_SUMS = 3
"""Batches in a row whose losses are in proportion to their sizes, before a loss is taken for a sum."""
MANY_STEPS = 32
"""Steps whose mean loss tells, to a twentieth of its fall, whether it is back where it began."""


def judges_losses(state: CourseState, method: Method) -> bool:
    """Whether the losses of steps judge this epoch: no anchor will."""
    return not (state.drawn and method.drawn == "epoch")


def next_judgement(state: CourseState, method: Method) -> int:
    """The position in the phase where it is next judged, or ends."""
    count = state.phase.count
    halved = state.phase.kind == "inner" and judges_losses(state, method) and state.position < count // 2
    return count // 2 if halved else count


def step_loss_fault(state: CourseState, holder: Holder, L: float | None, losses: Sequence[float]) -> str | None:
    """Judge an epoch that no anchor will judge by the mean loss of its steps, at its middle and end.

    Fewer than eight steps are not judged; they are kept for the next time.
    """
    if math.isnan(state.watch.first_loss) and state.loss_count + len(losses) >= MANY_STEPS:
        _begin_watch(state, holder, losses[: max(0, MANY_STEPS - state.loss_count)])
    state.loss_sum, state.loss_count = state.loss_sum + sum(losses), state.loss_count + len(losses)
    state.loss_size += sum(map(abs, losses))
    state.loss_squares += sum(loss * loss for loss in losses)
    if state.position not in (state.phase.count // 2, state.phase.count) or state.loss_count < MIN_CHUNKS:
        return None
    count = state.loss_count
    mean, size, square = state.loss_sum / count, state.loss_size / count, state.loss_squares / count
    state.forget_losses()
    state.judged = True
    # f has its penalty, here that of the last point for all: a bound of a thousandfold growth asks for no more.
    loss, penalty, least = _value(holder, mean), holder.penalty, _least_change(state, L)
    error = math.sqrt(max(0.0, square - mean * mean) / count)
    back = state.watch.return_fault(loss, error) if count >= MANY_STEPS else None
    grown = state.watch.loss_fault(loss, size + penalty, least=least)
    fault = back or (grown if state.watch.stays_up(_last_values(state, holder), least) else None)
    if fault or state.position < state.phase.count:
        return fault
    return state.watch.ending_fault(_last_values(state, holder), least, goes_on=True)


def end_fault(state: CourseState, holder: Holder, L: float | None) -> str | None:
    """Say what is wrong with the point where the run ends, perhaps far from its last anchor; or None."""
    return state.watch.ending_fault(_last_values(state, holder), _least_change(state, L))


def nothing_gained(state: CourseState, holder: Holder) -> str | None:
    """Say that the point where the run ends is no better than the start; or None."""
    return state.watch.gained_nothing(_last_values(state, holder))


class SumOrMean:
    """Tells a loss that is the sum over a batch, by batches of other sizes than those of the anchor at its point.

    The loss of s samples is then s/S times that of S, and not about as large. A single batch may have such a loss by
    chance; some in a row, and none before that has another, are told.
    """

    def __init__(self) -> None:
        self._like_sums = 0
        self.decided = False

    def is_sum(self, size: float, loss: float, anchor: AnchorSum) -> bool:
        """Look at a batch of that size at the point of the anchor; whether it is the one that decides for a sum."""
        if self.decided or not anchor.chunks or not anchor.loss:
            return False
        share = size * anchor.chunks / anchor.samples
        if 0.5 < share < 2:
            return False
        like_a_sum = abs(loss / (share * anchor.loss) - 1) < 0.3
        self._like_sums += like_a_sum
        self.decided = not like_a_sum or self._like_sums == LIKE_SUMS
        return like_a_sum and self.decided


def ignores_batches(total: AnchorSum, g_norm2: float) -> bool:
    """Whether all batches of an anchor had the same loss and the same gradient, to the last bit, and not 0."""
    return total.chunks > 1 and total.spread == total.loss_spread == 0.0 < g_norm2


def _begin_watch(state: CourseState, holder: Holder, losses: Sequence[float]) -> None:
    """The first steps are done, of which these are the last: their mean is the first loss."""
    count = state.loss_count + len(losses)
    mean, size = (state.loss_sum + sum(losses)) / count, (state.loss_size + sum(map(abs, losses))) / count
    state.watch.loss_fault(_value(holder, mean), size + holder.penalty)


def _value(holder: Holder, loss: float) -> float:
    """f at x for a loss that is reported, to be minimised; 0 where it tells nothing."""
    return holder.sign * (loss + holder.sign * holder.penalty)


def _last_values(state: CourseState, holder: Holder) -> list[float]:
    """f of the last steps, with the penalty of the last point; none where the loss tells nothing."""
    more = _value(holder, 0.0)
    return [holder.sign * loss + more for loss in state.last_losses] if holder.sign else []


def _least_change(state: CourseState, L: float | None) -> float:
    """The fall of the loss by a step or so from the first anchor; 0 where it is not known."""
    moment = state.watch.first_moment
    return 0.0 if math.isnan(moment) or not L else moment / L
