"""The executor by CUDA graphs: inner steps and anchors without a wait of the host between them.

What `ClosureExecutor` does one batch at a time is done here for many steps at once, for data that are tensors on the
device. ∇f_I(x) and ∇f_I(y) are evaluated on two streams that fork and join in each step; or, for a small model, those
at y for many steps in one pass over all their samples (the anchor does not move meanwhile).
Weights, step sizes and the outcome of a test stay on the device (see `triton_kernels`). The numbers are those of the
eager run up to rounding.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Sequence
from operator import is_not
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from vcsg.gpu.graphs import Body, Graph, Replays, Samples, Uncapturable, equal
from vcsg.gpu.launching import FEW_STEPS, RULED_LAUNCHES, STEPS, Launch, Ruled, Tables, turned
from vcsg.method.definition import Method
from vcsg.method.step_rules import Orthogonal, Plain
from vcsg.method.weights import Constant, Rule, Tested, is_standard
from vcsg.run.closures import ClosureExecutor
from vcsg.run.estimator import combine
from vcsg.run.point import Point, dense
from vcsg.run.sampling import Phase

AHEAD = 2**27
"""The most bytes that the gradients of such a graph take together."""
GROUP_OPTIONS = ("weight_decay", "decoupled_weight_decay", "maximize")
"""The options of parameter groups that a graph has in it."""


class Form(NamedTuple):
    """The form of an inner step; steps of the same form share a graph."""

    size: int
    test: str
    """The name of the test; "" where the weights are constant."""
    anchor: bool
    """Whether ∇f_I(y) is needed."""
    mean: bool
    """Whether m is."""
    read: int
    """The level of the anchor."""
    write: int
    """The level that it moves to; 0 where it does not."""
    ruled: Constant | None = None
    """The weights, where the step is made of torch's own operations, for its rule or its average; else None."""


class _Directed(NamedTuple):
    """A direction v, and the gradient that it adds to what it remembers, of the parameters with a second moment."""

    v: list[Tensor]
    added: list[Tensor]


class Objective(nn.Module):
    """The mean loss of a batch as a module, of which the model is a part."""

    def __init__(self, model: nn.Module, objective: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Any) -> Tensor:
        return self.objective(batch)


def refusal(executor: ClosureExecutor, data: Sequence[Tensor]) -> str:
    """Why the run cannot go through graphs; "" where it can, as far as is known before it is tried."""
    params, course = executor.point.params, executor.course
    devices = {t.device for t in (*params, *executor.point.buffers.tensors, *data)}
    if any(device.type != "cuda" for device in devices):
        return "model and data are not on a CUDA device"
    if len(devices) > 1:
        return f"model and data are on {len(devices)} devices"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    dtypes = {p.dtype for p in params}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        return f"parameters are of {', '.join(sorted(map(str, dtypes)))}, not all of float32 or of float64"
    if any(p.layout is not torch.strided or not _dense(p) for p in params):
        return "a parameter is not dense in memory"
    if isinstance(course.method.step, Orthogonal) and any(turned(p) for p in params):
        return "a matrix lies in memory column by column"
    if course.share.ranks > 1:
        return f"{course.share.ranks} ranks exchange gradients in every step"
    if course.options.clip_norm is not None:
        return "clip_norm= needs the length of every step"
    return method_refusal(course.method)


def method_refusal(method: Method) -> str:
    """Why the steps of a method cannot be made of the kernels; "" where they can, in the first epoch at least."""
    if method.table:
        return f"{method.name} keeps a table of gradients"
    tested = [rule for rule in method.weights.values() if type(rule.at(1)) is Tested]
    if tested and not method.needs_L:
        return f"weights that depend on a test are not taken with the step rule {type(method.step).__name__}"
    rules = [rule.at(1) for rule in method.weights.values()]
    return next((_rule_refusal(rule) for rule in rules if not is_standard(rule)), "")


def _rule_refusal(rule: Rule) -> str:
    return f"the rule {type(rule).__name__} forms its direction by code of its own"


def _dense(p: Tensor) -> bool:
    """Whether the numbers of a tensor lie side by side, in any order of its axes."""
    return p.numel() == 0 or 1 + sum((n - 1) * s for n, s in zip(p.shape, p.stride(), strict=True)) == p.numel()


class GraphExecutor:
    """Executes many steps of a phase at once.

    Args:
        executor: the one that does single steps, with the course and the point that both work on.
        model: what is trained.
        objective: batch → its mean loss.
        samples: where batches come from.
    """

    outside = ""
    """Why a part of a step is left out of the graphs: none is."""

    def __init__(
        self, executor: ClosureExecutor, model: nn.Module, objective: Callable[[Any], Tensor], samples: Samples
    ) -> None:
        if reason := refusal(executor, samples.tensors):
            raise Uncapturable(reason)
        self._single, self._course, self._objective = executor, executor.course, objective
        self._module = Objective(model, objective)
        self._device = self._point.params[0].device
        self._replays, self._side = Replays(self._device, samples), torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._buffers, self._scratch = self._point.buffers.tensors, self._point.buffers.copies()
        self._tables: Tables | None = None
        self._held: list[Any] = []
        self._replays.probe(self._try)
        self._batched = not self._scratch and self._replays.works(lambda batches: self._all_at("anchor", batches * 2))

    def _try(self, batches: list[Any]) -> None:
        self._copy_buffers()
        with self._point.pointed_at("", self._scratch):
            self._gradient(batches[0])
            if any(map(is_not, self._point.buffers.tensors, self._buffers)):
                raise Uncapturable("a buffer of the model is assigned anew in another form, or is in two places")

    @property
    def _point(self) -> Point:
        return self._single.point

    @property
    def captured(self) -> tuple[int, float]:
        """How many graphs were captured, and the seconds that it took."""
        return self._replays.captured, self._replays.seconds

    def close(self) -> None:
        """Give the memory of all graphs back; those that are needed again are captured again."""
        self._replays.clear()

    def advance(self, most: int, limit: float) -> tuple[int, float]:
        """Do up to `most` steps of the current phase, to the first with which `limit` gradients are counted.

        Returns the samples of those steps, and the sum of their losses. 0 samples: the next step is not one of those
        that are done here.
        """
        course = self._course
        if self._point.refresh() and self._single.behind:
            course.begin_anew()
        state, count = course.state, course.ready(most, limit)
        if not count:
            return 0, 0.0
        self._look_up()
        phase, first = state.phase, state.position
        sizes = [phase.size(k) for k in range(first, first + count)]
        losses, others = zip(
            *(self._anchor if phase.kind == "anchor" else self._inner)(phase, first, sizes), strict=True
        )
        if phase.kind == "anchor":
            course.take_chunks(losses, others)
            self._single.close_anchor()
        else:
            course.take_steps(losses, others)
        done = sizes[: len(losses)]
        return sum(done), sum(size * loss for size, loss in zip(done, losses, strict=True))

    def _look_up(self) -> None:
        """Forget all graphs where what they hold has changed: a state was loaded, or an option of a group."""
        self._point.buffers.hold(self._buffers)
        self._buffers = self._point.buffers.tensors
        names = ["anchor"]
        names += ["mean"] if self._course.method.anchored(self._course.state.epoch) else []
        names += ["output"] if self._course.options.output == "average" else []
        held = [*(self._point.vector(name) for name in names), self._point.second_moments()]
        now: list[Any] = [t.data_ptr() for vector in (self._point.params, *held, self._buffers) for t in vector]
        now += [tuple(group[name] for name in GROUP_OPTIONS) for group in self._point.groups]
        if now != self._held:
            self._replays.clear()
            groups = self._point.groups
            decays = [self._point.decay(g, p) for g in groups for p in g["params"] if p.requires_grad]
            self._held, self._tables = now, Tables(self._point.params, decays, self._replays.set, self._point.rule)

    # --- inner steps

    def _inner(self, phase: Phase, first: int, sizes: list[int]) -> list[list[float]]:
        """Take inner steps; returns the loss of each at x and at the anchor."""
        course, tables, rule = self._course, self._tables, self._course.rule
        assert tables is not None
        if not is_standard(rule):
            raise Uncapturable(_rule_refusal(rule))
        tables.choose(rule, self._point.step_sizes(course.step_size))
        levels, ruled = course.levels(len(sizes)), self._ruled(rule)
        forms = [form(rule, size, *level, ruled) for size, level in zip(sizes, levels, strict=True)]
        upload = self._upload_numbers(len(sizes)) if ruled else None

        def choose(k: int) -> tuple[Graph, int]:
            graph, count = self._graph(forms[k:], first + k)
            if upload is not None:
                tables.numbers[:count].copy_(upload[k : k + count])
            return graph, count

        return self._replays.run(phase, first, len(sizes), choose)

    def _ruled(self, rule: Rule) -> Constant | None:
        """The weights of a step that the kernels do not know: for its step rule, its average or its lack of anchors."""
        course = self._course
        if course.method.needs_L and course.options.output != "average" and course.method.drawn != "never":
            return None
        if type(rule) is not Constant:
            raise Uncapturable("weights that depend on a test are taken with plain steps alone, without an average")
        return rule

    def _upload_numbers(self, count: int) -> Tensor:
        """The numbers of the next steps on the device: both corrections of a start at 0, the weight of the average."""
        steps, second = self._course.step_numbers(count), self._point.second_moments()
        if steps[0].moment == 1 and second:
            torch._foreach_zero_(second)
        corrections = [self._point.correction(numbers) for numbers in steps]
        rows = [[c.first, c.second, numbers.average or 0.0] for c, numbers in zip(corrections, steps, strict=True)]
        assert self._tables is not None
        return torch.tensor(rows, dtype=self._tables.dtype).to(self._device)

    def _graph(self, forms: list[Form], position: int) -> tuple[Graph, int]:
        """The graph for the next steps, and how many it has."""
        this, ahead = forms[0], self._ahead(forms[0])
        most = STEPS if ahead or (this.ruled and not this.anchor and self._small) else FEW_STEPS
        # At x = y a test is a tie, and only evaluations that are equal bit by bit leave it one.
        alike = 1 if this.test and position == 0 else equal(forms[:most])
        return self._replays.series(
            this, alike, most, lambda count: self._steps(this, count, ahead and count > 1), this.size
        )

    def _ahead(self, this: Form) -> bool:
        """Whether the gradients at y of all steps of a graph are evaluated at once."""
        return self._batched and not this.write and self._small

    @property
    def _small(self) -> bool:
        """Whether the model is so small that a graph may hold the gradients of many steps."""
        assert self._tables is not None
        return STEPS * self._tables.bytes <= AHEAD

    def _steps(self, this: Form, count: int, ahead: bool) -> Body:
        """The work of some steps of that form."""
        tables, point = self._tables, self._point
        assert tables is not None
        launches = [tables.launches(1 if this.ruled is None else RULED_LAUNCHES) for _ in range(count)]
        read, written = this.read or "", this.write or ""
        mean = point.vector(f"mean{read}") if this.mean else []
        moved_mean = point.vector(f"mean{written}") if this.mean else []
        moved_point = point.vector(f"anchor{written}") if this.mean and self._course.remembers_point else []
        at = f"anchor{read}"
        none = torch.zeros((), device=self._device)

        def body(batches: list[Any], measured: Tensor) -> None:
            at_anchor = self._all_at(at, batches) if ahead and this.anchor else []
            losses, others = [], []
            for k, batch in enumerate(batches):
                if this.anchor and not ahead:
                    (loss, now), (beside, anchor) = self._both(batch, at)
                else:
                    loss, now = self._gradient(batch)
                    beside, anchor = at_anchor[k] if this.anchor else (none, [])
                losses.append(loss)
                others.append(beside)
                if this.ruled is not None:
                    directed = self._direction(this, launches[k], now, anchor, mean)
                    self._ruled_step(this, launches[k], directed, (moved_point, moved_mean), tables.numbers[k])
                else:
                    rows = [now, anchor, mean, point.params, moved_point, moved_mean]
                    launches[k][0].descend(rows, this.test, moves=this.write > 0)
            _note(measured, losses, others)

        return body

    def _direction(
        self, this: Form, launches: list[Launch], now: list[Tensor], anchor: list[Tensor], mean: list[Tensor]
    ) -> _Directed:
        """v, and the gradient that it adds to what it remembers, where that is asked for; the stacks learn ‖v‖²."""
        assert this.ruled is not None
        point, weights = self._point, this.ruled.weights
        if this.write and this.read == this.write and not this.anchor and weights.now + weights.mean == 1:
            launches[0].remember(now, mean)
            return _Directed(mean, [now[k] for k in point.adaptive])
        combine(this.ruled, now, anchor, mean)
        [numbers] = self._course.step_numbers()
        launches[0].remember(now, [])
        return _Directed(now, point.added(now, mean, numbers))

    def _ruled_step(
        self, this: Form, launches: list[Launch], directed: _Directed, moved: tuple[list[Tensor], list[Tensor]],
        numbers: Tensor,
    ) -> None:  # fmt: skip
        """x ← x − η·P(v), as `Point.descend`; y and m move, and x enters the average."""
        point, (v, added), tables = self._point, directed, self._tables
        assert tables is not None
        if this.write:
            for target, source in zip(moved, (point.params, v), strict=True):
                if target and target is not source:
                    torch._foreach_copy_(target, source)
        ruled = None
        if not isinstance(point.rule, Plain):
            if tables.stacks.stacked:
                launches[1].stack(v)
            ruled = Ruled(tables.stacks.iterated(), added, point.second_moments())
        average = point.vector("output") if self._course.options.output == "average" else []
        launches[2].finish(v, point.params, average, numbers, ruled)

    def _gradient(self, batch: Any) -> tuple[Tensor, list[Tensor]]:
        """The loss and the gradient where the parameters are."""
        params = self._point.params
        with torch.enable_grad():
            loss = self._objective(batch)
            found = torch.autograd.grad(loss, params, allow_unused=True)
        self._point.buffers.hold(self._buffers)  # a graph finds them where they were
        return loss.detach(), self._point.regularised([_laid_out(p, g) for p, g in zip(params, found, strict=True)])

    def _both(self, batch: Any, name: str) -> tuple[tuple[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]:
        """Loss and gradient at x, and at the anchor of that name, at the same time."""
        current = torch.cuda.current_stream(self._device)
        self._copy_buffers()
        self._side.wait_stream(current)
        here = self._gradient(batch)
        with torch.cuda.stream(self._side), self._point.pointed_at(name, self._scratch):
            there = self._gradient(batch)
        current.wait_stream(self._side)
        return here, there

    def _all_at(self, name: str, batches: list[Any]) -> list[tuple[Tensor, list[Tensor]]]:
        return all_at(self._module, self._point, name, batches)

    def _copy_buffers(self) -> None:
        if self._scratch:
            torch._foreach_copy_(self._scratch, self._buffers)

    # --- anchors

    def _anchor(self, phase: Phase, first: int, sizes: list[int]) -> list[list[float]]:
        """Take chunks into m; returns the loss and ‖g_k − m‖² of each."""
        tables = self._tables
        assert tables is not None
        if first == 0:
            torch._foreach_zero_(self._point.vector("mean"))
        before = self._course.state.anchor_sum.samples
        shares = [size / (before + total) for size, total in zip(sizes, itertools.accumulate(sizes), strict=True)]
        uploaded = torch.tensor(shares, dtype=tables.dtype).to(self._device)

        def choose(k: int) -> tuple[Graph, int]:
            alike = equal(sizes[k : k + FEW_STEPS])
            graph, count = self._replays.series(("anchor", sizes[k]), alike, FEW_STEPS, self._chunks, sizes[k])
            tables.shares[:count].copy_(uploaded[k : k + count])
            return graph, count

        return self._replays.run(phase, first, len(sizes), choose)

    def _chunks(self, count: int) -> Body:
        """The work of some chunks of an anchor."""
        tables = self._tables
        assert tables is not None
        launches = [tables.launch() for _ in range(count)]

        def body(batches: list[Any], measured: Tensor) -> None:
            losses, distances = [], []
            for k, (batch, launch) in enumerate(zip(batches, launches, strict=True)):
                self._copy_buffers()
                with self._point.pointed_at("", self._scratch):
                    loss, gradient = self._gradient(batch)
                losses.append(loss)
                distances.append(launch.absorb(gradient, self._point.vector("mean"), tables.shares[k]))
            _note(measured, losses, distances)

        return body


def all_at(module: Objective, point: Point, name: str, batches: list[Any]) -> list[tuple[Tensor, list[Tensor]]]:
    """Loss and gradient at the anchor of that name for several batches, in one pass over all their samples."""
    params = point.params
    labels = {id(p): label for label, p in module.named_parameters()}
    values = {labels[id(p)]: y for p, y in zip(params, point.vector(name), strict=True)}

    def loss(at: dict[str, Tensor], batch: Any) -> Tensor:
        return functional_call(module, at, (batch,))  # type: ignore[no-any-return]

    found, losses = vmap(grad_and_value(loss), in_dims=(None, 0))(values, _stacked(batches))
    stacks = [found[labels[id(p)]] for p in params]
    with point.pointed_at(name, []):
        return [
            (losses[k], point.regularised([_laid_out(p, g[k]) for p, g in zip(params, stacks, strict=True)]))
            for k in range(len(batches))
        ]


def form(rule: Rule, size: int, read: int, write: int, ruled: Constant | None = None) -> Form:
    """The form of a step with this many samples, from one level of anchors to another."""
    anchor = any(w.anchor for w in rule.choices)
    mean = any(w.mean for w in rule.choices)
    return Form(size, rule.test if type(rule) is Tested else "", anchor, mean, read, write, ruled)


def _note(measured: Tensor, losses: list[Tensor], others: list[Tensor]) -> None:
    """Write what the steps of a graph measured, all at once."""
    measured[:, 0].copy_(torch.stack(losses))
    measured[:, 1].copy_(torch.stack(others))


def _laid_out(p: Tensor, gradient: Tensor | None) -> Tensor:
    """A gradient that lies in memory as its parameter does."""
    gradient = dense(p, gradient)
    return gradient if gradient.stride() == p.stride() else torch.empty_like(p).copy_(gradient)


def _stacked(batches: list[Any]) -> Any:
    """Batches of one form as one, along a new first axis."""
    first = batches[0]
    if isinstance(first, Tensor):
        return torch.stack(batches)
    if isinstance(first, dict):
        return {name: _stacked([batch[name] for batch in batches]) for name in first}
    return type(first)(_stacked(list(values)) for values in zip(*batches, strict=True))
