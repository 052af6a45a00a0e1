"""Do certificates hold as often as they promise? The tables of docs/engineering/certificates.md.

    python -m benchmarks.certificates [--runs 1000] [--confidence 0.95] [--eps 0.5]

A run looks at 20 anchors of growing size, up to all n samples, at points whose gradient is known, by the rule
`vcsg.stationary(eps, confidence, largest_gradient)`; it ends at the first that is certified. ε is a share of the true
‖∇f‖² at the point, below 1, so that every certificate is false; and, in a second table, twice the true one, so that a
certificate is true. Beside it are the gradients that were spent, and how often the ‖g‖² of a part of the samples was at
most ε: a rule that believed it would have stopped there. Problems, n = 2000:

    light     gradients of 10 numbers, normal
    rare      two of 2000 samples carry most of the gradient and of the variance
    network   the gradients of single samples of a small network that was trained for a while
"""

from __future__ import annotations

import argparse
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import vcsg
from vcsg.run.record import Answer, Record
from vcsg.run.variance import AnchorSum

N = 2000
LOOKS = 20
PROBLEMS = ("light", "rare", "network")
Array = NDArray[np.float64]


class Outcome(NamedTuple):
    """What came of some runs."""

    certified: int
    false: int
    by_sample: int
    """Those that ended at an anchor of fewer than all samples."""
    deceived: int
    """Runs in which some anchor of fewer than all samples had ‖g‖² ≤ ε while ‖∇f‖² was above it."""
    samples: float
    """Gradients spent per run, in the mean."""


@cache
def gradients(problem: str) -> Array:
    """The gradient of every sample at the point, one row each."""
    rng = np.random.default_rng(0)
    if problem == "light":
        return rng.normal(size=(N, 10)) + 0.3
    if problem == "rare":
        found = 0.01 * rng.normal(size=(N, 10))
        found[:2] += N / 4
        return found
    torch.manual_seed(0)
    X = torch.randn(N, 8)
    Y = (X[:, 0] * X[:, 1] > 0).long()
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    vcsg.fit(model, torch.nn.functional.cross_entropy, (X, Y), "momentum", b=16, lr=0.5, passes=20, progress=False)
    rows = []
    for x, y in zip(X, Y, strict=True):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x[None]), y[None]).backward()
        rows.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).double().numpy())
    return np.array(rows)


def looked_at(found: Array, order: NDArray[np.int64], ifo: int) -> Record:
    """The record of an anchor of these samples."""
    total, mean = AnchorSum(), np.zeros(found.shape[1])
    for part in np.array_split(found[order], 8):
        total.take(len(part), 0.0, float(((part.mean(0) - mean) ** 2).sum()))
        mean += (part.mean(0) - mean) * len(part) / total.samples
    anchor = total.close(N, float(mean @ mean))
    return Record(1, "", anchor.B, 1, 0.1, 1, 1.0, None, anchor, ifo, ifo / N)


def simulate(
    problem: str, runs: int = 1000, confidence: float = 0.95, known: bool = True, seed: int = 0, eps: float = 0.5
) -> Outcome:
    """Runs of the rule with ε that multiple of ‖∇f‖²; `known` says whether the largest ‖∇f_i‖ is given."""
    found = gradients(problem)
    true, largest = float((found.mean(0) ** 2).sum()), float(np.sqrt((found**2).sum(1).max()))
    rule = vcsg.stationary(eps * true, confidence, largest if known else None)
    sizes = np.geomspace(32, N, LOOKS).astype(int)
    certified = false = by_sample = deceived = spent = 0
    for run in range(runs):
        rng, ifo, confirm, fooled = np.random.default_rng((seed, run)), 0, False, False
        for planned in sizes:
            size = N if confirm else int(planned)
            ifo += size
            record = looked_at(found, rng.permutation(N)[:size], ifo)
            answer = rule(record)
            confirm = answer is Answer.CONFIRM
            fooled = fooled or (size < N and eps < 1 and record.anchor.g_norm2 <= eps * true)  # type: ignore[union-attr]
            if answer is True:
                certified, by_sample = certified + 1, by_sample + (size < N)
                false += not true <= eps * true
                break
        deceived, spent = deceived + fooled, spent + ifo
    return Outcome(certified, false, by_sample, deceived, spent / runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="seeded runs of every line")
    parser.add_argument("--confidence", type=float, default=0.95, help="what the rule is asked to promise")
    parser.add_argument("--eps", type=float, default=0.5, help="ε over ‖∇f‖² in the first table, below 1")
    given = parser.parse_args()
    for eps in (given.eps, 2.0):
        print(f"\nε = {eps:g}·‖∇f‖², confidence {given.confidence:g}, {given.runs} runs\n")
        print("| problem | bound of ‖∇f_i‖ | certified | false | by a part | ‖g‖² ≤ ε falsely | gradients |")
        print("|---|---|---|---|---|---|---|")
        for problem in PROBLEMS:
            for known in (False, True):
                found = simulate(problem, given.runs, given.confidence, known, eps=eps)
                cells = (problem, "given" if known else "–", *found[:4], f"{found.samples:,.0f}")
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
