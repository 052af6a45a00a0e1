"""Glue for the frameworks that people train with. Names are imported when they are first used, and need an extra each.

Most loops need none of it: an optimizer made with `batch_size=` takes the batches that a loop draws. A complete program
for each framework is in docs/integrations.md.

- `Tracker`: records in TensorBoard, MLflow, Weights & Biases or a framework's logger.
- `FiniteSumCallback`, `StepSizeMonitor`: for Lightning's Trainer (`vcsg[lightning]`).
- `prepare`: for Accelerate (`vcsg[accelerate]`).
- `FiniteSumTrainer`: transformers' Trainer with a closure (`vcsg[transformers]`).
- `FiniteSumClassifier`, `FiniteSumRegressor`: nets of skorch (`vcsg[skorch]`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vcsg.integrations.tracking import Tracker

if TYPE_CHECKING:
    from vcsg.integrations.with_accelerate import prepare
    from vcsg.integrations.with_lightning import FiniteSumCallback, StepSizeMonitor
    from vcsg.integrations.with_skorch import FiniteSumClassifier, FiniteSumRegressor
    from vcsg.integrations.with_transformers import FiniteSumTrainer

__all__ = [
    "FiniteSumCallback",
    "FiniteSumClassifier",
    "FiniteSumRegressor",
    "FiniteSumTrainer",
    "StepSizeMonitor",
    "Tracker",
    "prepare",
]

_EXTRAS = {
    "FiniteSumCallback": "lightning",
    "StepSizeMonitor": "lightning",
    "prepare": "accelerate",
    "FiniteSumTrainer": "transformers",
    "FiniteSumClassifier": "skorch",
    "FiniteSumRegressor": "skorch",
}
"""The extra that a name needs; its module is named after it."""


def __getattr__(name: str) -> Any:
    if name not in _EXTRAS:
        raise AttributeError(f"module 'vcsg.integrations' has no attribute {name!r}")
    extra = _EXTRAS[name]
    try:
        module = importlib.import_module(f"vcsg.integrations.with_{extra}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"vcsg.integrations.{name} needs {error.name}: pip install 'vcsg[{extra}]'", name=error.name
        ) from error
    found = globals()[name] = getattr(module, name)
    return found
