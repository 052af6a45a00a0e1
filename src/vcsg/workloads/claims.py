"""The paper's claims about the speed of VCSG, which are printed beside what is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """A target and how much faster VCSG reaches it, from the section "Application" of the paper, l.381.

    Attributes:
        metric: the error that is measured, "test_error" or "test_error_top5".
        target: the value that is to be reached.
        speedup: how many times less time VCSG takes than "scsg", "svrg" and "sgd".
        seconds: the time that VCSG takes, where the paper gives it.
        up_to: whether the paper gives the speed-up as the largest that was seen.
    """

    metric: str
    target: float
    speedup: dict[str, float]
    seconds: float | None
    up_to: bool = False


_CIFAR10 = Claim("test_error", 0.3, {"scsg": 4.0, "svrg": 6.0, "sgd": 13.0}, None)
CLAIMS = {
    "mnist/lenet-300-100": Claim("test_error", 0.025, {"scsg": 2.0, "svrg": 3.0, "sgd": 4.0}, 16.0),
    "cifar10/lenet-5": _CIFAR10,
    "cifar10/vgg-16": _CIFAR10,
    # The paper says "by up to 5×" and does not name the methods.
    "tiny-imagenet/vgg-16": Claim("test_error_top5", 0.55, {"scsg": 5.0, "svrg": 5.0, "sgd": 5.0}, None, up_to=True),
}
"""The claims by workload. Which network belongs to which set is our reading: the paper lists three of each. What it
claims of CIFAR-10 stands beside two of them."""
