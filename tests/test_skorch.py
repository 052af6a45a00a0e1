"""Nets of skorch take the way of a plain loop, bit by bit, also inside a search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from frameworks import BATCH, EPOCHS, METHODS, N, data, made, net, same
from nets import net_closure
from torch import nn
from torch.utils.data import DataLoader

import vcsg

skorch = pytest.importorskip("skorch", reason="skorch is not installed: pip install 'vcsg[skorch]'")
from skorch.callbacks import GradientNormClipping  # noqa: E402
from skorch.helper import predefined_split  # noqa: E402

from vcsg.integrations import FiniteSumClassifier, FiniteSumRegressor  # noqa: E402

X, Y = (tensor.numpy() for tensor in data().tensors)


def classifier(kind: Any = FiniteSumClassifier, **options: Any) -> Any:
    plain = {"criterion": nn.CrossEntropyLoss, "train_split": None, "batch_size": BATCH, "verbose": 0}
    return kind(net, **{**plain, "max_epochs": EPOCHS, "lr": None, **options})


def in_order(model: nn.Module, optimizer: vcsg.FiniteSumOptimizer, batch: int = BATCH) -> list[float]:
    """A plain loop in the order of the data; the mean loss of each pass."""
    losses = []
    for _ in range(EPOCHS):
        found = [(len(x), optimizer.step(net_closure(model, x, y)).item()) for x, y in DataLoader(data(), batch)]
        losses.append(sum(size * loss for size, loss in found) / N)
    return losses


@pytest.mark.parametrize("name", METHODS)
def test_n_from_the_data(name: str) -> None:
    options = {f"optimizer__{key}": value for key, value in METHODS[name].items() if key != "lr"}
    fitted = classifier(
        optimizer=vcsg.FiniteSumOptimizer, optimizer__method=name, lr=METHODS[name].get("lr"), **options
    )
    fitted.fit(X, Y)
    model = net()
    optimizer = made(model, name)
    losses = in_order(model, optimizer)
    assert fitted.history[:, "passes"][-1] == optimizer.passes
    optimizer.load_output()
    same(fitted.module_, fitted.optimizer_, model, optimizer)
    assert fitted.history[:, "train_loss"] == pytest.approx(losses)


def test_a_net_of_skorch_itself() -> None:
    fitted = classifier(
        skorch.NeuralNetClassifier, optimizer=vcsg.VCSG, optimizer__n=N, optimizer__batch_size=BATCH
    ).fit(X, Y)
    model = net()
    optimizer = made(model, "vcsg")
    in_order(model, optimizer)
    same(fitted.module_, fitted.optimizer_, model, optimizer)


def test_grid_search() -> None:
    """Each fit of a search has an optimizer for its own samples; the last one is for all."""
    from sklearn.model_selection import GridSearchCV

    sizes: list[int] = []

    class Watched(vcsg.SVRG):
        def expect(self, loader: Any) -> None:
            super().expect(loader)
            sizes.append(self.n)

    estimator = classifier(optimizer=Watched)
    search = GridSearchCV(estimator, {"lr": [1e-4, 2.0]}, cv=4).fit(X, Y)
    assert set(sizes) == {150, 200}
    assert search.best_params_ == {"lr": 2.0}
    model = net()
    optimizer = made(model, "svrg")
    in_order(model, optimizer)
    same(search.best_estimator_.module_, search.best_estimator_.optimizer_, model, optimizer)


def test_validation_at_the_average() -> None:
    held_out = data()
    fitted = classifier(optimizer=vcsg.Auto, train_split=predefined_split(held_out), max_epochs=1).fit(X, Y)
    model = net()
    optimizer = made(model, "auto")
    for x, y in DataLoader(data(), BATCH):
        optimizer.step(net_closure(model, x, y))
    optimizer.load_output()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(held_out.tensors[0]), held_out.tensors[1]).item()
    assert fitted.history[-1, "valid_loss"] == pytest.approx(loss, rel=1e-5)


def test_a_regressor_goes_on_by_partial_fit() -> None:
    def module() -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(5, 1)

    options = {"optimizer": vcsg.SVRG, "lr": 0.5, "batch_size": BATCH, "train_split": None, "verbose": 0}
    target = (X @ np.arange(5, dtype=np.float32)).reshape(-1, 1)
    once = FiniteSumRegressor(module, max_epochs=6, **options).fit(X, target)
    twice = FiniteSumRegressor(module, max_epochs=3, **options).fit(X, target).partial_fit(X, target)
    assert torch.equal(once.module_.weight, twice.module_.weight)
    assert once.score(X, target) > 0.9
    with pytest.raises(ValueError, match="the dataset holds 150 samples, the optimizer was made for n = 200"):
        twice.partial_fit(X[:150], target[:150])


def test_no_epochs() -> None:
    fitted = classifier(optimizer=vcsg.VCSG, max_epochs=0).fit(X, Y)
    assert torch.equal(fitted.module_[0].weight, net()[0].weight)


def test_clipped_gradients_are_refused() -> None:
    clipped = classifier(optimizer=vcsg.VCSG, callbacks=[GradientNormClipping(1e-3)])
    with pytest.raises(ValueError, match="the closure changes gradients"):
        clipped.fit(X, Y)


def test_the_length_of_the_data_that_a_net_of_skorch_itself_reads() -> None:
    options = {"optimizer": vcsg.VCSG, "optimizer__n": 96, "optimizer__batch_size": BATCH}
    with pytest.raises(ValueError, match="the dataset holds 200 samples, the optimizer was made for n = 96"):
        classifier(skorch.NeuralNetClassifier, **options).fit(X, Y)
    split = {"train_split": skorch.dataset.ValidSplit(5), "optimizer__n": N}  # n is that of the training samples
    with pytest.raises(ValueError, match="the dataset holds 160 samples, the optimizer was made for n = 200"):
        classifier(skorch.NeuralNetClassifier, **{**options, **split}).fit(X, Y)
