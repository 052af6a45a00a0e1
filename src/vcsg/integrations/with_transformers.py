"""A `Trainer` of transformers that hands its optimizer a closure, for methods that need the gradient at two points.

A method that needs one point alone (`vcsg.Auto`, `vcsg.Adam`, …) works in the Trainer as it is; this one adds, for all
of them, n from the dataset, records in the logs, a limit of passes, and the point that the method returns.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from accelerate.utils import find_batch_size
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vcsg.optimizer import FiniteSumOptimizer
from vcsg.run.record import Record


class FiniteSumTrainer(Trainer):  # type: ignore[misc]
    """transformers' `Trainer` for an optimizer of this library, given by `optimizers=` or `optimizer_cls_and_kwargs=`.

    An optimizer without n and batch_size takes them from the training data and arguments. Every record is logged, as
    `vcsg/loss`, …; `learning_rate` is the step size η. Evaluations are done at the point that the method would return,
    and there the model is at the end.

    Args:
        passes: stop when so many gradients were evaluated, in units of the number of samples.
        arguments: the arguments of `Trainer`; see there.
        options: the options of `Trainer`; see there.

    Example:
        optimizer = vcsg.VCSG(model.parameters())
        arguments = TrainingArguments("out", max_grad_norm=0.0, lr_scheduler_type="constant")
        FiniteSumTrainer(model, arguments, train_dataset=train, optimizers=(optimizer, None), passes=20).train()
    """

    def __init__(self, *arguments: Any, passes: float | None = None, **options: Any) -> None:
        if passes is not None and not passes >= 0:
            raise ValueError(f"passes = {passes!r}: give a number, at least 0")
        super().__init__(*arguments, **options)
        self.passes = passes
        self.add_callback(_Watch(self))

    @property
    def finite_sum(self) -> FiniteSumOptimizer:
        """The optimizer of this library, inside what Accelerate wraps around it."""
        found = getattr(self.optimizer, "optimizer", self.optimizer)
        if not isinstance(found, FiniteSumOptimizer):
            raise TypeError(
                f"the optimizer is a {type(found).__name__}: FiniteSumTrainer is for those of vcsg; give "
                "optimizers=(vcsg.VCSG(model.parameters()), None), or use transformers' Trainer"
            )
        return found

    def create_optimizer(self, *arguments: Any, **options: Any) -> Any:
        """The optimizer, made for the training data; what would change its gradients is refused."""
        optimizer = super().create_optimizer(*arguments, **options)
        _refuse_changed_gradients(self.args)
        self.expect_pass()
        return optimizer

    def expect_pass(self) -> None:
        """Tell the optimizer the number of samples and the batch size of the pass that begins."""
        args = self.args
        shuffled = not isinstance(self.train_dataset, IterableDataset)
        loader = DataLoader(
            self.train_dataset, args.train_batch_size, shuffle=shuffled, drop_last=args.dataloader_drop_last
        )
        self.finite_sum.expect(loader)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """The whole step; the step that the Trainer takes afterwards is left out."""
        evaluate = super().training_step
        losses: list[Tensor] = []

        def closure() -> Tensor:
            self.finite_sum.zero_grad()
            losses.append(evaluate(model, inputs, num_items_in_batch))
            return losses[-1]

        # Models are called with names, so their rows are not to be seen.
        self.finite_sum.step(closure, samples=find_batch_size(inputs))
        return losses[-1]

    def evaluate(self, *arguments: Any, **options: Any) -> Any:
        begun = self.state.global_step > 0
        with self.finite_sum.at_output() if begun else nullcontext():
            return super().evaluate(*arguments, **options)

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        sizes = self.finite_sum.step_sizes if "learning_rate" in logs else None
        super().log({**logs, "learning_rate": sizes[0]} if sizes else logs, *arguments, **options)


class _Watch(TrainerCallback):  # type: ignore[misc]
    """Leaves out the Trainer's own step, logs records, and ends a run."""

    def __init__(self, trainer: FiniteSumTrainer) -> None:
        self._trainer = trainer
        self._told: Record | None = None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        # A run that goes on has told the record that it was saved with.
        self._told = self._trainer.finite_sum.record if self._trainer.finite_sum.ifo else None

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self._trainer.expect_pass()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        # Accelerate's optimizer takes no step where gradients are not complete; `training_step` has taken it.
        self._trainer.accelerator.gradient_state._set_sync_gradients(False)

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._trainer.accelerator.gradient_state._set_sync_gradients(True)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        optimizer = self._trainer.finite_sum
        if optimizer.record is not None and optimizer.record is not self._told:
            self._told = optimizer.record
            self._trainer.log({f"vcsg/{name}": value for name, value in optimizer.record.scalars().items()})
        if self._trainer.passes is not None and optimizer.passes >= self._trainer.passes:
            control.should_training_stop = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if not (args.load_best_model_at_end and state.best_model_checkpoint):
            self._trainer.finite_sum.load_output()


def _refuse_changed_gradients(args: TrainingArguments) -> None:
    """Refuse arguments by which the Trainer would clip, add up or scale gradients."""
    if args.max_grad_norm:
        raise ValueError(
            f"max_grad_norm = {args.max_grad_norm} (1.0 is the default): it would clip gradients after the step that "
            f"they were for. Give max_grad_norm=0.0, and the optimizer clip_norm={args.max_grad_norm}, which shortens "
            "the step"
        )
    if args.gradient_accumulation_steps != 1:
        raise ValueError(
            f"gradient_accumulation_steps = {args.gradient_accumulation_steps}: an anchor is made of many batches "
            "already. Leave it at 1, and take a larger per_device_train_batch_size"
        )
    if args.fp16:
        raise ValueError("fp16 = True: its GradScaler changes the scale of gradients between steps; give bf16=True")
