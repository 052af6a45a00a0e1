"""The face of a run towards torch and its users: a `torch.optim.Optimizer` that runs any `Method`.

`batches` yields what `step(closure)` is to be called with, until a rule says stop. Between steps the model is at x;
only while the closure runs is it anywhere else.
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from numbers import Integral
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor, nn
from torch.autograd import profiler
from torch.distributed import ProcessGroup
from torch.optim import optimizer
from torch.optim.optimizer import Optimizer, ParamsT

from vcsg.gpu.executor import GraphExecutor
from vcsg.gpu.graphs import Samples
from vcsg.method import registry
from vcsg.method.definition import OUTPUTS, Method
from vcsg.method.step_rules import StepRule, step_rule
from vcsg.run.certificate import Certificate
from vcsg.run.closures import ClosureExecutor
from vcsg.run.course import Course, CourseOptions, logger
from vcsg.run.feeding import Feed, PhaseSampler, feed, not_finite
from vcsg.run.point import Closure, Point
from vcsg.run.ranks import ranks_of
from vcsg.run.record import Answer, Record, Stationary, Until
from vcsg.run.sampling import Phase
from vcsg.run.state import CourseState
from vcsg.run.vectors import foreach
from vcsg.run.watch import BadSamples

CLOSURE_HELP = """step() needs a closure, because a variance-reduced step evaluates the gradient at two points:
    def closure():
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        return loss
    optimizer.step(closure)"""


class CommonOptions(TypedDict, total=False):
    """The options that every method has; `FiniteSumOptimizer` explains them."""

    lr: float | None
    L: float | None
    step: str | StepRule | None
    weight_decay: float
    decoupled_weight_decay: float
    maximize: bool
    clip_norm: float | None
    foreach: bool | None
    buffers: Iterable[Tensor]
    output: str | None
    variance: str
    chunk: int
    seed: int
    group: ProcessGroup | None
    callback: Callable[[Record], None] | None


class FiniteSumOptimizer(Optimizer):
    """Minimises f(x) = (1/n) Σ f_i(x) with any method of the family.

    The closure evaluates the *mean* loss of the batch it is given. After an inner step `p.grad` holds v, the
    direction of the step; after a step of another phase it is None.

    Args:
        params: the parameters, or dicts of parameter groups as for every `torch.optim` optimizer.
        n: the number of samples.
        method: a `Method`, or the name of a registered one.
        lr: with `L` given or estimated, a multiplier of the step size γ/L, 1 by default; with `lr` alone, the base
            step itself, and L = γ/lr.
        L: the smoothness constant of f_I; None estimates it at the first anchor, from mini-batches of the size of this
            epoch or the next, whichever is smaller.
        step: what a step makes of v: "plain" (η from L), "adaptive" (as Adam) or "orthogonal" (as Muon), or a rule of
            `vcsg.method` with options of its own; None is the method's.
        weight_decay: adds (weight_decay/2)‖x‖² to f, its gradient exact; per group, like `lr` and `maximize`. The loss
            in a `Record` is that of f; what `step` returns is that of the closure.
        decoupled_weight_decay: shrinks x by the factor 1 − η·decoupled_weight_decay in every step, apart from v, as
            AdamW does; per group.
        maximize: climbs instead, as if every f_i had the opposite sign.
        clip_norm: the largest ‖v‖ of a step; a longer v is shortened to it. (Clipping inside the closure would break
            the control variate: the gradients at x and y would be cut differently.)
        foreach: whether to use torch's multi-tensor operations; None does.
        buffers: `model.buffers()` of a model with BatchNorm: they then change by evaluations at x in inner steps
            alone, and mini-batches have at least two samples.
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
    """So that a GradScaler comes to `step`, which can say why it will not do."""

    def __init_subclass__(cls, method: Callable[..., Method] | None = None) -> None:
        """A preset: `class SVRG(FiniteSumOptimizer, method=catalogue.svrg)` has the options of that function."""
        if method is None:
            return
        cls.factory = staticmethod(method)
        cls.__doc__ = _preset_doc(method)
        common = inspect.signature(FiniteSumOptimizer.__init__).parameters.values()
        own = [p.replace(kind=p.KEYWORD_ONLY) for p in inspect.signature(method).parameters.values()]
        kept = [p for p in common if p.name not in ("self", "method", "options")]
        cls.__signature__ = inspect.Signature([*kept[:2], *own, *kept[2:]])  # type: ignore[attr-defined]

    def __init__(
        self,
        params: ParamsT,
        n: int,
        method: Method | str | None = None,
        *,
        lr: float | None = None,
        L: float | None = None,
        step: str | StepRule | None = None,
        weight_decay: float = 0.0,
        decoupled_weight_decay: float = 0.0,
        maximize: bool = False,
        clip_norm: float | None = None,
        foreach: bool | None = None,
        buffers: Iterable[Tensor] = (),
        output: str | None = None,
        variance: str = "chunks",
        chunk: int = 1024,
        seed: int = 0,
        group: ProcessGroup | None = None,
        callback: Callable[[Record], None] | None = None,
        **options: Any,
    ) -> None:
        _check_options(n, lr, L, clip_norm, output, variance, chunk, seed)
        n, chunk, seed = int(n), int(chunk), int(seed)
        self.n = n
        self.method = self._resolve(method, options)
        if step is not None:
            self.method = replace(self.method, step=step_rule(step))
        if L is not None and not self.method.needs_L:
            rule = type(self.method.step).__name__
            raise ValueError(f"L = {L!r}: the step rule {rule} has a step size of its own; leave L out, or give lr=")
        self._callback, self._foreach = callback, foreach is not False
        self._told: Record | None = None
        self._certificate: Certificate | None = None
        self._data: Any = ()
        """The data that `batches` reads, while it does."""
        defaults = {
            "lr": 1.0 if lr is None else lr,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)
        # With lr alone it is the base step: η = lr·γ/(L·unit) is lr when L = γ/lr and the unit is lr.
        unit = float(lr) if lr is not None and L is None else 1.0
        L = self.method.base / unit if lr is not None and L is None else L
        point = Point(self, buffers, clip_norm, self.method.step)
        ranks = ranks_of(group, least=2 if point.buffers else 1)  # BatchNorm has no statistics of one sample
        chosen = CourseOptions(output or self.method.output, variance, chunk, clip_norm)
        self._course = Course(self.method, n, point, ranks.share, chosen, seed, L, unit)
        self._executor = ClosureExecutor(self._course, point, ranks)
        self.sampler = PhaseSampler(self._course.remaining)
        """The `batch_sampler` for a DataLoader."""

    @classmethod
    def _resolve(cls, method: Method | str | None, options: dict[str, Any]) -> Method:
        if cls.factory is not None and method is None:
            return registry.build(cls.factory, options)
        if isinstance(method, str) and cls.factory is None:
            return registry.make(method, **options)
        if not isinstance(method, Method) or cls.factory is not None:
            raise TypeError(
                f"method = {method!r}: FiniteSumOptimizer takes a Method or a name ({', '.join(registry.methods())}), "
                "its presets take none"
            )
        if options:
            raise TypeError(f"options {', '.join(options)} go to a method given by name, not to a Method")
        return method

    # --- what a user reads ------------------------------------------------------------------------

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
    def certificate(self) -> Certificate | None:
        """What is promised of ‖∇f‖² at the last anchor, where `vcsg.stationary` ended `batches` there; else None."""
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
        limits = {"passes": passes, "seconds": seconds, "ifo": ifo}
        for name, limit in limits.items():
            if limit is not None and not limit >= 0:
                raise ValueError(f"{name} = {limit!r}: give a number, at least 0")
        if until is None and all(limit is None for limit in limits.values()):
            raise ValueError("batches() would never end: give passes=, seconds=, ifo= or until=")
        if all(limit is None for limit in limits.values()):
            self.check_ends(until)
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
        if isinstance(until, Stationary) and not (self.method.drawn == "epoch" and self.method.anchored(1)):
            raise ValueError(
                f"until = {until!r}: {self.method.name} draws no anchor in every epoch, so the run would never end; "
                "choose a method that does, such as svrg or vcsg, or give passes= or seconds="
            )

    def _iterate(self, read: Feed, budget: float, deadline: float, until: Until | None) -> Iterator[Any]:
        seen, self._certificate = self.record, None
        if isinstance(until, Stationary) and seen is not None:
            self._heed(until(seen))  # a state may have been saved before the rule was asked

        def finished() -> bool:
            nonlocal seen
            fresh, seen = self.record is not seen, self.record
            if until is not None and fresh and self.record is not None and self._heed(until(self.record)):
                self._certificate = until.certificate(self.record) if isinstance(until, Stationary) else None
                return True
            if time.monotonic() >= deadline:
                self.stop()
            return self._state.ifo >= budget or self._executor.ranks.agreed

        try:
            self._course.limit(budget)
            while not finished():
                phase = self._state.phase
                for batch in read(phase, self._state.position):
                    taken = self._state.steps
                    yield batch
                    del batch  # or it would be held while the next one is gathered
                    if self._state.steps == taken:
                        raise RuntimeError("the last batch was not used: call optimizer.step(closure) once per batch")
                    if finished():
                        return
                    if self._state.phase is not phase or self._state.steps > taken + 1:
                        break
        finally:
            self._course.certifies = False
            self._executor.ranks.forget()
            with torch.no_grad():
                self._executor.settle()

    def _heed(self, answer: bool | Answer) -> bool:
        """Whether the rule that gave this answer ends the run; it may ask for a full anchor instead."""
        if answer is Answer.CONFIRM:
            self._course.request_full_anchor()
        return bool(answer)

    def stop(self) -> None:
        """End `batches` after this step. One of several ranks is enough: all end where they next exchange gradients."""
        self._executor.ranks.ask()

    # --- one step ---------------------------------------------------------------------------------

    def step(self, closure: Closure | None = None) -> Any:
        """Do the work of the current batch; returns the loss of the closure, in an inner step that at x.

        An error leaves parameters and state as they were before the call.
        """
        return self._announced_step(closure) if self._observed() else self._step(closure)

    # Torch would wrap `step` in hooks and a range of the profiler, 2 % of a small one. We do where someone looks.
    step.hooked = True  # type: ignore[attr-defined]

    def _observed(self) -> bool:
        """Whether there are hooks for steps, or a profiler is on."""
        everywhere = optimizer._global_optimizer_pre_hooks or optimizer._global_optimizer_post_hooks
        own = self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
        return bool(own or everywhere or profiler._is_profiler_enabled)

    @torch.no_grad()
    def _step(self, closure: Closure | None = None) -> Any:
        if hasattr(self, "found_inf"):
            vars(self).pop("grad_scale", None)
            del self.found_inf
            raise TypeError("GradScaler changes the scale of gradients between steps: use bfloat16 autocast, unscaled")
        if closure is None:
            raise TypeError(CLOSURE_HELP)
        self._tell()  # a first epoch without an anchor has its record before its first step, which may end it
        with foreach(self._foreach):
            try:
                loss = self._executor.step(closure)
            except BadSamples as error:
                bad = not_finite(self._data, error.samples)
                raise BadSamples(error.fault, bad) if bad else error from None
        self._tell()
        return loss

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

        It is another one with output="average". Buffers are copies for the while.
        """
        elsewhere = self._course.options.output == "average" and self._state.averaged > 0
        point = self._executor.point
        with point.pointed_at("output" if elsewhere else "", [b.clone() if elsewhere else b for b in point.buffers]):
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

        Like those, it refers to the optimizer's tensors: save it or `copy.deepcopy` it before the next step.
        """
        saved = super().state_dict()
        if self._course.split:
            kept = {index: {k: t for k, t in held.items() if k != "mean"} for index, held in saved["state"].items()}
            saved["state"] = kept
        saved["vcsg"] = {**self._settings(), "state": self._course.saved_state().state_dict()}
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken, in mid-phase too; the tensors are copied."""
        saved = state_dict.get("vcsg")
        if saved is None:
            raise ValueError("this is not the state of a vcsg optimizer: it has no entry 'vcsg'")
        for name, value in self._settings().items():
            if saved[name] != value:
                raise ValueError(
                    f"the state was saved with {name} = {saved[name]!r}, this optimizer has {value!r}: "
                    "make it with the same options"
                )
        state = CourseState.from_state_dict(saved["state"])
        super().load_state_dict(state_dict)
        # Torch casts what it loads to the parameter's dtype; means and tables of half-precision ones are wider.
        indices = itertools.chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        params = itertools.chain.from_iterable(group["params"] for group in self.param_groups)
        for index, p in zip(indices, params, strict=True):
            held = state_dict["state"].get(index, {})
            self.state[p] = {name: value.to(p.device, copy=True) for name, value in held.items()}
        self._executor.resume(state)
        self._told = self.record

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; only before the first step, for an anchor knows nothing of new parameters."""
        begun = hasattr(self, "_executor")
        if begun and self._state.steps:
            raise RuntimeError(
                f"{self._state.steps} steps were taken: parameter groups can be added only before the first one. "
                "Make a new optimizer with all parameters"
            )
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            _check_group(group)
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
        if "_executor" in state:
            self._executor.point.attach(self)
            self._executor.meet_again()

    def _settings(self) -> dict[str, Any]:
        return {"method": repr(self.method), "n": self.n, **asdict(self._course.options)}

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


def _preset_doc(method: Callable[..., Method]) -> str:
    """The docstring of a preset: what the method is, and every option, its own and the common ones."""
    text, _, own = inspect.cleandoc(method.__doc__ or "").partition("\n\nArgs:\n")
    listed = inspect.cleandoc(FiniteSumOptimizer.__doc__ or "").partition("Args:\n")[2] + "\n"
    entries = re.findall(r"^    \S.*\n(?:     .*\n)*", listed, re.MULTILINE)
    common = [entry for entry in entries if not entry.lstrip().startswith(("method:", "options:"))]
    return f"{text}\n\nArgs:\n{''.join(common[:2])}{own.rstrip() + chr(10) if own else ''}{''.join(common[2:])}"


def _check_group(group: dict[str, Any]) -> None:
    for p in group["params"]:
        if hasattr(p, "device_mesh") or hasattr(p, "_fsdp_flattened"):
            raise TypeError(
                "a parameter is sharded (FSDP, fully_shard or a DTensor): every rank needs whole parameters, to "
                "evaluate them at the anchor. Give the plain model, or one in DistributedDataParallel"
            )
        if p.is_complex():
            raise TypeError("a parameter is complex: optimise torch.view_as_real of it")
        if not p.is_floating_point():
            raise TypeError(f"a parameter is {p.dtype}: give floating-point parameters")
    for name in ("lr", "weight_decay", "decoupled_weight_decay"):
        if not 0 <= group[name] < math.inf:
            raise ValueError(f"{name} = {group[name]!r}: give a finite number, at least 0")


def _check_options(
    n: int,
    lr: float | None,
    L: float | None,
    clip_norm: float | None,
    output: str | None,
    variance: str,
    chunk: int,
    seed: int,
) -> None:
    for name, value in (("n", n), ("chunk", chunk)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} = {value!r}: give a whole number of samples, at least 1")
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"seed = {seed!r}: give a whole number, at least 0")
    for name, step in (("lr", lr), ("L", L), ("clip_norm", clip_norm)):
        if step is not None and not 0 < step < math.inf:
            raise ValueError(f"{name} = {step!r}: give a finite number above 0, or None")
    for name, choice, known in (
        ("output", output or "last", OUTPUTS),
        ("variance", variance, ("chunks", "exact")),
    ):
        if choice not in known:
            raise ValueError(f"{name} = {choice!r}: choose {' or '.join(map(repr, known))}")
