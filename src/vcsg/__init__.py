"""Variance-reduced optimisation of finite sums: VCSG and its family as `torch.optim` optimizers.

optimizer = vcsg.VCSG(model.parameters(), n=len(train))
loader = DataLoader(train, batch_sampler=optimizer.sampler)
for inputs, targets in optimizer.batches(loader, passes=30):
    def closure(): ...          # the ordinary torch.optim closure
    optimizer.step(closure)
optimizer.load_output()

A loop that has an ordinary loader gives `batch_size=` instead, and calls `step` for each of its batches.
`vcsg.fit` does all of that for a model, a loss and data; `vcsg.linear` has linear models as scikit-learn estimators,
and `vcsg.theory` plans a run and holds what is proved.
Names are imported when they are first used, so that a part that needs no torch does not load it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vcsg.version import __version__ as __version__

if TYPE_CHECKING:
    from vcsg import linear, method, theory, workloads
    from vcsg.method import Method, make, methods, register
    from vcsg.optimizer import FiniteSumOptimizer
    from vcsg.presets import (
        GD,
        MARS,
        PAGE,
        SAGA,
        SCSG,
        SGD,
        SNVRG,
        SPIDER,
        STORM,
        SVRG,
        VCSG,
        Adam,
        AlphaSVRG,
        Auto,
        BatchingSVRG,
        BiasedSVRG,
        GrowingSVRG,
        Momentum,
        Muon,
        PaperSGD,
        PaperSVRG,
        WeightedSVRG,
    )
    from vcsg.run.certificate import Certificate
    from vcsg.run.per_sample import per_sample
    from vcsg.run.record import Record, stationary
    from vcsg.training import Result, fit

__all__ = [
    "GD",
    "MARS",
    "PAGE",
    "SAGA",
    "SCSG",
    "SGD",
    "SNVRG",
    "SPIDER",
    "STORM",
    "SVRG",
    "VCSG",
    "Adam",
    "AlphaSVRG",
    "Auto",
    "BatchingSVRG",
    "BiasedSVRG",
    "Certificate",
    "FiniteSumOptimizer",
    "GrowingSVRG",
    "Method",
    "Momentum",
    "Muon",
    "PaperSGD",
    "PaperSVRG",
    "Record",
    "Result",
    "WeightedSVRG",
    "fit",
    "linear",
    "make",
    "method",
    "methods",
    "per_sample",
    "register",
    "stationary",
    "theory",
    "workloads",
]

_ROOMS = ("linear", "method", "theory", "workloads")
_HOMES = {
    "vcsg.method": ("Method", "make", "methods", "register"),
    "vcsg.optimizer": ("FiniteSumOptimizer",),
    "vcsg.run.certificate": ("Certificate",),
    "vcsg.run.per_sample": ("per_sample",),
    "vcsg.run.record": ("Record", "stationary"),
    "vcsg.training": ("Result", "fit"),
}
"""The homes of names; every other name is a preset."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'vcsg' has no attribute {name!r}")
    if name in _ROOMS:
        return importlib.import_module(f"vcsg.{name}")
    home = next((home for home, names in _HOMES.items() if name in names), "vcsg.presets")
    found = globals()[name] = getattr(importlib.import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
