"""Glue for the frameworks that people train with; each module needs the package that it is named after.

Most loops need none: an optimizer made with `batch_size=` takes the batches that a loop draws. docs/integrations.md has
a complete program for each framework.
"""

from vcsg.integrations.tracking import Tracker

__all__ = ["Tracker"]
