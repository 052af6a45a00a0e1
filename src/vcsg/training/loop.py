"""The loop over batches: steps, evaluations, checkpoints, limits and requests to stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from vcsg.run.record import Answer, Record
from vcsg.training.batch_norm import measure_statistics
from vcsg.training.clock import Clock
from vcsg.training.engine import STEPS_AT_ONCE, StepEngine
from vcsg.training.interrupt import StopRequest
from vcsg.training.limits import Limits
from vcsg.training.progress import Silent
from vcsg.training.saving import Saver
from vcsg.training.sources import SampleSource
from vcsg.training.stepper import Stepper

Row = dict[str, float]


class Loop:
    """Takes steps from batch to batch, with evaluations and checkpoints in between, whose time is not counted.

    Args:
        model: the model, in mode train().
        optimizer: draws the batches and takes the steps.
        objective: batch → its mean loss.
        train: the source of the batches.
        evaluate: (row, whether it is the last) completes a new row of the history. The row has passes, ifo, seconds and
            "train_loss", the mean over the samples of all batches since the row before.
        limits: the limits of the run.
        every: the number of passes between two evaluations.
        early: the number of evaluations before the first of those, at every/2, every/4, …
        first: whether the start is evaluated too. The last point always is.
        clock: measures the time of training.
        engine: takes several steps at once where it can.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Stepper,
        objective: Callable[[Any], Tensor],
        train: SampleSource,
        evaluate: Callable[[Row, bool], None],
        limits: Limits,
        *,
        every: float,
        early: int = 0,
        first: bool = True,
        clock: Clock,
        engine: StepEngine,
    ) -> None:
        self.optimizer, self.clock, self._engine = optimizer, clock, engine
        self.history: list[Row] = []
        self._model, self._objective, self._train = model, objective, train
        self._complete, self._limits = evaluate, limits
        self._every, self._early = every, early
        self._due = optimizer.passes if first else next_evaluation(optimizer.passes, every, early)
        self._losses, self._samples = 0.0, 0
        self._reached: Record | None = None
        self._interrupted = self._enough = False
        self._saver: Saver | None = None

    @property
    def share(self) -> float:
        """The share of the run that is done, as far as its limits tell."""
        limits = self._limits
        parts = (
            (self.optimizer.ifo, limits.ifo),
            (self.optimizer.passes, limits.passes),
            (self.clock.seconds, limits.seconds),
        )
        return max((done / limit for done, limit in parts if limit is not None), default=0.0)

    def run(self, stop: StopRequest, display: Silent, saver: Saver | None = None) -> str:
        """Train until a limit is reached or a stop is requested, then evaluate the point that the method returns.

        Returns the limit that was reached, or "interrupted". A KeyboardInterrupt counts as a request to stop.
        """
        self._saver = saver
        self.clock.start()
        try:
            if self._reached is None:
                self._descend(stop, display)
        except KeyboardInterrupt:
            self._interrupted = True
        finally:
            self.clock.stop()
        self._load_output()
        self.optimizer.zero_grad()
        try:
            display.evaluated(self._evaluate(last=True))
        except KeyboardInterrupt:
            self._interrupted = True
        return "interrupted" if self._interrupted or stop.asked else self._reason()

    def _load_output(self) -> None:
        """Put the model at the point that the method returns, with the statistics of BatchNorm that belong to it."""
        if self.optimizer.load_output():
            self.clock.start()
            measure_statistics(self._model, self._objective, self._train)
            self.clock.stop()

    def _descend(self, stop: StopRequest, display: Silent) -> None:
        limits, draws = self._limits, self._train.draws(self.optimizer.sampler)
        until = None if limits.until is None else self._until
        budget = math.inf if limits.passes is None else limits.passes
        saver, stopping = self._saver, False
        for drawn in self.optimizer.batches(draws, passes=budget, ifo=limits.ifo, until=until):
            # All of this comes before the step and not after it: then the limits have been checked for the step before,
            # and the last point is evaluated anyway.
            if stop.asked and not stopping:
                stopping = True
                self._save()
                self.optimizer.stop()
            elif not stopping and self.optimizer.passes >= self._due:
                display.evaluated(self._evaluate(last=False))
                if limits.enough is not None and limits.enough():
                    self._enough = stopping = True
                    self.optimizer.stop()
            if saver is not None and not stopping and saver.due(self.optimizer.phase):
                self._save()
            loss = self._several(1 if stopping else STEPS_AT_ONCE)
            if loss is None:
                loss = self._step(self._train.batch(drawn))
            display.stepped(loss, self.share)
            if limits.seconds is not None and self.clock.seconds >= limits.seconds:
                self.optimizer.stop()
        if saver is not None and not stopping and (stop.asked or saver.due_at_end()):
            self._save()

    def _save(self) -> None:
        """Write a checkpoint; its time is not counted."""
        if self._saver is not None:
            with self.clock.paused():
                self._saver.save()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the loop needs to continue from here, except the model."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "history": list(self.history),
            "due": self._due,
            "losses": self._losses,
            "samples": self._samples,
            "reached": None if self._reached is None else self._reached.state_dict(),
            "seconds": self.clock.seconds,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.history[:] = state_dict["history"]
        self._due, self._losses, self._samples = (state_dict[name] for name in ("due", "losses", "samples"))
        if state_dict["reached"] is not None and self._limits.until is not None:
            self._until(Record.from_state_dict(state_dict["reached"]))  # the rule may be another one now
        self.clock.take_up(state_dict["seconds"])

    def _reason(self) -> str:
        limits, optimizer = self._limits, self.optimizer
        if self._reached is not None:
            return "until"
        if self._enough:
            return "target"
        if limits.passes is not None and optimizer.ifo >= limits.passes * optimizer.n:
            return "passes"
        return "ifo" if limits.ifo is not None and optimizer.ifo >= limits.ifo else "seconds"

    def _until(self, record: Record) -> bool | Answer:
        assert self._limits.until is not None
        answer = self._limits.until(record)
        self._reached = record if answer else None
        return answer

    def _several(self, most: int) -> float | None:
        """Take several steps, up to the next evaluation or limit; returns their mean loss, None if none was taken."""
        n, limits = self.optimizer.n, self._limits
        ends = (
            _reaching(self._due, n),
            math.inf if limits.passes is None else limits.passes * n,
            limits.ifo or math.inf,
        )
        samples, losses = self._engine.advance(most, min(ends))
        self._losses, self._samples = self._losses + losses, self._samples + samples
        return losses / samples if samples else None

    def _step(self, batch: Any) -> float:
        def closure() -> Tensor:
            value = self._objective(batch)
            value.backward()  # type: ignore[no-untyped-call]
            return value.detach()

        phase, left = self.optimizer.phase, len(self.optimizer.sampler)
        # The objective has the whole batch, and may make what it likes of its rows.
        loss = float(self.optimizer.step(closure, samples=self.optimizer.sampler.size))
        if phase.kind != "smoothness":  # its losses are those of points beside x
            size = phase.size(phase.count - left)
            self._losses, self._samples = self._losses + size * loss, self._samples + size
        return loss

    def _evaluate(self, last: bool) -> Row:
        optimizer = self.optimizer
        with self.clock.paused(), optimizer.at_output() as elsewhere:
            row: Row = {
                "passes": optimizer.passes,
                "ifo": optimizer.ifo,
                "seconds": self.clock.seconds,
                "train_loss": self._losses / self._samples if self._samples else math.nan,
            }
            if elsewhere:
                measure_statistics(self._model, self._objective, self._train)
            self._complete(row, last)
        self._losses, self._samples = 0.0, 0
        self._due = next_evaluation(optimizer.passes, self._every, self._early)
        self.history.append(row)
        return row


def _reaching(passes: float, n: int) -> float:
    """The smallest number of gradients that makes this many passes."""
    if passes == math.inf:
        return passes
    about = math.ceil(passes * n)
    return about - 1 if (about - 1) / n >= passes else about


def next_evaluation(passes: float, every: float, early: int = 0) -> float:
    """The first of every/2^early, …, every/2, every, 2·every, 3·every, … beyond `passes`."""
    sooner = (every / 2**k for k in range(early, 0, -1))
    return next((due for due in sooner if due > passes), every * (passes // every + 1))
