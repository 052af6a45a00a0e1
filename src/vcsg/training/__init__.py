"""A model, a loss and data, trained with any method: progress, evaluation, stopping, and a result to keep.

A convenience on top of the optimizer. All it does can be written with `batches` and `step` in a loop of one's own.
"""

from vcsg.training.fitting import fit
from vcsg.training.result import Result

__all__ = ["Result", "fit"]
