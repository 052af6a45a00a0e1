"""Optimizers from outside the family, as yardsticks: torch's own, and two from packages of their own.

Those packages are imported when their optimizer is asked for.
"""

from __future__ import annotations

import importlib
import inspect
import io
import math
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from typing import Any

import torch
from torch import Tensor

from vcsg.method.registry import methods
from vcsg.names import check_new
from vcsg.study.adapter import Baseline

Params = Iterable[Tensor]


def sgd_momentum(
    params: Params,
    n: int,
    *,
    lr: float | None = None,
    L: float | None = None,
    b: int = 64,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    seed: int = 0,
) -> Baseline:
    """torch.optim.SGD with momentum β.

    Args:
        lr: the step size; None is that of `momentum_step`.
        L: the smoothness constant, where `lr` is not given.
        b: the mini-batch size.
        momentum: β.
        weight_decay: as torch has it.
    """
    if (lr is None) == (L is None):
        raise ValueError(f"lr = {lr!r} and L = {L!r}: give one of them")
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum = {momentum!r}: give a number, at least 0 and below 1")
    step = lr if lr is not None else momentum_step(_positive("L", L), momentum)
    optimizer = torch.optim.SGD(params, lr=_positive("lr", step), momentum=momentum, weight_decay=weight_decay)
    return Baseline(optimizer, n, b, seed)


def momentum_step(L: float, momentum: float) -> float:
    """The step (1 − β)/(3L), with which momentum β moves as far in the long run as plain SGD does with its 1/(3L)."""
    return (1 - momentum) / (3 * L)


def adamw(
    params: Params, n: int, *, lr: float = 1e-3, b: int = 64, weight_decay: float = 0.01, seed: int = 0
) -> Baseline:
    """torch.optim.AdamW.

    Args:
        lr: the step size.
        b: the mini-batch size.
        weight_decay: as torch has it: decoupled, and by default not 0.
    """
    return Baseline(torch_adamw(params, _positive("lr", lr), weight_decay), n, b, seed)


def torch_adamw(params: Params, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """torch.optim.AdamW, such that CUDA graphs can repeat its steps."""
    params = list(params)
    on_gpu = all(p.is_cuda for p in params)
    return torch.optim.AdamW(params, lr=lr, weight_decay=weight_decay, capturable=on_gpu)


class TorchMuon:
    """torch.optim.Muon for the matrices of a model and torch.optim.AdamW for all else, as one optimizer."""

    def __init__(self, params: Params, lr: float, adamw_lr: float, weight_decay: float, adjust_lr: str) -> None:
        params = list(params)
        matrices = [p for p in params if p.ndim == 2]
        others = [p for p in params if p.ndim != 2]
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            self._parts.append(torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn=adjust_lr))
        if others:
            self._parts.append(torch_adamw(others, adamw_lr, weight_decay))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self._parts for group in part.param_groups]

    def step(self) -> None:
        for part in self._parts:
            part.step()

    def zero_grad(self) -> None:
        for part in self._parts:
            part.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)


def torch_muon(
    params: Params,
    n: int,
    *,
    lr: float = 1e-3,
    adamw_lr: float | None = None,
    b: int = 64,
    weight_decay: float = 0.01,
    adjust_lr: str = "match_rms_adamw",
    seed: int = 0,
) -> Baseline:
    """torch.optim.Muon for the parameters with two axes, and torch.optim.AdamW for all others, convolutions too.

    Args:
        lr: the step size of the matrices.
        adamw_lr: the step size of all other parameters; None is lr.
        b: the mini-batch size.
        weight_decay: the decoupled weight decay of both.
        adjust_lr: the scale of a matrix's step. "match_rms_adamw" gives it the size of AdamW's steps, so that one step
            size suits both (Liu et al. 2025); "original" is that of Jordan et al. 2024, whose steps are about 0.02.
    """
    if adjust_lr not in ADJUSTMENTS:
        raise ValueError(f"adjust_lr = {adjust_lr!r}: choose {' or '.join(map(repr, ADJUSTMENTS))}")
    others = lr if adamw_lr is None else _positive("adamw_lr", adamw_lr)
    return Baseline(TorchMuon(params, _positive("lr", lr), others, weight_decay, adjust_lr), n, b, seed)


ADJUSTMENTS = ("match_rms_adamw", "original")


def schedule_free_adamw(
    params: Params, n: int, *, lr: float = 0.0025, b: int = 64, weight_decay: float = 0.0, seed: int = 0
) -> Baseline:
    """AdamWScheduleFree of the package `schedulefree` (Defazio et al. 2024): Adam's steps, an average as output.

    Args:
        lr: the step size.
        b: the mini-batch size.
        weight_decay: the weight decay, at the point of the gradient.
    """
    make = _from_package("schedule-free-adamw", "schedulefree", "AdamWScheduleFree")
    return Baseline(make(list(params), lr=_positive("lr", lr), weight_decay=weight_decay), n, b, seed)


def prodigy(
    params: Params, n: int, *, lr: float = 1.0, b: int = 64, weight_decay: float = 0.0, seed: int = 0
) -> Baseline:
    """Prodigy of the package `prodigyopt` (Mishchenko and Defazio 2024): Adam with a step size that it estimates.

    Args:
        lr: the factor of the estimated step size; its authors leave it at 1.
        b: the mini-batch size.
        weight_decay: the decoupled weight decay.
    """
    make = _from_package("prodigy", "prodigyopt", "Prodigy")
    with redirect_stdout(io.StringIO()):  # it prints a line about weight decay
        optimizer = make(list(params), lr=_positive("lr", lr), weight_decay=weight_decay)
    return Baseline(optimizer, n, b, seed, "Prodigy estimates its step size on the host, between the steps")


def _from_package(baseline: str, package: str, name: str) -> Callable[..., Any]:
    """An optimizer class of a package that the library does without."""
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(package), name)
    except ModuleNotFoundError as error:
        missing = f"the baseline {baseline} needs the package {package}: pip install {package}, or 'vcsg[rivals]'"
        raise ModuleNotFoundError(missing, name=error.name) from error
    return found


BASELINES: dict[str, Callable[..., Baseline]] = {}
"""The functions that make the baselines of a study, by name."""
REQUIRED = ("params", "n", "lr", "seed")
"""The arguments that the function of every baseline has."""


def register_baseline(name: str, make: Callable[..., Baseline], *, replace: bool = False) -> None:
    """Make an optimizer from outside the family known to studies by name.

    Args:
        name: what `vcsg compare --methods` calls it.
        make: make(params, n, *, lr, seed, ...) returns a `Baseline`. Its other arguments are options, such as the
            mini-batch size b, with a default for each. `lr` is the step size, which the protocol tuned searches for.
        replace: whether it may take the place of a baseline of the same name.
    """
    if name in methods():
        raise ValueError(f"{name!r} is a method of the family: choose another name for the baseline")
    check_new("baseline", name, BASELINES, replace)
    arguments = inspect.signature(make).parameters
    missing = [argument for argument in REQUIRED if argument not in arguments]
    if missing:
        needs = f"the function of a baseline needs {', '.join(REQUIRED)}"
        raise TypeError(f"the baseline {name!r} takes no {', '.join(missing)}: {needs}")
    BASELINES[name] = make


register_baseline("sgd-momentum", sgd_momentum)
register_baseline("adamw", adamw)
register_baseline("torch-muon", torch_muon)
register_baseline("schedule-free-adamw", schedule_free_adamw)
register_baseline("prodigy", prodigy)


def _positive(name: str, value: float | None) -> float:
    if value is None or not 0 < value < math.inf:
        raise ValueError(f"{name} = {value!r}: give a finite number above 0")
    return float(value)
