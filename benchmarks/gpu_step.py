"""What a variance-reduced step costs on a GPU: SGD and SVRG as CUDA graphs, VCSG's norm test, and step by step.

For LeNet-300-100 (28×28), LeNet-5 and VGG-16 (3×32×32), random images, mini-batches of b = 1, 16, 64. All are driven
as `vcsg.fit` drives them: `advance` for the graphed engine, `batches` and `step` for the eager one; sampling, seeds,
checks and records are in the times. A time is the median over blocks of inner steps; anchors lie between and are not
timed. "SGD" is the family's own (weights 1, 0, 0), through the same engine and the same kernels.

Floors. Launches: the kernels of one evaluation of the gradient, counted by the profiler, times what one empty kernel
takes in a chain of a graph: SGD's chain cannot be shorter, and that of VR has one or two kernels more (x and y run
side by side). Bytes: SGD reads the weights twice, writes and reads a gradient, reads and writes the weights: 6P
numbers; VR does twice as much for the evaluations (weights twice, gradient written, each for x and y: 6P), reads both
gradients, m and x and writes x: 11P, and the norm test reads both gradients once more: 13P.

Step rules: momentum, Adam, Muon and `auto` at b = 256, over plain SGD with the same mini-batches.

Anchors: samples per second of an anchor of all samples (chunks of 1024, S* and ‖g‖² included) over those of plain
forward and backward passes over chunks of the same size, also replayed as a graph.

    python -m benchmarks.gpu_step [lenet-300-100] [lenet-5] [vgg-16] [--rules] [--tf32] [--bf16] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._autograd import DeviceType
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

from vcsg import FiniteSumOptimizer, Method, make
from vcsg.gpu.graphs import Samples
from vcsg.method.schedules import Given, PowerLaw
from vcsg.training.numerics import lay_out
from vcsg.workloads import lenet_5, lenet_300_100, vgg_16

DEVICE = torch.device("cuda", 0)
N, CHUNK, L = 16_384, 1024, 1e5
RULED_B = 256
"""The mini-batch at which step rules are compared."""
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "lenet-300-100": (lenet_300_100, (1, 28, 28), False),
    "lenet-5": (lambda: lenet_5(3, 32, 10), (3, 32, 32), False),
    "vgg-16": (lambda: vgg_16(3, 32, 10), (3, 32, 32), True),
}
"""Network, shape of an image, and whether channels_last is faster (measured: docs/performance.md)."""


def methods(b: int) -> dict[str, Method]:
    """Inner phases of N/b steps."""
    schedule = PowerLaw(Given(), b=b)
    return {
        "sgd": make("sgd", b=b),
        "svrg": Method("svrg", make("svrg").weights, schedule, "fixed"),
        "vcsg": Method("vcsg", {"": make("vcsg").weights["first"]}, schedule, "fixed"),
    }


class Case:
    """A network and images, made anew for every measurement."""

    def __init__(self, name: str, bf16: bool) -> None:
        build, shape, self.channels_last = NETS[name]
        torch.manual_seed(0)
        self.name, self._build, self._bf16 = name, build, bf16
        self.data = torch.randn(N, *shape, device=DEVICE), torch.randint(10, (N,), device=DEVICE)

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        model = self._build().to(DEVICE)
        lay_out(model, self.channels_last, DEVICE)
        return model

    def objective(self, model: nn.Module) -> Callable[[Any], Tensor]:
        def value(batch: Any) -> Tensor:
            with torch.autocast("cuda", torch.bfloat16, enabled=self._bf16, cache_enabled=False):
                return cross_entropy(model(batch[0]), batch[1])

        return value


def inner_times(case: Case, method: Method, graphed: bool, seconds: float = 0.5, least: int = 100) -> list[float]:
    """Microseconds per inner step, one number per block of at least so many steps."""
    model = case.model()
    objective = case.objective(model)
    small: dict[str, Any] = {"L": L} if method.needs_L else {"lr": 1e-5}
    optimizer = FiniteSumOptimizer(model.parameters(), N, method, chunk=CHUNK, **small)
    engine = optimizer.graphed(model, objective, Samples(case.data, tuple)) if graphed else None
    found: list[float] = []
    began = None
    for batch in optimizer.batches(case.data, passes=1e9):
        inner = optimizer.phase.kind == "inner"
        before = optimizer._state.steps
        torch.cuda.synchronize()
        start = time.perf_counter()
        done = optimizer.advance(engine, 256, float("inf"))[0] if engine is not None else 0
        if not done:

            def closure(batch: Any = batch) -> Tensor:
                loss = objective(batch)
                loss.backward()
                return loss.detach()

            optimizer.step(closure)
        torch.cuda.synchronize()
        took, steps = time.perf_counter() - start, optimizer._state.steps - before
        if inner and (steps >= least or not graphed):
            found.append(1e6 * took / steps)
        began = began or time.perf_counter()
        warm = 6 if graphed else 20
        if len(found) > 2 * warm and time.perf_counter() - began > seconds:
            return found[warm:]
        if time.perf_counter() - began > 20:
            return found[len(found) // 2 :]
    return found


def replayed(work: Callable[[], Any], repeats: int = 1, seconds: float = 0.2) -> float:
    """Microseconds of `work`, which is done `repeats` times in a graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            work()
    times: list[float] = []
    ended = time.perf_counter() + seconds
    while time.perf_counter() < ended or len(times) < 5:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end) / repeats)
    return statistics.median(times[len(times) // 2 :])


def ceilings() -> tuple[float, float]:
    """Bytes per second of a kernel that reads and writes large tensors, and microseconds of an empty one in a chain."""
    a, b = (torch.empty(2**29, device=DEVICE) for _ in range(2))
    copy = 2 * a.numel() * a.element_size() / (replayed(lambda: torch.neg(a, out=b)) * 1e-6)
    one = torch.zeros(1, device=DEVICE)
    return copy, replayed(lambda: one.add_(1), 500)


def kernels_of(case: Case, b: int) -> tuple[int, float]:
    """How many kernels one evaluation of loss and gradient has, and the microseconds that they take one by one."""
    model = case.model()
    objective, params = case.objective(model), list(model.parameters())
    batch = case.data[0][:b], case.data[1][:b]

    def evaluate() -> None:
        torch.autograd.grad(objective(batch), params)

    for _ in range(3):
        evaluate()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        for _ in range(10):
            evaluate()
        torch.cuda.synchronize()
    events = [e for e in profiler.key_averages() if e.device_type == DeviceType.CUDA]
    return round(sum(e.count for e in events) / 10), sum(e.self_device_time_total for e in events) / 10


def anchor_rates(case: Case) -> tuple[float, float, float]:
    """Samples per second: of anchors as graphs, of plain passes as a graph, and of plain passes step by step."""
    model = case.model()
    objective, params = case.objective(model), list(model.parameters())
    optimizer = FiniteSumOptimizer(model.parameters(), N, make("gd"), L=L, chunk=CHUNK)
    engine = optimizer.graphed(model, objective, Samples(case.data, tuple))
    found = []
    for _ in optimizer.batches(case.data, passes=12):
        torch.cuda.synchronize()
        start = time.perf_counter()
        done, _ = optimizer.advance(engine, 256, float("inf"))
        torch.cuda.synchronize()
        found.append(done / (time.perf_counter() - start))
    indices = torch.randperm(N, device=DEVICE)[:CHUNK]

    def plain() -> None:
        batch = tuple(t.index_select(0, indices) for t in case.data)
        torch.autograd.grad(objective(batch), params)

    took = replayed(plain)
    for _ in range(3):
        plain()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        plain()
    torch.cuda.synchronize()
    eager = 20 * CHUNK / (time.perf_counter() - start)
    return statistics.median(found[3:]), CHUNK / took * 1e6, eager


def rules_row(case: Case) -> dict[str, Any]:
    """The times of a step by the step rules."""
    times = {
        label: statistics.median(inner_times(case, make(label, b=RULED_B), graphed=True, least=16))
        for label in ("sgd", "momentum", "adam", "muon", "auto")
    }
    return {"net": case.name, "b": RULED_B, "rules": times}


def rows(names: list[str], bf16: bool, rules_alone: bool) -> Iterator[dict[str, Any]]:
    if rules_alone:
        yield from (rules_row(Case(name, bf16)) for name in names)
        return
    bandwidth, launch = ceilings()
    yield {"memory_TB_per_s": bandwidth / 1e12, "empty_kernel_us": launch}
    for name in names:
        case = Case(name, bf16)
        numbers = sum(p.numel() for p in case.model().parameters())
        for b in (1, 16, 64):
            count, alone = kernels_of(case, b)
            row: dict[str, Any] = {"net": name, "b": b, "kernels": count, "kernels_us": alone}
            for label, method in methods(b).items():
                row[label] = statistics.median(inner_times(case, method, graphed=True))
                torch.cuda.empty_cache()
            for label in ("svrg", "vcsg"):
                row[f"{label}_eager"] = statistics.median(inner_times(case, methods(b)[label], graphed=False))
            row["launch_floor"] = count * launch
            row["byte_floor"] = {
                k: 4 * p * numbers / bandwidth * 1e6 for k, p in (("sgd", 6), ("svrg", 11), ("vcsg", 13))
            }
            yield row
        yield rules_row(case)
        anchor, plain, eager = anchor_rates(case)
        yield {"net": name, "anchor": anchor, "plain": plain, "plain_eager": eager}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("nets", nargs="*", choices=[*NETS, []], help="all by default")
    parser.add_argument(
        "--tf32", action="store_true", help="TF32 for matrix products too (convolutions have it anyway)"
    )
    parser.add_argument("--bf16", action="store_true", help="evaluate in bfloat16 autocast")
    parser.add_argument("--rules", action="store_true", help="the step rules alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = given.tf32
    torch.backends.cudnn.benchmark = True
    precision = "bfloat16 autocast" if given.bf16 else "TF32" if given.tf32 else "float32 (convolutions TF32)"
    print(f"{torch.cuda.get_device_name(DEVICE)}, torch {torch.__version__}, {precision}; microseconds per step\n")
    head = f"{'':<14}{'b':>3} {'SGD':>8}{'SVRG':>8}{'VCSG':>8}  {'SVRG/SGD':>8}{'VCSG/SGD':>9}  "
    print(head + f"{'eager':>8}{'eager/graphed':>14}   floors: {'launches':>8}{'bytes SGD':>10}{'bytes VR':>9}")
    found = []
    for row in rows(given.nets or list(NETS), given.bf16, given.rules):
        found.append(row)
        if "sgd" in row:
            sgd, svrg, vcsg = row["sgd"], row["svrg"], row["vcsg"]
            print(
                f"{row['net']:<14}{row['b']:>3} {sgd:8.1f}{svrg:8.1f}{vcsg:8.1f}  {svrg / sgd:8.2f}{vcsg / sgd:9.2f}  "
                f"{row['vcsg_eager']:8.0f}{row['vcsg_eager'] / vcsg:14.1f}           {row['launch_floor']:8.1f}"
                f"{row['byte_floor']['sgd']:10.1f}{row['byte_floor']['vcsg']:9.1f}",
                flush=True,
            )
        elif "rules" in row:
            base = row["rules"]["sgd"]
            others = ", ".join(f"{label} {time / base:.2f}" for label, time in row["rules"].items() if label != "sgd")
            print(f"{row['net']:<14}{row['b']:>3} {base:8.1f}  step rules over SGD: {others}", flush=True)
        elif "anchor" in row:
            print(
                f"{row['net']:<14}anchor {row['anchor']:,.0f} samples/s, plain passes {row['plain']:,.0f} as a graph "
                f"(ratio {row['anchor'] / row['plain']:.3f}), {row['plain_eager']:,.0f} step by step",
                flush=True,
            )
        else:
            print(f"memory {row['memory_TB_per_s']:.2f} TB/s, empty kernel {row['empty_kernel_us']:.2f} µs", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
