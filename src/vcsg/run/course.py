"""The course of a run: every decision of a method, and all discrete state. It knows no tensors.

Each epoch j has an anchor phase (B samples in chunks at the current point: their mean gradient m, S* and ‖∇f‖²; the
point does not move), once a smoothness phase (L, where it is not given), and an inner phase of N steps x ← x − ηv.
What a phase is made of follows from the method's data alone.

An executor does the work of a phase, one batch at a time or many, and reports numbers: `take_chunk`, `close_anchor`,
`take_curvatures`, `take_steps`. The course counts, judges, goes back or on, and says what comes next: `state.phase` and
`state.position`, `rule`, `levels`, `step_size`. What has to be done with the point as a whole (keep it, go back to it,
step along m) it asks of the `Holder`. So every executor runs the same method, by construction.

How a question is answered stands with its topic, in functions that are given the state: `planning`, `stepping`,
`judging`, `smoothness`, `handing_over`, `reservoir`, `faults`. What follows from the answer is decided here.
"""

from __future__ import annotations

import bisect
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vcsg.method.definition import Method
from vcsg.method.schedules import Plan
from vcsg.method.weights import Rule
from vcsg.run import faults, handing_over, judging, planning, reservoir, smoothness, stepping
from vcsg.run.course_options import CourseOptions
from vcsg.run.faults import MAX_ROLLBACKS
from vcsg.run.handed_batches import LoopSizes
from vcsg.run.holder import Holder, StepNumbers
from vcsg.run.sampling import Kind, Phase, Share
from vcsg.run.state import CourseState
from vcsg.run.variance import AnchorSum, chunks
from vcsg.run.watch import LAST_STEPS, BadSamples

logger = logging.getLogger("vcsg")


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
        smooth: whether L is a smoothness constant; not where it only stands for an lr that was given.
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
        smooth: bool = True,
    ) -> None:
        self.method, self.n, self.seed, self.budget = method, n, seed, math.inf
        self.share, self.options = share or Share(), options or CourseOptions()
        self._holder, self._smooth = holder, smooth and method.needs_L
        self.certifies = False
        """Whether the run is to promise something of ∇f, so that random f_i are refused."""
        self._in_order: bool | None = False
        """Whether the loop reads its samples in a given order; None once that has been told."""
        self._sum_or_mean = judging.SumOrMean()
        self._told_at = 0
        """The steps after which it was told last that hardly anything was gained."""
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
        return stepping.rule_in_use(self.planned_rule, self.state, self.method)

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
        return planning.blocks(self.method, self.n, self._least)

    def step_size(self, lr: float) -> float:
        """η of a parameter group with this lr."""
        assert self.state.L is not None
        # The factor of a schedule is one of steps that L bounds.
        factor = self._plan.factor if self.method.needs_L else 1.0
        return lr * self.method.base / (self.state.L * self.state.unit) * factor

    def step_numbers(self, count: int = 1) -> list[StepNumbers]:
        """The numbers that the next steps need besides their directions."""
        averages = self.options.output == "average"
        return stepping.next_numbers(self.state, self.method, self.planned_rule, self.step_size, averages, count)

    def levels(self, count: int) -> list[tuple[int, int]]:
        """The levels of the next steps: the (y, m) that each reads, and the one that it moves to (x, v); 0 for none."""
        return stepping.next_levels(self.state, self.method, self._plan, count)

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
        return judging.next_judgement(self.state, self.method)

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
        handing_over.take_batch(state, loop, self.share, size)

    def begin_pass(self, short: bool, in_order: bool = False) -> None:
        """The loop begins a pass, which ends with a short batch or drops it, and may read its samples in order."""
        assert self.loop_sizes is not None
        self._in_order = None if self._in_order is None else in_order
        handing_over.begin_pass(self.state, self.loop_sizes, short)

    def take_chunk(self, size: int, loss: float, deviation: float) -> None:
        """A chunk of the anchor was evaluated, of `size` samples on this rank (0 where there was none for it).

        Where its loss and ‖g_k − m‖² (`deviation`, from m before it) are finite, it is in m.
        """
        state = self.state
        fault = faults.chunk_fault(loss, deviation) if size else None
        if fault and self.share.ranks > 1:
            # The others do not know: what is reduced at the end will tell them.
            state.anchor_sum.loss, fault = math.nan, None
        elif size and not fault:
            self._look_for_sum(size, loss)
            state.anchor_sum.take(size, loss, deviation)
        if fault and state.good_epoch == 0:
            raise faults.bad_start(fault, self.sample_numbers())
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
        if state.good_epoch == 0 and judging.ignores_batches(total, g_norm2):
            logger.warning(faults.SAME_GRADIENTS, total.chunks)
        state.anchor, state.depth, state.last_losses = anchor, 0, []
        planning.remember_variance(state, anchor.variance)
        self._accept_point()
        self._make_plan()

    def take_curvatures(self, found: Sequence[float], evaluated: int) -> None:
        """The curvature of each of some mini-batches at the anchor's point, measured with so many gradients."""
        state = self.state
        state.curvatures = smoothness.joined(state, found)
        state.steps += 1
        state.ifo += evaluated
        state.position += self.share.width(state.phase, state.position)
        if len(state.curvatures) == state.phase.count:
            smoothness.take_L(state)
            self._begin_inner()

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
            raise faults.bad_start(f"the loss is {loss}", self.sample_numbers())
        state.steps += 1
        state.ifo += self._evaluations() * self.samples()
        state.suspect = True
        found = beside if math.isfinite(loss) else loss
        self.roll_back(f"in inner step {state.position + 1} of epoch {state.epoch} the loss is {found}")
        return False

    def recheck(self, fault: str, sound: bool) -> None:
        """A batch had what is not finite, and was evaluated once more at the last good point: was it sound there?

        Where not, its samples are at fault and not the step: no smaller one would help. It is no gradient of the
        method, and is not counted: CUDA graphs ask later than single steps do, and other ranks know nothing of it.
        """
        if not sound:
            where = f"and so it is at the last good point, of epoch {self.state.good_epoch}"
            raise BadSamples(f"{fault}, {where}", self.sample_numbers())

    def take_second_loss(self, loss: float, again: float) -> None:
        """The batch in hand was evaluated twice at x, with other random numbers for the closure."""
        faults.check_repeatable(loss, again)
        self.state.deterministic = True
        self.state.ifo += self.state.phase.size(self.state.position)  # what one rank does, for any number of them

    def take_steps(self, losses: Sequence[float], beside: Sequence[float], known: bool = True) -> None:
        """Inner steps were taken; the loss of each at x and at the anchor, which tells nothing where it is not known.

        Of several taken at once, one may turn out not to have been allowed: the run then goes back.
        """
        state, phase = self.state, self.state.phase
        finite = [math.isfinite(here) and math.isfinite(there) for here, there in zip(losses, beside, strict=True)]
        good = len(losses) if all(finite) else finite.index(False)
        if good and self.compares and self.method.moves == "epoch" and not self.method.table:
            self._look_for_sum(self.samples(), beside[0])
        if good:
            stepping.count_steps(state, good, self.levels(good), self._evaluations())
            if known:
                state.last_losses = [*state.last_losses, *losses[max(0, good - LAST_STEPS) : good]][-LAST_STEPS:]
            else:
                state.judged = True  # by its gradients, which were finite
            judges = known and judging.judges_losses(state, self.method)
            if judges and (fault := judging.step_loss_fault(state, self._holder, self._smoothness, losses[:good])):
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

    def _look_for_sum(self, size: int, loss: float) -> None:
        """Say that the loss is a sum over the batch, where batches at the anchor's point show it."""
        anchor = self.state.anchor_sum
        if self.share.ranks == 1 and self._sum_or_mean.is_sum(size, loss, anchor):
            logger.warning(faults.LOSS_IS_A_SUM, loss, size, anchor.loss, anchor.samples // anchor.chunks)

    # --- going back

    def roll_back(self, reason: str) -> None:
        """Go back to the last good point and try its epoch again with twice the L."""
        state = self.state
        self._holder.restore("anchor")
        if self.options.output == "average":
            self._holder.store("output")  # it has taken in points that are gone back from, be they not finite
        tried = state.L
        state.go_back()
        self._begin_epoch()
        if state.rollbacks > MAX_ROLLBACKS:
            raise faults.gave_up(reason, state.epoch, tried)
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
        reservoir.offer(self.state, self._holder, self.options.output, self.seed)

    def load_output(self) -> bool:
        """x ← the point that the method returns; where that moved x, an epoch begins anew, and it returns True."""
        self.offer_output()
        state = self.state
        moved = reservoir.is_elsewhere(state, self.options.output)
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
                sizes = handing_over.begin_anchor(state, loop, size)
                if self._in_order and sum(sizes) < self.n:
                    self._in_order = None
                    logger.warning(faults.GIVEN_ORDER, method.name)
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

    def _make_plan(self) -> None:
        state = self.state
        state.plan = planning.plan_epoch(state, self.method, self.n, self._least)
        if state.L is None or smoothness.measures_again(state, self.method, self.n):
            state.curvatures, state.L_measured = [], None
            smallest = planning.smallest_batch(state, self.method, self.n, self._least)
            draws, size = smoothness.plan(smallest, self.options.chunk, self.n)
            if self.options.batch_size:
                draws, size = smoothness.plan_whole(self.options.batch_size, self.n, self.share.ranks)
            self._enter("smoothness", draws, draws * size)
        else:
            self._begin_inner()

    def _begin_inner(self) -> None:
        state, plan, rule = self.state, self._plan, self.rule
        length = planning.inner_steps(state, self.method, self.seed)
        state.record = planning.epoch_record(state, self.n, self.step_size(self._holder.lr), length)
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
        stepping.count_moves(self.state, 1)

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

    def judge_end(self) -> None:
        """The run ends here, perhaps far from its last anchor: go back where the last steps led to no good point.

        A point that is no better than the start is kept, but told.
        """
        state = self.state
        if not state.good_epoch:
            return
        if fault := judging.end_fault(state, self._holder, self._smoothness):
            self.roll_back(f"at the end, in epoch {state.epoch}, {fault}")
        elif (
            state.ifo >= 2 * self.n
            and self._told_at < state.steps
            and (worse := judging.nothing_gained(state, self._holder))
        ):
            self._told_at = state.steps
            logger.warning("hardly anything was gained so far: %s", worse)

    # --- parts

    @property
    def _smoothness(self) -> float | None:
        """L at the start, where it is one, and not only what a step is halved by."""
        return max(self.state.L or 0.0, self.state.start_L) or None if self._smooth else None

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
