"""Targets of a study: a metric, and the value of it that runs are to reach."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vcsg.names import suggestion

METRICS = ("train_loss", "test_loss", "test_error", "test_error_top5", "grad_norm2")
"""The metrics that can have a target; less is better for all of them."""


@dataclass(frozen=True)
class Target:
    """A metric, and the value that it is to reach."""

    metric: str
    value: float

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read a target such as `test-error=0.025`."""
        name, equals, value = text.partition("=")
        metric = name.strip().replace("-", "_")
        if not equals:
            raise ValueError(f"target {text!r} has no value: write METRIC=VALUE, such as test-error=0.025")
        if metric not in METRICS:
            known = [word.replace("_", "-") for word in METRICS]
            meant = suggestion(metric.replace("_", "-"), known)
            raise ValueError(f"no metric {name.strip()!r} (in target {text!r}): {meant}")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{value!r} in target {text!r} is no finite number: write one, such as {name}=0.025")
        if "error" in metric and not 0 <= number < 1:
            raise ValueError(f"target {text!r}: an error is a share, at least 0 and below 1; write {name}=0.05 for 5 %")
        return cls(metric, number)

    def __str__(self) -> str:
        return f"{self.metric.replace('_', '-')}={self.value:.12g}"
