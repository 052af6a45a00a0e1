"""Workloads by name, DATASET/MODEL or DATASET/PROBLEM: a finite sum to minimise, and what is measured.

    mnist-mini/lenet-300-100                         a network on a registered data set
    a9a/nonconvex-logistic                           an analytic problem on one: rows of unit norm, targets −1 and 1
    libsvm:data/w8a.xz/least-squares                 on any file of LIBSVM's format
    synthetic:n=2000,d=50,seed=1/robust-regression   on drawn data; n, d and seed are optional

Every data set can be combined with every model and problem that fits it; the error for one that does not fit comes
before anything is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vcsg.names import check_new, suggestion
from vcsg.workloads.claims import CLAIMS, Claim
from vcsg.workloads.dataset import DataSet, Device
from vcsg.workloads.datasets import LIBSVM, Folder, data_sets, load_data_set, source, where
from vcsg.workloads.models import models
from vcsg.workloads.problems import AnalyticProblem, problems, unit_rows

Pair = tuple[Tensor, Tensor]
SYNTHETIC = {"n": 2000, "d": 50, "seed": 0}
"""The sizes and the seed of a synthetic data set, unless its name has others."""


@dataclass(frozen=True, eq=False)
class Workload:
    """A finite sum to minimise, and what is measured on test samples.

    Attributes:
        train: the training samples along the first axis, on the device asked for.
        test: the test samples likewise; None where there are none.
        make_model: makes a new model on that device, initialised on the CPU from torch's global generator, so that
            `torch.manual_seed` gives the same model everywhere.
        objective: (model, batch) → the mean loss of the batch, differentiable.
        measure: (model, batch) → means over a batch of test samples: "test_loss"; where there are classes "test_error",
            and "test_error_top5" where there are more than five.
        L: a Lipschitz constant of every ∇f_i, where it is known.
        claim: the claim of the paper, for its three workloads.
    """

    name: str
    train: Pair
    test: Pair | None
    make_model: Callable[[], nn.Module]
    objective: Callable[[nn.Module, Pair], Tensor]
    measure: Callable[[nn.Module, Pair], dict[str, float]]
    L: float | None
    claim: Claim | None

    @property
    def n(self) -> int:
        """The number of terms of the sum."""
        return self.train[0].shape[0]


@dataclass(frozen=True)
class Listing:
    """A workload that `load` knows, described without reading its data.

    Attributes:
        n: the number of training samples of the complete set; a folder may hold a part of Tiny ImageNet.
        d: the number of parameters.
        files: the files of the data set; empty if it needs none, None if `load` would download them.
        download: the number of bytes that would be downloaded.
    """

    name: str
    n: int
    d: int
    files: tuple[Path, ...] | None
    download: int


_REGISTERED: dict[str, tuple[Listing, Callable[[Folder, Device], Workload]]] = {}


def register_workload(
    name: str, n: int, d: int, build: Callable[[Folder, Device], Workload], *, replace: bool = False
) -> None:
    """Make a workload known by name that is no pair of a data set and a model: build(data_dir, device) makes it.

    n and d, its training samples and parameters, are for the list of `names`. A name that exists already is refused
    unless `replace` is true.
    """
    check_new("workload", name, _REGISTERED, replace)
    _REGISTERED[name] = Listing(name, n, d, (), 0), build


def load(name: str, *, data_dir: Folder = None, device: Device = None) -> Workload:
    """Load the workload of this name.

    Args:
        name: DATASET/MODEL or DATASET/PROBLEM; `names` lists those that need no further argument.
        data_dir: the folder of the data; None looks in `VCSG_DATA`, then in the downloads, and downloads what is in
            neither.
        device: the device of data and models; None is the CPU.
    """
    if name in _REGISTERED:
        return _REGISTERED[name][1](data_dir, device)
    data, slash, model = name.rpartition("/")
    known = [*models(), *problems()]
    if not slash:
        raise ValueError(f"{name!r} is not a workload: write DATASET/MODEL, with one of {', '.join(known)}")
    kind, _, sizes = data.partition(":")
    if model not in known:
        wrong = f"no model or problem {model!r}, of {name!r}: {suggestion(model, known)}"
        unknown = kind not in ("synthetic", "libsvm") and data not in data_sets()
        raise ValueError(f"no data set {data!r}: {suggestion(data, data_sets())}; {wrong}" if unknown else wrong)
    if kind == "synthetic":
        return _synthetic(name, sizes, model, device)
    if not data.startswith(LIBSVM):
        _check_fit(name, source(data).shape, source(data).classes, model)
    samples = load_data_set(data, data_dir=data_dir, device=device)
    _check_fit(name, tuple(samples.train[0].shape[1:]), samples.classes, model)
    return _network(name, samples, model, device) if model in models() else _analytic(name, samples, model)


def names(data_dir: Folder = None) -> list[Listing]:
    """List every workload that needs no further argument; nothing is decoded or downloaded."""
    found = []
    for data in data_sets().values():
        files = where(data.name, data_dir)
        size = sum(file.size for file in data.downloads) if files is None else 0
        for model in (*models(), *problems()):
            try:
                d = parameters(data.shape, data.classes, model)
            except ValueError:
                continue
            found.append(Listing(f"{data.name}/{model}", data.n, d, None if files is None else tuple(files), size))
    n, d = SYNTHETIC["n"], SYNTHETIC["d"]
    found += [Listing(f"synthetic:n={n},d={d}/{problem}", n, d, (), 0) for problem in problems()]
    return found + [listing for listing, _ in _REGISTERED.values()]


def parameters(shape: tuple[int, ...], classes: int, model: str) -> int:
    """The number of parameters of a model or problem for such samples; a ValueError says why it does not fit them."""
    if model in problems():
        classify = problems()[model].classify
        if classes != 2 and (classify or classes != 0):
            needed = "two classes" if classify else "two classes or real targets"
            given = f"{classes} classes: choose a network" if classes else "real targets: choose least-squares"
            raise ValueError(f"{model} needs {needed}, and the data have {given}")
        return math.prod(shape)
    if classes == 0:
        raise ValueError(f"{model} sorts into classes, and the data have real targets: choose least-squares")
    with torch.device("meta"):
        return sum(p.numel() for p in models()[model](shape, classes).parameters())


def _check_fit(name: str, shape: tuple[int, ...], classes: int, model: str) -> None:
    try:
        parameters(shape, classes, model)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _network(name: str, data: DataSet, model: str, device: Device) -> Workload:
    build, shape = models()[model], tuple(data.train[0].shape[1:])
    (images, labels), (test_images, test_labels) = data.train, data.test
    return Workload(
        name=name,
        train=(images.float(), labels),
        test=(test_images.float(), test_labels) if len(test_labels) else None,
        make_model=lambda: build(shape, data.classes).to(device),
        objective=_cross_entropy,
        measure=_errors,
        L=None,
        claim=CLAIMS.get(name),
    )


def _cross_entropy(model: nn.Module, batch: Pair) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])


@torch.no_grad()
def _errors(model: nn.Module, batch: Pair) -> dict[str, float]:
    logits, labels = model(batch[0]), batch[1]
    measured = {"test_loss": cross_entropy(logits, labels).item(), "test_error": _share(logits.argmax(1) != labels)}
    if logits.shape[1] > 5:
        measured["test_error_top5"] = _share((logits.topk(5).indices != labels.unsqueeze(1)).all(1))
    return measured


def _share(wrong: Tensor) -> float:
    # Whole numbers are counted: in float32, 250 of 10,000 would be above a target of 0.025.
    return int(wrong.sum()) / len(wrong)


def _analytic(name: str, data: DataSet, model: str) -> Workload:
    """The workload on rows divided by their norms, so that L is known; the two classes become −1 and 1."""
    (rows, targets), test = ((unit_rows(x), _signs(y, data.classes)) for x, y in (data.train, data.test))
    return _of_problem(name, problems()[model].on(rows, targets), model, test if len(test[0]) else None)


def _signs(labels: Tensor, classes: int) -> Tensor:
    return 2 * labels.double() - 1 if classes == 2 else labels


def _synthetic(name: str, sizes: str, model: str, device: Device) -> Workload:
    if model not in problems():
        raise ValueError(f"{model}, of {name!r}, is a network: synthetic data go with {', '.join(problems())}")
    given = dict(SYNTHETIC)
    for item in sizes.split(",") if sizes else []:
        key, _, value = item.partition("=")
        if key not in given or not (value.isascii() and value.isdecimal()):
            raise ValueError(f"{item!r} in {name!r}: write synthetic:n=2000,d=50,seed=0, whole numbers, each optional")
        given[key] = int(value)
    problem = problems()[model].draw(given["n"], given["d"], given["seed"])
    moved = {part: getattr(problem, part).to(device) for part in ("rows", "targets", "start")}
    return _of_problem(name, replace(problem, **moved), model, None)


def _of_problem(name: str, problem: AnalyticProblem, model: str, test: Pair | None) -> Workload:
    classify = problems()[model].classify

    def objective(point: nn.Module, batch: Pair) -> Tensor:
        return problem.loss(cast(PointModel, point).x, *batch)

    @torch.no_grad()
    def measure(point: nn.Module, batch: Pair) -> dict[str, float]:
        measured = {"test_loss": objective(point, batch).item()}
        if classify:
            measured["test_error"] = _share(batch[0] @ cast(PointModel, point).x * batch[1] <= 0)
        return measured

    return Workload(
        name=name,
        train=(problem.rows, problem.targets),
        test=test,
        make_model=lambda: PointModel(problem.start),
        objective=objective,
        measure=measure,
        L=problem.L,
        claim=None,
    )


class PointModel(nn.Module):
    """The point x of a problem as a model with one float64 parameter, which begins at the start of the problem."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(start.clone())
