"""`fit`: the same run as the plain loop, data of every form, evaluation beside the run, stopping, what is left."""

from __future__ import annotations

import copy
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, poisson_nll_loss
from torch.nn.utils.rnn import pack_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import vcsg
from vcsg.training.clock import Clock
from vcsg.training.evaluation import gradient_norm2
from vcsg.training.loop import next_evaluation
from vcsg.training.sources import DatasetSource, TensorSource

METHODS = sorted(vcsg.methods())
SOURCE = Path(__file__).parent.parent / "src"


def samples(n: int = 60, seed: int = 1) -> tuple[Tensor, Tensor]:
    X = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))
    return X, (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


def net(seed: int = 0, *layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), *(layers or (nn.ReLU(), nn.Dropout(0.3))), nn.Linear(8, 3))


def vector(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def by_hand(model: nn.Module, method: str, passes: float, **options: Any) -> vcsg.FiniteSumOptimizer:
    data = samples()
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), 60, method, buffers=model.buffers(), **options)
    for x, y in optimizer.batches(data, passes=passes):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss.detach()

        optimizer.step(closure)
    optimizer.load_output()
    return optimizer


# --- the run


@pytest.mark.parametrize("output", ["last", "weighted"])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_that_of_the_plain_loop_whatever_is_evaluated_beside_it(method: str, output: str) -> None:
    model, other = net(), net()
    options: dict[str, Any] = {"output": output}
    options |= {"b": 8, "step": "orthogonal"} if method == "auto" else {}  # which `fit` would choose otherwise
    optimizer = by_hand(model, method, 4, **options)
    torch.manual_seed(5)
    result = vcsg.fit(other, cross_entropy, samples(), method, passes=4, test=samples(20, 2), every=0.3, **options)
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(3))
    assert torch.equal(vector(model), vector(other))
    assert (result.ifo, result.passes, result.stopped) == (optimizer.ifo, optimizer.passes, "passes")
    assert result.model is other
    assert result.method == method


def test_gradients_that_an_earlier_loop_left_do_not_matter() -> None:
    models = net(), net()
    for p in models[0].parameters():
        p.grad = torch.ones_like(p)
    for model in models:
        vcsg.fit(model, cross_entropy, samples(), "svrg", b=8, passes=2)
    assert torch.equal(*map(vector, models))


def test_batchnorm_statistics_are_those_of_the_plain_loop_and_evaluation_leaves_them() -> None:
    layers = (nn.BatchNorm1d(8), nn.ReLU())
    model, other = net(0, *copy.deepcopy(layers)), net(0, *copy.deepcopy(layers))
    by_hand(model, "svrg", 3, L=5.0)
    result = vcsg.fit(other, cross_entropy, samples(), "svrg", passes=3, L=5.0, test=samples(20, 2), every=0.1)
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    other.eval()
    X, Y = samples(20, 2)
    assert result.history[-1]["test_loss"] == pytest.approx(float(cross_entropy(other(X), Y).detach()), rel=1e-5)


def test_modes_are_put_back_module_by_module() -> None:
    model, seen = net(), []
    model[2].eval()
    model[0].register_forward_hook(lambda *_: seen.append((model.training, model[2].training)))
    vcsg.fit(model, cross_entropy, samples(), "sgd", L=5.0, passes=1, test=samples(20, 2))
    assert model.training
    assert not model[2].training
    assert model[0].training
    assert set(seen) == {(True, True), (False, False)}
    assert all(p.grad is None for p in model.parameters())


def test_a_method_object_and_its_options() -> None:
    result = vcsg.fit(net(), cross_entropy, samples(), vcsg.make("svrg", b=4), L=5.0, weight_decay=0.1, passes=2)
    assert result.method == "svrg"
    assert result.records[0].b == 4
    assert result.options == {"L": 5.0, "weight_decay": 0.1, "seed": 0}


def test_seed_and_callback_reach_the_optimizer() -> None:
    told: list[vcsg.Record] = []
    first = vcsg.fit(net(), cross_entropy, samples(), passes=4, seed=1, callback=told.append)
    second = vcsg.fit(net(), cross_entropy, samples(), passes=4, seed=2)
    assert told == first.records != []
    assert not torch.equal(vector(first.model), vector(second.model))


def test_a_run_is_continued_from_its_result() -> None:
    whole = vcsg.fit(net(), cross_entropy, samples(), "svrg", b=4, passes=5, test=samples(20, 2))
    part = vcsg.fit(net(), cross_entropy, samples(), "svrg", b=4, passes=2.5)
    part = pickle.loads(pickle.dumps(part))
    rest = vcsg.fit(part.model, cross_entropy, samples(), "svrg", b=4, passes=5, state=part.state, test=samples(20, 2))
    assert torch.equal(vector(whole.model), vector(rest.model))
    assert rest.ifo == whole.ifo
    assert rest.history[-1]["test_loss"] == whole.history[-1]["test_loss"]


# --- data


def as_pair(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x, y


def with_process(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, int]:
    return x, y, os.getpid()


class Pairs(Dataset[Any]):
    """The samples, in the form that `shape` gives them: a function that worker processes can be sent."""

    def __init__(self, shape: Any = as_pair, data: tuple[Tensor, Tensor] | None = None) -> None:
        self.shape, self.data = shape, data or samples()

    def __len__(self) -> int:
        return len(self.data[0])

    def __getitem__(self, i: int) -> Any:
        return self.shape(self.data[0][i], self.data[1][i])


Point = namedtuple("Point", "x y weight")


def as_dict(x: Tensor, y: Tensor) -> dict[str, Any]:
    return {"x": x, "y": y, "name": "sample"}


def as_point(x: Tensor, y: Tensor) -> Point:
    return Point(x, y, 1.0)


def dict_objective(model: nn.Module, batch: Any) -> Tensor:
    return cross_entropy(model(batch["x"]), batch["y"])


def point_objective(model: nn.Module, batch: Any) -> Tensor:
    assert isinstance(batch, Point)
    return cross_entropy(model(batch.x), batch.y)


def listed(points: list[Any]) -> list[Any]:
    """A batch that is a plain list of samples."""
    return points


def list_objective(model: nn.Module, batch: Any) -> Tensor:
    return cross_entropy(model(torch.stack([x for x, _ in batch])), torch.stack([y for _, y in batch]))


X, Y = samples()
FORMS: dict[str, dict[str, Any]] = {
    "tensors": {"data": (X, Y)},
    "list": {"data": [X, Y]},
    "tensor dataset": {"data": TensorDataset(X, Y)},
    "loaded tensor dataset": {"data": TensorDataset(X, Y), "workers": 1},
    "dataset": {"data": Pairs()},
    "workers": {"data": Pairs(), "workers": 2},
    "list of samples": {"data": list(zip(X, Y, strict=True))},
    "dict of tensors": {"data": {"x": X, "y": Y}, "objective": dict_objective},
    "three tensors": {"data": (X, Y, X), "objective": lambda model, batch: cross_entropy(model(batch[0]), batch[1])},
    "one tensor": {
        "data": torch.column_stack([X, Y]),
        "objective": lambda model, batch: cross_entropy(model(batch[:, :5].contiguous()), batch[:, 5].long()),
    },
    "dataset of dicts": {"data": Pairs(as_dict), "objective": dict_objective, "workers": 1},
    "dataset of named tuples": {"data": Pairs(as_point), "objective": point_objective},
    "collated to a list": {"data": Pairs(), "objective": list_objective, "collate_fn": listed},
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_the_data_makes_no_difference(form: str) -> None:
    arguments = dict(FORMS[form])
    loss = None if "objective" in arguments else cross_entropy
    reference = vcsg.fit(net(), cross_entropy, (X, Y), "svrg", b=8, L=5.0, passes=2, test=(X, Y), test_batch_size=16)
    data = arguments.pop("data")
    result = vcsg.fit(net(), loss, data, "svrg", b=8, L=5.0, passes=2, test=data, test_batch_size=16, **arguments)
    assert torch.equal(vector(result.model), vector(reference.model))
    assert [row["test_loss"] for row in result.history] == [row["test_loss"] for row in reference.history]


def test_data_may_be_a_dataset_with_workers_and_test_tensors() -> None:
    result = vcsg.fit(net(), cross_entropy, Pairs(), "sgd", L=5.0, passes=1, workers=1, test=samples(20, 2))
    assert "error" in result.history[-1]


def padded(rows: list[Any]) -> tuple[Tensor, Tensor]:
    return pad_sequence([x for x, _ in rows], batch_first=True), torch.stack([y for _, y in rows])


class Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, rows: Any) -> Tensor:
        return self.scale * rows.sum(1)


def test_samples_of_different_lengths() -> None:
    rows = [torch.full((1 + i % 5,), float(i % 3)) for i in range(40)]
    data = [(row, 2 * row.sum()) for row in rows]
    result = vcsg.fit(Sums(), mse_loss, data, "svrg", b=4, passes=60, collate_fn=padded)
    assert float(result.model.scale.detach()) == pytest.approx(2, abs=1e-3)
    assert "error" not in result.history[-1]


def test_objects_that_can_move_are_moved() -> None:
    """A PackedSequence is a named tuple with a method `to`."""

    def objective(model: nn.Module, batch: Any) -> Tensor:
        packed, _ = batch
        return model(packed.data).square().mean()

    def collate(points: list[Any]) -> Any:
        return pack_sequence([x for x, _ in points], enforce_sorted=False), len(points)

    data = [(torch.randn(1 + i % 3, 5), i) for i in range(10)]
    result = vcsg.fit(net(), None, data, "sgd", L=5.0, passes=1, objective=objective, collate_fn=collate, device="cpu")
    assert result.stopped == "passes"


# --- evaluation


def test_means_are_over_samples_and_rows_come_at_every() -> None:
    """The last test batch is smaller; rows are checked against the model at its end and the records on the way."""
    test = samples(25, 2)
    result = vcsg.fit(
        net(),
        cross_entropy,
        samples(),
        "svrg",
        L=5.0,
        passes=3,
        every=0.5,
        test=test,
        test_batch_size=10,
        metrics={"first": lambda outputs, targets: (targets == 0).float().mean()},
    )
    model = result.model.eval()
    outputs, last = model(test[0]).detach(), result.history[-1]
    assert last["test_loss"] == pytest.approx(float(cross_entropy(outputs, test[1])), rel=1e-6)
    assert last["error"] == pytest.approx(float((outputs.argmax(1) != test[1]).float().mean()))
    assert last["first"] == pytest.approx(float((test[1] == 0).float().mean()))
    assert [round(2 * row["passes"]) for row in result.history] == [0, 1, 2, 3, 4, 5, 6]
    assert [row["ifo"] for row in result.history] == sorted({row["ifo"] for row in result.history})
    assert math.isnan(result.history[0]["train_loss"])
    assert all(list(row) == [*vcsg.training.result.COLUMNS, "error", "first"] for row in result.history)


def test_the_training_loss_is_the_mean_over_the_samples_since_the_row_before() -> None:
    """GD evaluates all n samples at a point, so a row per pass is the anchor's loss; without test there is no row 0."""
    result = vcsg.fit(net(0, nn.Tanh()), cross_entropy, samples(), "gd", L=5.0, passes=3)
    assert [row["passes"] for row in result.history] == [1, 2, 3]
    assert [row["train_loss"] for row in result.history] == pytest.approx([r.loss for r in result.records], rel=1e-6)
    assert all(math.isnan(row["test_loss"]) for row in result.history)


def test_only_the_last_point_is_evaluated_where_every_is_infinite() -> None:
    result = vcsg.fit(net(), cross_entropy, samples(), "sgd", L=5.0, passes=3, every=math.inf)
    assert [row["passes"] for row in result.history] == [result.passes]


@pytest.mark.parametrize("ignored", [-100, 2])
def test_targets_that_the_loss_ignores_are_neither_right_nor_wrong(ignored: int) -> None:
    X, y = samples(40)
    y = torch.where(torch.arange(40) % 4 == 0, ignored, y)
    result = vcsg.fit(net(), nn.CrossEntropyLoss(ignore_index=ignored), (X, y), passes=2, test=(X, y))
    wrong = [int(o.argmax()) != t for o, t in zip(result.model.eval()(X), y.tolist(), strict=True) if t != ignored]
    assert result.history[-1]["error"] == pytest.approx(sum(wrong) / len(wrong))
    y[:7] = ignored  # a batch without any target, and others with some
    for size in (40, 9, 7):
        given = {"loss": nn.CrossEntropyLoss(ignore_index=ignored), "test": (X, y), "test_batch_size": size}
        result = vcsg.fit(net(), data=(X, y), passes=2, **given)
        known = [(int(o.argmax()), t) for o, t in zip(result.model.eval()(X), y.tolist(), strict=True) if t != ignored]
        assert result.history[-1]["error"] == pytest.approx(sum(o != t for o, t in known) / len(known))


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 5.0, 20.0])])
def test_the_test_loss_is_that_of_all_targets_at_once(weight: Tensor | None) -> None:
    """A mean over the targets that are not ignored, by the weights of their classes, whatever the batches are."""
    X, y = samples(40)
    y = y.sort()[0]
    for loss in (
        nn.CrossEntropyLoss(weight=weight, ignore_index=0),
        partial(cross_entropy, weight=weight, ignore_index=0),
    ):
        for size in (40, 9, 7):
            result = vcsg.fit(net(), loss, (X, y), passes=1, test=(X, y), test_batch_size=size)
            with torch.no_grad():
                outputs = result.model.eval()(X)
            assert result.history[-1]["test_loss"] == pytest.approx(float(loss(outputs, y)), rel=1e-5)
            wrong = (outputs.argmax(1) != y)[y != 0]
            assert result.history[-1]["error"] == pytest.approx(float(wrong.float().mean()))


class Focal(nn.CrossEntropyLoss):
    """A loss of its own: the mean over all samples, whatever the weights of their classes are."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        assert self.weight is not None
        return (self.weight[targets] * cross_entropy(outputs, targets, reduction="none")).mean()


def test_the_test_loss_of_a_loss_of_its_own_is_the_mean_over_the_samples() -> None:
    X, y = samples(40)
    y, loss = y.sort()[0], Focal(weight=torch.tensor([1.0, 5.0, 20.0]))
    result = vcsg.fit(net(), loss, (X, y), passes=1, test=(X, y), test_batch_size=9)
    with torch.no_grad():
        assert result.history[-1]["test_loss"] == pytest.approx(float(loss(result.model.eval()(X), y)), rel=1e-5)


def test_targets_of_bytes_have_the_weights_of_their_classes() -> None:
    X, y = samples(40)
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 20.0]))
    bytes_, longs = (
        vcsg.fit(net(), loss, (X, t), passes=1, test=(X, t), test_batch_size=9).history[-1]["test_loss"]
        for t in (y.to(torch.uint8), y)
    )
    assert bytes_ == pytest.approx(longs, rel=1e-6)


def test_regression_has_no_error() -> None:
    X = samples()[0]
    result = vcsg.fit(nn.Linear(5, 1), mse_loss, (X, X[:, :1]), "svrg", passes=3, test=(X, X[:, :1]))
    assert "error" not in result.history[-1]
    assert result.history[-1]["test_loss"] < result.history[0]["test_loss"]


def test_metrics_of_an_objective_are_of_model_and_batch() -> None:
    data = {"x": X, "y": Y}
    metrics = {"norm": lambda model, batch: vector(model).norm(), "size": lambda model, batch: len(batch["x"])}
    result = vcsg.fit(net(), None, data, "sgd", L=5.0, passes=1, test=data, metrics=metrics, objective=dict_objective)
    assert result.history[-1]["norm"] == pytest.approx(float(vector(result.model).norm()))
    assert result.history[-1]["size"] == 60


# --- stopping


def test_every_limit_is_named_when_it_is_reached() -> None:
    def stopped(**limits: Any) -> str:
        return vcsg.fit(net(), cross_entropy, samples(), "svrg", L=5.0, **limits).stopped

    assert stopped(passes=1, ifo=1000, seconds=1000) == "passes"
    assert stopped(passes=100, ifo=70) == "ifo"
    assert stopped(seconds=0.01) == "seconds"
    assert stopped(passes=100, until=lambda record: record.epoch == 2) == "until"


def test_evaluation_is_outside_the_clock() -> None:
    """Time in training and time in a slow metric together are at most the time of the call."""
    spent: list[float] = []

    def slow(outputs: Tensor, targets: Tensor) -> float:
        start = time.monotonic()
        time.sleep(0.05)
        spent.append(time.monotonic() - start)
        return 0.0

    start = time.monotonic()
    result = vcsg.fit(
        net(), cross_entropy, samples(), "gd", L=5.0, passes=5, test=samples(20, 2), metrics={"slow": slow}
    )
    assert len(spent) == len(result.history) == 6
    assert result.seconds + sum(spent) <= time.monotonic() - start
    assert result.history[-1]["seconds"] <= result.seconds


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_keeps_all_and_the_run_can_go_on() -> None:
    def interrupt(record: vcsg.Record) -> None:
        if record.epoch == 3:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    whole = vcsg.fit(net(), cross_entropy, samples(), "svrg", b=8, L=5.0, passes=12)
    part = vcsg.fit(net(), cross_entropy, samples(), "svrg", b=8, L=5.0, passes=12, callback=interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert part.stopped == "interrupted"
    assert part.records[-1].epoch == 3
    assert part.history[-1]["ifo"] == part.ifo < whole.ifo
    rest = vcsg.fit(part.model, cross_entropy, samples(), "svrg", b=8, L=5.0, passes=12, state=part.state)
    assert torch.equal(vector(rest.model), vector(whole.model))


def test_an_interrupt_raised_in_the_last_evaluation_leaves_that_row_out() -> None:
    def impatient(outputs: Tensor, targets: Tensor) -> float:
        raise KeyboardInterrupt

    result = vcsg.fit(net(), cross_entropy, samples(), passes=2, test=samples(20, 2), metrics={"m": impatient})
    assert (result.stopped, result.history, result.ifo) == ("interrupted", [], 0)
    assert "0.0 passes" in str(result)


def test_a_thread_has_no_signals_and_needs_none() -> None:
    found: list[vcsg.Result] = []
    work = threading.Thread(
        target=lambda: found.append(vcsg.fit(net(), cross_entropy, samples(), "sgd", L=5.0, passes=1))
    )
    work.start()
    work.join()
    assert found[0].stopped == "passes"


SCRIPT = """
import os, signal, sys
if "bare" in sys.argv:
    sys.modules["rich"] = sys.modules["matplotlib"] = None  # as if they were not installed
import torch, vcsg
from torch.utils.data import TensorDataset
X = torch.randn(64, 5)
def tell(record):
    if record.epoch == 3 and "interrupt" in sys.argv:
        os.killpg(0, signal.SIGINT)
options = {"workers": 2} if "interrupt" in sys.argv else {}
progress = {"True": True, "False": False}.get(sys.argv[1])
data = TensorDataset(X, (X[:, 0] > 0).long())
result = vcsg.fit(torch.nn.Linear(5, 2), torch.nn.functional.cross_entropy, data, "svrg", b=8, passes=8, test=data,
                  progress=progress, callback=tell, **options)
print(result.stopped, *(name for name in ("rich", "matplotlib") if sys.modules.get(name)))
if "bare" in sys.argv:
    try:
        result.plot()
    except ModuleNotFoundError as error:
        print(error)
"""


def run_script(
    *arguments: str, script: str = SCRIPT, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    settings = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    return subprocess.run(
        command, env=settings, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True, timeout=300
    )


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_with_workers_which_get_it_too() -> None:
    done = run_script("False", "interrupt")
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


IGNORING = """
import os, signal, sys, torch, vcsg
from torch.utils.data import TensorDataset
found = [signal.getsignal(signal.SIGINT)]
def tell(record):
    found.append(signal.getsignal(signal.SIGINT))
    os.killpg(0, signal.SIGINT)
X = torch.randn(64, 5)
data = TensorDataset(X, (X[:, 0] > 0).long())
result = vcsg.fit(torch.nn.Linear(5, 2), torch.nn.functional.cross_entropy, data, "svrg", b=8, L=5.0, passes=8,
                  callback=tell, workers=1, checkpoint=sys.argv[1] if sys.argv[1:] else None)
found.append(signal.getsignal(signal.SIGINT))
print(result.stopped, len(found) > 3, *{handler.name for handler in found})
"""


@pytest.mark.parametrize("saved", [False, True])
def test_a_process_that_ignores_ctrl_c_goes_on_ignoring_it(tmp_path: Path, saved: bool) -> None:
    """As background jobs of a shell do. A process inherits what its parent ignores."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = run_script(*([str(tmp_path)] if saved else []), script=IGNORING)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.returncode, done.stdout, done.stderr) == (0, "passes True SIG_IGN\n", "")


def test_workers_are_started_once_and_not_at_every_phase() -> None:
    """And one before the run, for the samples that are looked at: this process reads none."""
    readers: set[int] = set()
    before: set[int] = set()

    def objective(model: nn.Module, batch: Any) -> Tensor:
        (readers if torch.is_grad_enabled() else before).update(batch[2].tolist())
        return cross_entropy(model(batch[0]), batch[1])

    data = Pairs(with_process)
    result = vcsg.fit(net(), None, data, "svrg", b=8, L=5.0, passes=9, objective=objective, workers=2)
    assert len(result.records) > 2
    assert os.getpid() not in readers | before
    assert (len(readers - before), len(before)) == (2, 1)


class Numbers:
    """A dataset of rows, perhaps with noise that is drawn anew each time, and numbers far from unit scale."""

    def __init__(self, noise: float = 0.0, shape: tuple[int, ...] = (1,)) -> None:
        generator = torch.Generator().manual_seed(1)
        self.rows, self.noise, self.shape = torch.randn(100, 3, generator=generator), noise, shape

    def __len__(self) -> int:
        return 100

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        x = self.rows[i]
        return x + self.noise * torch.randn(3), (1e5 * x.sum() + 3e5).reshape(self.shape)


def regressor() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def test_workers_change_nothing_in_what_auto_chooses_nor_in_the_run() -> None:
    results = [
        vcsg.fit(regressor(), mse_loss, Numbers(), passes=2, workers=workers, test=Numbers()) for workers in (0, 1, 2)
    ]
    assert "steps of the last layer 2.621e+05 times as long" in results[0].chosen
    for result in results[1:]:
        assert result.chosen == results[0].chosen
        assert torch.equal(vector(result.model), vector(results[0].model))


@pytest.mark.parametrize(
    ("shape", "loss", "fault"), [((), mse_loss, "have one shape"), ((1,), nn.MSELoss(reduction="sum"), "is the sum")]
)
def test_with_workers_losses_are_looked_at_as_without(shape: tuple[int, ...], loss: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        vcsg.fit(regressor(), loss, Numbers(shape=shape), passes=1, workers=1)


def test_what_a_worker_reads_before_a_run_leaves_torchs_generator_alone() -> None:
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    source = DatasetSource(Numbers(noise=0.1), torch.device("cpu"), 1, None)
    first, again = source.take(0, 4)[0], source.take(0, 4)[0]
    assert torch.equal(torch.rand(3), expected)
    assert first.shape == again.shape == (4, 3)
    assert not torch.equal(first, again)  # samples that are random are seen to be
    assert source.some(4) is source.some(4)


# --- models and objectives that take gradients themselves


class Forces(nn.Module):
    """The forces of an energy, which are its gradient at the place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.energy = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        [slope] = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
        return -slope


def test_a_model_that_takes_gradients_itself_is_fitted_and_evaluated() -> None:
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    result = vcsg.fit(Forces(), mse_loss, (x, -2 * x), passes=20, test=(x, -2 * x), metrics={"same": mse_loss})
    assert "no operations of the gradient can be counted" in result.chosen
    assert result.history[-1]["test_loss"] < result.history[0]["test_loss"] / 4
    assert result.history[-1]["same"] == pytest.approx(result.history[-1]["test_loss"])


def equation(model: nn.Module, x: Tensor) -> Tensor:
    """u' = u and u(0) = 1."""
    x = x.clone().requires_grad_()
    u = model(x)
    [slope] = torch.autograd.grad(u.sum(), x, create_graph=True)
    return (slope - u).square().mean() + (model(torch.zeros(1, 1)) - 1).square().sum()


def test_an_objective_with_derivatives_of_the_model_is_minimised_and_evaluated() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    x = torch.rand(300, 1, generator=torch.Generator().manual_seed(0))
    result = vcsg.fit(model, None, x, objective=equation, passes=40, test=x, metrics={"residual": equation})
    assert result.history[-1]["residual"] == pytest.approx(result.history[-1]["test_loss"])
    assert (model(torch.ones(1, 1)) - math.e).abs().item() < 0.1


def test_an_objective_that_fails_with_gradients_too_says_so() -> None:
    with pytest.raises(RuntimeError, match="does not require grad"):
        vcsg.fit(regressor(), None, torch.zeros(9, 3), objective=lambda m, x: m(x).mean().detach(), passes=1)


# --- the parts of the loop


def test_evaluations_are_due_early_and_then_at_equal_distances() -> None:
    def due(every: float, early: int) -> list[float]:
        found = [0.0]
        while found[-1] < 3:
            found.append(next_evaluation(found[-1], every, early))
        return found

    assert due(1.0, 0) == [0, 1, 2, 3]
    assert due(1.0, 3) == [0, 0.125, 0.25, 0.5, 1, 2, 3]
    assert next_evaluation(0.3, 1.0, 3) == 0.5
    assert next_evaluation(5.0, math.inf, 3) == math.inf


def test_a_clock_runs_from_start_to_stop_and_not_in_pauses() -> None:
    begun = time.monotonic()
    clock = Clock(torch.device("cpu"))
    clock.take_up(100.0)
    time.sleep(0.02)
    assert clock.seconds == 100.0
    clock.start()
    time.sleep(0.02)
    with clock.paused():
        before = clock.seconds
        time.sleep(0.05)
        assert clock.seconds == before
    assert before >= 100.02
    clock.stop()
    assert clock.seconds <= 100 + time.monotonic() - begun - 0.07
    with clock.paused():
        pass
    assert clock.seconds == clock.seconds, "it was not started by a pause"


def test_the_norm_of_the_gradient_is_that_of_the_whole_and_leaves_no_trace() -> None:
    """Against one backward pass over all samples; batches of 7 leave a smaller last one."""
    model, (X, Y) = net(0, nn.Tanh()), samples()
    model.train()
    loss = cross_entropy(model(X), Y)
    expected = sum(float(g.square().sum()) for g in torch.autograd.grad(loss, list(model.parameters())))
    source = TensorSource("data", (X, Y), torch.device("cpu"))
    found = gradient_norm2(model, source, 7, lambda batch: cross_entropy(model(batch[0]), batch[1]))
    assert found == pytest.approx(expected, rel=1e-5)
    assert all(p.grad is None for p in model.parameters())
    assert model.training


# --- progress


def test_nothing_is_shown_or_imported_where_nobody_looks() -> None:
    done = run_script("None")
    assert (done.returncode, done.stdout, done.stderr) == (0, "passes\n", "")


def test_all_but_bar_and_plot_works_without_rich_and_matplotlib() -> None:
    done = run_script("True", "bare")
    assert done.stdout == "passes\nplot() needs matplotlib: pip install matplotlib\n"
    assert done.stderr.startswith("svrg  passes")


def test_lines_where_there_is_no_terminal() -> None:
    done = run_script("True")
    lines = done.stderr.splitlines()
    assert done.stdout == "passes\n"
    assert len(lines) == 9
    assert all(line.startswith("svrg  passes") and "test loss" in line and "error" in line for line in lines)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_bar_on_a_terminal() -> None:
    pytest.importorskip("rich")
    import pty

    here, there = pty.openpty()
    chunks: list[bytes] = []

    def read() -> None:
        while True:
            try:
                chunks.append(os.read(here, 4096))
            except OSError:  # the other end is closed
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    done = run_script("None", stderr=there)
    os.close(there)
    reader.join()
    os.close(here)
    shown = b"".join(chunks).decode()
    assert done.stdout == "passes rich\n"
    for part in ("svrg", "passes", "j=", "inner", "B=64", "b=8", "loss", "error", "━"):
        assert part in shown


# --- what is left


def test_a_result_can_be_pickled_model_and_all() -> None:
    result = vcsg.fit(net(), cross_entropy, samples(), passes=3, test=samples(20, 2))
    again = pickle.loads(pickle.dumps(result))
    assert torch.equal(vector(again.model), vector(result.model))
    assert str(again) == str(result)
    assert again.records == result.records
    for name in ("method", "options", "n", "seconds", "ifo", "passes", "stopped"):
        assert getattr(again, name) == getattr(result, name)


def test_the_table_is_short_and_has_first_and_last() -> None:
    result = vcsg.fit(net(), cross_entropy, samples(), "sgd", L=5.0, passes=30, test=samples(20, 2))
    lines = str(result).splitlines()
    assert len(result.history) == 31
    assert len(lines) == 12
    assert lines[0].startswith("sgd: 30.0 passes over 60 samples, ")
    assert lines[1].split() == ["passes", "gradients", "seconds", "train", "loss", "test", "loss", "error"]
    assert lines[2].split()[:2] == ["0.0", "0"]
    assert lines[-1].split()[:2] == ["30.0", "1,800"]
    assert len({len(line) for line in lines[1:]}) == 1
    assert repr(result).startswith("<vcsg.Result: sgd, 30.0 passes")


@pytest.mark.parametrize(("method", "panels"), [("vcsg", 2), ("scsg", 2), ("sgd", 1)])
def test_a_plot_shows_losses_error_and_anchors(method: str, panels: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = vcsg.fit(net(), cross_entropy, samples(), method, passes=6, test=samples(20, 2))
    figure = result.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert len(figure.axes) == 2 * panels
    assert {axes.get_ylabel() for axes in figure.axes} >= {"mean loss", "test error, %"}
    drawn = {str(line.get_label()): line for axes in figure.axes for line in axes.get_lines()}
    assert list(drawn["test loss"].get_ydata()) == [row["test_loss"] for row in result.history]
    assert list(drawn["error"].get_ydata()) == pytest.approx([100 * row["error"] for row in result.history])


@pytest.mark.parametrize("best", [0.0, -1.0])
def test_losses_and_errors_that_have_no_logarithm_are_drawn(best: float, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    model = nn.Linear(5, 3)
    result = vcsg.fit(model, lambda o, t: cross_entropy(o, t) + best, samples(), "sgd", passes=2, test=samples())
    result.history[-1] |= {"error": 0.0, "test_loss": best}
    result.plot(tmp_path / "run.png")


def test_without_a_single_row_there_is_still_a_figure() -> None:
    pytest.importorskip("matplotlib")
    result = vcsg.fit(net(), cross_entropy, samples(), "sgd", passes=1)
    result.history.clear()
    result.records.clear()
    assert len(result.plot().axes) == 1


# --- errors come before any work


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Any:
        return iter(X)


def given(**arguments: Any) -> dict[str, Any]:
    return {"loss": cross_entropy, "data": (X, Y), "passes": 1, **arguments}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no limit": (given(passes=None), "never end: give passes="),
    "passes": (given(passes=0), "passes = 0: give a number above 0"),
    "passes in words": (given(passes="2"), "passes = '2': give a number above 0"),
    "no mini-batch": (given(b=0), "b = 0: give a whole number, at least 1"),
    "decay in words": (given(decoupled_weight_decay="x"), "decoupled_weight_decay = 'x': give a finite number"),
    "negative decay": (given(weight_decay=-1), "weight_decay = -1: give a finite number, at least 0"),
    "kind of loss": (given(loss=nn.CrossEntropyLoss), r"CrossEntropyLoss'>: give a function, such as CrossEntropyLoss"),
    "data as loss": (given(loss=(X, Y)), r"loss = \(tensor.{0,90}: give a function"),
    "nan": (given(seconds=math.nan), "seconds = nan: give a number above 0"),
    "until": (given(until=1e-3), "until = 0.001.*vcsg.stationary"),
    "method": (given(method="vscg"), "did you mean 'vcsg'"),
    "option": (given(method="sgd", B=4), "sgd has no option 'B'"),
    "own option": (given(n=60), "n= is known from the model"),
    "every": (given(every=0), "every = 0.*above 0"),
    "test_batch_size": (given(test_batch_size=0), "test_batch_size = 0.*at least 1"),
    "no loss": (given(loss=None), "either loss.*or loss=None and objective="),
    "both": (given(objective=dict_objective), "either loss.*or loss=None and objective="),
    "no test": (given(metrics={"m": mse_loss}), "metrics m.*give test="),
    "metric": (given(metrics={"ifo": mse_loss}, test=(X, Y)), "the name 'ifo' of a column.*choose another"),
    "workers": (given(data=Pairs(), workers=-1), "workers = -1.*at least 0"),
    "workers of tensors": (given(workers=2), "data are tensors.*leave workers="),
    "collate_fn of tensors": (given(collate_fn=listed), "leave workers= and collate_fn= out"),
    "loader": (given(data=DataLoader(Pairs())), "data is a DataLoader: give its dataset"),
    "test loader": (given(test=DataLoader(Pairs())), "test is a DataLoader: give its dataset"),
    "iterable": (given(data=Stream()), "data is a Stream.*__getitem__"),
    "arrays": (given(data=(X.numpy(), Y.numpy())), "data is of ndarray, ndarray.*torch.from_numpy"),
    "array": (given(data=np.zeros((5, 5))), "torch.from_numpy"),
    "mixed": (given(data={"x": X, "y": "name"}), "data is of Tensor, str: give tensors alone"),
    "words": (given(data={"x": "name"}), "data is a dict: give tensors"),
    "number": (given(data=3), "data is a int: give tensors"),
    "lengths": (given(data=(X, Y[1:])), r"data hold \[60, 59\] samples: give equal numbers"),
    "scalar": (given(data=(torch.tensor(1.0), torch.tensor(1.0))), r"\[0, 0\] samples"),
    "empty": (given(data=[]), "data holds 0 samples"),
    "one tensor": (given(data=X), "a batch is a Tensor.*give loss=None and objective="),
    "three tensors": (given(data=(X, Y, X)), "a batch is a tuple of 3.*objective="),
    "dict": (given(data={"x": X, "y": Y}), "a batch is a dict.*objective="),
    "dict batches": (given(data=Pairs(as_dict)), "a batch is a dict.*objective="),
    "no mean": (given(loss=nn.CrossEntropyLoss(reduction="none")), r"shape \(\d+,\): return the mean"),
    "no tensor": (given(loss=lambda outputs, targets: 1.0), "the loss of a batch is 1.0: return the mean"),
    "state": (given(state={}), "not the state of a vcsg optimizer"),
}


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("case", REFUSED)
def test_bad_calls_are_refused_and_leave_the_model_alone(case: str) -> None:
    arguments, message = REFUSED[case]
    model = net()
    with pytest.raises((TypeError, ValueError), match=message):
        vcsg.fit(model, **arguments)
    assert torch.equal(vector(model), vector(net()))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("method", ["auto", "svrg"])
@pytest.mark.parametrize(
    ("model", "y"),
    [
        (nn.Linear(5, 1), X[:, 0]),
        (nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)), X[:, :1]),
        (nn.Linear(5, 1), 1e6 + X[:, 0]),
        (nn.Sequential(nn.Linear(5, 4), nn.Unflatten(1, (1, 4))), X[:, :4]),
        (nn.Linear(5, 1), Y),
    ],
)
def test_outputs_that_would_be_compared_with_all_targets_are_refused(model: nn.Module, y: Tensor, method: str) -> None:
    """As by shapes (b, 1) and (b,), where torch makes (b, b) of them, and the model learns a constant."""
    with pytest.raises(ValueError, match=r"the model returns the shape \(32.*for targets of the shape \(32.*one shape"):
        vcsg.fit(model, lambda outputs, targets: (outputs - targets).square().mean(), (X, y), method, passes=1)


def test_test_targets_of_another_shape_are_refused() -> None:
    """Their loss would be that of other pairs, and look like one of a model that has learnt nothing."""
    loss = lambda outputs, targets: (outputs - targets).square().mean()  # noqa: E731
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    with pytest.raises(ValueError, match=r"the shape \(32, 1\) for test targets of the shape \(32,\)"):
        vcsg.fit(model, loss, (X, X[:, :1]), passes=1, test=(X, X[:, 0]))
    for test in ((X, X[:, :1]), (X[:1], X[:1, :1])):
        vcsg.fit(model, loss, (X, X[:, :1]), passes=1, test=test)


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (lambda outputs, targets: mse_loss(outputs[:, 0], targets), X[:, 0]),
        (lambda outputs, targets: mse_loss(outputs[:, 0], targets), 1e6 + X[:, 0]),
        (lambda outputs, targets: poisson_nll_loss(outputs[:, 0], targets), X[:, 0].exp()),
        (lambda outputs, targets: poisson_nll_loss(outputs[:, 0], targets), (50 + X[:, 0]).round()),
        (lambda outputs, targets: (outputs - targets).square().mean(), torch.ones(60)),
        (lambda outputs, targets: outputs.square().mean(), torch.zeros(60)),
        (lambda outputs, targets: outputs.square().mean(), torch.arange(60.0)),
    ],
)
def test_losses_that_take_targets_of_another_form_are_taken(loss: Callable[..., Tensor], y: Tensor) -> None:
    assert vcsg.fit(nn.Linear(5, 1), loss, (X, y), passes=1).passes >= 1


def test_a_run_goes_on_with_the_options_of_its_state() -> None:
    first = vcsg.fit(net(), cross_entropy, samples(), "sgd", b=4, lr=0.5, passes=1)
    with pytest.raises(
        ValueError, match=r"a run with lr = 0.5, and here it is 0.1: a run goes on with the same options"
    ):
        vcsg.fit(first.model, cross_entropy, samples(), "sgd", b=4, lr=0.1, passes=2, state=first.state)
    assert vcsg.fit(first.model, cross_entropy, samples(), "sgd", b=4, lr=0.5, passes=2, state=first.state).passes >= 2


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="no parameters"):
        vcsg.fit(nn.ReLU(), cross_entropy, samples(), passes=1)


@pytest.mark.parametrize("method", ["auto", "svrg"])
def test_lazy_layers_are_made_by_the_first_look_at_the_data(method: str) -> None:
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))
    assert vcsg.fit(model, cross_entropy, samples(), method, b=8, passes=2).passes >= 2
    assert model(X).shape == (60, 3)


class WithCentres(nn.Module):
    """A loss with parameters of its own: the distance to a centre for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(3, 2))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - self.centres[targets]).square().mean()


@pytest.mark.parametrize("kind", ["a module", "a function", "an objective", "frozen", "without gradients"])
def test_a_loss_with_parameters_of_its_own_is_told_of(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """They are not trained; where they are not to be, nothing is said."""
    loss, model = WithCentres(), nn.Linear(4, 2)
    x, y = torch.linspace(-1, 1, 160).reshape(40, 4), torch.arange(40) % 3
    given: dict[str, Any] = {"loss": loss}
    if kind == "a function":
        given = {"loss": lambda outputs, targets: loss(outputs, targets)}
    elif kind == "an objective":
        given = {"loss": None, "objective": lambda model, batch: loss(model(batch[0]), batch[1])}
    elif kind == "frozen":
        loss.requires_grad_(False)
    elif kind == "without gradients":
        given = {"loss": lambda outputs, targets: (outputs - loss.centres.detach()[targets]).square().mean()}
    before = loss.centres.detach().clone()
    vcsg.fit(model, data=(x, y), method="sgd", passes=1, lr=0.1, b=4, **given)
    told = kind in ("a module", "a function", "an objective")
    assert (
        "the loss depends on parameters that are not the model's, of the shapes (3, 2): they are" in caplog.text
    ) == told
    assert torch.equal(loss.centres, before)


def test_a_loss_of_batches_of_one_size_is_looked_at_by_the_run_alone() -> None:
    """What is looked at before a run has another size; the run has no other."""
    mask = torch.eye(8, dtype=torch.bool)

    def objective(model: nn.Module, batch: Tensor) -> Tensor:
        outputs = model(batch)
        return (outputs @ outputs.T).masked_fill(mask, 0.0).square().mean()

    x = torch.linspace(-1, 1, 160).reshape(40, 4)
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    assert vcsg.fit(model, None, x, "sgd", objective=objective, passes=1, lr=0.1, b=8, every=2).stopped == "passes"
