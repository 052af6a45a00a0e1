"""Callbacks for Lightning's Trainer: stop by passes, records and step sizes in its loggers, and the method's output.

A LightningModule needs none of them to train with these optimizers; docs/integrations.md has a complete program.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LearningRateMonitor
from torch.utils.data import DataLoader

from vcsg.optimizer import FiniteSumOptimizer
from vcsg.run.feeding import PhaseSampler
from vcsg.run.record import Record, Until


class FiniteSumCallback(Callback):  # type: ignore[misc]
    """Watches over the optimizers of this library in a Trainer.

    It refuses the Trainer's options that would change gradients behind a method's back, stops by passes or by a rule,
    writes the scalars of every record to the Trainer's loggers (as `vcsg/loss`, …, at the Trainer's step) and into
    `trainer.callback_metrics`, where `EarlyStopping` and `ModelCheckpoint` find them, and validates at the point that
    the method would return, to which the model goes when training ends.

    Args:
        passes: stop when so many gradients were evaluated, in units of n.
        until: stop when this returns True for the record of an epoch; see `vcsg.stationary`.
        prefix: what the names in the loggers begin with.
    """

    def __init__(self, passes: float | None = None, until: Until | None = None, prefix: str = "vcsg/") -> None:
        if passes is not None and not passes >= 0:
            raise ValueError(f"passes = {passes!r}: give a number, at least 0")
        self.passes, self.until, self.prefix = passes, until, prefix
        self._told: dict[int, Record] = {}
        self._outputs = ExitStack()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        found = own_optimizers(trainer)
        if not found:
            used = ", ".join(type(optimizer).__name__ for optimizer in trainer.optimizers)
            raise TypeError(
                f"the optimizers are {used}: FiniteSumCallback is for those of vcsg; return one from "
                "configure_optimizers, or leave the callback out"
            )
        self._told.clear()
        for optimizer in found:
            self._expect(trainer, optimizer)
            refuse_changed_gradients(trainer, optimizer)
            optimizer.heed_certificates(self.until)
            if optimizer.ifo and optimizer.record is not None:  # a run that goes on: the run before has told it
                self._told[id(optimizer)] = optimizer.record
        self._look(trainer)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for optimizer in own_optimizers(trainer):
            self._expect(trainer, optimizer)

    def _expect(self, trainer: Trainer, optimizer: FiniteSumOptimizer) -> None:
        """Take n and the batch size from the Trainer's loader, as far as not given; a loader of others is refused."""
        loader = trainer.train_dataloader
        if isinstance(loader, DataLoader) and not isinstance(loader.batch_sampler, PhaseSampler):
            optimizer.expect(loader)

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        self._look(trainer)

    def _look(self, trainer: Trainer) -> None:
        """Tell what is new, and stop where a limit is reached."""
        for optimizer in own_optimizers(trainer):
            record = optimizer.record
            if record is not None and record is not self._told.get(id(optimizer)):
                self._told[id(optimizer)] = record
                self._tell(trainer, record)
                if self.until is not None and optimizer.ends(self.until):
                    trainer.should_stop = True
            if self.passes is not None and optimizer.passes >= self.passes:
                trainer.should_stop = True

    def _tell(self, trainer: Trainer, record: Record) -> None:
        numbers = {f"{self.prefix}{name}": value for name, value in record.scalars().items()}
        for logger in trainer.loggers:
            logger.log_metrics(numbers, step=trainer.global_step)
        trainer.callback_metrics.update({name: torch.tensor(value) for name, value in numbers.items()})

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for optimizer in [] if trainer.sanity_checking else own_optimizers(trainer):
            self._outputs.enter_context(optimizer.at_output())

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._outputs.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._outputs.close()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for optimizer in own_optimizers(trainer):
            optimizer.load_output()


class StepSizeMonitor(LearningRateMonitor):  # type: ignore[misc]
    """Lightning's `LearningRateMonitor` with the step size η in place of `lr`, which here is a factor of it.

    Nothing is shown before η is known: L may still have to be estimated.
    """

    def on_train_batch_start(self, trainer: Trainer, *arguments: Any, **options: Any) -> None:
        with _step_sizes_shown(trainer) as known:
            if known:
                super().on_train_batch_start(trainer, *arguments, **options)

    def on_train_epoch_start(self, trainer: Trainer, *arguments: Any, **options: Any) -> None:
        with _step_sizes_shown(trainer) as known:
            if known:
                super().on_train_epoch_start(trainer, *arguments, **options)


def own_optimizers(trainer: Trainer) -> list[FiniteSumOptimizer]:
    """The optimizers of this library among those of a Trainer."""
    return [optimizer for optimizer in trainer.optimizers if isinstance(optimizer, FiniteSumOptimizer)]


def refuse_changed_gradients(trainer: Trainer, optimizer: FiniteSumOptimizer) -> None:
    """Refuse a Trainer that would clip gradients that a method compares, or add up those of several batches."""
    if trainer.gradient_clip_val and not optimizer.needs_one_point:
        raise ValueError(
            f"gradient_clip_val = {trainer.gradient_clip_val}: it cuts the gradients that {optimizer.method.name} "
            "compares differently, so that they no longer cancel. Leave it out, and give the optimizer "
            f"clip_norm={trainer.gradient_clip_val}, which shortens the step"
        )
    if trainer.accumulate_grad_batches != 1:
        raise ValueError(
            f"accumulate_grad_batches = {trainer.accumulate_grad_batches}: an anchor is made of many batches already, "
            "and a step compares two gradients of one. Leave it at 1, and take a larger batch_size"
        )


@contextmanager
def _step_sizes_shown(trainer: Trainer) -> Iterator[bool]:
    """Within, `lr` of each group is the η of its steps; yields False where that is not known yet."""
    groups = [group for optimizer in own_optimizers(trainer) for group in optimizer.param_groups]
    sizes = [optimizer.step_sizes for optimizer in own_optimizers(trainer)]
    known = [size for own in sizes if own is not None for size in own]
    kept = [group["lr"] for group in groups]
    try:
        if len(known) == len(groups):
            for group, size in zip(groups, known, strict=True):
                group["lr"] = size
        yield len(known) == len(groups)
    finally:
        for group, lr in zip(groups, kept, strict=True):
            group["lr"] = lr
