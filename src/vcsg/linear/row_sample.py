"""A sample of rows that come in blocks, drawn while they are read: those with the smallest random keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from vcsg.linear.problem import Array

SAMPLE = 64 << 20
"""The largest size of the sample in bytes."""


def stored(rows: Any) -> int:
    """The size of dense or sparse rows in bytes."""
    return int(rows.nnz * 12 if sparse.issparse(rows) else rows.nbytes)


def joined_rows(parts: list[Any]) -> Any:
    """The rows of several blocks in one matrix, dense or sparse as they are."""
    return sparse.vstack(parts).tocsr() if sparse.issparse(parts[0]) else np.concatenate(parts)


@dataclass
class RowSample:
    """All rows so far whose key is at most `limit`; the limit falls where they would take too much memory.

    Keys are independent and uniform on 0 to 1, so whichever rows have the smallest ones are a sample without
    replacement, in which every row has the same chance.
    """

    size: int = SAMPLE
    limit: float = 1.0
    parts: list[tuple[Array, Any, Any, Array]] = field(default_factory=list)
    bytes: int = 0

    def add(self, keys: Array, rows: Any, y: Any, weight: Array, complete: bool) -> None:
        """Take the rows of a block with the smallest keys; `complete` says that these are all of its rows."""
        if not complete:
            self.limit = min(self.limit, float(keys.max(initial=0.0)))
        self.parts.append((keys, rows, y, weight))
        self.bytes += stored(rows)
        if self.bytes > 2 * self.size:
            self.cut()

    def cut(self) -> tuple[Array, Any, Any, Array]:
        """Keep the rows with the smallest keys that fit, in the order in which they came; return them."""
        keys, y, weight = (np.concatenate([part[i] for part in self.parts]) for i in (0, 2, 3))
        rows = joined_rows([part[1] for part in self.parts])
        order = np.argsort(keys, kind="stable")
        fitting = max(1, len(keys) * self.size // max(1, stored(rows)))
        if fitting < len(keys):
            self.limit = min(self.limit, float(keys[order[fitting - 1]]))
        kept = np.sort(order[: int(np.searchsorted(keys[order], self.limit, side="right"))])
        whole = keys[kept], rows[kept], y[kept], weight[kept]
        self.parts, self.bytes = [whole], stored(whole[1])
        return whole
