"""The only loop over batches: steps, evaluations and checkpoints outside the clock, limits, Ctrl-C."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from vcsg.run.record import Record
from vcsg.training.clock import Clock
from vcsg.training.engine import MOST, Engine
from vcsg.training.interrupt import Wish
from vcsg.training.limits import Limits
from vcsg.training.progress import Silent
from vcsg.training.saving import Saver
from vcsg.training.sources import Source
from vcsg.training.stepper import Stepper

Row = dict[str, float]


class Loop:
    """From batch to batch, with an evaluation now and then outside the clock.

    Args:
        optimizer: draws the batches and takes the steps.
        objective: batch → its mean loss.
        train: where the batches come from.
        evaluate: (row, whether it is the last) completes a new row of the history, outside the clock. The row has
            passes, ifo, seconds and "train_loss", the mean over the samples of all batches since the row before.
        limits: when to end.
        every: passes between two evaluations.
        early: how many evaluations come before that, at every/2, every/4, …
        first: whether the start is evaluated too. The last point always is.
        clock: of the training.
        engine: does several steps at once where it can.
    """

    def __init__(
        self,
        optimizer: Stepper,
        objective: Callable[[Any], Tensor],
        train: Source,
        evaluate: Callable[[Row, bool], None],
        limits: Limits,
        *,
        every: float,
        early: int = 0,
        first: bool = True,
        clock: Clock,
        engine: Engine | None = None,
    ) -> None:
        self.optimizer, self.clock, self._engine = optimizer, clock, engine
        self.history: list[Row] = []
        self._objective, self._train, self._complete, self._limits = objective, train, evaluate, limits
        self._every, self._early = every, early
        self._due = optimizer.passes if first else next_evaluation(optimizer.passes, every, early)
        self._losses, self._samples = 0.0, 0
        self._reached: Record | None = None
        self._interrupted = False
        self._saver: Saver | None = None

    @property
    def share(self) -> float:
        """How much of the run is done, as far as its limits tell."""
        limits = self._limits
        parts = (
            (self.optimizer.ifo, limits.ifo),
            (self.optimizer.passes, limits.passes),
            (self.clock.seconds, limits.seconds),
        )
        return max((done / limit for done, limit in parts if limit is not None), default=0.0)

    def run(self, wish: Wish, display: Silent, saver: Saver | None = None) -> str:
        """Train until a limit is reached, evaluate what came of it, and return which limit it was.

        A KeyboardInterrupt that is raised all the same is taken for the wish to stop.
        """
        self._saver = saver
        self.clock.start()
        try:
            if self._reached is None:
                self._descend(wish, display)
        except KeyboardInterrupt:
            self._interrupted = True
        finally:
            self.clock.stop()
        self.optimizer.load_output()
        self.optimizer.zero_grad()
        try:
            display.evaluated(self._evaluate(last=True))
        except KeyboardInterrupt:
            self._interrupted = True
        return "interrupted" if self._interrupted or wish.asked else self._reason()

    def _descend(self, wish: Wish, display: Silent) -> None:
        limits, draws = self._limits, self._train.draws(self.optimizer.sampler)
        until = None if limits.until is None else self._until
        budget = math.inf if limits.passes is None else limits.passes
        saver, stopping = self._saver, False
        for drawn in self.optimizer.batches(draws, passes=budget, ifo=limits.ifo, until=until):
            # All of this before the step and not after it: then the limits have been asked about the step before, and
            # the last point is evaluated anyway.
            if wish.asked and not stopping:
                stopping = True
                self._save()
                self.optimizer.stop()
            elif not stopping and self.optimizer.passes >= self._due:
                display.evaluated(self._evaluate(last=False))
            if saver is not None and not stopping and saver.due(self.optimizer.phase):
                self._save()
            loss = self._several(1 if stopping else MOST)
            if loss is None:
                loss = self._step(self._train.batch(drawn))
            display.stepped(loss, self.share)
            if limits.seconds is not None and self.clock.seconds >= limits.seconds:
                self.optimizer.stop()
        if saver is not None and not stopping and (wish.asked or saver.due_at_end()):
            self._save()

    def _save(self) -> None:
        """A checkpoint, outside the clock."""
        if self._saver is not None:
            with self.clock.paused():
                self._saver.save()

    def state_dict(self) -> dict[str, Any]:
        """All that the loop needs to go on from here, but the model."""
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
            self._until(Record.from_state_dict(state_dict["reached"]))  # it may be another rule now
        self.clock.take_up(state_dict["seconds"])

    def _reason(self) -> str:
        limits, optimizer = self._limits, self.optimizer
        if self._reached is not None:
            return "until"
        if limits.passes is not None and optimizer.ifo >= limits.passes * optimizer.n:
            return "passes"
        return "ifo" if limits.ifo is not None and optimizer.ifo >= limits.ifo else "seconds"

    def _until(self, record: Record) -> bool:
        assert self._limits.until is not None
        self._reached = record if self._limits.until(record) else None
        return self._reached is not None

    def _several(self, most: int) -> float | None:
        """The mean loss of several steps, to where an evaluation or a limit is due; None where none was done."""
        if self._engine is None:
            return None
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
        loss = float(self.optimizer.step(closure))
        if phase.kind != "smoothness":  # whose losses are of points beside x
            size = phase.size(phase.count - left)
            self._losses, self._samples = self._losses + size * loss, self._samples + size
        return loss

    def _evaluate(self, last: bool) -> Row:
        optimizer = self.optimizer
        with self.clock.paused():
            row: Row = {
                "passes": optimizer.passes,
                "ifo": optimizer.ifo,
                "seconds": self.clock.seconds,
                "train_loss": self._losses / self._samples if self._samples else math.nan,
            }
            self._complete(row, last)
        self._losses, self._samples = 0.0, 0
        self._due = next_evaluation(optimizer.passes, self._every, self._early)
        self.history.append(row)
        return row


def _reaching(passes: float, n: int) -> float:
    """The fewest gradients that are so many passes."""
    if passes == math.inf:
        return passes
    about = math.ceil(passes * n)
    return about - 1 if (about - 1) / n >= passes else about


def next_evaluation(passes: float, every: float, early: int = 0) -> float:
    """The first of every/2^early, …, every/2, every, 2·every, 3·every, … beyond `passes`."""
    sooner = (every / 2**k for k in range(early, 0, -1))
    return next((due for due in sooner if due > passes), every * (passes // every + 1))
