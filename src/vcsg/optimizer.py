"""The face of a run towards torch and its users: a `torch.optim.Optimizer` that runs any `Method`.

`batches` yields what `step(closure)` is to be called with, until a rule says stop. Between steps the model is at x;
only while the closure runs is it anywhere else.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd import profiler
from torch.distributed import ProcessGroup
from torch.optim import optimizer
from torch.optim.optimizer import Optimizer, ParamsT

from vcsg.calling_frameworks import check_caller
from vcsg.drawn_batches import as_asked, check_draws, check_ends, check_limits, drawn_batches
from vcsg.gpu.executor import GraphExecutor
from vcsg.gpu.graphs import Samples
from vcsg.making_runs import make_run, resolve
from vcsg.method.definition import Method
from vcsg.method.step_rules import StepRule, step_rule
from vcsg.optimizer_options import GROUP_OPTIONS, RunOptions, check_group, check_options
from vcsg.optimizer_state import check_settings, check_shapes, place_tensors, saved_run, without_means
from vcsg.ordinary_loops import (
    HandedBatch,
    check_closure,
    check_loader,
    check_source,
    in_order,
    one_pass,
    sizes_of,
    step_with_gradients,
)
from vcsg.preset_face import preset_doc, preset_signature
from vcsg.run.buffers import Buffers
from vcsg.run.certificate import Certificate
from vcsg.run.closures import ClosureExecutor
from vcsg.run.course import Course, logger
from vcsg.run.feeding import Feed, PhaseSampler, feed, not_finite
from vcsg.run.point import Closure
from vcsg.run.record import Answer, Record, Stationary, Until
from vcsg.run.sampling import Phase
from vcsg.run.state import CourseState
from vcsg.run.vectors import foreach
from vcsg.run.watch import BadSamples


class FiniteSumOptimizer(Optimizer):
    """Minimises f(x) = (1/n) Σ f_i(x) with any method of the family.

    The samples are drawn here (`batches`, `sampler`), or an ordinary loop hands over its batches (`batch_size`). The
    closure evaluates the *mean* loss of a batch. After an inner step with a closure `p.grad` holds v, the direction of
    the step; after a step of another phase it is None.

    Args:
        params: the parameters, or dicts of parameter groups as for every `torch.optim` optimizer.
        n: the number of samples; None where `loop` or `expect` is to take it from a loader.
        method: a `Method`, or the name of a registered one.
        batch_size: the number of samples in the batches of an ordinary loop, which hands each of them to `step`; on
            several ranks that of each. None, and n given: the optimizer draws the samples (`batches`, `sampler`).
        lr: with `L` given or estimated, a multiplier of the step size γ/L, 1 by default; with `lr` alone, the base
            step itself, and L = γ/lr.
        L: the smoothness constant of f_I; None estimates it at the first anchor, from mini-batches of the size of this
            epoch or the next, whichever is smaller.
        step: what a step makes of v: "plain" (η from L), "adaptive" (as Adam) or "orthogonal" (as Muon), or a rule of
            `vcsg.method` with options of its own; None is the method's.
        weight_decay: adds (weight_decay/2)‖x‖² to f, its gradient exact; per group, like `lr` and `maximize`. The loss
            in a `Record` is that of f; what `step` returns is that of the closure.
        decoupled_weight_decay: shrinks x by the factor 1 − η·decoupled_weight_decay in every step, apart from v, as
            AdamW does; per group. None is the method's, which is 0 but for `auto`, and 0 with `weight_decay`.
        maximize: climbs instead, as if every f_i had the opposite sign.
        clip_norm: the largest ‖v‖ of a step; a longer v is shortened to it. (Clipping inside the closure would break
            the control variate: the gradients at x and y would be cut differently.)
        foreach: whether to use torch's multi-tensor operations; None does.
        buffers: the model, if it has BatchNorm or other buffers that a forward pass changes: they then change by
            evaluations at x in inner steps alone, and mini-batches have at least two samples. `model.buffers()` will do
            where they are changed in place and never assigned anew.
        output: "last" returns the last point, "weighted" draws it from all x̃_j with probability ∝ η_j·B_j/b_j, and
            "average" is a running mean of all points that forgets the early ones; None is the method's.
        variance: "chunks" measures S* from the anchor's chunk means, "exact" from single samples (slow).
        chunk: the most samples of an anchor that are evaluated at once; fewer take less memory.
        seed: the seed of all sampling and of the closure's randomness (dropout).
        group: the ranks of torch.distributed to work with, each with all the data; None is the default group where one
            is initialised. All make the optimizer alike; it begins with the parameters of the first.
        callback: called with the `Record` of every epoch.
        options: the options of the method, where it is given by name.
    """

    factory: ClassVar[Callable[..., Method] | None] = None
    _step_supports_amp_scaling = True
    """So that a GradScaler comes to `step`, which takes it without a closure, and with one says why it will not do."""

    def __init_subclass__(cls, method: Callable[..., Method] | None = None) -> None:
        """A preset: `class SVRG(FiniteSumOptimizer, method=catalogue.svrg)` has the options of that function."""
        if method is None:
            return
        cls.factory = staticmethod(method)
        cls.__doc__ = preset_doc(method, FiniteSumOptimizer.__doc__)
        cls.__signature__ = preset_signature(method, FiniteSumOptimizer.__init__)  # type: ignore[attr-defined]

    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        method: Method | str | None = None,
        *,
        batch_size: int | None = None,
        lr: float | None = None,
        L: float | None = None,
        step: str | StepRule | None = None,
        weight_decay: float = 0.0,
        decoupled_weight_decay: float | None = None,
        maximize: bool = False,
        clip_norm: float | None = None,
        foreach: bool | None = None,
        buffers: nn.Module | Iterable[Tensor] = (),
        output: str | None = None,
        variance: str = "chunks",
        chunk: int = 1024,
        seed: int = 0,
        group: ProcessGroup | None = None,
        callback: Callable[[Record], None] | None = None,
        **options: Any,
    ) -> None:
        check_options(n, batch_size, lr, L, clip_norm, output, variance, chunk, seed)
        named = resolve(self.factory, method, options)  # what it refuses is refused now, whether n is known or not
        self._callback, self._foreach = callback, foreach is not False
        self._told: Record | None = None
        self._certificate: Certificate | None = None
        self._data: Any = ()
        """The data that `batches` reads, while it does."""
        self._batch: HandedBatch | None = None
        """The batch that `loop` has handed over."""
        self._caller_known = False
        self._made: ClosureExecutor | None = None
        decay = (0.0 if weight_decay else named.decay) if decoupled_weight_decay is None else decoupled_weight_decay
        options_of_groups = (1.0 if lr is None else lr, weight_decay, decay, maximize)
        super().__init__(params, dict(zip(GROUP_OPTIONS, options_of_groups, strict=True)))
        self._given = RunOptions(
            n, batch_size, method, options, None if step is None else step_rule(step), lr, L, clip_norm, output,
            variance, int(chunk), int(seed), group, Buffers(buffers),
        )  # fmt: skip
        if n is not None:
            self._begin(n, batch_size)

    def _begin(self, n: int, batch_size: int | None) -> None:
        """Make the run, for n samples that are drawn here, or that a loop hands over in batches."""
        self._made = make_run(self, self._given, self.factory, n, batch_size)
        self._given = self._given._replace(group=None, buffers=Buffers())  # who holds a group keeps its threads
        self._sampler = PhaseSampler(self._course.remaining)

    # --- what a user reads ------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """The number of samples."""
        return self._course.n

    @property
    def method(self) -> Method:
        """The method that is run."""
        return self._course.method

    @property
    def batch_size(self) -> int | None:
        """The size of the batches that a loop hands over; None where the optimizer draws the samples."""
        return self._course.options.batch_size

    @property
    def sampler(self) -> PhaseSampler:
        """The `batch_sampler` for a DataLoader."""
        check_draws("sampler", self.batch_size)
        return self._sampler

    @property
    def record(self) -> Record | None:
        """The record of the last epoch whose anchor is done; None before the first."""
        return self._state.record

    @property
    def ifo(self) -> int:
        """Gradients of single samples evaluated so far: anchors, inner steps, smoothness estimates, failed tries."""
        return self._state.ifo

    @property
    def passes(self) -> float:
        """`ifo` in units of n."""
        return self._state.ifo / self.n

    @property
    def epoch(self) -> int:
        """j, from 1: counts anchors, not passes over the data."""
        return self._state.epoch

    @property
    def L(self) -> float | None:
        """The smoothness constant in use; None until it is estimated. It doubles when a run diverges."""
        return self._state.L

    @property
    def needs_one_point(self) -> bool:
        """Whether the method needs the gradient at x alone, as the optimizers of torch.optim do."""
        return self._course.needs_one_point

    @property
    def step_sizes(self) -> list[float] | None:
        """η of each parameter group, as the next step would have it; None until it is known (L may be unknown yet)."""
        if self._state.L is None or self._state.plan is None:
            return None
        return [self._course.step_size(float(group["lr"])) for group in self.param_groups]

    @property
    def certificate(self) -> Certificate | None:
        """What is promised of ‖∇f‖² at the last anchor, where `vcsg.stationary` ended the run there; else None."""
        return self._certificate

    @property
    def phase(self) -> Phase:
        """The phase that the next batch belongs to."""
        return self._state.phase

    def batches(
        self,
        data: Any,
        *,
        passes: float | None = None,
        seconds: float | None = None,
        ifo: float | None = None,
        until: Until | None = None,
    ) -> Iterator[Any]:
        """The batches to call `step` with, until a stopping rule says so.

        Args:
            data: a DataLoader made with `batch_sampler=optimizer.sampler`, or tensors with the samples along the
                first axis: `(X, Y)`, on the device already.
            passes: stop when `optimizer.passes` has reached this.
            seconds: stop after this time in the loop.
            ifo: stop when `optimizer.ifo` has reached this.
            until: stop when this returns True for the record of an epoch; see `vcsg.stationary`.
        """
        check_draws("batches()", self.batch_size)
        check_limits({"passes": passes, "seconds": seconds, "ifo": ifo}, until, self.method)
        self.heed_certificates(until)
        budget = min(math.inf if passes is None else passes * self.n, math.inf if ifo is None else ifo)
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        read = feed(data, self.n, self.sampler)
        self._data = data
        return self._iterate(read, budget, deadline, until)

    def heed_certificates(self, until: Until | None) -> None:
        """Look, at the next anchor, whether f is random where `until` is `vcsg.stationary`, and refuse it then."""
        self._course.certifies = self._course.certifies or isinstance(until, Stationary)

    def check_ends(self, until: Until | None) -> None:
        """Refuse `vcsg.stationary` as the only limit of a method whose epochs have no anchor to measure ‖∇f‖² at."""
        check_ends(until, self.method)

    def _iterate(self, read: Feed, budget: float, deadline: float, until: Until | None) -> Iterator[Any]:
        seen, self._certificate = self.record, None
        if isinstance(until, Stationary) and seen is not None:
            self._heed(until(seen))  # a state may have been saved before the rule was asked

        def finished() -> bool:
            nonlocal seen
            fresh, seen = self.record is not seen, self.record
            if until is not None and fresh and self.ends(until):
                return True
            if time.monotonic() >= deadline:
                self.stop()
            return self._state.ifo >= budget or self._executor.ranks.agreed

        yield from drawn_batches(self._executor, self._sampler, read, budget, finished)

    def ends(self, until: Until) -> bool:
        """Ask a rule about the last record: whether it ends the run. It may ask for a full anchor instead."""
        if self.record is None:
            return False
        ended = self._heed(until(as_asked(self.record, self.method)))
        self._certificate = until.certificate(self.record) if ended and isinstance(until, Stationary) else None
        return ended

    def _heed(self, answer: bool | Answer) -> bool:
        """Whether the rule that gave this answer ends the run; it may ask for a full anchor instead."""
        if answer is Answer.CONFIRM:
            self._course.request_full_anchor()
        return bool(answer)

    def stop(self) -> None:
        """End `batches` after this step. One of several ranks is enough: all end where they next exchange gradients."""
        self._executor.ranks.ask()

    # --- a loop of the user's own -----------------------------------------------------------------

    def expect(self, loader: Any) -> None:
        """Expect the batches of this ordinary loader: n and the batch size are those of it, as far as not given.

        A loader of others than were given is refused. `loop` calls it; call it where a framework reads the loader.
        """
        if self._made is None:
            self._begin(*sizes_of(loader, self._given.n, self._given.batch_size))
        check_loader(loader, self._course)
        self._course.begin_pass(not getattr(loader, "drop_last", False), in_order(loader))

    def loop(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of an ordinary loader, one pass; each is to be used by a `step`, which then knows its size.

        An optimizer that was made without n and batch_size takes them from the loader.
        """
        self.expect(loader)
        return one_pass(loader, self.n, self._hold)

    def _hold(self, batch: HandedBatch | None) -> None:
        self._batch = batch

    # --- one step ---------------------------------------------------------------------------------

    def step(self, closure: Closure | None = None, *, samples: int | None = None) -> Any:
        """Do the work of the current batch; returns the loss of the closure, in an inner step that at x.

        An error leaves parameters and state as they were before the call.

        Args:
            closure: evaluates the batch: zero_grad, the mean loss, backward; returns the loss. A method that needs the
                gradient at x alone does without, as those of torch.optim: call `loss.backward()` before.
            samples: the number of samples in the batch, where the rows that the model is given are not samples.
        """
        if self._observed():
            return self._announced_step(closure, **({} if samples is None else {"samples": samples}))
        return self._step(closure, samples)

    # Torch would wrap `step` in hooks and a range of the profiler, 2 % of a small one. We do where someone looks.
    step.hooked = True  # type: ignore[attr-defined]

    def _observed(self) -> bool:
        """Whether there are hooks for steps, or a profiler is on."""
        everywhere = optimizer._global_optimizer_pre_hooks or optimizer._global_optimizer_post_hooks
        own = self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
        return bool(own or everywhere or profiler._is_profiler_enabled)

    @torch.no_grad()
    def _step(self, closure: Closure | None = None, samples: int | None = None) -> Any:
        check_closure(closure, self._course)
        if self.batch_size is None:
            check_source(samples, self._sampler)
        if not self._caller_known:
            check_caller(self._course, closure is not None)
            self._caller_known = True
        batch, trusted = self._batch, samples is not None
        if batch is not None:
            batch.check_unused()
            samples = samples if trusted else batch.samples
        loss = None
        if closure is None:
            self._step_with_gradients(samples)
        else:
            loss = self._evaluate(closure, samples, trusted)
        if batch is not None:
            batch.used = True
        return loss

    def _evaluate(self, closure: Closure, samples: int | None, trusted: bool) -> Any:
        """A step with a closure."""
        if hasattr(self, "found_inf"):
            vars(self).pop("grad_scale", None)
            del self.found_inf
            raise TypeError("GradScaler changes the scale of gradients between steps: use bfloat16 autocast, unscaled")
        self._tell()  # a first epoch without an anchor has its record before its first step, which may end it
        with foreach(self._foreach):
            try:
                loss = self._executor.step(closure, samples, trusted)
            except BadSamples as error:
                bad = not_finite(self._data, error.samples)
                raise BadSamples(error.fault, bad) if bad else error from None
        self._tell()
        return loss

    def _step_with_gradients(self, samples: int | None) -> None:
        """A step without a closure, from what backward() has left in the parameters."""
        scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        self._tell()
        with foreach(self._foreach):
            taken = step_with_gradients(self._executor, samples, scale, found_inf)
        if taken:
            self._tell()

    _announced_step = Optimizer.profile_hook_step(_step)

    @torch.no_grad()
    def graphed(self, model: nn.Module, objective: Callable[[Any], Tensor], samples: Samples) -> GraphExecutor:
        """Make an executor that does many steps at once, as CUDA graphs, for data on the device; `vcsg.fit` uses it.

        Where the run, the model or the data are not such that it could, `vcsg.gpu.graphs.Uncapturable` says why.
        """
        return GraphExecutor(self._executor, model, objective, samples)

    @torch.no_grad()
    def advance(self, engine: GraphExecutor, most: int, limit: float) -> tuple[int, float]:
        """Up to `most` steps by the engine, in place of `step`, to the first with which `limit` gradients are counted.

        Returns how many samples they had, and the sum of their losses; 0 samples: the next step is one for `step`.
        """
        with foreach(self._foreach):
            found = engine.advance(most, limit)
        self._tell()
        return found

    # --- output -----------------------------------------------------------------------------------

    @contextmanager
    def at_output(self) -> Iterator[bool]:
        """A context in which the model is at the point that the method would return now; yields whether that is not x.

        It is another one with output="average". Buffers are copies for the while, then.
        """
        elsewhere = self._course.options.output == "average" and self._state.averaged > 0
        point = self._executor.point
        with point.pointed_at("output", point.buffers.copies()) if elsewhere else nullcontext():
            yield elsewhere

    @torch.no_grad()
    def load_output(self) -> bool:
        """Put the model at the point that the method returns; returns whether that moved it.

        With output="last" it is there already, with "weighted" it is the reservoir's point once an epoch is complete,
        with "average" the mean of the points. Going on from there begins a new epoch. BatchNorm's statistics stay those
        of the last point: measure them at the average, as `vcsg.fit` does.
        """
        return self._executor.load_output()

    # --- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state, as every optimizer has it, with that of the run under "vcsg"; loads with `weights_only=True`.

        Before n is known there is no run, and no such entry.

        Like those, it refers to the optimizer's tensors: save it or `copy.deepcopy` it before the next step.
        """
        saved = super().state_dict()
        if self._made is None:
            return saved
        if self._course.split:
            saved["state"] = without_means(saved["state"])
        saved["vcsg"] = {**self._settings(), "state": self._course.saved_state().state_dict()}
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken, in mid-phase too; the tensors are copied."""
        saved = saved_run(state_dict)
        if self._made is None:
            self._begin(self._given.n or saved["n"], self._given.batch_size or saved.get("batch_size"))
        check_settings(saved, self._settings())
        check_shapes(self, state_dict)
        state = CourseState.from_state_dict(saved["state"])
        super().load_state_dict(state_dict)
        place_tensors(self, state_dict)
        self._executor.resume(state)
        self._told = self.record

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; only before the first step, for an anchor knows nothing of new parameters."""
        begun = vars(self).get("_made") is not None
        if begun and self._state.steps:
            raise RuntimeError(
                f"{self._state.steps} steps were taken: parameter groups can be added only before the first one. "
                "Make a new optimizer with all parameters"
            )
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            check_group(group)
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise
        if begun:
            self._executor.check_table()

    def __getstate__(self) -> dict[str, Any]:
        """The attributes to pickle and to copy: all but hooks, as torch has it, and a scheduler's wrapper of `step`."""
        kept = {k: v for k, v in self.__dict__.items() if k != "step" and not k.startswith("_optimizer_")}
        return {**kept, "_data": ()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group, name in itertools.product(self.param_groups, GROUP_OPTIONS):
            group.setdefault(name, self.defaults[name])  # the state may be older than the option
        if state.get("_made") is not None:
            self._executor.point.attach(self)
            self._executor.meet_again()

    def _settings(self) -> dict[str, Any]:
        return {"method": repr(self.method), "n": self.n, **asdict(self._course.options)}

    @property
    def _executor(self) -> ClosureExecutor:
        if self._made is None:
            raise RuntimeError(
                "n is not known yet: make the optimizer with n=len(dataset), and with batch_size= where an ordinary "
                "loop hands over the batches, or call optimizer.loop(loader) or optimizer.expect(loader) first"
            )
        return self._made

    @property
    def _course(self) -> Course:
        return self._executor.course

    @property
    def _state(self) -> CourseState:
        return self._course.state

    def _tell(self) -> None:
        if self.record is None or self.record is self._told:
            return
        self._told = self.record
        logger.debug("%s", self.record)
        if self._callback is not None:
            self._callback(self.record)
