"""One run from its first step to its last: what `vcsg.fit` and the study share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from vcsg.files import locked, sweep
from vcsg.run.watch import BadSamples
from vcsg.training.bad_samples import name_samples
from vcsg.training.checkpoints import Checkpoints
from vcsg.training.clock import Clock
from vcsg.training.engine import StepEngine, check_engine
from vcsg.training.evaluation import mode
from vcsg.training.interrupt import StopRequest
from vcsg.training.limits import Limits
from vcsg.training.loop import Loop, Row
from vcsg.training.numerics import check_precision, precision
from vcsg.training.progress import Show
from vcsg.training.saving import CHECKPOINT_SECONDS, Generators, Part, Saver, check_seconds, versions
from vcsg.training.sources import SampleSource
from vcsg.training.stepper import Stepper


@dataclass(frozen=True)
class SessionOptions:
    """How a run is carried out. None of it changes what the run minimises."""

    every: float = 1.0
    """The number of passes between two evaluations; math.inf evaluates the last point alone."""
    early: int = 0
    """The number of evaluations before the first of those, at every/2, every/4, …"""
    first: bool = True
    """Whether the start is evaluated too."""
    engine: str = "auto"
    precision: str | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    def __post_init__(self) -> None:
        if not self.every > 0:
            raise ValueError(
                f"every = {self.every!r}: give the passes between evaluations, above 0; math.inf for the last only"
            )
        check_engine(self.engine)
        check_precision(self.precision)
        check_seconds(self.checkpoint_seconds)


class Session:
    """One run with its engine, loop, clock and checkpoints, in the mode and the precision that it needs.

    Args:
        model: the model, on its device.
        optimizer: draws the batches and takes the steps.
        objective: batch → its mean loss.
        train: the source of the batches.
        evaluate: (row, whether it is the last) completes a row of the history; see `Loop`.
        limits: the limits of the run.
        options: how it is carried out.
        parts: what a checkpoint holds besides model, loop and generators, by name. It is loaded before them, so that
            the first of these parts may refuse a checkpoint by `Damaged`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Stepper,
        objective: Callable[[Any], Tensor],
        train: SampleSource,
        evaluate: Callable[[Row, bool], None],
        limits: Limits,
        options: SessionOptions,
        parts: Mapping[str, Part] | None = None,
    ) -> None:
        self._model, self._optimizer, self._limits, self._options = model, optimizer, limits, options
        self._objective, self._train = objective, train
        self.clock = Clock(next(model.parameters()).device)
        with self._conditions():
            self._engine = StepEngine(options.engine, optimizer, model, objective, train)
        self._loop = Loop(
            model,
            optimizer,
            objective,
            train,
            evaluate,
            limits,
            every=options.every,
            early=options.early,
            first=options.first,
            clock=self.clock,
            engine=self._engine,
        )
        self._parts = {**(parts or {}), "model": model, "loop": self._loop, "generators": Generators()}
        self._saver: Saver | None = None

    @property
    def history(self) -> list[Row]:
        """One row per evaluation."""
        return self._loop.history

    @property
    def engine_notes(self) -> dict[str, Any]:
        """How steps were taken, for the records of the run."""
        return self._engine.notes

    def run(self, title: str, show: Show, stop: StopRequest) -> str:
        """Train until a limit is reached or a stop is requested; returns the limit, or "interrupted".

        On several ranks the first one alone writes checkpoints.
        """
        saver = self._saver if _is_first_rank() else None
        shown = show(title, self._optimizer, self._limits.measured)
        with self._conditions(), shown as display, closing(self._engine):
            try:
                return self._loop.run(stop, display, saver)
            except BadSamples as error:
                raise name_samples(error, self._model, self._objective, self._train) from None

    def save_to(self, checkpoints: Checkpoints, lasting: bool = False) -> None:
        """Write checkpoints there from now on; `lasting` keeps one of the end of the run as well."""
        self._saver = Saver(checkpoints, self._parts, self._options.checkpoint_seconds, lasting)

    def load(self) -> bool:
        """Continue from the last sound checkpoint; returns False where there is none."""
        return self._saver is not None and self._saver.load()

    @contextmanager
    def saved_in(
        self, folder: str | os.PathLike[str] | None, config: Mapping[str, Any], resume: bool
    ) -> Iterator[bool]:
        """Have the folder to itself for checkpoints, and continue from its last one if `resume`; None saves nothing.

        Yields whether the run continues.

        `config` is what has to be the same to continue. On several ranks the first one has the folder; the others only
        read from it.
        """
        if folder is None:
            yield False
        elif _is_first_rank():
            with locked(folder):
                sweep(folder)
                checkpoints = Checkpoints(folder, {**config, **versions()})
                if checkpoints and not resume:
                    raise FileExistsError(
                        f"{folder} holds a checkpoint: give resume=True to continue from it, or another folder"
                    )
                self.save_to(checkpoints, lasting=True)
                yield self.load()
        else:
            if resume:
                self.save_to(Checkpoints(folder, {**config, **versions()}))
            yield self.load()

    @contextmanager
    def _conditions(self) -> Iterator[None]:
        """Put the model in mode train(), and torch in the precision of the run."""
        with mode(self._model, True), precision(self._options.precision):
            yield


def _is_first_rank() -> bool:
    return not (dist.is_available() and dist.is_initialized() and dist.get_rank() > 0)
