"""IDX, the format of MNIST's files: 0, 0, 8 (for bytes), the rank, big-endian 32-bit sizes, then the bytes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from vcsg.workloads.dataset import Bytes, DataError
from vcsg.workloads.streams import unpacked

LARGEST_ARRAY = 1 << 30
"""The most bytes that an array may have; MNIST's largest has 47,040,000."""


def read_idx(path: Path, rank: int) -> Bytes:
    """The array of an IDX file of unsigned bytes, plain or compressed."""
    with unpacked(path) as file:
        head = file.read(4 + 4 * rank)
        if head[:4] != bytes((0, 0, 8, rank)) or len(head) < 4 + 4 * rank:
            raise DataError(
                f"{path} begins with {head[:4]!r}, not with {bytes((0, 0, 8, rank))!r}: "
                f"it is not an IDX file of bytes with {rank} axes; fetch or copy it again"
            )
        shape = tuple(int.from_bytes(head[i : i + 4], "big") for i in range(4, len(head), 4))
        size = math.prod(shape)
        if size > LARGEST_ARRAY:
            raise DataError(
                f"{path} begins with sizes of {shape}, more than {LARGEST_ARRAY:,} bytes: fetch or copy it again"
            )
        # Reading one byte more than expected detects a longer file, however long it is.
        content = file.read(size + 1)
    if len(content) != size:
        found = f"only {len(content):,}" if len(content) < size else "more"
        raise DataError(f"{path} should hold {size:,} bytes for an array of {shape}, and holds {found}: fetch it again")
    return np.array(np.frombuffer(content, np.uint8)).reshape(shape)
