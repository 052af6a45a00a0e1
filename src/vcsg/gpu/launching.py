"""What the kernels are given (the places of the parameters in memory, weights, step sizes), and their launches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from vcsg.method.weights import Rule

STEPS, FEW_STEPS = 32, 4
"""Steps in one graph: with all gradients at the anchor in one pass, and without."""
BLOCK, WARPS, PROGRAMS = 2048, 8, 512
"""How the kernels are launched: numbers per program, warps per program, and the most programs that make sums."""


class Tables:
    """The places of the parameters' numbers in memory, cut into blocks, and the weights and step sizes in use.

    Args:
        params: the parameters.
        decays: the decoupled weight decay of each.
        fill: (tensor, values on the host) → fills the tensor before a kernel reads it.
    """

    def __init__(self, params: list[Tensor], decays: list[float], fill: Callable[[Tensor, Tensor], None]) -> None:
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

    def choose(self, rule: Rule, etas: list[float]) -> None:
        """The weights and the step size of every parameter from now on."""
        choices = (rule.choices[0], rule.choices[-1])
        if (choices, etas) != self._chosen:
            self._chosen = choices, etas
            self.weights.copy_(torch.tensor(choices, dtype=torch.float64).flatten())
            self.eta.copy_(torch.tensor(etas, dtype=torch.float64))

    def launch(self) -> Launch:
        return Launch(self)


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

    def finish(self, direction: list[Tensor], params: list[Tensor], average: list[Tensor], weight: Tensor) -> None:
        """x ← x − ηd, with the decay of each group; the average takes x in with that weight."""
        from vcsg.gpu import triton_kernels as kernels

        tables = self._tables
        options = self._options([direction, [], [], params, average])
        place = (self._table, tables.sizes, tables.owner, tables.start)
        kernels.finish[(tables.blocks,)](
            *place, tables.eta, tables.decay, weight, tables.tensors, AVERAGE=bool(average), **options
        )

    def absorb(self, gradient: list[Tensor], mean: list[Tensor], share: Tensor) -> Tensor:
        """Take a gradient into the mean, of which it is that share; ‖g − m‖² before that."""
        from vcsg.gpu import triton_kernels as kernels

        tables = self._tables
        options = self._options([gradient, [], mean])
        place = (self._table, tables.sizes, tables.owner, tables.start, self._sums)
        kernels.absorb[(tables.programs,)](*place, share, tables.blocks, tables.tensors, **options)
        return self._sums.flatten()[: tables.programs].sum(dtype=torch.float64)

    def _options(self, rows: Sequence[Sequence[Tensor]]) -> dict[str, Any]:
        import triton.language as tl

        tables = self._tables
        empty = [0] * tables.tensors
        addresses = [[t.data_ptr() for t in row] or empty for row in rows]
        addresses += [empty] * (6 - len(addresses))
        tables.fill(self._table, torch.tensor(addresses, dtype=torch.int64))
        return {
            "DTYPE": tl.float32 if tables.dtype == torch.float32 else tl.float64,
            "ALIGNED": all(address % 16 == 0 for row in addresses for address in row),
            "BLOCK": BLOCK,
            "num_warps": WARPS,
        }
