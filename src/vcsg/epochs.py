"""The only loop over a method: from phase to phase, epoch after epoch.

Each epoch j has an anchor phase (B samples in chunks at the current point: their mean gradient m, S* and ‖∇f‖²; the
point does not move), once a smoothness phase (L, where it is not given), and an inner phase of N steps x ← x − ηv.
What a phase is made of follows from the method's data alone.
"""

from __future__ import annotations

import bisect
import logging
import math
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from vcsg import smoothness
from vcsg.distributed import Alone
from vcsg.eager import Closure, Eager
from vcsg.family import Method
from vcsg.run import Diverged, Record, Run, Settings, Watch
from vcsg.sampling import Kind, Phase, Share, draw_geometric, stream
from vcsg.schedules import Facts, Plan
from vcsg.variance import MIN_CHUNKS, AnchorSum, chunks
from vcsg.vectors import all_finite, copy_to, norm, scale
from vcsg.weights import Rule

logger = logging.getLogger("vcsg")

MAX_ROLLBACKS = 10
"""How often in a row a diverged epoch is tried again, L doubled each time, before the run gives up."""


class Epochs:
    """Runs a method on n samples: `step` does the work of one batch of the current phase."""

    def __init__(
        self,
        method: Method,
        n: int,
        eager: Eager,
        team: Alone,
        settings: Settings,
        seed: int,
        L: float | None,
        unit: float,
    ) -> None:
        self.method, self.n, self.eager, self.team, self.settings = method, n, eager, team, settings
        self.seed, self.unit, self.budget = seed, unit, math.inf
        self.record: Record | None = None
        first = method.schedule.first(n)
        self.run = Run(Phase("anchor", 0, 1, n, n, seed), anchor_size=first, good_size=first, L=L)
        self.check_table()
        if eager.buffers and settings.exact:
            raise ValueError("variance='exact' takes single samples, which BatchNorm cannot: use variance='chunks'")
        self.begin_epoch()

    def remaining(self) -> tuple[Share, Phase, int]:
        """This rank's share, the current phase and how many of its batches are done."""
        return self.team.share, self.run.phase, self.run.position

    def resume(self, run: Run, unit: float) -> None:
        """Go on from a loaded state."""
        self.eager.forget()
        self.run, self.unit, self.seed, self.record = run, unit, run.phase.seed, None
        self.rejoin()

    def rejoin(self) -> None:
        """The state comes from elsewhere, perhaps from another number of ranks: see whether all have the same."""
        self.run, self.team.met = self.state(), self.team.share.ranks == 1

    def limit(self, budget: float) -> None:
        """The run is to stop at so many gradients: several ranks then stop at the batch where one would."""
        self.budget = budget
        self.run.phase = self._cut(self.run.phase)

    def check_table(self) -> None:
        self.eager.refresh()
        if self.method.table and self.team.share.ranks > 1:
            raise ValueError(
                f"{self.method.name} keeps a table of gradients, which {self.team.share.ranks} ranks would have to "
                "fill for each other: choose svrg, which keeps one gradient, or give a group of one rank"
            )
        numbers = sum(p.numel() for p in self.eager.params)
        needed = self._blocks() * sum(p.numel() * p.element_size() for p in self.eager.params)
        if needed > self.method.table > 0:
            fitting = math.ceil(self.n * needed / self._blocks() / self.method.table)
            raise ValueError(
                f"{self.method.name} would keep {self._blocks():,} gradients of {numbers:,} numbers, {needed:,} bytes; "
                f"the limit is {self.method.table:,}. Take blocks of b={fitting:,} samples or more, raise memory=, or "
                "choose svrg, which keeps one gradient"
            )

    # --- one step

    def step(self, closure: Closure) -> Any:
        self.eager.refresh()
        if not self.team.met:
            self._meet()
        closure = self.team.prepared(closure)
        try:
            with self.eager.randomness:
                match self.run.phase.kind:
                    case "anchor":
                        loss = self._anchor_step(closure)
                    case "smoothness":
                        loss = self._smoothness_step(closure)
                    case "inner":
                        loss = self._inner_step(closure)
        except BaseException as error:
            self.team.tell(error)
            raise
        self.run.steps += 1
        return loss

    def _meet(self) -> None:
        """Before the first exchange: all ranks must have been made alike; a new run begins at the point of rank 0."""
        run, eager = self.run, self.eager
        options = repr((self.method, self.n, self.settings, self.seed, self.unit, eager.outline()))
        facts = {
            "method, n, seed and options (a checksum)": float(zlib.crc32(options.encode())),
            "steps taken": float(run.steps),
            "gradients counted": float(run.ifo),
            "‖x‖": norm(eager.params).item() if run.steps else 0.0,
        }
        self.team.meet(facts, eager.params[0].device)
        if run.steps == 0:
            self.team.begin([*eager.all_params, *eager.buffers])

    def _anchor_step(self, closure: Closure) -> Any:
        """One chunk of the anchor: m, S* and the mean loss take it in; the point stays."""
        run = self.run
        loss, gradient = self.eager.evaluate_aside(closure, self._closure_seed())
        fault = self._gather(float(loss), gradient) if self._weight() else None
        if fault and self.team.share.ranks > 1:
            # The others do not know: what is reduced at the end will tell them.
            run.anchor_sum.loss, fault = math.nan, None
        self._end_chunk(fault)
        return loss

    def _end_chunk(self, fault: str | None) -> None:
        """A chunk was taken in, or something is wrong with it."""
        run = self.run
        if fault and run.good_epoch == 0:
            raise FloatingPointError(self._bad_start(fault))
        run.ifo += self._samples()
        if fault:
            self._roll_back(f"at the anchor of epoch {run.epoch} {fault}")
            return
        self._advance()
        if run.position == run.phase.count:
            self._close_anchor()

    def _gather(self, loss: float, gradient: list[Tensor]) -> str | None:
        """Take a chunk into m and the anchor's statistics, or say what is wrong with it."""
        run = self.run
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        if run.position == 0 and not all_finite(gradient):  # before anything is made for it
            return "the gradient is not finite"
        if self.method.table:
            copy_to(self.eager.table_row(run.phase.block(run.position), run.phase.blocks), gradient)
        own = self.team.share.part(run.phase, run.position)[0]
        finite = run.anchor_sum.add(own.stop - own.start, loss, gradient, self.eager.vector("mean"))
        return None if finite else "the gradient is not finite"

    def _smoothness_step(self, closure: Closure) -> Any:
        """The curvature that one mini-batch sees at the starting point."""
        run = self.run
        losses: list[Any] = []

        def gradient() -> list[Tensor]:
            loss, found = self.eager.evaluate_aside(closure, self._closure_seed())
            losses.append(loss)
            return found

        centre = self.eager.vector("anchor")
        value = smoothness.curvature(gradient, self.eager.params, centre, self._closure_seed())
        found = self.team.collect([value, len(losses) * run.phase.size(run.position)], self._weight())
        curvatures = run.curvatures + [value for value, _ in found]
        last = len(curvatures) == run.phase.count
        if not math.isfinite(sum(curvatures)) or (last and not any(curvatures)):
            raise FloatingPointError(
                f"L cannot be estimated: the curvature of a mini-batch at the starting point is {curvatures[-1]}. "
                "Give L= or lr=, or check that the loss depends smoothly on the parameters"
            )
        run.ifo += round(sum(calls for _, calls in found))
        run.curvatures = curvatures
        self._advance()
        if last:
            # A mini-batch without curvature (a dead unit, a dropped sample) says nothing of the step.
            run.L = statistics.median(c for c in run.curvatures if c)
            self._begin_inner()
        return losses[-1]

    def _inner_step(self, closure: Closure) -> Any:
        """x ← x − ηv with v = a·∇f_I(x) + b·∇f_I(y) + c·m.

        Only the loss is checked here. A step that is not finite shows in the next loss, at the next anchor, or when
        the loop ends (`settle`): no pass over the gradient is spent on it.
        """
        run, rule = self.run, self.rule()
        [(read, write)] = self.levels(1)
        beside, at_anchor = self._at_anchor(closure, read) if any(w.anchor for w in rule.choices) else (0.0, [])
        buffers = self.team.watched(self.eager.buffers)
        loss, v = self.eager.evaluate(closure, self._closure_seed())
        value, evaluated = float(loss), self._samples() * (2 if at_anchor and not self.method.table else 1)
        if not self.method.table:
            mean = self.eager.vector(f"mean{read or ''}") if run.depth >= 0 else []
            value, beside = self.team.combine(rule, v, at_anchor, mean, self._weight(), (value, beside), buffers)
        if self._refused(value, beside, evaluated):
            return loss
        if run.position == 0 and not run.drawn:
            self._pass_by()
        if self.method.table:
            v = self.eager.renew(at_anchor, v, evaluated / self.n, run.phase.blocks)
        if write:
            self.eager.store(f"anchor{write}")
            copy_to(self.eager.vector(f"mean{write}"), v)
            run.depth = write
        self._descend(v)
        self.eager.show(v)
        self._end_steps([value], evaluated)
        return loss

    def _refused(self, value: float, beside: float, evaluated: int) -> bool:
        """Whether an inner step cannot be taken, for what its losses are at x and at the anchor."""
        run = self.run
        if not math.isfinite(beside):
            raise FloatingPointError(
                f"the loss is {beside} at the anchor, where the anchor's own samples were fine: "
                f"look at the samples {self._indices()}"
            )
        if math.isfinite(value):
            return False
        if run.good_epoch == 0:
            raise FloatingPointError(self._bad_start(f"the loss is {value}"))
        run.ifo += evaluated
        self._roll_back(f"in inner step {run.position + 1} of epoch {run.epoch} the loss is {value}")
        return True

    def _end_steps(self, losses: Sequence[float], evaluated: int) -> None:
        """Inner steps were taken, with so many gradients."""
        run = self.run
        run.ifo += evaluated
        run.position += len(losses)
        if fault := self._judge_losses(losses):
            self._roll_back(f"in epoch {run.epoch} {fault}")
        elif run.position == run.phase.count:
            self._end_epoch()

    def levels(self, count: int) -> list[tuple[int, int]]:
        """Of the next steps: which (y, m) each starts from, and which it moves to (x, v); 0, as drawn, stays."""
        position, depth, plan = self.run.position, self.run.depth, self._plan()
        if self.method.moves == "epoch":
            return [(0, 0)] * count
        if self.method.moves == "step":
            return [(depth, 1), *[(1, 1)] * (count - 1)]
        found = []
        for level in plan.levels[position : position + count]:
            found.append((min(level - 1, depth), level if level < max(plan.levels) else 0))
            depth = found[-1][1] or depth
        return found

    def _at_anchor(self, closure: Closure, level: int) -> tuple[float, list[Tensor]]:
        """The loss and the gradient at the anchor, or the gradient that a table has in its place."""
        phase, position = self.run.phase, self.run.position
        if self.method.table:
            return 0.0, self.eager.table_row(phase.block(position), phase.blocks)
        loss, gradient = self.eager.evaluate_aside(closure, self._closure_seed(), f"anchor{level or ''}")
        return float(loss), gradient

    # --- several steps at once, executed elsewhere

    def ready(self, most: int, limit: float) -> int:
        """How many of the next steps can be executed elsewhere: at most so many, until `limit` gradients are counted.

        Not the estimate of L, nor the first step of an epoch without an anchor, whose loss judges the point before.
        """
        run, phase = self.run, self.run.phase
        if phase.kind == "smoothness" or (phase.kind == "inner" and run.position == 0 and not run.drawn):
            return 0
        ends = (phase.count // 2, phase.count) if phase.kind == "inner" and self._judges_losses() else (phase.count,)
        last = min(next(end for end in ends if end > run.position), run.position + most)
        each = 2 if phase.kind == "inner" and any(w.anchor for w in self.rule().choices) else 1
        wanted = phase.bounds(run.position).start + (limit - run.ifo) / each
        within = range(run.position, last - 1)
        return 1 + bisect.bisect_left(within, wanted, key=lambda k: float(phase.bounds(k).stop))

    def take_chunks(self, losses: Sequence[float], deviations: Sequence[float]) -> None:
        """Chunks were taken into m; of each, the loss and ‖g_k − m‖² from m before it."""
        begun, phase = self.run, self.run.phase
        try:
            for loss, deviation in zip(losses, deviations, strict=True):
                if self.run.phase is not phase:
                    return
                fault = None if math.isfinite(loss) else f"the loss is {loss}"
                fault = fault or (None if math.isfinite(deviation) else "the gradient is not finite")
                if not fault:
                    self.run.anchor_sum.take(self._samples(), loss, deviation)
                self.run.steps += 1
                self._end_chunk(fault)
        except FloatingPointError:
            self.run = begun.rewound()  # m has taken in what is not finite
            raise

    def take_steps(self, losses: Sequence[float], beside: Sequence[float]) -> None:
        """Inner steps were taken; of each, the loss at x and that at the anchor."""
        run, phase, first = self.run, self.run.phase, self.run.position
        each = 2 if any(w.anchor for w in self.rule().choices) else 1
        finite = np.isfinite(losses) & np.isfinite(beside)
        good = len(losses) if finite.all() else int(finite.argmin())
        for _, write in self.levels(good):
            run.depth = write or run.depth
        run.steps += min(good + 1, len(losses))
        if good:
            taken = phase.bounds(first + good - 1).stop - phase.bounds(first).start
            self._end_steps(losses[:good], each * taken)
        if good == len(losses) or run.phase is not phase:
            return
        try:
            self._refused(losses[good], beside[good], each * self._samples())
        except FloatingPointError:
            self.eager.restore("anchor")  # x went on
            run.depth = -1
            self.begin_epoch()
            raise

    def step_sizes(self) -> list[float]:
        """η, for every parameter that moves."""
        return [self._step_size(group) for group in self.eager.groups for p in group["params"] if p.requires_grad]

    # --- from phase to phase

    def begin_epoch(self) -> None:
        run, method = self.run, self.method
        anchored = method.anchored(run.epoch)
        run.drawn = anchored and (method.drawn == "epoch" or run.depth < 0)
        if run.drawn:
            run.anchor_sum, run.depth = AnchorSum(), -1
            blocks = self._blocks()
            size = max(run.anchor_size, min(self.n, 2 * self._floor()) if self.eager.buffers else 1)
            self._enter("anchor", blocks or chunks(size, self.settings.chunk, self._floor(), self.settings.exact), size)
        else:
            run.depth = run.depth if anchored else -1
            run.anchor = None
            self._make_plan()

    def _floor(self) -> int:
        """The least number of samples in a batch."""
        return min(self.team.share.least, self.n)

    def _blocks(self) -> int:
        """How many gradients a table holds."""
        if not self.method.table:
            return 0
        b = self.method.schedule(Facts(1, self.n, math.nan, math.nan)).b
        return max(1, self.n // self._floor()) if b < self._floor() else math.ceil(self.n / b)

    def _close_anchor(self) -> None:
        """Judge the new point; a good one is what a later failure goes back to, and the epoch is planned."""
        run, mean = self.run, self.eager.vector("mean")
        run.anchor_sum, g_norm2 = self.team.merge(run.anchor_sum, mean, run.phase.total)
        anchor = run.anchor_sum.close(self.n, g_norm2)
        if run.epoch == run.good_epoch:
            run.watch = Watch()  # back at a point that was accepted: it is the reference
        finite = math.isfinite(anchor.loss) and math.isfinite(anchor.g_norm2)
        fault = run.watch.fault(anchor, self._sign()) if finite else "a loss or a gradient is not finite"
        if not finite and run.good_epoch == 0:
            self.run = run.rewound()
            raise FloatingPointError(
                f"{fault} at the starting point, before any step: look at the model and at the samples"
            )
        if fault:
            self._roll_back(f"at the anchor of epoch {run.epoch} {fault}")
            return
        run.anchor, run.depth = anchor, 0
        if math.isnan(run.first_variance):
            run.first_variance = anchor.variance
        self._accept_point()
        self._make_plan()

    def _make_plan(self) -> None:
        run = self.run
        variance = run.anchor.variance if run.anchor else math.nan
        plan = self.method.schedule(Facts(run.epoch, self.n, variance, run.first_variance))
        run.plan = replace(plan, b=max(plan.b, self._floor()))
        if run.L is None:
            draws, size = smoothness.plan(run.plan.b, self.settings.chunk, self.n)
            self._enter("smoothness", draws, draws * size)
        else:
            self._begin_inner()

    def _begin_inner(self) -> None:
        run, plan = self.run, self._plan()
        length = len(plan.levels) or math.ceil(plan.B / plan.b)
        if self.method.length == "geometric":
            length = draw_geometric(stream(self.seed, "length", run.phase.number), plan.B, plan.b)
        self.record = run.told(self._step_size(self.eager.groups[0]), length)
        if self.method.leap and run.drawn:
            self._step_along_mean()
        if all(w.now == w.anchor == 0 for w in self.rule().choices):
            # v = c·m needs no mini-batch (gradient descent), so the steps are taken at once.
            for _ in range(length):
                self._step_along_mean(self.rule().choices[0].mean)
            self._end_epoch()
        elif length:
            self._enter("inner", length, length * plan.b, plan.sizes)
        else:
            self._end_epoch()

    def _step_along_mean(self, weight: float = 1.0) -> None:
        """x ← x − η·c·m, for which no gradient is evaluated."""
        self._descend([weight * m for m in self.eager.vector("mean")])

    def _descend(self, v: list[Tensor]) -> None:
        """x ← x − ηv, v clipped first where that is asked for."""
        if self.settings.clip_norm is not None:
            length = norm(v).item()
            if length > self.settings.clip_norm:
                scale(v, self.settings.clip_norm / length)
        self.eager.descend(v, self._step_size)

    def _end_epoch(self) -> None:
        run, plan = self.run, self._plan()
        run.pending = self._step_size(self.eager.groups[0]) * plan.B / plan.b
        run.epoch += 1
        run.anchor_size = plan.next_B
        self.begin_epoch()

    def _judge_losses(self, losses: Sequence[float]) -> str | None:
        """Where no anchor will judge the epoch, the mean loss of its steps does, at its middle and end.

        Fewer than eight steps are not judged; they are kept for the next time.
        """
        run = self.run
        if not self._judges_losses():
            return None
        run.loss_sum, run.loss_count = run.loss_sum + sum(losses), run.loss_count + len(losses)
        if run.position not in (run.phase.count // 2, run.phase.count) or run.loss_count < MIN_CHUNKS:
            return None
        mean = run.loss_sum / run.loss_count
        run.loss_sum, run.loss_count, run.judged = 0.0, 0, True
        return run.watch.loss_fault(self._sign() * mean)

    def _judges_losses(self) -> bool:
        return not (self.run.drawn and self.method.drawn == "epoch")

    def _pass_by(self) -> None:
        """An epoch begins that has no anchor: x is good if it is the start, or its losses have been judged."""
        run = self.run
        if run.judged or run.good_epoch == 0:
            self._accept_point()
        else:
            self.offer_output()

    def _sign(self) -> int:
        """1 to minimise, −1 to maximise, 0 where the groups differ."""
        signs = {-1 if group["maximize"] else 1 for group in self.eager.groups}
        return signs.pop() if len(signs) == 1 else 0

    def _enter(self, kind: Kind, count: int, total: int, sizes: tuple[int, ...] = ()) -> None:
        run = self.run
        blocks = 0 if kind == "smoothness" else self._blocks()
        run.position, run.phase_ifo, run.phase_steps = 0, run.ifo, run.steps
        run.phase = self._cut(Phase(kind, run.phase.number + 1, count, total, self.n, self.seed, sizes, blocks))

    def _cut(self, phase: Phase) -> Phase:
        """The phase, cut after the batch that exhausts the budget."""
        if self.team.share.ranks == 1 or phase.kind == "inner" or self.budget == math.inf:
            return phase
        calls = smoothness.CALLS if phase.kind == "smoothness" else 1
        return phase.cut_after((self.budget - self.run.phase_ifo) / calls)

    def _accept_point(self) -> None:
        """x is good: it becomes y, and x̃ of the epoch before is offered to the reservoir."""
        run = self.run
        self.eager.store("anchor")
        self.offer_output()
        if run.epoch > run.good_epoch:
            run.rollbacks = 0
        run.good_epoch, run.good_size, run.good_watch = run.epoch, run.anchor_size, replace(run.watch)
        run.judged = False

    def _roll_back(self, reason: str) -> None:
        """Go back to the last good point and try its epoch again with twice the L."""
        run = self.run
        self.eager.restore("anchor")
        run.epoch, run.anchor_size, run.watch = run.good_epoch, run.good_size, replace(run.good_watch)
        run.pending, run.depth = 0.0, -1
        run.loss_sum, run.loss_count, run.judged = 0.0, 0, False
        run.rollbacks += 1
        tried = run.L
        run.L = 2 * (run.L or 0.0)
        self.begin_epoch()
        if run.rollbacks > MAX_ROLLBACKS:
            raise Diverged(
                f"gave up after {MAX_ROLLBACKS} roll-backs to epoch {run.epoch}: {reason} (with L = {tried:.3g}). "
                "The model is at the last good point. Give a larger L= or a smaller lr=, or look for samples with "
                "an extreme loss"
            )
        logger.warning("diverged: %s; back to epoch %d with L = %.3g", reason, run.epoch, run.L)

    @property
    def split(self) -> bool:
        """Whether each rank has a part of an anchor: its mean is then not in `state`, which is equal on all of them."""
        return self.team.share.ranks > 1 and self.run.phase.kind == "anchor"

    def state(self) -> Run:
        """What a checkpoint holds; of an anchor that is split, its beginning."""
        return self.run.rewound() if self.split else self.run

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "run": self.state()}

    def settle(self) -> None:
        """Never end in NaN: if the last step was not finite, go back to the last good point."""
        if self.eager.gone:
            return
        self.eager.refresh()
        if self.run.good_epoch and not self.eager.finite:
            self._roll_back("the last step is not finite")

    # --- output

    def offer_output(self) -> None:
        """A one-slot weighted reservoir: keep x̃_j with probability weight_j / (sum of all weights so far)."""
        run = self.run
        if not run.pending:
            return
        run.output_weight += run.pending
        accepted = stream(self.seed, "output", run.phase.number).random() < run.pending / run.output_weight
        run.pending = 0.0
        if self.settings.output == "weighted" and accepted:
            self.eager.store("output")

    def load_output(self) -> None:
        """x ← the point that the method returns; an epoch begins anew where that moved x."""
        self.settle()
        self.offer_output()
        if self.settings.output == "weighted" and self.run.output_weight:
            self.eager.restore("output")
            self.run.depth = -1
            self.begin_epoch()

    # --- parts

    def _closure_seed(self) -> int:
        return self.team.share.seed(self.run.phase, self.run.position)

    def _samples(self) -> int:
        """Of this step, on all ranks."""
        return self.team.share.samples(self.run.phase, self.run.position)

    def _weight(self) -> float:
        """Of this rank's samples in the batch."""
        return self.team.share.part(self.run.phase, self.run.position)[1]

    def _advance(self) -> None:
        self.run.position += self.team.share.width(self.run.phase, self.run.position)

    def _step_size(self, group: dict[str, Any]) -> float:
        assert self.run.L is not None
        return float(group["lr"]) * self.method.gamma / (self.run.L * self.unit) * self._plan().factor

    def _plan(self) -> Plan:
        assert self.run.plan is not None
        return self.run.plan

    def rule(self) -> Rule:
        """Which chooses the weights in this epoch."""
        return self.method.weights[self._plan().regime].at(self.run.epoch)

    def _indices(self) -> list[int]:
        """The samples of the current batch, at most ten of them."""
        own = self.team.share.part(self.run.phase, self.run.position)[0]
        return self.run.phase.indices[own][:10].tolist()

    def _bad_start(self, fault: str) -> str:
        return f"{fault} at the starting point, before any step: look at the model and at the samples {self._indices()}"
