"""`fit` trains a model on data with any method; the study runs its methods through the same session.

Who lives here: the session of one run (`session`) and what it is made of: the loop over batches, the engine that takes
the steps, the clock, the limits, evaluations, checkpoints, signals and the display. It needs an optimizer with the face
of `stepper.Stepper`, and may touch `vcsg.optimizer` and what lies further in; it knows no data set, model or study by
name. All of it can be written with `batches` and `step` in a loop of one's own.
"""

from vcsg.training.fitting import fit
from vcsg.training.result import Result

__all__ = ["Result", "fit"]
