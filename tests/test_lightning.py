"""Lightning's Trainer with its automatic optimization takes the way of a plain loop, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from frameworks import EPOCHS, METHODS, N, data, loader, loss, made, net, own_loop, same
from nets import net_closure
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

import vcsg
from vcsg import FiniteSumOptimizer

pytest.importorskip("lightning", reason="Lightning is not installed: pip install 'vcsg[lightning]'")
import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers.logger import Logger

from vcsg.integrations import FiniteSumCallback, StepSizeMonitor


class Net(pl.LightningModule):
    """An ordinary LightningModule; nothing in it knows of vcsg but `configure_optimizers`."""

    def __init__(self, optimizer: Callable[[torch.nn.Module], FiniteSumOptimizer]) -> None:
        super().__init__()
        self.model, self._made = net(), optimizer

    def training_step(self, batch: Any, _: int) -> Tensor:
        return loss(self.model, batch)

    def configure_optimizers(self) -> FiniteSumOptimizer:
        return self._made(self.model)


class Kept(Logger):
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, dict[str, float]]] = []

    name, version = "kept", 0

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Nothing is kept of them."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((int(step or 0), dict(metrics)))


def trainer(*callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    plain = {"max_epochs": EPOCHS, "enable_checkpointing": False, "barebones": False}
    return pl.Trainer(**{**quiet, **plain, **options}, callbacks=list(callbacks))


@pytest.mark.parametrize("name", METHODS)
def test_automatic_optimization(name: str) -> None:
    module, model = Net(lambda model: made(model, name)), net()
    run = trainer()
    run.fit(module, loader())
    same(module.model, run.optimizers[0], model, own_loop(model, made(model, name)))


@pytest.mark.parametrize("name", ["vcsg", "auto"])
def test_resume_by_model_checkpoint(name: str, tmp_path: Path) -> None:
    """The checkpoint is taken in the middle of an anchor or of an inner loop: passes of the loop are no epochs."""

    def make(model: torch.nn.Module) -> FiniteSumOptimizer:
        return made(model, name)

    def saving(epochs: int) -> pl.Trainer:
        saver = ModelCheckpoint(tmp_path, save_last=True, save_top_k=0)
        return trainer(saver, max_epochs=epochs, enable_checkpointing=True, default_root_dir=tmp_path)

    saving(2).fit(Net(make), loader())
    module, model, run = Net(make), net(), saving(EPOCHS)
    run.fit(module, loader(), ckpt_path=tmp_path / "last.ckpt")
    same(module.model, run.optimizers[0], model, own_loop(model, made(model, name)))


def test_n_and_batch_size_from_the_loader() -> None:
    module, model = Net(lambda model: vcsg.VCSG(model.parameters())), net()
    run = trainer(FiniteSumCallback())
    run.fit(module, loader())
    same(module.model, run.optimizers[0], model, own_loop(model, made(model, "vcsg")))


def test_the_callback_stops_and_logs() -> None:
    """Every record is logged where it was made, with η under the name that LearningRateMonitor gives to lr."""
    module, model, logger, told = Net(lambda model: made(model, "vcsg")), net(), Kept(), []
    monitor = StepSizeMonitor("step")
    run = trainer(FiniteSumCallback(passes=5), monitor, max_epochs=-1, logger=logger, log_every_n_steps=1)
    run.fit(module, loader())
    optimizer, steps = made(model, "vcsg"), 0
    batches, sizes = loader(), []
    while optimizer.passes < 5:
        batches.sampler.set_epoch(steps // len(batches))  # type: ignore[attr-defined]
        for x, y in batches:
            sizes += [optimizer.step_sizes[0]] if optimizer.step_sizes else []
            before = optimizer.record
            optimizer.step(net_closure(model, x, y))
            steps += 1
            if optimizer.record is not before:
                told.append((steps, {f"vcsg/{name}": value for name, value in optimizer.record.scalars().items()}))
            if optimizer.passes >= 5:
                break
    same(module.model, run.optimizers[0], model, optimizer)
    assert run.global_step == steps
    assert [row for row in logger.rows if "vcsg/loss" in row[1]] == told
    assert run.callback_metrics["vcsg/loss"].item() == pytest.approx(told[-1][1]["vcsg/loss"])
    assert [row["lr-FiniteSumOptimizer"] for _, row in logger.rows if "lr-FiniteSumOptimizer" in row] == sizes
    assert 1.0 not in sizes
    assert run.optimizers[0].param_groups[0]["lr"] == 1.0


def test_the_callback_stops_by_a_rule() -> None:
    run = trainer(FiniteSumCallback(until=lambda record: record.epoch == 3), max_epochs=-1)
    run.fit(Net(lambda model: made(model, "vcsg")), loader())
    assert run.optimizers[0].record.epoch == 3


def test_validation_at_the_average_and_the_output_at_the_end() -> None:
    class Validated(Net):
        def validation_step(self, batch: Any, _: int) -> None:
            self.log("point", torch.cat([p.flatten() for p in self.parameters()]).double().sum())

    module, model, logger = Validated(lambda model: made(model, "auto")), net(), Kept()
    run = trainer(FiniteSumCallback(), logger=logger, max_epochs=2, log_every_n_steps=10)
    run.fit(module, loader(), DataLoader(data(), N))
    optimizer, averages = made(model, "auto"), []
    for epoch in range(2):
        own_loop(model, optimizer, 1, first=epoch)
        with optimizer.at_output() as elsewhere:
            assert elsewhere
            averages.append(torch.cat([p.flatten() for p in model.parameters()]).double().sum().item())
    assert [row["point"] for _, row in logger.rows if "point" in row] == pytest.approx(averages, rel=1e-6)
    assert optimizer.load_output()
    same(module.model, run.optimizers[0], model, optimizer)


class Drawn(Net):
    """A module whose batches the optimizer draws; an epoch of the Trainer is then a phase."""

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(data(), batch_sampler=self.optimizers().sampler)


def test_the_optimizer_can_draw() -> None:
    module, model = Drawn(lambda model: vcsg.VCSG(model.parameters(), n=N, b_min=8)), net()
    run = trainer(FiniteSumCallback(passes=6), max_epochs=-1)
    run.fit(module)
    optimizer = vcsg.VCSG(model.parameters(), n=N, b_min=8)
    for x, y in optimizer.batches(data().tensors, passes=6):
        optimizer.step(net_closure(model, x, y))
    same(module.model, run.optimizers[0], model, optimizer)


def test_a_certificate_where_a_run_was_stationary() -> None:
    module, model = Drawn(lambda model: vcsg.SVRG(model.parameters(), n=N, b=8, lr=2.0)), net()
    run = trainer(FiniteSumCallback(until=vcsg.stationary(1e-2)), max_epochs=-1)
    run.fit(module)
    optimizer = vcsg.SVRG(model.parameters(), n=N, b=8, lr=2.0)
    for x, y in optimizer.batches(data().tensors, until=vcsg.stationary(1e-2)):
        optimizer.step(net_closure(model, x, y))
    same(module.model, run.optimizers[0], model, optimizer)
    assert run.optimizers[0].certificate == optimizer.certificate
    assert optimizer.certificate is not None


def test_clipping_for_a_method_of_one_point() -> None:
    module, model = Net(lambda model: made(model, "adam")), net()
    run = trainer(FiniteSumCallback(), gradient_clip_val=0.1)
    run.fit(module, loader())
    optimizer, batches = made(model, "adam"), loader()
    for epoch in range(EPOCHS):
        batches.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for x, y in batches:
            net_closure(model, x, y)()
            assert torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1) > 0.1
            optimizer.step()
    same(module.model, run.optimizers[0], model, optimizer)


@pytest.mark.parametrize("watched", [True, False], ids=["with the callback", "without"])
@pytest.mark.parametrize(
    ("options", "message", "seen"),
    [
        ({"gradient_clip_val": 0.01}, "clip_norm=0.01, which shortens the step", "give the optimizer clip_norm="),
        ({"accumulate_grad_batches": 2}, "take a larger batch_size", "ake a larger batch_size instead"),
    ],
)
def test_changed_gradients_are_refused(options: dict[str, Any], message: str, seen: str, watched: bool) -> None:
    run = trainer(*[FiniteSumCallback()] * watched, **options)
    with pytest.raises((ValueError, RuntimeError), match=message if watched else seen):
        run.fit(Net(lambda model: made(model, "vcsg")), loader())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 100}, "holds 200 samples, the optimizer was made for n = 100"),
        ({"batch_size": 32}, "batches of 16 samples"),
    ],
)
def test_another_loader_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer(FiniteSumCallback()).fit(Net(lambda model: made(model, "vcsg", **options)), loader())


def test_other_optimizers_are_refused() -> None:
    module = Net(lambda model: torch.optim.SGD(model.parameters(), 0.1))  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="the optimizers are SGD: FiniteSumCallback is for those of vcsg"):
        trainer(FiniteSumCallback()).fit(module, loader())
    with pytest.raises(ValueError, match=r"passes = -1: give a number, at least 0"):
        FiniteSumCallback(passes=-1)


def test_the_length_of_the_data_that_the_trainer_reads() -> None:
    """Without our callback too; a Trainer that reads a part of the loader tells nothing of it."""
    module = Net(lambda model: made(model, "vcsg", n=96))  # a multiple of the batch size, which no batch would show
    with pytest.raises(ValueError, match="the dataset holds 200 samples, the optimizer was made for n = 96"):
        trainer(max_epochs=1).fit(module, loader())
    part = trainer(max_epochs=1, limit_train_batches=6)
    part.fit(module, loader())
    assert part.optimizers[0].passes >= 1


class Stream(IterableDataset):  # type: ignore[type-arg]
    """The samples in order, of unknown number."""

    def __iter__(self) -> Any:
        return iter(zip(*data().tensors, strict=True))


def test_a_stream_has_no_length_to_compare() -> None:
    run = trainer(max_epochs=1)
    run.fit(Net(lambda model: made(model, "vcsg")), DataLoader(Stream(), 16))
    assert run.optimizers[0].passes == 1


class Manual(Net):
    """Manual optimization without a closure, in whose place Lightning gives the optimizer one that does nothing."""

    automatic_optimization = False

    def training_step(self, batch: Any, _: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss(self.model, batch))
        optimizer.step()


def test_manual_optimization_without_a_closure() -> None:
    run = trainer(max_epochs=1)
    run.fit(Manual(lambda model: made(model, "adam")), loader())
    assert run.optimizers[0].passes == 1
    with pytest.raises(
        TypeError, match=r"the closure returned None.*in Lightning's manual optimization, give step a clos"
    ):
        trainer(max_epochs=1).fit(Manual(lambda model: made(model, "vcsg")), loader())
