"""The only loop over a method: a `torch.optim.Optimizer` that runs any `Method`, phase by phase.

Each epoch j has an anchor phase (B samples in chunks at the current point: their mean gradient m, S* and ‖∇f‖²; the
point does not move), once a smoothness phase (L, where it is not given), and an inner phase of N steps x ← x − ηv.
`step(closure)` does the work of one batch. Between steps the model is at x; only while the closure runs is it
anywhere else.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from vcsg import family, smoothness
from vcsg.eager import Closure, Eager
from vcsg.family import Method
from vcsg.run import Record, Run, Watch
from vcsg.sampling import Feed, Kind, Phase, PhaseSampler, draw_geometric, feed, stream
from vcsg.schedules import Facts, Plan
from vcsg.variance import AnchorSum, chunks
from vcsg.vectors import all_finite, copy_to, foreach, norm2, scale
from vcsg.weights import Rule

logger = logging.getLogger("vcsg")

MAX_ROLLBACKS = 10
"""How often in a row a diverged epoch is tried again, L doubled each time, before the run gives up."""

CLOSURE_HELP = """step() needs a closure, because a variance-reduced step evaluates the gradient at two points:
    def closure():
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        return loss
    optimizer.step(closure)"""


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
        L: the smoothness constant of f_I; None estimates it at the first anchor from mini-batches of the size in use.
        weight_decay: adds (weight_decay/2)‖x‖² to f, its gradient exact; per group, like `lr` and `maximize`.
        maximize: climbs instead, as if every f_i had the opposite sign.
        clip_norm: the largest ‖v‖ of a step; a longer v is shortened to it. (Clipping inside the closure would break
            the control variate: the gradients at x and y would be cut differently.)
        foreach: whether to use torch's multi-tensor operations; None does.
        buffers: `model.buffers()` of a model with BatchNorm: they then change by evaluations at x in inner steps
            alone, and mini-batches have at least two samples.
        output: "last" returns the last point, "weighted" draws it from all x̃_j with probability ∝ η_j·B_j/b_j.
        variance: "chunks" measures S* from the anchor's chunk means, "exact" from single samples (slow).
        chunk: the most samples of an anchor that are evaluated at once.
        seed: of all sampling and of the closure's randomness (dropout).
        callback: called with the `Record` of every epoch.
        options: those of the method, where it is given by name.
    """

    factory: ClassVar[Callable[..., Method] | None] = None
    _step_supports_amp_scaling = True
    """So that a GradScaler comes to `step`, which can say why it will not do."""

    def __init_subclass__(cls, method: Callable[..., Method] | None = None) -> None:
        """A preset: `class SVRG(FiniteSumOptimizer, method=family.svrg)` has the options of that function."""
        if method is None:
            return
        cls.factory = staticmethod(method)
        cls.__doc__ = (method.__doc__ or "") + f"\n\nTakes the arguments of `{__name__}.FiniteSumOptimizer` as well."
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
        weight_decay: float = 0.0,
        maximize: bool = False,
        clip_norm: float | None = None,
        foreach: bool | None = None,
        buffers: Iterable[Tensor] = (),
        output: str = "last",
        variance: str = "chunks",
        chunk: int = 256,
        seed: int = 0,
        callback: Callable[[Record], None] | None = None,
        **options: Any,
    ) -> None:
        _check_options(n, lr, L, clip_norm, output, variance, chunk, seed)
        self.n = n
        self.method = self._resolve(method, options)
        self._output, self._exact, self._chunk, self._seed = output, variance == "exact", chunk, seed
        self._callback, self._clip_norm, self._foreach = callback, clip_norm, foreach is not False
        self._unit = float(lr) if lr is not None and L is None else 1.0
        self.record: Record | None = None
        """The record of the current epoch."""
        self._told: Record | None = None
        self.sampler = PhaseSampler(self._remaining)
        """The `batch_sampler` for a DataLoader."""
        first = self.method.schedule.first(n)
        defaults = {"lr": 1.0 if lr is None else lr, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults)
        self._eager = Eager(self, buffers)
        self._check_table()
        if self._eager.buffers and self._exact:
            raise ValueError("variance='exact' takes single samples, which BatchNorm cannot: use variance='chunks'")
        self._run = Run(Phase("anchor", 0, 1, n, n, seed), anchor_size=first, good_size=first)
        self._run.L = self.method.gamma / self._unit if lr is not None and L is None else L
        self._begin_epoch()

    def _check_table(self) -> None:
        numbers = sum(p.numel() for p in self._eager.params)
        needed = self._blocks() * sum(p.numel() * p.element_size() for p in self._eager.params)
        if needed > self.method.table > 0:
            fitting = math.ceil(self.n * needed / self._blocks() / self.method.table)
            raise ValueError(
                f"{self.method.name} would keep {self._blocks():,} gradients of {numbers:,} numbers, {needed:,} bytes; "
                f"the limit is {self.method.table:,}. Take blocks of b={fitting:,} samples or more, raise memory=, or "
                "choose svrg, which keeps one gradient"
            )

    @classmethod
    def _resolve(cls, method: Method | str | None, options: dict[str, Any]) -> Method:
        if cls.factory is not None and method is None:
            return family.build(cls.factory, options)
        if isinstance(method, str) and cls.factory is None:
            return family.make(method, **options)
        if not isinstance(method, Method) or cls.factory is not None:
            raise TypeError(
                f"method = {method!r}: FiniteSumOptimizer takes a Method or a name ({', '.join(family.methods())}), "
                "its presets take none"
            )
        if options:
            raise TypeError(f"options {', '.join(options)} go to a method given by name, not to a Method")
        return method

    # --- what a user reads ------------------------------------------------------------------------

    @property
    def ifo(self) -> int:
        """Gradients of single samples evaluated so far: anchors, inner steps, smoothness estimates, failed tries."""
        return self._run.ifo

    @property
    def passes(self) -> float:
        """`ifo` in units of n."""
        return self._run.ifo / self.n

    @property
    def epoch(self) -> int:
        """j, from 1: counts anchors, not passes over the data."""
        return self._run.epoch

    @property
    def L(self) -> float | None:
        """The smoothness constant in use; None until it is estimated. It doubles when a run diverges."""
        return self._run.L

    @property
    def phase(self) -> Phase:
        """The phase that the next batch belongs to."""
        return self._run.phase

    def batches(
        self,
        data: Any,
        *,
        passes: float | None = None,
        seconds: float | None = None,
        ifo: float | None = None,
        until: Callable[[Record], bool] | None = None,
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
        budget = min(math.inf if passes is None else passes * self.n, math.inf if ifo is None else ifo)
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        return self._iterate(feed(data, self.n, self.sampler), budget, deadline, until)

    def _iterate(
        self, read: Feed, budget: float, deadline: float, until: Callable[[Record], bool] | None
    ) -> Iterator[Any]:
        seen = self.record

        def finished() -> bool:
            nonlocal seen
            fresh, seen = self.record is not seen, self.record
            if until is not None and fresh and self.record is not None and until(self.record):
                return True
            return self._run.ifo >= budget or time.monotonic() >= deadline

        try:
            while not finished():
                phase = self._run.phase
                for batch in read(phase, self._run.position):
                    taken = self._run.steps
                    yield batch
                    if self._run.steps == taken:
                        raise RuntimeError("the last batch was not used: call optimizer.step(closure) once per batch")
                    if finished():
                        return
                    if self._run.phase is not phase:
                        break
        finally:
            self._settle()

    # --- one step ---------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Do the work of the current batch; returns the loss of the closure, in an inner step that at x.

        An error leaves parameters and state as they were before the call.
        """
        if hasattr(self, "found_inf"):
            del self.found_inf, self.grad_scale
            raise TypeError("GradScaler changes the scale of gradients between steps: use bfloat16 autocast, unscaled")
        if closure is None:
            raise TypeError(CLOSURE_HELP)
        with foreach(self._foreach):
            match self._run.phase.kind:
                case "anchor":
                    loss = self._anchor_step(closure)
                case "smoothness":
                    loss = self._smoothness_step(closure)
                case "inner":
                    loss = self._inner_step(closure)
        self._run.steps += 1
        self._tell()
        return loss

    def _anchor_step(self, closure: Closure) -> Any:
        """One chunk of the anchor: m, S* and the mean loss take it in; the point stays."""
        run = self._run
        loss, gradient = self._eager.evaluate_aside(closure, self._closure_seed())
        fault = _fault(loss, gradient)
        if fault and run.good_epoch == 0:
            raise FloatingPointError(self._bad_start(fault))
        run.ifo += self._batch_size()
        if fault:
            self._roll_back(f"at the anchor of epoch {run.epoch} {fault}")
            return loss
        mean = self._eager.vector("mean")
        if run.position == 0:
            for m in mean:
                m.zero_()
        if self.method.table:
            copy_to(self._eager.table_row(run.phase.block(run.position), run.phase.blocks), gradient)
        run.anchor_sum.add(self._batch_size(), float(loss), gradient, mean)
        run.position += 1
        if run.position == run.phase.count:
            self._close_anchor(mean)
        return loss

    def _smoothness_step(self, closure: Closure) -> Any:
        """The curvature that one mini-batch sees at the starting point."""
        run = self._run
        losses: list[Any] = []

        def gradient() -> list[Tensor]:
            loss, found = self._eager.evaluate_aside(closure, self._closure_seed())
            losses.append(loss)
            return found

        centre = self._eager.vector("anchor")
        value = smoothness.curvature(gradient, self._eager.params, centre, self._closure_seed())
        last = run.position + 1 == run.phase.count
        if not math.isfinite(value) or (last and value == 0 and not any(run.curvatures)):
            raise FloatingPointError(
                f"L cannot be estimated: the curvature of a mini-batch at the starting point is {value}. "
                "Give L= or lr=, or check that the loss depends smoothly on the parameters"
            )
        run.ifo += len(losses) * self._batch_size()
        run.curvatures.append(value)
        run.position += 1
        if last:
            # A mini-batch without curvature (a dead unit, a dropped sample) says nothing of the step.
            run.L = statistics.median(c for c in run.curvatures if c)
            self._begin_inner()
        return losses[-1]

    def _inner_step(self, closure: Closure) -> Any:
        """x ← x − ηv with v = a·∇f_I(x) + b·∇f_I(y) + c·m.

        Only the loss is checked here. A step that is not finite shows in the next loss, at the next anchor, or when
        the loop ends (`_settle`): no pass over the gradient is spent on it.
        """
        run, rule = self._run, self._rule()
        read, write = self._anchor_levels()
        at_anchor = self._gradient_at_anchor(closure, read) if any(w.anchor for w in rule.choices) else []
        loss, v = self._eager.evaluate(closure, self._closure_seed())
        value = float(loss)
        if not math.isfinite(value) and run.good_epoch == 0:
            raise FloatingPointError(self._bad_start(f"the loss is {value}"))
        run.ifo += self._batch_size() * (2 if at_anchor and not self.method.table else 1)
        if not math.isfinite(value):
            self._roll_back(f"in inner step {run.position + 1} of epoch {run.epoch} the loss is {value}")
            return loss
        if run.position == 0 and not run.drawn:
            self._accept_point()
        if self.method.table:
            v = self._eager.renew(at_anchor, v, self._batch_size() / self.n, run.phase.blocks)
        else:
            rule.combine(v, at_anchor, self._eager.vector(f"mean{read or ''}") if run.depth >= 0 else [])
        if write:
            self._eager.store(f"anchor{write}")
            copy_to(self._eager.vector(f"mean{write}"), v)
            run.depth = write
        self._descend(v)
        self._eager.show(v)
        run.position += 1
        if fault := self._judge_losses(value):
            self._roll_back(f"in epoch {run.epoch} {fault}")
        elif run.position == run.phase.count:
            self._end_epoch()
        return loss

    def _anchor_levels(self) -> tuple[int, int]:
        """Which (y, m) the step starts from, and which it moves to (x, v); 0, the drawn anchor, stays."""
        run, plan = self._run, self._plan()
        if plan.levels:
            level = plan.levels[run.position]
            return min(level - 1, run.depth), level if level < max(plan.levels) else 0
        return (run.depth, 1) if self.method.moves == "step" else (0, 0)

    def _gradient_at_anchor(self, closure: Closure, level: int) -> list[Tensor]:
        phase, position = self._run.phase, self._run.position
        if self.method.table:
            return self._eager.table_row(phase.block(position), phase.blocks)
        loss, gradient = self._eager.evaluate_aside(closure, self._closure_seed(), f"anchor{level or ''}")
        if not math.isfinite(float(loss)):
            raise FloatingPointError(
                f"the loss is {float(loss)} at the anchor, where the anchor's own samples were fine: "
                f"look at the samples {self._indices()}"
            )
        return gradient

    # --- from phase to phase ----------------------------------------------------------------------

    def _begin_epoch(self) -> None:
        run, method = self._run, self.method
        run.loss_sum, run.loss_count = 0.0, 0
        anchored = method.anchored(run.epoch)
        run.drawn = anchored and (method.drawn == "epoch" or run.depth < 0)
        if run.drawn:
            run.anchor_sum, run.depth = AnchorSum(), -1
            blocks = self._blocks()
            size = max(run.anchor_size, self._floor())
            self._enter("anchor", blocks or chunks(size, self._chunk, self._floor(), self._exact), size)
        else:
            run.depth = run.depth if anchored else -1
            run.anchor = None
            self._make_plan()

    def _floor(self) -> int:
        """The least number of samples in a batch: BatchNorm has no statistics of one."""
        return min(2, self.n) if self._eager.buffers else 1

    def _blocks(self) -> int:
        """How many gradients a table holds."""
        if not self.method.table:
            return 0
        b = self.method.schedule(Facts(1, self.n, math.nan, math.nan)).b
        return max(1, self.n // self._floor()) if b < self._floor() else math.ceil(self.n / b)

    def _close_anchor(self, mean: list[Tensor]) -> None:
        """Judge the new point; a good one is what a later failure goes back to, and the epoch is planned."""
        run = self._run
        anchor = run.anchor_sum.close(self.n, mean)
        if run.epoch == run.good_epoch:
            run.watch = Watch()  # back at a point that was accepted: it is the reference
        fault = run.watch.fault(anchor, self._sign())
        if fault:
            self._roll_back(f"at the anchor of epoch {run.epoch} {fault}")
            return
        run.anchor, run.depth = anchor, 0
        if math.isnan(run.first_variance):
            run.first_variance = anchor.variance
        self._accept_point()
        self._make_plan()

    def _make_plan(self) -> None:
        run = self._run
        variance = run.anchor.variance if run.anchor else math.nan
        plan = self.method.schedule(Facts(run.epoch, self.n, variance, run.first_variance))
        run.plan = replace(plan, b=max(plan.b, self._floor()))
        if run.L is None:
            draws, size = smoothness.plan(run.plan.b, self._chunk, self.n)
            self._enter("smoothness", draws, draws * size)
        else:
            self._begin_inner()

    def _begin_inner(self) -> None:
        run, plan = self._run, self._plan()
        length = len(plan.levels) or math.ceil(plan.B / plan.b)
        if self.method.length == "geometric":
            length = draw_geometric(stream(self._seed, "length", run.phase.number), plan.B, plan.b)
        self.record = self._make_record(length)
        if self.method.leap and run.drawn:
            self._step_along_mean()
        if all(w.now == w.anchor == 0 for w in self._rule().choices):
            # v = c·m needs no mini-batch (gradient descent), so the steps are taken at once.
            for _ in range(length):
                self._step_along_mean()
            self._end_epoch()
        elif length:
            self._enter("inner", length, length * plan.b, plan.sizes)
        else:
            self._end_epoch()

    def _step_along_mean(self) -> None:
        """x ← x − ηm, for which no gradient is evaluated."""
        self._descend([m.clone() for m in self._eager.vector("mean")])

    def _descend(self, v: list[Tensor]) -> None:
        """x ← x − ηv, v clipped first where that is asked for."""
        if self._clip_norm is not None:
            norm = math.sqrt(norm2(v).item())
            if norm > self._clip_norm:
                scale(v, self._clip_norm / norm)
        self._eager.descend(v, self._step_size)

    def _end_epoch(self) -> None:
        run, plan = self._run, self._plan()
        run.pending = self._step_size(self.param_groups[0]) * plan.B / plan.b
        run.epoch += 1
        run.anchor_size = plan.next_B
        self._begin_epoch()

    def _judge_losses(self, loss: float) -> str | None:
        """Where no anchor will judge the epoch, the mean loss of its steps does, at its middle and end."""
        run = self._run
        if run.drawn and self.method.drawn == "epoch":
            return None
        run.loss_sum, run.loss_count = run.loss_sum + loss, run.loss_count + 1
        if run.position not in (run.phase.count // 2, run.phase.count):
            return None
        mean = run.loss_sum / run.loss_count
        run.loss_sum, run.loss_count = 0.0, 0
        return run.watch.loss_fault(self._sign() * mean)

    def _sign(self) -> int:
        """1 to minimise, −1 to maximise, 0 where the groups differ."""
        signs = {-1 if group["maximize"] else 1 for group in self.param_groups}
        return signs.pop() if len(signs) == 1 else 0

    def _enter(self, kind: Kind, count: int, total: int, sizes: tuple[int, ...] = ()) -> None:
        run = self._run
        blocks = 0 if kind == "smoothness" else self._blocks()
        run.phase = Phase(kind, run.phase.number + 1, count, total, self.n, self._seed, sizes, blocks)
        run.position = 0

    def _accept_point(self) -> None:
        """x is good: it becomes y, and x̃ of the epoch before is offered to the reservoir."""
        run = self._run
        self._eager.store("anchor")
        self._offer_output()
        if run.epoch > run.good_epoch:
            run.rollbacks = 0
        run.good_epoch, run.good_size, run.good_watch = run.epoch, run.anchor_size, replace(run.watch)

    def _roll_back(self, reason: str) -> None:
        """Go back to the last good point and try its epoch again with twice the L."""
        run = self._run
        self._eager.restore("anchor")
        run.epoch, run.anchor_size, run.watch = run.good_epoch, run.good_size, replace(run.good_watch)
        run.pending, run.depth = 0.0, -1
        run.rollbacks += 1
        tried = run.L
        run.L = 2 * (run.L or 0.0)
        self._begin_epoch()
        if run.rollbacks > MAX_ROLLBACKS:
            raise RuntimeError(
                f"gave up after {MAX_ROLLBACKS} roll-backs to epoch {run.epoch}: {reason} (with L = {tried:.3g}). "
                "The model is at the last good point. Give a larger L= or a smaller lr=, or look for samples with "
                "an extreme loss"
            )
        logger.warning("diverged: %s; back to epoch %d with L = %.3g", reason, run.epoch, run.L)

    @torch.no_grad()
    def _settle(self) -> None:
        """Never end in NaN: if the last step was not finite, go back to the last good point."""
        if self._run.good_epoch and not self._eager.finite:
            self._roll_back("the last step is not finite")

    # --- output -----------------------------------------------------------------------------------

    def _offer_output(self) -> None:
        """A one-slot weighted reservoir: keep x̃_j with probability weight_j / (sum of all weights so far)."""
        run = self._run
        if not run.pending:
            return
        run.output_weight += run.pending
        accepted = stream(self._seed, "output", run.phase.number).random() < run.pending / run.output_weight
        run.pending = 0.0
        if self._output == "weighted" and accepted:
            self._eager.store("output")

    @torch.no_grad()
    def load_output(self) -> None:
        """Put the model at the point that the method returns; with output="last" it is there already.

        With output="weighted" that is the reservoir's point once an epoch is complete. Going on from there begins
        with a new anchor.
        """
        self._settle()
        self._offer_output()
        if self._output == "weighted" and self._run.output_weight:
            self._eager.restore("output")
            self._begin_epoch()

    # --- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """As every optimizer's, with the state of the run under "vcsg"; loads with `weights_only=True`.

        Like those, it refers to the optimizer's tensors: save it or `copy.deepcopy` it before the next step.
        """
        saved = super().state_dict()
        saved["vcsg"] = {**self._settings(), "unit": self._unit, "run": self._run.state_dict()}
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
        run = Run.from_state_dict(saved["run"])
        super().load_state_dict(state_dict)
        # Torch casts what it loads to the parameter's dtype; means and tables of half-precision ones are wider.
        indices = itertools.chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        params = itertools.chain.from_iterable(group["params"] for group in self.param_groups)
        for index, p in zip(indices, params, strict=True):
            held = state_dict["state"].get(index, {})
            self.state[p] = {name: value.to(p.device, copy=True) for name, value in held.items()}
        self._run, self._unit, self._seed = run, saved["unit"], run.phase.seed
        self.record = self._told = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; only before the first step, for an anchor knows nothing of new parameters."""
        if hasattr(self, "_run") and self._run.steps:
            raise RuntimeError(
                f"{self._run.steps} steps were taken: parameter groups can be added only before the first one. Make a "
                "new optimizer with all parameters"
            )
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            _check_group(group)
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise
        if hasattr(self, "_run"):
            self._check_table()

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and deepcopy: all but the hooks, as torch has it, and what points back here."""
        left_out = ("step", "sampler", "_eager", "_zero_grad_profile_name", "_warned_capturable_if_run_uncaptured")
        own = {k: v for k, v in self.__dict__.items() if k not in left_out and not k.startswith("_optimizer_")}
        return {**own, "_buffers": self._eager.buffers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        buffers = state.pop("_buffers", None)
        super().__setstate__(state)
        if buffers is not None:
            self._eager, self.sampler = Eager(self, buffers), PhaseSampler(self._remaining)

    def _settings(self) -> dict[str, Any]:
        variance = "exact" if self._exact else "chunks"
        return {
            "method": repr(self.method),
            "n": self.n,
            "output": self._output,
            "variance": variance,
            "chunk": self._chunk,
        }

    # --- parts ------------------------------------------------------------------------------------

    def _closure_seed(self) -> int:
        return self._run.phase.seeds[self._run.position]

    def _step_size(self, group: dict[str, Any]) -> float:
        assert self._run.L is not None
        return float(group["lr"]) * self.method.gamma / (self._run.L * self._unit) * self._plan().factor

    def _remaining(self) -> tuple[Phase, int]:
        return self._run.phase, self._run.position

    def _plan(self) -> Plan:
        assert self._run.plan is not None
        return self._run.plan

    def _rule(self) -> Rule:
        return self.method.weights[self._plan().regime].at(self._run.epoch)

    def _batch_size(self) -> int:
        return self._run.phase.size(self._run.position)

    def _indices(self) -> list[int]:
        """The samples of the current batch, at most ten of them."""
        return self._run.phase.indices[self._run.phase.bounds(self._run.position)][:10].tolist()

    def _bad_start(self, fault: str) -> str:
        return f"{fault} at the starting point, before any step: look at the model and at the samples {self._indices()}"

    def _make_record(self, length: int) -> Record:
        run, plan = self._run, self._plan()
        assert run.L is not None
        return Record(
            epoch=run.epoch,
            regime=plan.regime,
            B=plan.B,
            b=plan.b,
            step_size=self._step_size(self.param_groups[0]),
            length=length,
            L=run.L,
            eps=plan.eps,
            anchor=run.anchor,
            ifo=run.ifo,
            passes=self.passes,
        )

    def _tell(self) -> None:
        if self.record is None or self.record is self._told:
            return
        self._told = self.record
        logger.debug("%s", self.record)
        if self._callback is not None:
            self._callback(self.record)


def _fault(loss: Any, vector: list[Tensor]) -> str | None:
    if not math.isfinite(float(loss)):
        return f"the loss is {float(loss)}"
    return None if all_finite(vector) else "the gradient is not finite"


def _check_group(group: dict[str, Any]) -> None:
    for p in group["params"]:
        if p.is_complex():
            raise TypeError("a parameter is complex: optimise torch.view_as_real of it")
        if not p.is_floating_point():
            raise TypeError(f"a parameter is {p.dtype}: give floating-point parameters")
    for name in ("lr", "weight_decay"):
        if not 0 <= group[name] < math.inf:
            raise ValueError(f"{name} = {group[name]!r}: give a finite number, at least 0")


def _check_options(
    n: int,
    lr: float | None,
    L: float | None,
    clip_norm: float | None,
    output: str,
    variance: str,
    chunk: int,
    seed: int,
) -> None:
    for name, value in (("n", n), ("chunk", chunk)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} = {value!r}: give a whole number of samples, at least 1")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed = {seed!r}: give a whole number, at least 0")
    for name, step in (("lr", lr), ("L", L), ("clip_norm", clip_norm)):
        if step is not None and not 0 < step < math.inf:
            raise ValueError(f"{name} = {step!r}: give a finite number above 0, or None")
    for name, choice, known in (
        ("output", output, ("last", "weighted")),
        ("variance", variance, ("chunks", "exact")),
    ):
        if choice not in known:
            raise ValueError(f"{name} = {choice!r}: choose {' or '.join(map(repr, known))}")
