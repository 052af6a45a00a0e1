"""What variance reduction costs beyond the gradients it needs: ratios, each measured in one run. Run by `make bench`.

LeNet-300-100 on mnist-mini, on the CPU with one thread. The optimizers are driven as a user drives them: `batches`
yields the data, `step(closure)` does the work, and the closure is the ordinary one (zero_grad, forward, backward).

Inner step over two passes, for mini-batches of b samples. Ours: the next batch out of `batches` and one `step` of the
inner phase, so everything that belongs to such a step: drawing samples and seeds, the gathering of the batch, two
evaluations of the closure, the weights, the step itself, the end of the phase. Anchor phases run in between and are not
timed. Bare: the same gathering (index_select of samples that were drawn beforehand) and the same closure twice; no
update. The weights are constant (BatchingSVRG) or follow VCSG's norm test; sizes and steps are the same in both.

By hand: the same closure and the same step as a loop of torch calls over flat vectors, without a library around them:
no sampling, seeds, checks, records or hooks. What it takes beyond two passes is what the second point, the copies to
flat vectors and the arithmetic of the step cost.

Without looking at closures: the same optimizer, made blind to what closures do to gradients and to rows of a batch.

Anchor over plain loop, for anchors of B samples. Ours: a whole anchor phase of a running optimizer, chunk by chunk, so
drawing samples, gathering, the closure, mean gradient and variance, checks, the snapshot and the plan of the epoch; the
inner phases run in between and are not timed. Plain: for the same samples in chunks of the same sizes, gather the
chunk, zero_grad, forward, backward.

Either ratio is the median over interleaved pairs (ours, bare, ours, bare, …), given with its quartiles.

Extra memory: the peak of what torch's CPU allocator handed out in a run, as its profiler reports every allocation, less
the same of a plain loop (gather, zero_grad, forward, backward, p ← p − η·p.grad) over batches of the same sizes, in
units of the parameters. The run has everything: first anchor, estimate of L, inner steps, later anchors. It takes 64
images in batches of at most 8, so that activations are small beside the parameters. VCSG, and of the methods without an
anchor momentum, Adam, Muon and `auto`, whose output is an average.

No ratio is asserted: they belong to a machine. One that misses its target is printed as it is.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

from vcsg import FiniteSumOptimizer, Method, make
from vcsg.method.schedules import Given, PowerLaw
from vcsg.run.sampling import Phase
from vcsg.workloads import lenet_300_100, mnist_mini

Data = tuple[Tensor, Tensor]
PAIRS = 41
INNER_SECONDS = 0.04
"""About how long one side of an inner-step pair runs."""
L = 100.0
"""Large, so that no run diverges; the time of a step does not depend on it."""


class Row(NamedTuple):
    measured: str
    value: str
    target: str = ""
    verdict: str = ""


def ratio_row(measured: str, pairs: list[tuple[float, float]], target: float | None = None) -> Row:
    """The median and quartiles of ours/bare over the pairs."""
    low, middle, high = statistics.quantiles((ours / bare for ours, bare in pairs), n=4)
    value = f"{middle:.3f} [{low:.3f}, {high:.3f}]"
    return Row(measured, value) if target is None else Row(measured, value, *judged(middle, target))


def judged(value: float, target: float) -> tuple[str, str]:
    return f"≤ {target:g}", "met" if value <= target else "missed"


# --- the plain side -------------------------------------------------------------------------------


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return lenet_300_100()


def make_closure(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor):
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        return loss

    return closure


def gather(data: Data, indices: Tensor) -> Data:
    """A batch as `batches` gathers it."""
    return data[0].index_select(0, indices), data[1].index_select(0, indices)


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Running:
    """An optimizer at work, driven batch by batch."""

    def __init__(self, data: Data, method: Method) -> None:
        self.model = make_model()
        self.optimizer = FiniteSumOptimizer(self.model.parameters(), len(data[0]), method, L=L)
        self._batches: Iterator[Data] = self.optimizer.batches(data, passes=1e9)

    def step(self) -> None:
        inputs, targets = next(self._batches)
        self.optimizer.step(make_closure(self.model, self.optimizer, inputs, targets))

    def inner_seconds(self, steps: int) -> float:
        """The time of the next `steps` inner steps; what comes between them is not counted."""
        total = 0.0
        while steps:
            inner = self.optimizer.phase.kind == "inner"
            seconds = timed(self.step)
            if inner:
                total, steps = total + seconds, steps - 1
        return total

    def next_anchor(self) -> Phase:
        """Go on to the beginning of the next anchor."""
        while self.optimizer.phase.kind != "anchor":
            self.step()
        return self.optimizer.phase

    def finish_phase(self) -> None:
        phase = self.optimizer.phase
        while self.optimizer.phase is phase:
            self.step()


# --- inner steps ----------------------------------------------------------------------------------


def constant_weights(b: int) -> Method:
    return make("batching-svrg", b=b)


def norm_test(b: int) -> Method:
    """The weights of VCSG's first regime with the sizes and steps of BatchingSVRG."""
    return Method("norm-test", {"": make("vcsg").weights["first"]}, PowerLaw(Given(), b=b), "geometric")


class BarePasses:
    """Times two evaluations of the closure on each of a cycle of mini-batches."""

    def __init__(self, data: Data, b: int) -> None:
        self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters())  # for its zero_grad alone
        generator = torch.Generator().manual_seed(0)
        self._data = data
        self._indices = cycle(torch.randperm(len(data[0]), generator=generator).split(b)[: len(data[0]) // b])

    def seconds(self, batches: int) -> float:
        began = time.perf_counter()
        for _ in range(batches):
            closure = make_closure(self.model, self.optimizer, *gather(self._data, next(self._indices)))
            closure()
            closure()
        return time.perf_counter() - began


class ByHand(BarePasses):
    """Times the step x ← x − ηv of SVRG, or that of VCSG's norm test, as few torch calls as it takes."""

    def __init__(self, data: Data, b: int, tested: bool) -> None:
        super().__init__(data, b)
        self._tested, params = tested, list(self.model.parameters())
        sizes = [p.numel() for p in params]
        self._x, self._y, self._m = (torch.cat([p.detach().flatten() for p in params]) for _ in range(3))
        self._m.mul_(1e-3)
        self._points = [
            [part.view_as(p) for part, p in zip(flat.split(sizes), params, strict=True)] for flat in (self._y, self._x)
        ]
        self._slots = [torch.empty_like(self._x), torch.empty_like(self._x)]
        self._grads = [
            [part.view_as(p) for part, p in zip(flat.split(sizes), params, strict=True)] for flat in self._slots
        ]
        self._params = params

    @torch.no_grad()
    def inner_seconds(self, steps: int) -> float:
        at_y, at_x = self._slots
        began = time.perf_counter()
        for _ in range(steps):
            closure = make_closure(self.model, self.optimizer, *gather(self._data, next(self._indices)))
            for point, slot in zip(self._points, self._grads, strict=True):
                for p, values in zip(self._params, point, strict=True):
                    p.data = values
                with torch.enable_grad():
                    closure()
                torch._foreach_copy_(slot, [p.grad for p in self._params if p.grad is not None])
            if not self._tested:
                self._x.add_(at_x.sub_(at_y).add_(self._m), alpha=-1e-3)
            elif at_x.norm() < at_y.norm():
                self._x.add_(at_x.lerp_(torch.add(self._m, at_y, alpha=-1, out=at_y), 0.1), alpha=-1e-3)
            else:
                self._x.add_(at_x.lerp_(torch.add(self._m, at_y, alpha=-9, out=at_y), 0.1), alpha=-1e-3)
        return time.perf_counter() - began


def inner_row(measured: str, ours: Running | ByHand, bare: BarePasses, target: float | None) -> Row:
    ours.inner_seconds(20)
    steps = max(5, round(INNER_SECONDS / (bare.seconds(20) / 20)))
    pairs = [(ours.inner_seconds(steps), bare.seconds(steps)) for _ in range(PAIRS)]
    return ratio_row(f"{measured} / two passes", pairs, target)


def looks_row(data: Data) -> Row:
    """Steps whose closure is looked at as ever, over such that are taken blindly; b = 1, where that costs most."""
    ours, blind = Running(data, constant_weights(1)), Running(data, constant_weights(1))
    executor = blind.optimizer._executor
    executor._guard.guarded = lambda closure, params: closure  # type: ignore[method-assign]
    executor._model_rows.checked = lambda closure, params, samples: closure  # type: ignore[method-assign]
    pairs = [(ours.inner_seconds(100), blind.inner_seconds(100)) for _ in range(1 + PAIRS)]
    return ratio_row("inner step, b = 1 / without looking at closures", pairs[1:], 1.01)


# --- anchors --------------------------------------------------------------------------------------


def anchor_row(data: Data, B: int, target: float) -> Row:
    ours = Running(data, make("batching-svrg", B=B, b=B // 4))

    def plain(phase: Phase) -> None:
        sizes = [phase.size(k) for k in range(phase.count)]
        for indices in torch.from_numpy(phase.indices).split(sizes):
            make_closure(ours.model, ours.optimizer, *gather(data, indices))()

    pairs = []
    for _ in range(1 + PAIRS):
        phase = ours.next_anchor()
        pairs.append((timed(ours.finish_phase), timed(partial(plain, phase))))
    return ratio_row(f"anchor / plain loop, B = {B}, {phase.count} chunks", pairs[1:], target)


# --- memory ---------------------------------------------------------------------------------------


def peak_bytes(work: Callable[[], Any]) -> int:
    """The most that torch's CPU allocator had handed out at once for `work`, on top of what there was before."""
    gc.collect()  # an optimizer lies in a reference cycle: the one before must not be freed while we count
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    assert profiler.profiler is not None
    events = profiler.profiler.kineto_results.events()
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def run_method(method: str, data: Data, sizes: list[int], **options: Any) -> None:
    """A method with mini-batches and chunks of 8, L estimated; appends the size of every batch to `sizes`."""
    model = make_model()
    options |= {"b_min": 8} if method == "vcsg" else {"b": 8}
    optimizer = FiniteSumOptimizer(model.parameters(), len(data[0]), method, chunk=8, **options)
    for inputs, targets in optimizer.batches(data, passes=40):
        sizes.append(len(inputs))
        optimizer.step(make_closure(model, optimizer, inputs, targets))


def run_plain(data: Data, sizes: list[int]) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    for size in sizes:
        closure = make_closure(model, optimizer, *gather(data, torch.randperm(len(data[0]))[:size]))
        optimizer.step(closure)


def memory_row(data: Data, name: str, method: str, target: float | None = None, **options: Any) -> Row:
    sizes: list[int] = []
    ours = peak_bytes(lambda: run_method(method, data, sizes, **options))
    unit = sum(p.numel() * p.element_size() for p in make_model().parameters())
    extra = (ours - peak_bytes(lambda: run_plain(data, sizes))) / unit
    row = Row(f"extra memory / parameters, {name}", f"{extra:.2f}")
    return row if target is None else Row(row.measured, row.value, *judged(round(extra, 2), target))


# --- the report -----------------------------------------------------------------------------------


def rows(data: Data) -> Iterator[Row]:
    for name, method in (("constant weights", constant_weights), ("norm test", norm_test)):
        for b in (1, 4, 16, 64):
            bare, target = BarePasses(data, b), 1.15 if b == 64 else None
            yield inner_row(f"inner step, b = {b}, {name}", Running(data, method(b)), bare, target)
        yield inner_row(f"by hand, b = {b}, {name}", ByHand(data, b, method is norm_test), bare, None)
    yield looks_row(data)
    for B in (10_000, 1_000, 100):
        yield anchor_row(data, B, 1.05)
    few = data[0][:64], data[1][:64]
    for comparison in ("norm", "lemma", "elementwise"):
        yield memory_row(few, f'"last", {comparison} test', "vcsg", 3, output="last", comparison=comparison)
    yield memory_row(few, '"weighted", norm test', "vcsg", 4, output="weighted")
    for remembering in ("momentum", "adam", "muon", "auto"):
        yield memory_row(few, remembering, remembering)


def main() -> None:
    torch.set_num_threads(1)
    began = time.perf_counter()
    data = mnist_mini().train
    print(f"LeNet-300-100 on mnist-mini (n = {len(data[0]):,}), CPU, 1 thread, torch {torch.__version__}")
    print(f"time: median [quartiles] of {PAIRS} interleaved pairs; memory: peak of torch's CPU allocator over a run\n")
    for row in rows(data):
        print(f"{row.measured:<52} {row.value:<22} {row.target:<7} {row.verdict}".rstrip(), flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    main()
