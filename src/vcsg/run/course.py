"""The course of a run: every decision of a method, and all discrete state. It knows no tensors.

Each epoch j has an anchor phase (B samples in chunks at the current point: their mean gradient m, S* and ‖∇f‖²; the
point does not move), once a smoothness phase (L, where it is not given), and an inner phase of N steps x ← x − ηv.
What a phase is made of follows from the method's data alone.

An executor does the work of a phase, one batch at a time or many, and reports numbers: `take_chunk`, `close_anchor`,
`take_curvatures`, `take_steps`. The course counts, judges, goes back or on, and says what comes next: `state.phase` and
`state.position`, `rule`, `levels`, `step_size`. What has to be done with the point as a whole (keep it, go back to it,
step along m) it asks of the `Holder`. So every executor runs the same method, by construction.
"""

from __future__ import annotations

import bisect
import logging
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcsg.method.definition import Method
from vcsg.method.schedules import RECENT, Facts, Plan
from vcsg.method.weights import Constant, Rule, Weights
from vcsg.run import smoothness
from vcsg.run.handed_batches import LoopSizes, completed, resized
from vcsg.run.holder import Holder, StepNumbers, averaging_weight
from vcsg.run.record import Record
from vcsg.run.sampling import Kind, Phase, Share, draw_geometric, stream
from vcsg.run.state import CourseState
from vcsg.run.variance import MIN_CHUNKS, AnchorSum, chunks
from vcsg.run.watch import LAST_STEPS, BadSamples, Diverged

logger = logging.getLogger("vcsg")

MAX_ROLLBACKS = 10
"""How often in a row a diverged epoch is tried again, L doubled each time, before the run gives up."""
MANY_STEPS = 32
"""Steps whose mean loss tells, to a twentieth of its fall, whether it is back where it began."""


@dataclass(frozen=True)
class CourseOptions:
    """The choices that are not the method's; a state is loaded only where they are the same."""

    output: str = "last"
    variance: str = "chunks"
    chunk: int = 1024
    clip_norm: float | None = None
    batch_size: int | None = None
    """The size of the batches that a loop hands over, on each rank; None where samples are drawn here."""

    @property
    def exact(self) -> bool:
        """Whether S* is measured from single samples."""
        return self.variance == "exact"


class Course:
    """The course of a method on n samples: which phase comes next, of what sizes, and when to go back.

    Args:
        method: what to run.
        n: the number of samples.
        holder: holds the point.
        share: this rank's part of the work, where there are several ranks.
        options: the choices that are not the method's.
        seed: the seed of everything that is drawn.
        L: the smoothness constant; None has it measured at the first anchor.
        unit: the lr that stands for a factor of 1.
    """

    def __init__(
        self,
        method: Method,
        n: int,
        holder: Holder,
        share: Share | None = None,
        options: CourseOptions | None = None,
        seed: int = 0,
        L: float | None = None,
        unit: float = 1.0,
    ) -> None:
        self.method, self.n, self.seed, self.budget = method, n, seed, math.inf
        self.share, self.options = share or Share(), options or CourseOptions()
        self._holder = holder
        self.certifies = False
        """Whether the run is to promise something of ∇f, so that random f_i are refused."""
        first = method.schedule.first(n)
        L = L if method.needs_L or L is not None else 1.0  # from then on, what halves the step after a divergence
        phase = Phase("anchor", 0, 1, n, n, seed)
        self.state = CourseState(phase, unit=unit, anchor_size=first, good_size=first, L=L)
        self._begin_epoch()

    # --- what comes next

    @property
    def planned_rule(self) -> Rule:
        """The rule that the method has for this epoch."""
        return self.method.weights[self._plan.regime].at(self.state.epoch)

    @property
    def rule(self) -> Rule:
        """The rule that chooses the weights of the next step: the planned one, but where nothing is remembered yet."""
        rule = self.planned_rule
        if self.method.drawn == "never" and self.state.depth < 0:  # y is x, and m is 0
            weights = rule.choices[-1]
            return Constant(Weights(weights.now + weights.anchor, 0, 0))
        return rule

    @property
    def compares(self) -> bool:
        """Whether an inner step needs the gradient at the anchor."""
        return any(w.anchor for w in self.rule.choices)

    @property
    def remembers_point(self) -> bool:
        """Whether the method ever needs the gradient at the anchor, and so the point y."""
        return any(w.anchor for w in self.method.choices)

    @property
    def anchor_complete(self) -> bool:
        """Whether all chunks of the anchor are in, so that `close_anchor` is to be called."""
        return self.state.phase.kind == "anchor" and self.state.position == self.state.phase.count

    @property
    def needs_one_point(self) -> bool:
        """Whether the method has no anchor in any epoch: a step needs the gradient at x, and nothing else."""
        drawn = self.method.drawn != "never" and any(w.mean for w in self.method.choices)
        return not drawn and not self.remembers_point

    @property
    def loop_sizes(self) -> LoopSizes | None:
        """The sizes of the batches that a loop hands over; None where samples are drawn here."""
        size = self.options.batch_size
        return None if size is None else LoopSizes(size, self.n, self.share.ranks)

    @property
    def blocks(self) -> int:
        """How many gradients the method's table holds; 0 without a table."""
        if not self.method.table:
            return 0
        b = self.method.schedule(Facts(1, self.n, math.nan, math.nan)).b
        return max(1, self.n // self._least) if b < self._least else math.ceil(self.n / b)

    def step_size(self, lr: float) -> float:
        """η of a parameter group with this lr."""
        assert self.state.L is not None
        # The factor of a schedule is one of steps that L bounds.
        factor = self._plan.factor if self.method.needs_L else 1.0
        return lr * self.method.base / (self.state.L * self.state.unit) * factor

    def step_numbers(self, count: int = 1) -> list[StepNumbers]:
        """The numbers that the next steps need besides their directions."""
        state, method, rule = self.state, self.method, self.planned_rule
        memory = rule.choices[0].mean if method.moves == "step" and type(rule) is Constant else 0.0
        weights = [averaging_weight(state.averaged + k) for k in range(1, count + 1)]
        return [
            StepNumbers(
                step_size=self.step_size,
                moment=state.moments + k,
                memory=memory,
                from_zero=method.drawn == "never",
                average=weight if self.options.output == "average" else None,
            )
            for k, weight in enumerate(weights, 1)
        ]

    def levels(self, count: int) -> list[tuple[int, int]]:
        """The levels of the next steps: the (y, m) that each reads, and the one that it moves to (x, v); 0 for none."""
        position, depth, plan = self.state.position, self.state.depth, self._plan
        if self.method.moves == "epoch":
            return [(0, 0)] * count
        if self.method.moves == "step":
            return [(depth, 1), *[(1, 1)] * (count - 1)][:count]
        found = []
        for level in plan.levels[position : position + count]:
            found.append((min(level - 1, depth), level if level < max(plan.levels) else 0))
            depth = found[-1][1] or depth
        return found

    def ready(self, most: int, limit: float) -> int:
        """How many of the next steps can be executed at once: at most so many, until `limit` gradients are counted.

        Not the estimate of L, nor the first step of an epoch without an anchor, whose loss judges the point before. An
        epoch that is tried again because something was not finite goes step by step: that tells bad samples from a
        bad point.
        """
        state, phase = self.state, self.state.phase
        first = phase.kind == "inner" and state.position == 0 and not state.drawn
        if phase.kind == "smoothness" or first or (state.suspect and state.rollbacks) or self.looks_for_noise:
            return 0
        last = min(self.next_judgement(), state.position + most)
        each = self._evaluations() if phase.kind == "inner" else 1
        wanted = phase.bounds(state.position).start + (limit - state.ifo) / each
        within = range(state.position, last - 1)
        return 1 + bisect.bisect_left(within, wanted, key=lambda k: float(phase.bounds(k).stop))

    @property
    def looks_for_noise(self) -> bool:
        """Whether the next batch is to be evaluated twice, because random f_i are to be refused."""
        return self.certifies and self.state.phase.kind == "anchor" and not self.state.deterministic

    def next_judgement(self) -> int:
        """The position in the phase where it is next judged, or ends."""
        count = self.state.phase.count
        halved = self.state.phase.kind == "inner" and self._judges_losses() and self.state.position < count // 2
        return count // 2 if halved else count

    def remaining(self) -> tuple[Share, Phase, int]:
        """This rank's share, the current phase and how many of its batches are done."""
        return self.share, self.state.phase, self.state.position

    def samples(self) -> int:
        """How many samples the next step has, on all ranks."""
        return self.share.samples(self.state.phase, self.state.position)

    def sample_numbers(self) -> list[int]:
        """The samples of the current batch that this rank evaluates; none where a loop knows them alone."""
        if self.loop_sizes:
            return []
        own = self.share.part(self.state.phase, self.state.position)[0]
        return [int(i) for i in self.state.phase.indices[own]]

    def limit(self, budget: float) -> None:
        """The run is to stop at so many gradients: several ranks then stop at the batch where one would."""
        self.budget = budget
        self.state.phase = self._cut(self.state.phase)

    def request_full_anchor(self) -> None:
        """The next anchor that is begun is to take all n samples, whatever its epoch's plan says."""
        self.state.full_anchor = True

    # --- what executors report

    def receive(self, told: int | None, seen: int | None) -> None:
        """The batch in hand comes from a loop: of so many samples as it was told, or seen, or is to be expected."""
        state, loop = self.state, self.loop_sizes
        if loop is None:
            return
        size = loop.size(told, seen, state.loop.expected(loop), guess=self.needs_one_point)
        state.loop = replace(state.loop, parts=list(state.loop.parts))  # an error in this step puts the old one back
        state.loop.arrive(size, loop, state.phase.kind == "anchor")
        width = self.share.width(state.phase, state.position)
        state.phase = resized(state.phase, state.position, width, size, state.loop, loop, state.anchor_size)

    def begin_pass(self, short: bool) -> None:
        """The loop begins a pass, which ends with a short batch or drops it."""
        state, loop = self.state, self.loop_sizes
        assert loop is not None
        state.loop.begin(short)
        if state.phase.kind == "anchor":
            before = [state.phase.size(k) for k in range(state.position)]
            state.phase = completed(state.phase, before, state.loop, loop, state.anchor_size)

    def take_chunk(self, size: int, loss: float, deviation: float) -> None:
        """A chunk of the anchor was evaluated, of `size` samples on this rank (0 where there was none for it).

        Where its loss and ‖g_k − m‖² (`deviation`, from m before it) are finite, it is in m.
        """
        state = self.state
        fault = _chunk_fault(loss, deviation) if size else None
        if fault and self.share.ranks > 1:
            # The others do not know: what is reduced at the end will tell them.
            state.anchor_sum.loss, fault = math.nan, None
        elif size and not fault:
            state.anchor_sum.take(size, loss, deviation)
        if fault and state.good_epoch == 0:
            raise self._bad_start(fault)
        state.steps += 1
        state.ifo += self.samples()
        if fault:
            state.suspect = True
            self.roll_back(f"at the anchor of epoch {state.epoch} {fault}")
            return
        state.position += self.share.width(state.phase, state.position)

    def take_chunks(self, losses: Sequence[float], deviations: Sequence[float]) -> None:
        """Several chunks were taken into m at once; see `take_chunk`."""
        begun, phase = self.state, self.state.phase
        try:
            for loss, deviation in zip(losses, deviations, strict=True):
                if self.state.phase is not phase:
                    return
                self.take_chunk(self.samples(), loss, deviation)
        except FloatingPointError:
            self.state = begun.rewound()  # m has taken in what is not finite
            raise

    def take_anchor(self, total: AnchorSum, g_norm2: float) -> None:
        """A whole anchor was evaluated at once, on this one rank; see `close_anchor`."""
        state = self.state
        state.steps += 1
        state.ifo += total.samples
        state.position = state.phase.count
        self.close_anchor(total, g_norm2)

    def close_anchor(self, total: AnchorSum, g_norm2: float) -> None:
        """The anchor is complete, on all ranks: judge its point. A good one is planned from, and gone back to later."""
        state = self.state
        state.anchor_sum = total
        anchor = total.close(self.n, g_norm2, state.loop.overlap)
        anchor = replace(anchor, loss=anchor.loss + self._holder.sign * self._holder.penalty)
        if state.epoch == state.good_epoch:
            state.watch = state.watch.renewed()  # back at a point that was accepted: it is the reference
        finite = math.isfinite(anchor.loss) and math.isfinite(anchor.g_norm2)
        fault: str | None = "a loss or a gradient is not finite"
        if finite:
            fault = state.watch.fault(anchor, self._holder.sign, self._smoothness)
        if not finite and state.good_epoch == 0:
            self.state = state.rewound()
            raise FloatingPointError(
                f"{fault} at the starting point, before any step: look at the model and at the samples"
            )
        if fault:
            state.suspect = state.suspect or not finite
            state.good_size = max(state.good_size, anchor.B)  # so that the point gone back to is as well known
            self.roll_back(f"at the anchor of epoch {state.epoch} {fault}")
            return
        state.anchor, state.depth, state.last_losses = anchor, 0, []
        self._remember(anchor.variance)
        self._accept_point()
        self._make_plan()

    def take_curvatures(self, found: Sequence[float], evaluated: int) -> None:
        """The curvature of each of some mini-batches at the anchor's point, measured with so many gradients."""
        state = self.state
        curvatures = [*state.curvatures, *found]
        last = len(curvatures) == state.phase.count
        if state.L is None and (not math.isfinite(sum(curvatures)) or (last and not any(curvatures))):
            raise FloatingPointError(
                f"L cannot be estimated: the curvature of a mini-batch at the starting point is {curvatures[-1]}. "
                "Give L= or lr=, or check that the loss depends smoothly on the parameters"
            )
        state.steps += 1
        state.ifo += evaluated
        state.curvatures = curvatures
        state.position += self.share.width(state.phase, state.position)
        if last:
            self._take_L(curvatures)
            self._begin_inner()

    def _take_L(self, curvatures: Sequence[float]) -> None:
        """L is measured, or once more: then only a much smaller one is taken, since larger ones feed themselves."""
        state = self.state
        # A mini-batch without curvature (a dead unit, a dropped sample) says nothing of the step.
        found = statistics.median([c for c in curvatures if c] or [math.inf])
        if state.L is None:
            state.L, state.L_measured = found, state.ifo
        elif found * smoothness.FAR_LARGER < state.L:
            logger.info("L is measured again, and is %.3g in place of %.3g", found, state.L)
            state.L, state.start_L = found, state.L

    def allows(self, loss: float, beside: float, sound: bool = False) -> bool:
        """Whether the next inner step may be taken, from its losses at x and at the anchor; asked before x moves.

        Where not, the run has gone back. Only losses are looked at: a step that is not finite shows in the next loss,
        at the next anchor, or when the loop ends, and no pass over the gradient is spent on it. `sound` says that the
        samples were found fine at the last good point, so that it is an anchor on the way that is not.
        """
        state = self.state
        if not math.isfinite(beside) and not sound:
            raise BadSamples(
                f"the loss is {beside} at the anchor, where the anchor's own samples were fine", self.sample_numbers()
            )
        if math.isfinite(loss) and math.isfinite(beside):
            if state.position == 0 and not state.drawn:
                self._pass_by()
            return True
        if state.good_epoch == 0:
            raise self._bad_start(f"the loss is {loss}")
        state.steps += 1
        state.ifo += self._evaluations() * self.samples()
        state.suspect = True
        found = beside if math.isfinite(loss) else loss
        self.roll_back(f"in inner step {state.position + 1} of epoch {state.epoch} the loss is {found}")
        return False

    def recheck(self, fault: str, sound: bool) -> None:
        """A batch had what is not finite, and was evaluated once more at the last good point: was it sound there?

        Where not, its samples are at fault and not the step: no smaller one would help.
        """
        if not sound:
            where = f"and so it is at the last good point, of epoch {self.state.good_epoch}"
            raise BadSamples(f"{fault}, {where}", self.sample_numbers())
        if self.share.ranks == 1 or self.state.phase.kind == "inner":  # else the other ranks know nothing of it
            self.state.ifo += self.samples()

    def take_second_loss(self, loss: float, again: float) -> None:
        """The batch in hand was evaluated twice at x, with other random numbers for the closure."""
        if abs(loss - again) > 1e-4 * max(abs(loss), abs(again)):
            raise ValueError(
                f"the same samples have the loss {loss:.6g} and {again:.6g} at the same point: f is random, as with "
                "dropout or random augmentation, and nothing can be certified of its gradient. Train without them, or "
                "stop by another rule than vcsg.stationary"
            )
        self.state.deterministic = True
        self.state.ifo += self.samples()

    def take_steps(self, losses: Sequence[float], beside: Sequence[float], known: bool = True) -> None:
        """Inner steps were taken; the loss of each at x and at the anchor, which tells nothing where it is not known.

        Of several taken at once, one may turn out not to have been allowed: the run then goes back.
        """
        state, phase, first = self.state, self.state.phase, self.state.position
        finite = [math.isfinite(here) and math.isfinite(there) for here, there in zip(losses, beside, strict=True)]
        good = len(losses) if all(finite) else finite.index(False)
        if good:
            state.steps += good
            state.ifo += self._evaluations() * _samples_between(phase, first, first + good)
            for _, write in self.levels(good):
                state.depth = write or state.depth
            self._count_moves(good)
            state.position += good
            if known:
                state.last_losses = [*state.last_losses, *losses[max(0, good - LAST_STEPS) : good]][-LAST_STEPS:]
            else:
                state.judged = True  # by its gradients, which were finite
            if known and (fault := self._judge_losses(losses[:good])):
                self.roll_back(f"in epoch {state.epoch} {fault}")
            elif state.position == phase.count:
                self._end_epoch()
        if good == len(losses) or state.phase is not phase:
            return
        try:
            # An anchor that moved along may itself have diverged: steps one by one will tell.
            self.allows(losses[good], beside[good], sound=self.method.moves != "epoch")
        except FloatingPointError:
            self._holder.restore("anchor")  # x went on
            state.depth = -1
            self._begin_epoch()
            raise

    # --- going back

    def roll_back(self, reason: str) -> None:
        """Go back to the last good point and try its epoch again with twice the L."""
        state = self.state
        self._holder.restore("anchor")
        state.epoch, state.anchor_size, state.watch = state.good_epoch, state.good_size, replace(state.good_watch)
        state.pending, state.depth, state.moments, state.averaged = 0.0, -1, 0, 0
        state.loss_sum, state.loss_size, state.loss_count, state.judged = 0.0, 0.0, 0, False
        state.last_losses, state.L_measured = [], None
        state.rollbacks += 1
        tried = state.L
        state.L = 2 * (state.L or 0.0)
        self._begin_epoch()
        if state.rollbacks > MAX_ROLLBACKS:
            raise Diverged(
                f"gave up after {MAX_ROLLBACKS} roll-backs to epoch {state.epoch}: {reason} (with L = {tried:.3g}). "
                "The model is at the last good point. Give a larger L= or a smaller lr=, or look for samples with "
                "an extreme loss"
            )
        logger.warning("diverged: %s; back to epoch %d with L = %.3g", reason, state.epoch, state.L)

    def begin_anew(self) -> None:
        """Begin the epoch again at x: parameters move from now on of which no anchor knows."""
        self.state.depth, self.state.curvatures, self.state.moments = -1, [], 0
        self._begin_epoch()

    def pass_over(self) -> None:
        """The batch in hand was evaluated for nothing."""
        self.state.ifo += self.samples()
        self.state.steps += 1

    # --- output

    def offer_output(self) -> None:
        """A one-slot weighted reservoir: keep x̃_j with probability weight_j / (sum of all weights so far)."""
        state = self.state
        if not state.pending:
            return
        state.output_weight += state.pending
        accepted = stream(self.seed, "output", state.phase.number).random() < state.pending / state.output_weight
        state.pending = 0.0
        if self.options.output == "weighted" and accepted:
            self._holder.store("output")

    def load_output(self) -> bool:
        """x ← the point that the method returns; where that moved x, an epoch begins anew, and it returns True."""
        self.offer_output()
        state, output = self.state, self.options.output
        moved = (output == "weighted" and state.output_weight > 0) or (output == "average" and state.averaged > 0)
        if moved:
            self._holder.restore("output")
            state.depth, state.averaged, state.last_losses = -1, 0, []
            self._begin_epoch()
        return moved

    # --- state

    @property
    def split(self) -> bool:
        """Whether each rank has a part of an anchor, whose mean is then in no saved state."""
        return self.share.ranks > 1 and self.state.phase.kind == "anchor"

    def saved_state(self) -> CourseState:
        """The state that a checkpoint holds, equal on all ranks: of an anchor that is split, its beginning."""
        return self.state.rewound() if self.split else self.state

    def resume(self, state: CourseState) -> None:
        """Go on from a loaded state, perhaps with another number of ranks."""
        self.state, self.seed = state, state.phase.seed
        self.state = self.saved_state()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "state": self.saved_state()}

    # --- from phase to phase

    def _begin_epoch(self) -> None:
        state, method = self.state, self.method
        anchored = method.anchored(state.epoch)
        state.drawn = anchored and (method.drawn == "epoch" or state.depth < 0)
        if state.drawn:
            state.anchor_sum, state.depth = AnchorSum(), -1
            if state.full_anchor:
                state.anchor_size, state.full_anchor = self.n, False
            size = max(state.anchor_size, min(self.n, 2 * self._least) if self._least > 1 else 1)
            if loop := self.loop_sizes:
                state.loop = replace(state.loop, parts=[])
                sizes = state.loop.ahead(size, loop)
                self._enter("anchor", len(sizes), sum(sizes), sizes)
            elif method.table or self.options.exact:
                self._enter("anchor", self.blocks or size, size)
            else:
                sizes = chunks(size, self.options.chunk, self._least)
                self._enter("anchor", len(sizes), size, sizes)
        else:
            state.depth = state.depth if anchored or method.drawn == "never" else -1
            state.anchor = None
            self._make_plan()

    def _remember(self, variance: float) -> None:
        """Keep the S* of an anchor whose point is good, for the plans of later epochs."""
        state = self.state
        if not state.first_variance > 0:
            state.first_variance = variance
        elif state.epoch > 1 and not state.settled_variance > 0:
            state.settled_variance = variance
        if not math.isnan(variance):
            state.recent = [*state.recent, variance][-RECENT:]

    def _make_plan(self) -> None:
        state = self.state
        plan = self.method.schedule(self._facts())
        self._check_plan(plan)
        state.plan = replace(plan, b=max(plan.b, self._least))
        again = self._measures_again()
        if state.L is None or again:
            state.curvatures, state.L_measured = [], None
            draws, size = smoothness.plan(self._smallest_batch(), self.options.chunk, self.n)
            if self.options.batch_size:
                draws, size = smoothness.plan_whole(self.options.batch_size, self.n, self.share.ranks)
            self._enter("smoothness", draws, draws * size)
        else:
            self._begin_inner()

    def _measures_again(self) -> bool:
        """Whether L is to be measured a second time: a pass or more after the first, at a point that training led to.

        Not after a roll-back, which has told that L was too small.
        """
        measured, wanted = self.state.L_measured, getattr(self.method.schedule, "measure_again", False)
        return wanted and measured is not None and self.state.drawn and self.state.ifo >= measured + self.n

    def _smallest_batch(self) -> int:
        """The smallest mini-batch of this epoch and the next, as they are planned from the S* of now.

        The smaller a mini-batch, the larger its curvature, and L has to serve for all.
        """
        ahead = self.method.schedule(replace(self._facts(), epoch=self.state.epoch + 1))
        return max(min(self._plan.b, ahead.b), self._least)

    def _facts(self) -> Facts:
        state, anchor = self.state, self.state.anchor
        return Facts(
            epoch=state.epoch,
            n=self.n,
            variance=anchor.variance if anchor else math.nan,
            first_variance=state.first_variance,
            anchor=anchor.B if anchor else None,
            recent=tuple(state.recent),
            settled_variance=state.settled_variance,
        )

    def _check_plan(self, plan: Plan) -> None:
        """Refuse a plan that could not be run as it stands: the schedule may be the user's own."""
        where = f"the schedule of {self.method.name!r} planned"
        if plan.regime not in self.method.weights:
            known = ", ".join(map(repr, self.method.weights))
            raise ValueError(f"{where} the regime {plan.regime!r}, for which there are no weights: name one of {known}")
        for name, size in (("b", plan.b), ("next_B", plan.next_B)):
            if not 1 <= size <= self.n:
                raise ValueError(f"{where} {name} = {size!r}: plan between 1 and n = {self.n} samples")
        if not min(plan.B, plan.steps_B) >= 1 or not 0 <= plan.factor < math.inf:
            raise ValueError(
                f"{where} B = {plan.steps_B!r}, a factor of {plan.factor!r}: plan B ≥ 1 and a finite factor ≥ 0"
            )
        if bool(plan.levels) != (self.method.moves == "nested") or len(plan.sizes) != len(plan.levels):
            raise ValueError(
                f"{where} {len(plan.levels)} levels and {len(plan.sizes)} sizes, and the method has moves = "
                f"{self.method.moves!r}: nested anchors need a level and a size for every step, others have none"
            )

    def _begin_inner(self) -> None:
        state, plan, rule = self.state, self._plan, self.rule
        length = len(plan.levels) or math.ceil(plan.steps_B / plan.b)
        if self.method.length == "geometric":
            length = draw_geometric(stream(self.seed, "length", state.phase.number), plan.steps_B, plan.b)
        state.record = self._make_record(length)
        if self.method.anchor_step and state.drawn:
            self._step_along_mean(1.0)
        if all(w.now == w.anchor == 0 for w in rule.choices):
            # v = c·m needs no mini-batch (gradient descent), so the steps are taken at once.
            for _ in range(length):
                self._step_along_mean(rule.choices[0].mean)
            self._end_epoch()
        elif length:
            self._enter("inner", length, length * plan.b, plan.sizes)
        else:
            self._end_epoch()

    def _step_along_mean(self, weight: float) -> None:
        self._holder.step_along_mean(weight, self.step_numbers()[0])
        self._count_moves(1)

    def _count_moves(self, count: int) -> None:
        self.state.moments += count
        self.state.averaged += count

    def _make_record(self, length: int) -> Record:
        state, plan = self.state, self._plan
        assert state.L is not None
        return Record(
            epoch=state.epoch,
            regime=plan.regime,
            B=plan.B,
            b=plan.b,
            step_size=self.step_size(self._holder.lr),
            length=length,
            L=state.L,
            eps=plan.eps,
            anchor=state.anchor,
            ifo=state.ifo,
            passes=state.ifo / self.n,
        )

    def _end_epoch(self) -> None:
        state, plan = self.state, self._plan
        state.pending = self.step_size(self._holder.lr) * plan.steps_B / plan.b
        state.epoch += 1
        state.anchor_size = plan.next_B
        self._begin_epoch()

    def _enter(self, kind: Kind, count: int, total: int, sizes: tuple[int, ...] = ()) -> None:
        state = self.state
        blocks = 0 if kind == "smoothness" else self.blocks
        state.position, state.phase_ifo, state.phase_steps = 0, state.ifo, state.steps
        state.phase = self._cut(Phase(kind, state.phase.number + 1, count, total, self.n, self.seed, sizes, blocks))

    def _cut(self, phase: Phase) -> Phase:
        """The phase, cut after the batch that exhausts the budget."""
        if self.share.ranks == 1 or phase.kind == "inner" or self.budget == math.inf:
            return phase
        calls = smoothness.CALLS if phase.kind == "smoothness" else 1
        return phase.cut_after((self.budget - self.state.phase_ifo) / calls)

    # --- judging

    def _accept_point(self) -> None:
        """x is good: it becomes y, and x̃ of the epoch before is offered to the reservoir."""
        state = self.state
        self._holder.store("anchor")
        self.offer_output()
        if state.epoch > state.good_epoch:
            state.rollbacks = 0
        state.good_epoch, state.good_size, state.good_watch = state.epoch, state.anchor_size, replace(state.watch)
        state.judged = False

    def _pass_by(self) -> None:
        """An epoch begins that has no anchor: x is good if it is the start, or its losses have been judged."""
        if self.state.judged or self.state.good_epoch == 0:
            self._accept_point()
        else:
            self.offer_output()

    def _judge_losses(self, losses: Sequence[float]) -> str | None:
        """Judge an epoch that no anchor will judge by the mean loss of its steps, at its middle and end.

        Fewer than eight steps are not judged; they are kept for the next time.
        """
        state = self.state
        if not self._judges_losses():
            return None
        if math.isnan(state.watch.first_loss) and state.loss_count + len(losses) >= MANY_STEPS:
            self._begin_watch(losses[: max(0, MANY_STEPS - state.loss_count)])
        state.loss_sum, state.loss_count = state.loss_sum + sum(losses), state.loss_count + len(losses)
        state.loss_size += sum(map(abs, losses))
        if state.position not in (state.phase.count // 2, state.phase.count) or state.loss_count < MIN_CHUNKS:
            return None
        mean, size, count = state.loss_sum / state.loss_count, state.loss_size / state.loss_count, state.loss_count
        state.loss_sum, state.loss_size, state.loss_count, state.judged = 0.0, 0.0, 0, True
        # f has its penalty, here that of the last point for all: a bound of a thousandfold growth asks for no more.
        loss, penalty, least = self._value(mean), self._holder.penalty, self._least_change
        back = state.watch.return_fault(loss) if count >= MANY_STEPS else None
        fault = back or state.watch.loss_fault(loss, size + penalty, least=least)
        if fault or state.position < state.phase.count:
            return fault
        return state.watch.ending_fault(self._last_values(), least, certain=True)

    def _begin_watch(self, losses: Sequence[float]) -> None:
        """The first steps are done, of which these are the last: their mean is the first loss."""
        state = self.state
        count = state.loss_count + len(losses)
        mean, size = (state.loss_sum + sum(losses)) / count, (state.loss_size + sum(map(abs, losses))) / count
        state.watch.loss_fault(self._value(mean), size + self._holder.penalty)

    def _value(self, loss: float) -> float:
        """f at x for a loss that is reported, to be minimised; 0 where it tells nothing."""
        sign = self._holder.sign
        return sign * (loss + sign * self._holder.penalty)

    def _last_values(self) -> list[float]:
        """f of the last steps, with the penalty of the last point; none where the loss tells nothing."""
        more = self._value(0.0)
        return [self._holder.sign * loss + more for loss in self.state.last_losses] if self._holder.sign else []

    @property
    def _least_change(self) -> float:
        """The fall of the loss by a step or so from the first anchor; 0 where it is not known."""
        moment, L = self.state.watch.first_moment, self._smoothness
        return 0.0 if math.isnan(moment) or not L else moment / L

    def judge_end(self) -> None:
        """The run ends here, perhaps far from its last anchor: go back where the last steps led to no good point.

        A point that is no better than the start is kept, but told.
        """
        state = self.state
        if not state.good_epoch:
            return
        values = self._last_values()
        if fault := state.watch.ending_fault(values, self._least_change):
            self.roll_back(f"at the end, in epoch {state.epoch}, {fault}")
        elif state.ifo >= 2 * self.n and (worse := state.watch.gained_nothing(values)):
            state.last_losses = []  # so that it is told once
            logger.warning("nothing was gained so far: %s", worse)

    def _judges_losses(self) -> bool:
        return not (self.state.drawn and self.method.drawn == "epoch")

    def _bad_start(self, fault: str) -> BadSamples:
        return BadSamples(f"{fault} at the starting point, before any step", self.sample_numbers())

    # --- parts

    @property
    def _smoothness(self) -> float | None:
        """L at the start, where it is one: a step rule that needs none has it only to halve its step."""
        return max(self.state.L or 0.0, self.state.start_L) or None if self.method.needs_L else None

    @property
    def _plan(self) -> Plan:
        assert self.state.plan is not None
        return self.state.plan

    @property
    def _least(self) -> int:
        """The least number of samples in a batch."""
        return min(self.share.least, self.n)

    def _evaluations(self) -> int:
        """How many gradients of a sample an inner step evaluates."""
        return 2 if self.compares and not self.method.table else 1


def _chunk_fault(loss: float, deviation: float) -> str | None:
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    return None if math.isfinite(deviation) else "the gradient is not finite"


def _samples_between(phase: Phase, first: int, end: int) -> int:
    """How many samples the batches from `first` on have, before `end`."""
    if end == first + 1:
        return phase.size(first)
    return int(phase.bounds(end - 1).stop - phase.bounds(first).start)
