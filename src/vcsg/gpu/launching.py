"""What the kernels are given (the places of the parameters in memory, weights, step sizes), and their launches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vcsg.method.step_rules import Orthogonal, Plain, StepRule, is_matrix
from vcsg.method.weights import Rule
from vcsg.run.preconditioning import grouped, iterate, least_norm, polar_size

STEPS, FEW_STEPS = 32, 4
"""Steps in one graph: with all gradients at the anchor in one pass, and without."""
RULED_LAUNCHES = 3
"""The kernels of a step by a step rule: the memory of v, its matrices into stacks, and the step itself."""
BLOCK, WARPS, PROGRAMS = 2048, 8, 512
"""How the kernels are launched: numbers per program, warps per program, and the most programs that make sums."""


class Tables:
    """The places of the parameters' numbers in memory, cut into blocks, and the weights and step sizes in use.

    Args:
        params: the parameters.
        decays: the decoupled weight decay of each.
        fill: (tensor, values on the host) → fills the tensor before a kernel reads it.
        rule: the step rule.
    """

    def __init__(
        self,
        params: list[Tensor],
        decays: list[float],
        fill: Callable[[Tensor, Tensor], None],
        rule: StepRule = Plain(),  # noqa: B008 (a frozen value)
    ) -> None:
        device, self.dtype, self.fill = params[0].device, params[0].dtype, fill
        numbers = [p.numel() for p in params]
        cuts = [(i, start) for i, count in enumerate(numbers) for start in range(0, count, BLOCK)]
        self.tensors, self.blocks = len(params), len(cuts)
        self.sizes = torch.tensor(numbers, dtype=torch.int64, device=device)
        self.owner = torch.tensor([i for i, _ in cuts], dtype=torch.int32, device=device)
        self.start = torch.tensor([start for _, start in cuts], dtype=torch.int64, device=device)
        self.weights = torch.zeros(6, dtype=self.dtype, device=device)
        self.eta = torch.zeros(len(params), dtype=self.dtype, device=device)
        self.decay = torch.tensor(decays, dtype=self.dtype, device=device)
        self.shares = torch.zeros(FEW_STEPS, dtype=self.dtype, device=device)
        self.numbers = torch.zeros(STEPS, 3, dtype=self.dtype, device=device)
        self.bytes = sum(numbers) * self.dtype.itemsize
        self.programs = min(PROGRAMS, self.blocks)
        self.parts = 1 << (self.programs - 1).bit_length()
        self._chosen: Hashable = None
        self.stacks = Stacks(params, rule, self)

    def choose(self, rule: Rule, etas: list[float]) -> None:
        """The weights and the step size of every parameter from now on."""
        choices = (rule.choices[0], rule.choices[-1])
        if (choices, etas) != self._chosen:
            self._chosen = choices, etas
            self.weights.copy_(torch.tensor(choices, dtype=torch.float64).flatten())
            self.eta.copy_(torch.tensor(etas, dtype=torch.float64))

    def launch(self) -> Launch:
        return Launch(self)

    def launches(self, count: int) -> list[Launch]:
        """One for each kernel of a step."""
        return [Launch(self) for _ in range(count)]


class Stacks:
    """Where the step rule keeps the matrices of a model: stacks that are iterated together, filled up with zeros.

    Args:
        params: the parameters.
        rule: the step rule; only the orthogonal one has stacks.
        tables: the tables of the same parameters.
    """

    def __init__(self, params: list[Tensor], rule: StepRule, tables: Tables) -> None:
        device, self._rule = params[0].device, rule
        self.dtype = torch.bfloat16 if tables.dtype == torch.float32 else tables.dtype
        orthogonal = isinstance(rule, Orthogonal)
        self._matrices = [i for i, p in enumerate(params) if orthogonal and is_matrix(tuple(p.shape))]
        shapes = [(len(params[i]), params[i].numel() // len(params[i])) for i in self._matrices]
        self._groups = grouped(shapes, mixed=True)
        self.stacked = [
            torch.zeros(len(places), *size, dtype=self.dtype, device=device) for size, places in self._groups.items()
        ]
        beside = self.stacked[1:] if device.type == "cuda" else []
        self._streams = [torch.cuda.Stream(device) for _ in beside]  # type: ignore[no-untyped-call]
        self.squares = torch.zeros(tables.blocks, dtype=tables.dtype, device=device)
        owners = tables.owner.tolist()
        rows = torch.zeros(5, len(params), dtype=torch.int32)
        sizes = [rule.share if isinstance(rule, Orthogonal) else 1.0] * len(params)
        for (_, pitch), places in self._groups.items():
            for k in places:
                i, (height, width) = self._matrices[k], shapes[k]
                rows[:, i] = torch.tensor([width, pitch, height > width, owners.index(i), owners.count(i)])
                sizes[i] = polar_size(height, width)
        self.places = rows.to(device)
        """Of each matrix: columns, those of its stack (else 0), whether it is turned, its first block, its blocks."""
        moments = (0.0, 0.0) if isinstance(rule, Plain) else (rule.beta2, rule.eps)
        self.factors = torch.tensor([*moments, *sizes], dtype=tables.dtype, device=device)
        """β₂ and eps, and the factor of each parameter's direction."""

    @property
    def kind(self) -> Any:
        """The type of the numbers in a stack, as Triton calls it."""
        import triton.language as tl

        return tl.bfloat16 if self.dtype == torch.bfloat16 else tl.float64

    def iterated(self) -> list[Tensor]:
        """The polar factors of all that is in the stacks, which are iterated side by side."""
        iterations = self._rule.iterations if isinstance(self._rule, Orthogonal) else 0
        if not self._streams:
            return [iterate(stack, iterations) for stack in self.stacked]
        current = torch.cuda.current_stream(self.places.device)
        found = []
        for stack, stream in zip(self.stacked[1:], self._streams, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                found.append(iterate(stack, iterations))
        found.insert(0, iterate(self.stacked[0], iterations))
        for stream in self._streams:
            current.wait_stream(stream)
        return found

    def parts(self, stacks: list[Tensor]) -> list[Tensor | None]:
        """The part of the stacks that belongs to each parameter; None where it is no matrix."""
        found: list[Tensor | None] = [None] * self.places.shape[1]
        for stack, places in zip(stacks, self._groups.values(), strict=True):
            for part, k in zip(stack, places, strict=True):
                found[self._matrices[k]] = part
        return found

    def others(self, given: list[Tensor]) -> list[Tensor | None]:
        """Tensors of those parameters that are no matrix, at the places of these among all."""
        left = iter(given)
        return [None if i in self._matrices else next(left) for i in range(self.places.shape[1])]


class Ruled(NamedTuple):
    """What a step by a rule needs besides v."""

    factors: list[Tensor]
    """The stacks of polar factors."""
    added: list[Tensor]
    """The gradient that the step adds to what v remembers, of the parameters that are stepped adaptively."""
    second: list[Tensor]
    """Their second moments."""


def turned(p: Tensor) -> bool:
    """Whether a matrix lies in memory such that its rows do not follow each other."""
    return is_matrix(tuple(p.shape)) and p.stride(0) * len(p) != p.numel()


class Launch:
    """One use of the kernels: it keeps the addresses of that use."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._table = torch.zeros(6, tables.tensors, dtype=torch.int64, device=tables.sizes.device)
        self._sums = torch.zeros(tables.programs, 2, dtype=tables.dtype, device=tables.sizes.device)

    def descend(self, rows: Sequence[Sequence[Tensor]], test: str, moves: bool) -> None:
        """x ← x − ηv."""
        from vcsg.gpu import triton_kernels as kernels

        tables, options = self._tables, self._options(rows)
        tests = {"": 0, "norm": 1, "lemma": 2, "elementwise": 3}
        place = (self._table, tables.sizes, tables.owner, tables.start, self._sums)
        if test in ("norm", "lemma"):
            kernels.compare[(tables.programs,)](*place, tables.blocks, tables.tensors, TEST=tests[test], **options)
        kernels.descend[(tables.blocks,)](
            *place, tables.weights, tables.eta, tables.blocks, tables.tensors, tables.programs,
            TEST=tests[test], HAS_ANCHOR=bool(rows[1]), HAS_MEAN=bool(rows[2]), MOVES=moves, PARTS=tables.parts,
            **options,
        )  # fmt: skip

    def remember(self, gradient: list[Tensor], mean: list[Tensor]) -> None:
        """m ← m + a(g − m) with the first of the weights in use, if there is an m; Σv² of each block for the stacks."""
        from vcsg.gpu import triton_kernels as kernels

        tables = self._tables
        options = self._options([gradient, [], mean])
        place = (self._table, tables.sizes, tables.owner, tables.start)
        kernels.remember[(tables.blocks,)](
            *place, tables.stacks.squares, tables.weights, tables.tensors, REMEMBERS=bool(mean), **options
        )

    def stack(self, v: list[Tensor]) -> None:
        """Fill the stacks with the matrices of v, scaled to norm 1, of which `remember` has the squares."""
        from vcsg.gpu import triton_kernels as kernels

        tables, stacks = self._tables, self._tables.stacks
        options = self._options([v, stacks.parts(stacks.stacked)])
        options |= {"STACKED": stacks.kind, "LEAST": least_norm(v[0].dtype)}
        place = (self._table, tables.sizes, tables.owner, tables.start)
        kernels.stack[(tables.blocks,)](*place, stacks.squares, stacks.places, tables.tensors, PARTS=1024, **options)

    def finish(
        self, v: list[Tensor], params: list[Tensor], average: list[Tensor], numbers: Tensor, ruled: Ruled | None = None
    ) -> None:
        """x ← x − ηP(v), with the decay of each group; the average takes x in. Without `ruled`, P(v) = v.

        `numbers` are both corrections of a start at 0 and the weight of the average.
        """
        from vcsg.gpu import triton_kernels as kernels

        tables, stacks = self._tables, self._tables.stacks
        rows: list[Sequence[Tensor | None]] = [v, [], [], params, average, []]
        if ruled is not None:
            rows[1], rows[2], rows[5] = (
                stacks.parts(ruled.factors),
                stacks.others(ruled.added),
                stacks.others(ruled.second),
            )
        options = self._options(rows) | {"STACKED": stacks.kind}
        place = (self._table, tables.sizes, tables.owner, tables.start)
        kernels.finish[(tables.blocks,)](
            *place, tables.eta, tables.decay, numbers, stacks.places, stacks.factors, tables.tensors,
            RULED=ruled is not None, AVERAGE=bool(average), **options,
        )  # fmt: skip

    def absorb(self, gradient: list[Tensor], mean: list[Tensor], share: Tensor) -> Tensor:
        """Take a gradient into the mean, of which it is that share; ‖g − m‖² before that."""
        from vcsg.gpu import triton_kernels as kernels

        tables = self._tables
        options = self._options([gradient, [], mean])
        place = (self._table, tables.sizes, tables.owner, tables.start, self._sums)
        kernels.absorb[(tables.programs,)](*place, share, tables.blocks, tables.tensors, **options)
        return self._sums.flatten()[: tables.programs].sum(dtype=torch.float64)

    def _options(self, rows: Sequence[Sequence[Tensor | None]]) -> dict[str, Any]:
        import triton.language as tl

        tables = self._tables
        empty = [0] * tables.tensors
        addresses = [[0 if t is None else t.data_ptr() for t in row] or empty for row in rows]
        addresses += [empty] * (6 - len(addresses))
        tables.fill(self._table, torch.tensor(addresses, dtype=torch.int64))
        return {
            "DTYPE": tl.float32 if tables.dtype == torch.float32 else tl.float64,
            "ALIGNED": all(address % 16 == 0 for row in addresses for address in row),
            "BLOCK": BLOCK,
            "num_warps": WARPS,
        }
