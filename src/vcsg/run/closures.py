"""The executor that calls a closure: one batch of data, one step, on any device and on any number of ranks."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from vcsg.method.weights import Constant
from vcsg.run import power_iteration
from vcsg.run.course import Course, logger
from vcsg.run.gradient_guard import GradientGuard
from vcsg.run.looking import ModelRows, RowCounter, has_statistics, telling_of_new_buffers
from vcsg.run.point import Closure, Point
from vcsg.run.ranks import OneRank
from vcsg.run.state import CourseState
from vcsg.run.vectors import add, all_finite, copy_to, norm, norm2, uses_foreach

TRACED_STEPS = 128
"""Steps after which the faintest traces of old gradients are dropped from a memory."""


class ClosureExecutor:
    """Does the work of one batch of the current phase at each call of `step`, and reports it to the course."""

    def __init__(self, course: Course, point: Point, ranks: OneRank) -> None:
        self.course, self.point, self.ranks = course, point, ranks
        if point.buffers and course.options.exact:
            raise ValueError("variance='exact' takes single samples, which BatchNorm cannot: use variance='chunks'")
        self._guard, self._counter, self._model_rows = GradientGuard(), RowCounter(), ModelRows()
        self._told: int | None = None
        """How many samples the batch in hand has, as a loop told."""
        self.check_table()

    def check_table(self) -> None:
        """Refuse a table of gradients that does not fit its limit, or that several ranks would share."""
        self.point.refresh()
        method, blocks = self.course.method, self.course.blocks
        if not method.table:
            return
        if self.ranks.share.ranks > 1:
            raise ValueError(
                f"{method.name} keeps a table of gradients, which {self.ranks.share.ranks} ranks would have to "
                "fill for each other: choose svrg, which keeps one gradient, or give a group of one rank"
            )
        numbers = sum(p.numel() for p in self.point.params)
        needed = blocks * sum(p.numel() * p.element_size() for p in self.point.params)
        if needed > method.table_limit:
            fitting = math.ceil(self.course.n * needed / blocks / method.table_limit)
            raise ValueError(
                f"{method.name} would keep {blocks:,} gradients of {numbers:,} numbers, {needed:,} bytes; "
                f"the limit is {method.table_limit:,}. Take blocks of b={fitting:,} samples or more, raise memory=, or "
                "choose svrg, which keeps one gradient"
            )

    def step(self, closure: Closure, samples: int | None = None, trusted: bool = False) -> Any:
        """Do the work of one batch, of so many samples where a loop says it; `trusted` has the rows not looked at.

        Returns the loss of the closure, in an inner step that at x.
        """
        self.point.check_lr()
        thawed = self.point.refresh()
        if not self.point.params:
            return self._still(closure)
        if not self.ranks.met:
            self._meet()
        self.point.look_for_gradients()
        if self.course.state.steps == 1:
            closure = self._telling_of_buffers(closure)
        closure = self._observed(self.ranks.prepared(closure), samples, trusted)
        with self._whole_step(), self.point.randomness:
            if thawed and self.behind:
                return self._begin_anew(closure)
            match self.course.state.phase.kind:
                case "anchor":
                    return self._anchor_step(closure)
                case "smoothness":
                    return self._smoothness_step(closure)
                case "inner":
                    return self._inner_step(closure)

    def step_with_gradients(self, samples: int | None = None) -> None:
        """Do an inner step with the gradients that backward() has left in the parameters; without any, nothing."""
        self.point.check_lr()
        thawed = self.point.refresh()
        if not any(p.grad is not None for p in self.point.params):
            return
        if not self.ranks.met:
            self._meet()
        if thawed and self.behind:
            self.course.begin_anew()
        self._told = samples
        with self._whole_step():
            self._inner_step(None)

    def pass_over(self, samples: int | None = None) -> None:
        """Count the batch in hand, of which no use is made."""
        self._told = samples
        with self._whole_step():
            self._receive()
            self.course.pass_over()

    @contextmanager
    def _whole_step(self) -> Iterator[None]:
        """A context for one step: an error leaves the state as it was, and word for the other ranks."""
        state = self.course.state
        phase, loop, steps = state.phase, state.loop, state.steps
        try:
            yield
        except BaseException as error:
            if self.course.state is state and state.steps == steps:
                state.phase, state.loop = phase, loop
            self.ranks.tell(error)
            raise
        finally:
            self._told = self._counter.rows = None

    def _observed(self, closure: Closure, samples: int | None, trusted: bool) -> Closure:
        """The closure, looked at as far as the run needs to know what it does."""
        course = self.course
        self._told = samples
        if not course.needs_one_point or course.state.L is None:
            closure = self._guard.guarded(closure, self.point.params)
        if course.loop_sizes and samples is None:
            return self._counter.counted(closure)
        if not trusted:
            own = self.ranks.share.part(course.state.phase, course.state.position)[0]
            expected = own.stop - own.start if samples is None else samples
            closure = self._model_rows.checked(closure, self.point.params, expected)
        return closure

    def _telling_of_buffers(self, closure: Closure) -> Closure:
        """The closure of the second step, which says that buffers are changed at the anchor too, where they are.

        The first step has shown the model.
        """
        model = self._counter.module or self._model_rows.model
        if not model or self.course.needs_one_point or self.point.buffers.of_module:
            return closure
        if not self.point.buffers and has_statistics(model):
            logger.warning(
                "the model has running statistics, as BatchNorm has, and the optimizer was made without buffers=: "
                "evaluations at the anchor change them too; give it buffers=model"
            )
        return telling_of_new_buffers(closure, model)

    def _receive(self) -> None:
        """Tell the course how many samples the batch of a loop has, once the closure has been evaluated."""
        self.course.receive(self._told, self._counter.rows)

    def _check_alike(self, samples: float | None = None) -> None:
        """Refuse a mini-batch whose size, as the mean over the ranks of what each found, is not what this one found."""
        own = self.course.samples()
        if samples is not None and abs(samples - own) > 0.02 * own:  # the mean may be rounded to half precision
            raise ValueError(
                f"the loops of the ranks handed over batches of different sizes: {own} samples for all where this "
                f"rank's is the measure, {samples:.4g} in the mean. Give all ranks as many samples, as "
                "DistributedSampler does"
            )

    def _still(self, closure: Closure) -> Any:
        """No parameter requires a gradient: as in torch, nothing happens, but that the closure is evaluated."""
        with torch.enable_grad():
            loss = closure()
        self.course.pass_over()
        return loss

    def _meet(self) -> None:
        """Before the first exchange: all ranks must have been made alike; a new run begins at the point of rank 0."""
        course, state, point = self.course, self.course.state, self.point
        options = repr((course.method, course.n, course.options, course.seed, state.unit, point.outline()))
        facts = {
            "method, n, seed and options (a checksum)": float(zlib.crc32(options.encode())),
            "steps taken": float(state.steps),
            "gradients counted": float(state.ifo),
            "‖x‖": norm(point.params).item() if state.steps else 0.0,
        }
        self.ranks.meet(facts, point.params[0].device)
        if state.steps == 0:
            self.ranks.begin([*point.all_params, *point.buffers.tensors])

    @property
    def behind(self) -> bool:
        """Whether there is an anchor, or part of one, which knows nothing of a parameter that moves since."""
        state = self.course.state
        return state.depth >= 0 or (state.phase.kind == "anchor" and state.position > 0)

    def _begin_anew(self, closure: Closure) -> Any:
        """A parameter was thawed in mid-epoch: m says nothing of it. The batch in hand has no place in a new anchor."""
        loss, _ = self.point.evaluate_at(closure, self._closure_seed())
        self._receive()
        self.course.pass_over()
        self.course.begin_anew()
        return loss

    def _anchor_step(self, closure: Closure) -> Any:
        """One chunk of the anchor: m, S* and the mean loss take it in; the point stays."""
        course, state = self.course, self.course.state
        again = self._other_loss(closure) if course.looks_for_noise else None
        loss, gradient = self.point.evaluate_at(closure, self._closure_seed())
        self._receive()
        if again is not None and math.isfinite(float(loss) + again):
            course.take_second_loss(float(loss), again)
        own, weight = self.ranks.share.part(state.phase, state.position)
        size = own.stop - own.start if weight else 0
        deviation = self._absorb(size, float(loss), gradient) if size else 0.0
        if not math.isfinite(float(loss) + deviation):
            self._recheck(closure, f"at the anchor of epoch {state.epoch} the loss or the gradient is not finite")
        course.take_chunk(size, float(loss), deviation)
        self.close_anchor()
        return loss

    def _other_loss(self, closure: Closure) -> float:
        """The loss of the batch in hand with other random numbers."""
        loss, _ = self.point.evaluate_at(closure, self._closure_seed() + 1)
        return float(loss)

    def close_anchor(self) -> None:
        """Tell the course what all chunks of an anchor are together, on all ranks, once they are in."""
        if self.course.anchor_complete:
            state = self.course.state
            total, g_norm2 = self.ranks.merge(state.anchor_sum, self.point.vector("mean"), state.phase.total)
            self.course.close_anchor(total, g_norm2)

    def _absorb(self, size: int, loss: float, gradient: list[Tensor]) -> float:
        """Take the gradient of a chunk into m, if it is finite; ‖g_k − m‖² from m before that. It is used up."""
        course, state, before = self.course, self.course.state, self.course.state.anchor_sum.samples
        if not math.isfinite(loss) or (state.position == 0 and not all_finite(gradient)):
            return math.nan  # before anything is made for it
        if course.method.table:
            copy_to(self.point.table_row(state.phase.block(state.position), state.phase.blocks), gradient)
        mean = self.point.vector("mean")
        if before:
            add(gradient, mean, -1)
        deviation = norm2(gradient).item()
        if math.isfinite(deviation):
            if before:
                add(mean, gradient, size / (before + size))
            else:
                copy_to(mean, gradient)
        return deviation

    def _smoothness_step(self, closure: Closure) -> Any:
        """The curvature that one mini-batch sees at the starting point."""
        state, losses = self.course.state, []

        def gradient() -> list[Tensor]:
            loss, found = self.point.evaluate_at(closure, self._closure_seed())
            losses.append(loss)
            return found

        value = power_iteration.curvature(
            gradient, self.point.params, self.point.vector("anchor"), self._closure_seed()
        )
        self._receive()
        evaluated = len(losses) * state.phase.size(state.position)
        found = self.ranks.collect([value, evaluated], self._weight())
        self.course.take_curvatures([value for value, _ in found], round(sum(count for _, count in found)))
        return losses[-1]

    def _inner_step(self, closure: Closure | None) -> Any:
        """x ← x − ηv with v = a·∇f_I(x) + b·∇f_I(y) + c·m; without a closure ∇f_I(x) is in the parameters."""
        course, state, point = self.course, self.course.state, self.point
        table = course.method.table
        [(read, write)] = course.levels(1)
        beside, at_anchor = self._at_anchor(closure, read) if closure and course.compares else (0.0, [])
        with point.buffers.kept() as (undo, changes):
            loss, v = point.evaluate(closure, self._closure_seed(), course.needs_one_point) if closure else (None, [])
            if not v:  # it is in the parameters, where backward() was called before this step
                closure, v = None, point.present_gradient()
            known = loss is not None
            # Where the loss is not known, the gradient is looked at.
            value, looked = 0.0 if loss is None else float(loss), state.suspect or not known
            self._receive()
            mean = point.vector(f"mean{read or ''}") if state.depth >= 0 and not table else []
            fused = self._fused()
            if not table and not fused:
                sizes = [float(course.samples())] if course.loop_sizes else []  # those of loops could differ by rank
                told = (value, beside, *sizes)
                value, beside, *sizes = self.ranks.combine(
                    course.rule, v, at_anchor, mean, self._weight(), told, changes()
                )
                self._check_alike(*sizes)
            if looked and not all_finite(v):
                value = math.nan
            fault = f"in epoch {state.epoch} the loss or the gradient is not finite"
            bad = not math.isfinite(value + beside)
            sound = bad and closure is not None and self._recheck(closure, fault)
            if not course.allows(value, beside, sound):
                undo()
                return loss
        if table:
            v = point.renew(at_anchor, v, course.samples() / course.n, state.phase.blocks)
        [numbers] = course.step_numbers()
        if fused:
            v = point.descend_fused(v, state.depth < 0, numbers)
        else:
            added = point.added(v, mean, numbers)
            if write:
                if course.remembers_point:
                    point.store(f"anchor{write}")
                copy_to(point.vector(f"mean{write}"), v)
            point.descend(v, added, numbers)
        if write and state.steps % TRACED_STEPS == 0:
            point.drop_traces(f"mean{write}")
        if closure:
            point.show_direction(v)
        course.take_steps([value], [beside], known=known)
        return loss

    def _fused(self) -> bool:
        """Whether the step is Adam's, alone and on a CPU, for which torch has one operation in place of a dozen."""
        course, rule = self.course, self.course.planned_rule
        if course.method.drawn != "never" or course.share.ranks > 1 or course.remembers_point or not uses_foreach():
            return False
        return type(rule) is Constant and rule.weights.now + rule.weights.mean == 1 and self.point.fusable

    def _at_anchor(self, closure: Closure, level: int) -> tuple[float, list[Tensor]]:
        """The loss and the gradient at the anchor, or the gradient that a table has in its place."""
        phase, position = self.course.state.phase, self.course.state.position
        if self.course.method.table:
            return 0.0, self.point.table_row(phase.block(position), phase.blocks)
        loss, gradient = self.point.evaluate_at(closure, self._closure_seed(), f"anchor{level or ''}")
        return float(loss), gradient

    def _recheck(self, closure: Closure, fault: str) -> bool:
        """Evaluate a batch that had what is not finite once more, at the last good point; the course raises if need be.

        Nothing is known before there is such a point: False.
        """
        if self.course.state.good_epoch == 0:
            return False
        loss, gradient = self.point.evaluate_at(closure, self._closure_seed(), "anchor")
        self.course.recheck(fault, math.isfinite(float(loss)) and all_finite(gradient))
        return True

    def settle(self) -> None:
        """Never end in NaN, nor far from where the run was good: go back to the last good point instead."""
        if self.point.optimizer_deleted:
            return
        self.point.refresh()
        if self.course.state.good_epoch and not self.point.finite:
            self.course.roll_back("the last step is not finite")
        else:
            self.course.judge_end()

    def load_output(self) -> bool:
        """x ← the point that the method returns; returns whether that moved it."""
        self.settle()
        return self.course.load_output()

    def resume(self, state: CourseState) -> None:
        """Go on from a loaded state."""
        self.point.forget()
        self.course.resume(state)
        self.meet_again()

    def meet_again(self) -> None:
        """The state comes from elsewhere, perhaps from another number of ranks: see whether all have the same."""
        self.course.share = self.ranks.share
        self.ranks.met = self.ranks.share.ranks == 1

    def _closure_seed(self) -> int:
        return self.ranks.share.seed(self.course.state.phase, self.course.state.position)

    def _weight(self) -> float:
        """The weight of this rank's samples in the batch."""
        return self.ranks.share.part(self.course.state.phase, self.course.state.position)[1]
