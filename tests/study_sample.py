"""A tiny workload with a network, for tests of the study: two classes of 60 points, and 30 more to test."""

from __future__ import annotations

import random
from pathlib import Path

PROBLEM = "synthetic:n=60,d=4/least-squares"
"""An analytic one, whose L is known."""


def network(folder: Path) -> str:
    """The name of a workload whose files are written to the folder."""
    rng = random.Random(1)
    for suffix, count in (("", 60), (".t", 30)):
        lines = []
        for _ in range(count):
            x = [rng.gauss(0, 1) for _ in range(5)]
            features = " ".join(f"{i}:{value:.4f}" for i, value in enumerate(x, 1))
            lines.append(f"{1 if x[0] * x[1] > 0 else -1:+d} {features}\n")
        (folder / f"tiny{suffix}").write_text("".join(lines))
    return f"libsvm:{folder}/tiny/lenet-300-100"
