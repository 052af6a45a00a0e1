"""What several ranks gain: an anchor, an inner step and a reduction, measured on one and two processes, then on paper.

    python -m benchmarks.scaling [--pairs 15]

LeNet-300-100 (P = 266,610 parameters, float32) on mnist-mini (n = 10,000), two processes of one thread each, gloo over
the loopback interface. Both are started once; in turn, rank 0 works alone (a group of its own, while rank 1 waits) and
both work together, so that load from elsewhere meets both alike. Given are medians over these pairs and the quartiles.
Between the two, both work alone at the same time and exchange nothing: what the machine itself does not give twice
(cores that others use, memory bandwidth, clock) shows there, and the efficiency of the library is that against it.

- anchor: a whole anchor of n samples in chunks of 1000, from the first batch to the plan of the epoch, its reduction
  included. Efficiency = seconds of one / (2 · seconds of two); "of the machine's": seconds of each of two that work
  apart / (2 · seconds of two).
- inner step of SVRG: the next batch, two evaluations, the reduction, the update; blocks of 30 steps.
- all_reduce of P + 3 numbers, and of one number: what a step exchanges, and the latency alone.
- calls and bytes: every all_reduce of a step is counted as the library calls it.

On paper, for R ranks: a ring reduction of S bytes takes 2(R − 1)·hop + 2(R − 1)/R·S/bandwidth; an anchor of K chunks
⌈K/R⌉ times the seconds of a chunk and one reduction of each kind; an inner step f + g·⌈b/R⌉ and a reduction, f and g
from two mini-batch sizes on one rank. hop and bandwidth are those measured here between two processes of one machine,
and every rank is assumed to have a core to itself, at the speed measured. Real networks differ: put in your own.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
import torch.multiprocessing
from benchmarks.counting import table
from torch import Tensor
from torch._C._distributed_c10d import TCPStore
from torch.multiprocessing.spawn import spawn
from torch.nn.functional import cross_entropy

from vcsg import GD, SVRG, VCSG, FiniteSumOptimizer
from vcsg.workloads import lenet_300_100, mnist_mini

CHUNK = 1000
STEPS = 30
SIZES = (64, 512)
Times = dict[str, list[float]]


class Work:
    """An optimizer with its data: `advance` takes one step of its loop and tells of which kind it was."""

    def __init__(
        self, make: Callable[..., FiniteSumOptimizer], group: dist.ProcessGroup | None, **options: Any
    ) -> None:
        torch.manual_seed(0)
        self.data = mnist_mini().train
        self.model = lenet_300_100()
        self.optimizer = make(
            self.model.parameters(), n=len(self.data[0]), L=100.0, chunk=CHUNK, group=group, **options
        )
        self.batches: Iterator[tuple[Tensor, Tensor]] = self.optimizer.batches(self.data, passes=math.inf)

    def advance(self) -> str:
        kind = self.optimizer.phase.kind
        images, labels = next(self.batches)

        def closure() -> Tensor:
            self.optimizer.zero_grad()
            loss = cross_entropy(self.model(images), labels)
            loss.backward()
            return loss

        self.optimizer.step(closure)
        return kind

    def anchor(self) -> float:
        """Seconds of one anchor."""
        epoch, began = self.optimizer.epoch, time.perf_counter()
        while self.optimizer.epoch == epoch:
            self.advance()
        return time.perf_counter() - began

    def inner(self) -> float:
        """Seconds of one inner step, the mean of some."""
        seconds, steps = 0.0, 0
        while steps < STEPS:
            began = time.perf_counter()
            if self.advance() == "inner":
                seconds, steps = seconds + time.perf_counter() - began, steps + 1
        return seconds / steps


def reduction(numbers: int) -> float:
    """Seconds of one all_reduce, the mean of some."""
    buffer, began = torch.zeros(numbers), time.perf_counter()
    for _ in range(STEPS):
        dist.all_reduce(buffer)
    return (time.perf_counter() - began) / STEPS


def measure(rank: int, port: int, pairs: int, results: Any) -> None:
    torch.set_num_threads(1)
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=TCPStore("127.0.0.1", port), rank=rank, world_size=2)
    singles = [dist.new_group([r]) for r in range(2)]
    tasks: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {}
    one, two = Work(GD, singles[rank]), Work(GD, None)
    tasks["anchor"] = one.anchor, two.anchor
    for b in SIZES:
        one, two = Work(SVRG, singles[rank], b=b), Work(SVRG, None, b=b)
        tasks[f"inner step, b = {b}"] = one.inner, two.inner
    times: Times = {}
    for _ in range(pairs + 1):  # the first one warms up
        for name, (alone, together) in tasks.items():
            for way, work in {"1": alone if rank == 0 else float, "apart": alone, "2": together}.items():
                dist.barrier()
                times.setdefault(f"{name}, {way}", []).append(work())
        times.setdefault("latency", []).append(reduction(1))
        times.setdefault("reduction", []).append(reduction(parameters() + 3))
    counts = counted()
    if rank == 0:
        results.put(({name: found[1:] for name, found in times.items()}, counts))
    dist.barrier()
    dist.destroy_process_group()


class Count(NamedTuple):
    what: str
    steps: int
    calls: float
    numbers: float
    size: float


def counted() -> list[Count]:
    """The reductions of steps, by kind, and of the last step of an anchor."""
    found: dict[str, list[list[Tensor]]] = {}
    sent: list[Tensor] = []
    reduce = dist.all_reduce

    def counting(tensor: Tensor, **options: Any) -> Any:
        sent.append(tensor)
        return reduce(tensor, **options)

    for name, work in {
        "constant weights (SVRG)": Work(SVRG, None, b=64),
        "norm test (VCSG, first regime)": Work(VCSG, None, eps=1e6, b_min=16, B_min=2000, first_epoch=False),
    }.items():
        work.advance()  # the ranks meet
        with mock.patch.object(dist, "all_reduce", counting):
            for _ in range(800):
                record = work.optimizer.record
                tested = record is not None and record.regime == "first"
                sent.clear()
                kind = work.advance()
                if kind == "anchor":
                    ends = work.optimizer.phase.kind != "anchor"
                    found.setdefault("end of an anchor" if ends else "another step of an anchor", []).append([*sent])
                elif tested or name.startswith("constant"):
                    found.setdefault(f"inner step, {name}", []).append([*sent])
    return [summary(what, steps) for what, steps in found.items()]


def summary(what: str, steps: list[list[Tensor]]) -> Count:
    calls = statistics.fmean(len(step) for step in steps)
    numbers = statistics.fmean(sum(t.numel() for t in step) for step in steps)
    size = statistics.fmean(sum(t.numel() * t.element_size() for t in step) for step in steps)
    return Count(what, len(steps), calls, numbers, size)


def parameters() -> int:
    return sum(p.numel() for p in lenet_300_100().parameters())


def quartiles(values: list[float], unit: float) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle * unit:.3g} ({low * unit:.3g} to {high * unit:.3g})"


def report(times: Times) -> None:
    rows = [["", "one rank, ms", "two apart, ms", "two ranks, ms", "efficiency", "of the machine's"]]
    for name in dict.fromkeys(key.rsplit(",", 1)[0] for key in times if ", " in key):
        one, apart, two = (times[f"{name}, {way}"] for way in ("1", "apart", "2"))
        ratios = [[a / (2 * b) for a, b in zip(before, two, strict=True)] for before in (one, apart)]
        rows.append([name, *(quartiles(found, 1e3) for found in (one, apart, two)), *(quartiles(r, 1) for r in ratios)])
    for name, found in {"1 number": times["latency"], f"{parameters() + 3:,} numbers": times["reduction"]}.items():
        rows.append([f"all_reduce of {name}", "–", "–", quartiles(found, 1e3), "–", "–"])
    print(table(rows))


class Terms(NamedTuple):
    """The measured seconds that the figures on paper are made of."""

    chunk: float
    fixed: float
    sample: float
    hop: float
    bandwidth: float

    def ring(self, ranks: int, size: float) -> float:
        return 2 * (ranks - 1) * self.hop + 2 * (ranks - 1) / ranks * size / self.bandwidth

    def anchor(self, ranks: int, chunks: int) -> float:
        exchange = self.ring(ranks, 4 * parameters()) + self.ring(ranks, 8 * 7 * ranks) if ranks > 1 else 0.0
        return math.ceil(chunks / ranks) * self.chunk + exchange

    def inner(self, ranks: int, b: int) -> float:
        exchange = self.ring(ranks, 4 * (parameters() + 3)) if ranks > 1 else 0.0
        return self.fixed + self.sample * math.ceil(b / ranks) + exchange


def terms(times: Times) -> Terms:
    middle = {name: statistics.median(found) for name, found in times.items()}
    small, large = (middle[f"inner step, b = {b}, 1"] for b in SIZES)
    sample = (large - small) / (SIZES[1] - SIZES[0])
    latency, whole = middle["latency"], middle["reduction"]
    return Terms(
        chunk=middle["anchor, 1"] / math.ceil(10_000 / CHUNK),
        fixed=max(0.0, small - sample * SIZES[0]),
        sample=sample,
        hop=latency / 2,
        bandwidth=4 * (parameters() + 3) / max(whole - latency, 1e-9),
    )


def paper(found: Terms) -> None:
    print(
        f"\nOn paper, from: chunk {found.chunk * 1e3:.3g} ms, inner step {found.fixed * 1e3:.3g} ms + "
        f"{found.sample * 1e6:.3g} µs per sample, hop {found.hop * 1e6:.3g} µs, {found.bandwidth / 1e9:.3g} GB/s"
    )
    rows = [
        ["ranks", "anchor, 10 chunks", "anchor, 1,000 chunks", "inner, b = 64", "inner, b = 512", "inner, b = 8192"]
    ]
    for ranks in (1, 2, 8, 64, 512):
        anchors = [found.anchor(1, k) / found.anchor(ranks, k) for k in (10, 1000)]
        steps = [found.inner(1, b) / found.inner(ranks, b) for b in (64, 512, 8192)]
        cells = [f"{gain:.3g} (efficiency {gain / ranks:.2f})" for gain in [*anchors, *steps]]
        rows.append([str(ranks), *cells])
    print("Times faster than one rank:\n" + table(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description="anchor, inner step and reduction on one and two ranks, then on paper")
    parser.add_argument("--pairs", type=int, default=15, help="interleaved measurements of each (default: 15)")
    options = parser.parse_args()
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    began = time.monotonic()
    context = spawn(measure, (store.port, options.pairs, results), nprocs=2, join=False)
    while results.empty() and not context.join(timeout=0.2):
        pass
    times, counts = results.get()
    print(f"LeNet-300-100, P = {parameters():,}, n = 10,000; medians of {options.pairs} pairs (quartiles)\n")
    report(times)
    print("\nReductions, as the library calls them:\n")
    rows = [["step", "counted", "calls per step", "numbers per step", "bytes per step"]]
    rows += [[c.what, str(c.steps), f"{c.calls:g}", f"{c.numbers:,.0f}", f"{c.size:,.0f}"] for c in counts]
    print(table(rows))
    print("A rank sends 2(R − 1)/R times these bytes, and receives as many.")
    paper(terms(times))
    while not context.join():
        pass
    print(f"\n{time.monotonic() - began:.0f} s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
