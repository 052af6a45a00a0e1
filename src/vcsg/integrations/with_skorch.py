"""skorch's nets for these optimizers: n and the batch size come from the data of each fit, so that searches work.

A net of skorch itself trains as well, with n= and batch_size= given, where one fit is all that there is.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from skorch import NeuralNetClassifier, NeuralNetRegressor

from vcsg.optimizer import FiniteSumOptimizer


class LastStep:
    """Keeps the last evaluation of a step, which is that at x; an earlier one may have been at the anchor."""

    def store_step(self, step: dict[str, Any]) -> None:
        self._step = step

    def get_step(self) -> dict[str, Any]:
        return self._step


class FiniteSumFit:
    """What makes a net of skorch one for these optimizers; it comes before the net's class.

    An optimizer is made for the samples and the batches that a fit has. `train_loss` is that of the points of the run,
    `passes` is in the history, validation is done at the point that the method would return, and there the net is when
    a fit ends.
    """

    def _own_optimizers(self) -> list[FiniteSumOptimizer]:
        made = [getattr(self, f"{name}_") for name in self._optimizers]  # type: ignore[attr-defined]
        return [optimizer for optimizer in made if isinstance(optimizer, FiniteSumOptimizer)]

    def get_train_step_accumulator(self) -> LastStep:
        return LastStep()

    def run_single_epoch(self, iterator: Any, training: bool, prefix: str, step_fn: Any, **fit_params: Any) -> None:
        run = super().run_single_epoch  # type: ignore[misc]
        optimizers = self._own_optimizers()
        with ExitStack() as stack:
            for optimizer in optimizers if iterator is not None else []:
                if training:
                    optimizer.expect(iterator)
                else:
                    stack.enter_context(optimizer.at_output())
            run(iterator, training, prefix, step_fn, **fit_params)
        if training and optimizers:
            self.history.record("passes", optimizers[0].passes)  # type: ignore[attr-defined]

    def on_train_end(self, net: Any, *arguments: Any, **named: Any) -> None:
        super().on_train_end(net, *arguments, **named)  # type: ignore[misc]
        begun = any("passes" in epoch for epoch in self.history)  # type: ignore[attr-defined]
        for optimizer in self._own_optimizers() if begun else []:
            optimizer.load_output()


class FiniteSumClassifier(FiniteSumFit, NeuralNetClassifier):  # type: ignore[misc]
    """skorch's `NeuralNetClassifier` for an `optimizer=` of this library.

    Example:
        net = FiniteSumClassifier(Module, optimizer=vcsg.VCSG, lr=None, batch_size=64, iterator_train__shuffle=True)
        search = GridSearchCV(net, {"batch_size": [16, 64]}, cv=3).fit(X, y)
    """


class FiniteSumRegressor(FiniteSumFit, NeuralNetRegressor):  # type: ignore[misc]
    """skorch's `NeuralNetRegressor` for an `optimizer=` of this library."""
