"""One batch of data, one step: the work of a phase, evaluated here or, many steps at once, elsewhere."""

from __future__ import annotations

import bisect
import math
import statistics
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from vcsg.run import smoothness
from vcsg.run.epochs import Epochs
from vcsg.run.point import Closure
from vcsg.run.vectors import all_finite, copy_to, norm


class Steps(Epochs):
    """A run of a method: `step` does the work of one batch of the current phase, `take_…` count what was done."""

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
            return [(depth, 1), *[(1, 1)] * (count - 1)][:count]
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

    def _indices(self) -> list[int]:
        """The samples of the current batch, at most ten of them."""
        own = self.team.share.part(self.run.phase, self.run.position)[0]
        return self.run.phase.indices[own][:10].tolist()

    def _bad_start(self, fault: str) -> str:
        return f"{fault} at the starting point, before any step: look at the model and at the samples {self._indices()}"
