"""The times at which checkpoints of a run are written, and the parts of a run that they hold."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from vcsg.run.sampling import Phase
from vcsg.training.checkpoints import Checkpoints, State
from vcsg.version import __version__

CHECKPOINT_SECONDS = 60.0
"""The time between two checkpoints, unless another is given."""
PHASE_END_SHARE = 0.5
"""The share of that time after which a checkpoint is due at the end of a phase."""


class Part(Protocol):
    """A part of a run with a state to save, such as an `nn.Module`."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class Saver:
    """Writes checkpoints of a run, which asks before each step whether one is due.

    A checkpoint is due when `seconds` have passed since the last one. At the end of a phase, where a run has the least
    to repeat, half of that is enough. (A phase may take milliseconds, so not every phase ends with a checkpoint.)

    Args:
        checkpoints: the folder that they are written to.
        parts: what they hold, in the order in which it is loaded. The first part may raise `Damaged` for a state that
            does not fit it.
        seconds: the time between two checkpoints; 0 saves before every step.
        lasting: whether the end of the run is saved too, so that it can be continued with larger limits.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        parts: Mapping[str, Part],
        seconds: float = CHECKPOINT_SECONDS,
        lasting: bool = False,
    ) -> None:
        check_seconds(seconds)
        self._checkpoints, self._parts, self._seconds, self._lasting = checkpoints, parts, seconds, lasting
        self._saved = time.monotonic()
        self._phase: Phase | None = None

    def load(self) -> bool:
        """Restore all parts from the last sound checkpoint; returns False where there is none."""
        return self._checkpoints.load(self._accept)

    def due(self, phase: Phase) -> bool:
        """Whether to save now, before a step of this phase."""
        ended, self._phase = phase is not self._phase, phase
        return self._passed(ended)

    def due_at_end(self) -> bool:
        """Whether to save after the last step, before the last evaluation."""
        return self._lasting or self._passed(True)

    def save(self) -> None:
        self._checkpoints.save({name: part.state_dict() for name, part in self._parts.items()})
        self._saved = time.monotonic()

    def _passed(self, ended: bool) -> bool:
        return time.monotonic() - self._saved >= self._seconds * (PHASE_END_SHARE if ended else 1.0)

    def _accept(self, state: State) -> None:
        for name, part in self._parts.items():
            part.load_state_dict(state[name])


class Generators:
    """The states of torch's own generators, for the CPU and for CUDA devices."""

    def state_dict(self) -> dict[str, Any]:
        states = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states |= {f"cuda:{i}": torch.cuda.get_rng_state(i) for i in range(torch.cuda.device_count())}
        return states

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        torch.set_rng_state(state_dict["cpu"])
        devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for i in range(devices):
            if (state := state_dict.get(f"cuda:{i}")) is not None:
                torch.cuda.set_rng_state(state, i)


def check_seconds(seconds: float) -> None:
    """Raise a ValueError unless `seconds` can be the time between two checkpoints."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ValueError(f"checkpoint_seconds = {seconds!r}: give the time between two checkpoints, at least 0")


def versions() -> dict[str, str]:
    """The versions that have to be the same for a run to continue bit for bit."""
    return {"vcsg version": __version__, "torch version": str(torch.__version__)}
