"""What the paper claims of VCSG's speed, to be printed beside what is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """Section "Application" of the paper, l.381: a target and how much faster VCSG reaches it.

    Attributes:
        metric: "test_error" or "test_error_top5".
        target: the value of it to reach.
        speedup: over "scsg", "svrg" and "sgd", in time.
        seconds: VCSG's own, where the paper says.
        up_to: whether the paper has the speed-up as the largest that was seen.
    """

    metric: str
    target: float
    speedup: dict[str, float]
    seconds: float | None
    up_to: bool = False


CLAIMS = {
    "mnist/lenet-300-100": Claim("test_error", 0.025, {"scsg": 2.0, "svrg": 3.0, "sgd": 4.0}, 16.0),
    "cifar10/lenet-5": Claim("test_error", 0.3, {"scsg": 4.0, "svrg": 6.0, "sgd": 13.0}, None),
    # "By up to 5×" than other methods, without saying than which.
    "tiny-imagenet/vgg-16": Claim("test_error_top5", 0.55, {"scsg": 5.0, "svrg": 5.0, "sgd": 5.0}, None, up_to=True),
}
"""By workload. Which network goes with which set is our reading: the paper lists three of each."""
