"""When checkpoints of a run are written, and of what."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.distributed as dist

from vcsg.files import locked, sweep
from vcsg.run.sampling import Phase
from vcsg.training.checkpoints import Checkpoints, State
from vcsg.version import __version__

SECONDS = 60.0
"""Between two checkpoints, where nothing else is asked for."""
SOONER = 0.5
"""At the end of a phase one is due after this part of the time already."""


class Part(Protocol):
    """Of a run, with a state to keep. `nn.Module` is one."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class Saver:
    """Writes checkpoints of a run, which asks between its steps whether one is due.

    That is so when `seconds` have passed since the last one. When half of them have, the end of a phase is enough, for
    there a run has the least to do again. (Phases can be milliseconds, so not every end of one.)

    Args:
        checkpoints: where they go.
        parts: what they are of, in the order in which they are loaded. The first may refuse, by `Damaged`, a state that
            does not fit it.
        seconds: see above; 0 saves before every step.
        lasting: whether the end of the run is kept too, so that it can be taken up with larger limits.
    """

    def __init__(
        self, checkpoints: Checkpoints, parts: Mapping[str, Part], seconds: float = SECONDS, lasting: bool = False
    ) -> None:
        check_seconds(seconds)
        self._checkpoints, self._parts, self._seconds, self._lasting = checkpoints, parts, seconds, lasting
        self._saved = time.monotonic()
        self._phase: Phase | None = None

    def load(self) -> bool:
        """Put all parts where the last sound checkpoint has them; False where there is none."""
        return self._checkpoints.load(self._accept)

    def due(self, phase: Phase) -> bool:
        """Whether to save now, before a step of this phase."""
        ended, self._phase = phase is not self._phase, phase
        return self._passed(ended)

    def due_at_end(self) -> bool:
        """Whether to save after the last step: its evaluation is still to come."""
        return self._lasting or self._passed(True)

    def save(self) -> None:
        self._checkpoints.save({name: part.state_dict() for name, part in self._parts.items()})
        self._saved = time.monotonic()

    def _passed(self, ended: bool) -> bool:
        return time.monotonic() - self._saved >= self._seconds * (SOONER if ended else 1.0)

    def _accept(self, state: State) -> None:
        for name, part in self._parts.items():
            part.load_state_dict(state[name])


class Generators:
    """Torch's own, of the CPU and of CUDA devices."""

    def state_dict(self) -> dict[str, Any]:
        states = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states |= {f"cuda:{i}": torch.cuda.get_rng_state(i) for i in range(torch.cuda.device_count())}
        return states

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        torch.set_rng_state(state_dict["cpu"])
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for i in range(there):
            if (state := state_dict.get(f"cuda:{i}")) is not None:
                torch.cuda.set_rng_state(state, i)


def check_seconds(seconds: float) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ValueError(f"checkpoint_seconds = {seconds!r}: give the time between two checkpoints, at least 0")


def versions() -> dict[str, str]:
    """What else has to be the same for a run to go on bit by bit."""
    return {"vcsg version": __version__, "torch version": str(torch.__version__)}


@contextmanager
def saver(
    folder: str | os.PathLike[str] | None,
    config: Mapping[str, Any],
    parts: Mapping[str, Part],
    seconds: float,
    resume: bool,
) -> Iterator[Saver | None]:
    """What saves a run into a folder of its own, taken up from there already where that is asked for; None for none.

    On several ranks the first one saves; the others read, where the run goes on.
    """
    if folder is None:
        yield None
        return
    if dist.is_available() and dist.is_initialized() and dist.get_rank() > 0:
        if resume:
            Saver(Checkpoints(folder, {**config, **versions()}), parts, seconds).load()
        yield None
        return
    with locked(folder):
        sweep(folder)
        checkpoints = Checkpoints(folder, {**config, **versions()})
        if checkpoints and not resume:
            raise FileExistsError(f"{folder} holds a checkpoint: give resume=True to go on from it, or another folder")
        made = Saver(checkpoints, parts, seconds, lasting=True)
        made.load()
        yield made
