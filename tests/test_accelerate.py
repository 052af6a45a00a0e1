"""Accelerate's loop takes the way of a plain loop, bit by bit; with two ranks in test_framework_ranks.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from frameworks import EPOCHS, METHODS, data, loader, loss, made, net, own_loop, same
from torch.utils.data import DataLoader, WeightedRandomSampler

import vcsg

accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed: pip install 'vcsg[accelerate]'")
from accelerate.tracking import GeneralTracker  # noqa: E402

from vcsg.integrations import Tracker, prepare  # noqa: E402


@pytest.fixture
def accelerator() -> Iterator[Any]:
    yield accelerate.Accelerator(cpu=True)
    accelerate.state.AcceleratorState._reset_state(True)


def train(accelerator: Any, model: Any, optimizer: Any, batches: Any, epochs: int = EPOCHS, first: int = 0) -> None:
    """The loop of Accelerate's documentation, with the closure of torch's."""
    for epoch in range(first, first + epochs):
        batches.set_epoch(epoch)
        for batch in batches:

            def closure(batch: Any = batch) -> torch.Tensor:
                optimizer.zero_grad()
                value = loss(model, batch)
                accelerator.backward(value)
                return value

            optimizer.step(closure)


@pytest.mark.parametrize("name", METHODS)
def test_prepare(accelerator: Any, name: str) -> None:
    model, wanted = net(), net()
    optimizer = made(model, name)
    train(accelerator, *accelerator.prepare(model, optimizer, loader()))
    same(model, optimizer, wanted, own_loop(wanted, made(wanted, name)))


@pytest.mark.parametrize("name", ["vcsg", "auto"])
def test_save_state_and_load_state(accelerator: Any, name: str, tmp_path: Path) -> None:
    model, wanted = net(), net()
    model, optimizer, batches = accelerator.prepare(model, made(model, name), loader())
    train(accelerator, model, optimizer, batches, 2)
    accelerator.save_state(tmp_path)
    train(accelerator, model, optimizer, batches, 1)  # and all of that is forgotten
    accelerator.load_state(tmp_path)
    train(accelerator, model, optimizer, batches, EPOCHS - 2, first=2)
    same(model, optimizer.optimizer, wanted, own_loop(wanted, made(wanted, name)))


def test_n_and_batch_size_from_the_loader(accelerator: Any) -> None:
    model, wanted = net(), net()
    model, optimizer, batches = prepare(accelerator, model, vcsg.VCSG(model.parameters()), loader())
    train(accelerator, model, optimizer, batches)
    same(model, optimizer.optimizer, wanted, own_loop(wanted, made(wanted, "vcsg")))


def test_the_trackers_of_an_accelerator(accelerator: Any) -> None:
    rows: list[tuple[int, dict[str, float]]] = []

    class Kept(GeneralTracker):  # type: ignore[misc]
        name, requires_logging_directory, tracker = "kept", False, None

        def log(self, values: dict[str, float], step: int | None, **_: Any) -> None:
            rows.append((step or 0, values))

    model, records = net(), []
    tracking = accelerate.Accelerator(cpu=True, log_with=Kept())
    tracking.init_trackers("run")
    write = Tracker(tracking)

    def callback(record: vcsg.Record) -> None:
        records.append(record)
        write(record)

    own_loop(model, made(model, "vcsg", callback=callback))
    assert rows == [(r.ifo, {f"vcsg/{name}": value for name, value in r.scalars().items()}) for r in records]
    assert len(rows) > 2


def test_what_would_go_wrong_is_refused(accelerator: Any) -> None:
    model = net()
    with pytest.raises(ValueError, match="the loader has batches of 32 samples, the optimizer was made with"):
        prepare(accelerator, model, made(model, "vcsg"), DataLoader(data(), 32))
    with pytest.raises(ValueError, match="the dataset holds 200 samples, the optimizer was made for n = 100"):
        prepare(accelerator, model, made(model, "vcsg", n=100), loader())
    optimizer = made(model, "vcsg")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(model, data()[:16])
        accelerator.backward(value)
        accelerator.clip_grad_norm_(model.parameters(), 1e-3)
        return value

    with pytest.raises(ValueError, match="the closure changes gradients"):
        optimizer.step(closure)
    with pytest.raises(ValueError, match=r"gradient_accumulation_steps = 2: .* take a larger batch_size"):
        prepare(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2), model, made(model, "vcsg"), loader())


def accumulating(name: str, batch_size: int, way: str, n: int = 200) -> vcsg.FiniteSumOptimizer:
    """The loop of Accelerate's page on accumulation, without anything of ours around it."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = net()
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), n, name, batch_size=batch_size, lr=0.1)
    model, wrapped, batches = accelerator.prepare(model, optimizer, loader())
    for batch in batches:
        with accelerator.accumulate(model):

            def evaluate(batch: Any = batch) -> torch.Tensor:
                value = loss(model, batch)
                accelerator.backward(value)
                return value

            if way == "bare":
                evaluate()
                wrapped.step()
            else:
                wrapped.step(evaluate)
            wrapped.zero_grad()
    return optimizer


@pytest.mark.usefixtures("accelerator")
def test_accumulation_by_accelerate_itself() -> None:
    """It calls the optimizer for every fourth batch alone: with a closure the others would be left out unseen."""
    for name in ("vcsg", "adam"):
        with pytest.raises(ValueError, match=r"gradient_accumulation_steps = 4: Accelerate then leaves out the steps"):
            accumulating(name, 16, "closure")
    with pytest.raises(
        ValueError, match=r"a step has 64 samples.*made with batch_size = 16: make it with batch_size=64"
    ):
        accumulating("adam", 16, "bare")
    assert accumulating("adam", 64, "bare").passes == 1


def test_the_length_of_the_data_that_accelerate_reads(accelerator: Any) -> None:
    model = net()
    optimizer = made(model, "vcsg", n=96)  # a multiple of the batch size, which no batch would show
    with pytest.raises(ValueError, match="the dataset holds 200 samples, the optimizer was made for n = 96"):
        train(accelerator, *accelerator.prepare(model, optimizer, loader()), epochs=1)
    assert optimizer.ifo == 0


def test_a_sampler_that_draws_again_is_seen_through_what_accelerate_makes_of_it(accelerator: Any) -> None:
    model, again = net(), WeightedRandomSampler([1.0] * 200, 200)
    prepared = accelerator.prepare(model, made(model, "vcsg"), DataLoader(data(), 16, sampler=again))
    model, optimizer, batches = prepared
    batch = next(iter(batches))
    with pytest.raises(ValueError, match="the WeightedRandomSampler of the loader draws samples more than once"):
        optimizer.step(lambda: loss(model, batch))
