"""What the tests of frameworks share: a small problem, loaders of it, and the plain loop that each is compared with."""

from __future__ import annotations

from typing import Any

import torch
from nets import net_closure
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from vcsg import FiniteSumOptimizer

N, BATCH, EPOCHS = 200, 16, 4
"""Samples, of which the last batch of a pass has 8, batch size, and passes of the loop."""
METHODS: dict[str, dict[str, Any]] = {"vcsg": {}, "svrg": {"lr": 2.0}, "adam": {}, "auto": {}}


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(N, 5, generator=generator)
    return TensorDataset(X, (X[:, 0] + 0.3 * torch.randn(N, generator=generator) > 0).long())


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))


def loader(ranks: int = 1, rank: int = 0) -> DataLoader[Any]:
    """Batches in an order that depends on the number of the pass alone, so that a run can go on in the middle."""
    sampler = DistributedSampler(data(), ranks, rank, seed=1)
    return DataLoader(data(), BATCH, sampler=sampler)


def made(model: nn.Module, name: str, **options: Any) -> FiniteSumOptimizer:
    given = {"n": N, "batch_size": BATCH, **METHODS[name], **options}
    return FiniteSumOptimizer(model.parameters(), method=name, **given)


def own_loop(
    model: nn.Module, optimizer: FiniteSumOptimizer, epochs: int = EPOCHS, ranks: int = 1, rank: int = 0, first: int = 0
) -> FiniteSumOptimizer:
    """The loop that anyone writes who knows torch."""
    batches = loader(ranks, rank)
    for epoch in range(first, first + epochs):
        batches.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for x, y in batches:
            optimizer.step(net_closure(model, x, y))
    return optimizer


def same(model: nn.Module, optimizer: FiniteSumOptimizer, wanted: nn.Module, reference: FiniteSumOptimizer) -> None:
    """Weights, what was counted and the last record are equal, bit by bit."""
    for (name, p), q in zip(model.named_parameters(), wanted.parameters(), strict=True):
        assert torch.equal(p, q), name
    assert optimizer.ifo == reference.ifo
    assert str(optimizer.record) == str(reference.record)


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
