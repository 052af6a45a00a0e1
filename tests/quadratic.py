"""A small least-squares problem whose every quantity has a closed form, and the closures and runs on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vcsg


@dataclass(frozen=True)
class Quadratic:
    """f_i(x) = ½(a_i·x − t_i)²."""

    A: np.ndarray
    t: np.ndarray

    @property
    def n(self) -> int:
        return len(self.A)

    @property
    def L(self) -> float:
        """The largest eigenvalue of any f_i's Hessian a_i a_iᵀ."""
        return float((self.A**2).sum(1).max())

    @property
    def hessian(self) -> np.ndarray:
        return self.A.T @ self.A / self.n

    @property
    def minimum(self) -> np.ndarray:
        return np.linalg.lstsq(self.A, self.t, rcond=None)[0]

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """∇f_i(x), one row per sample."""
        return (self.A @ x - self.t)[:, None] * self.A

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.gradients(x).mean(0)

    def norm2(self, x: np.ndarray) -> float:
        return float((self.gradient(x) ** 2).sum())

    def covariance(self, x: np.ndarray) -> np.ndarray:
        """(1/n) Σ (∇f_i − ∇f)(∇f_i − ∇f)ᵀ, whose trace is S*."""
        centred = self.gradients(x) - self.gradient(x)
        return centred.T @ centred / self.n

    @property
    def data(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, targets and the index of each sample, so that a batch tells which samples it holds."""
        return torch.from_numpy(self.A), torch.from_numpy(self.t), torch.arange(self.n)


def quadratic(n: int = 60, d: int = 4, noise: float = 0.5, seed: int = 0) -> Quadratic:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, d))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    return Quadratic(A, A @ rng.normal(size=d) + noise * rng.normal(size=n))


def parameter(x: np.ndarray | None = None, d: int = 4) -> torch.nn.Parameter:
    start = np.full(d, 2.0) if x is None else x
    return torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))


def smoothness(name: str, L: float | None) -> dict[str, float | None]:
    """The option L, for the methods whose step size comes from it; others refuse it."""
    return {"L": L} if vcsg.methods()[name].needs_L else {}


def closure(p: torch.nn.Parameter, batch: tuple[Tensor, ...], dropout: float = 0.0) -> Callable[[], Tensor]:
    """The ordinary closure: autograd on the mean loss of the batch."""
    rows, targets = batch[0], batch[1]

    def evaluate() -> Tensor:
        p.grad = None
        loss = 0.5 * ((torch.nn.functional.dropout(rows, dropout) @ p - targets) ** 2).mean()
        loss.backward()
        return loss

    return evaluate


def steps(
    problem: Quadratic, optimizer: vcsg.FiniteSumOptimizer, p: torch.nn.Parameter, dropout: float = 0.0, **limits: Any
) -> Iterator[tuple[Tensor, ...]]:
    """Run, yielding each batch after its step."""
    for batch in optimizer.batches(problem.data, **limits):
        optimizer.step(closure(p, batch, dropout))
        yield batch


def run(problem: Quadratic, optimizer: vcsg.FiniteSumOptimizer, p: torch.nn.Parameter, **limits: Any) -> np.ndarray:
    for _ in steps(problem, optimizer, p, **limits):
        pass
    return p.detach().numpy()


def subsets(n: int, size: int) -> list[list[int]]:
    return [list(s) for s in itertools.combinations(range(n), size)]
