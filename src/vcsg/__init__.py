"""Variance-reduced optimisation of finite sums: VCSG and its family as `torch.optim` optimizers.

optimizer = vcsg.VCSG(model.parameters(), n=len(train))
loader = DataLoader(train, batch_sampler=optimizer.sampler)
for inputs, targets in optimizer.batches(loader, passes=30):
    def closure(): ...          # the ordinary torch.optim closure
    optimizer.step(closure)
optimizer.load_output()
"""

from vcsg.method import Method, make, methods, register
from vcsg.optimizer import FiniteSumOptimizer
from vcsg.presets import (
    GD,
    PAGE,
    SAGA,
    SCSG,
    SGD,
    SNVRG,
    SPIDER,
    STORM,
    SVRG,
    VCSG,
    AlphaSVRG,
    BatchingSVRG,
    BiasedSVRG,
    GrowingSVRG,
    PaperSGD,
    PaperSVRG,
    WeightedSVRG,
)
from vcsg.run.per_sample import per_sample
from vcsg.run.record import Record, stationary
from vcsg.training import Result, fit
from vcsg.version import __version__ as __version__

__all__ = [
    "GD",
    "PAGE",
    "SAGA",
    "SCSG",
    "SGD",
    "SNVRG",
    "SPIDER",
    "STORM",
    "SVRG",
    "VCSG",
    "AlphaSVRG",
    "BatchingSVRG",
    "BiasedSVRG",
    "FiniteSumOptimizer",
    "GrowingSVRG",
    "Method",
    "PaperSGD",
    "PaperSVRG",
    "Record",
    "Result",
    "WeightedSVRG",
    "fit",
    "make",
    "methods",
    "per_sample",
    "register",
    "stationary",
]
