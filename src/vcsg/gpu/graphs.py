"""CUDA graphs of steps: captured once per shape and replayed on other samples.

A graph holds the work of one or several steps, from the gathering of their samples to the update, so that a phase is a
stream of replays and the host waits once, at its end. At first the steps run as they are, which makes torch and Triton
load what they need; those that come again are captured.
"""

from __future__ import annotations

import gc
import logging
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from vcsg.run.feeding import indices_on
from vcsg.run.sampling import Phase

logger = logging.getLogger("vcsg")

KEPT_GRAPHS = 64
"""The most graphs that are kept; the one that was not used for the longest time goes first."""

DIRECT_CALLS = 3
"""How often a single step is done directly before it is captured: one whose size hardly ever comes again never is."""

Body = Callable[[list[Any], Tensor], None]
"""(batches of data, a row of two numbers for each) → does the work of a step with each batch, and measures it."""

Call = Callable[[Tensor, Tensor], None]
"""(indices of samples, a row of two numbers for each step) → takes the steps with these samples: a graph, or more."""


class Uncapturable(RuntimeError):
    """The work of a step is not such that a graph could repeat it; says why."""


class Samples:
    """Tensors on the device with the samples along the first axis, and the form that a batch of them has."""

    def __init__(self, tensors: Sequence[Tensor], form: Callable[[list[Tensor]], Any]) -> None:
        self.tensors, self._form = list(tensors), form

    def batches(self, indices: Tensor, count: int) -> list[Any]:
        """`count` batches of equal size, gathered at once."""
        rows = [t.index_select(0, indices) for t in self.tensors]
        size = len(indices) // count
        return [self._form([row[k * size : (k + 1) * size] for row in rows]) for k in range(count)]


class Graph:
    """`count` steps with `size` samples each; every call takes the next samples and returns what was measured."""

    def __init__(self, replays: Replays, body: Body, size: int, count: int) -> None:
        self._replays, self._body, self._count = replays, body, count
        self._indices = torch.zeros(size * count, dtype=torch.int64, device=replays.device)
        self._measured = torch.zeros(count, 2, dtype=torch.float64, device=replays.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0

    def __call__(self, indices: Tensor, measured: Tensor) -> None:
        self._indices.copy_(indices)
        if self._graph is not None:
            self._graph.replay()
        elif self.calls < (DIRECT_CALLS if self._count == 1 else 1):
            self._replays.directly(self._work)
        else:
            self._graph = self._replays.capture(self._work)
            self._graph.replay()
        measured.copy_(self._measured)
        self.calls += 1

    def _work(self) -> None:
        self._body(self._replays.samples.batches(self._indices, self._count), self._measured)


class Replays:
    """The graphs of a run. They share their memory, for no two of them run at the same time."""

    def __init__(self, device: torch.device, samples: Samples) -> None:
        self.device, self.samples = device, samples
        self.seconds = 0.0
        """The seconds spent in capturing."""
        self.captured = 0
        self._graphs: OrderedDict[Hashable, Graph] = OrderedDict()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._later: list[tuple[Tensor, Tensor]] = []
        self._fault: Uncapturable | None = None

    def graph(self, key: Hashable, body: Callable[[], Body], size: int, count: int = 1) -> Graph:
        """The graph of that key, made where there is none."""
        if key not in self._graphs:
            self._graphs[key] = Graph(self, body(), size, count)
            if len(self._graphs) > KEPT_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def series(self, key: Hashable, alike: int, most: int, body: Callable[[int], Body], size: int) -> tuple[Graph, int]:
        """The graph for the next steps, `alike` of which are of one kind, and how many it has: `most`, or one.

        Several in one graph start faster; but it is captured only for steps that come again and again.
        """
        single = self.graph((key, 1), lambda: body(1), size)
        if alike < most or single.calls < most:
            return single, 1
        return self.graph((key, most), lambda: body(most), size, most), most

    def run(self, phase: Phase, first: int, count: int, choose: Callable[[int], tuple[Call, int]]) -> list[list[float]]:
        """Take `count` steps of a phase, from `first` on; returns what each measured. Step k begins `choose(k)`.

        That returns how many steps the call takes, too. Where one cannot be captured those before it are done, and the
        next call says why.
        """
        if self._fault is not None:
            raise self._fault
        indices = indices_on(phase, self.device)
        measured = torch.empty(count, 2, dtype=torch.float64, device=self.device)
        k = 0
        try:
            while k < count:
                call, steps = choose(k)
                bounds = phase.bounds(first + k).start, phase.bounds(first + k + steps - 1).stop
                call(indices[slice(*bounds)], measured[k : k + steps])
                k += steps
        except Uncapturable as fault:
            if k == 0:
                raise
            self._fault = fault
        found: list[list[float]] = measured[:k].tolist()
        return found

    def clear(self) -> None:
        """Forget all graphs."""
        self._graphs.clear()

    def directly(self, work: Callable[[], None]) -> None:
        """Do the work now, on the stream that will be captured."""
        current = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            work()
        current.wait_stream(self._stream)

    def probe(self, work: Callable[[list[Any]], object]) -> None:
        """Do the work with two samples, to see whether it draws random numbers."""
        generator = torch.cuda.default_generators[self.device.index]
        state = generator.get_state()
        work(self._two())
        drawn = not torch.equal(generator.get_state(), state)
        generator.set_state(state)
        if drawn:
            raise Uncapturable(
                "the model draws random numbers (dropout): in one graph the evaluations at x and at the anchor would "
                "draw different ones"
            )

    def works(self, work: Callable[[list[Any]], object]) -> bool:
        """Whether the work can be done with two samples, without an error or a warning that it would be slow."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                work(self._two())
        except Exception as error:
            logger.debug("not all gradients at the anchor at once: %s", error)
            return False
        return True

    def _two(self) -> list[Any]:
        return self.samples.batches(torch.tensor([0, 0], device=self.device), 1)

    def capture(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        began = time.perf_counter()
        generator = torch.cuda.default_generators[self.device.index]
        state = generator.clone_state()
        graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        gc.disable()  # what it finds may be a graph, and to free one would break the capture
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                work()
        except RuntimeError as error:
            self._later.clear()
            generator.graphsafe_set_state(state)  # it would believe for ever that a capture goes on
            raise Uncapturable(f"the step cannot be captured as a CUDA graph: {_cause(error)}") from error
        finally:
            if collecting:
                gc.enable()
        for tensor, values in self._later:
            tensor.copy_(values)
        self._later.clear()
        torch.cuda.synchronize(self.device)
        self.seconds, self.captured = self.seconds + time.perf_counter() - began, self.captured + 1
        return graph

    def set(self, tensor: Tensor, values: Tensor) -> None:
        """Fill a tensor from the host; in a capture, once for all replays."""
        if torch.cuda.is_current_stream_capturing():
            self._later.append((tensor, values))
        else:
            tensor.copy_(values)


def equal(things: Sequence[object]) -> int:
    """How many of them, from the first on, are equal to it."""
    return next((k for k, other in enumerate(things) if other != things[0]), len(things))


def _cause(error: BaseException) -> str:
    """The first line of the error with which it began."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).partition("\n")[0]
