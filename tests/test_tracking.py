"""Records as scalars, and what trackers hold of them afterwards."""

from __future__ import annotations

import json
import logging
import math
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from quadratic import closure, parameter, quadratic

import vcsg
from vcsg import integrations
from vcsg.integrations import Tracker
from vcsg.run.record import Record
from vcsg.run.variance import Anchor

N = 40
PROBLEM = quadratic(N)


def tracked(to: Any, name: str = "svrg") -> list[Record]:
    """The records of a short run that were also written to a tracker."""
    p, records, write = parameter(), [], Tracker(to)

    def callback(record: Record) -> None:
        records.append(record)
        write(record)

    optimizer = vcsg.FiniteSumOptimizer([p], N, name, b=5, L=4.0, callback=callback)
    for batch in optimizer.batches(PROBLEM.data, until=lambda record: record.epoch > 3):
        optimizer.step(closure(p, batch))
    assert len(records) == 4
    return records


def record(**changes: Any) -> Record:
    anchor = Anchor(n=100, B=20, loss=2.0, loss_s2=1.0, g_norm2=9.0, s2=5.0)
    known = {"epoch": 3, "regime": "first", "B": 24, "b": 4, "step_size": 0.1, "length": 6, "L": 7.0, "eps": None}
    return Record(**{**known, "anchor": anchor, "ifo": 150, "passes": 1.5, **changes})


def test_scalars_are_the_numbers_of_a_record() -> None:
    noise = 5.0 * (1 / 20 - 1 / 100)
    assert record().scalars() == {
        "epoch": 3, "passes": 1.5, "ifo": 150, "B": 24, "b": 4, "length": 6, "step_size": 0.1, "L": 7.0, "loss": 2.0,
        "variance": pytest.approx(0.99 * 5.0), "gradient_norm2": pytest.approx(9 - noise),
        "rough_bound": pytest.approx((3 + math.sqrt(20 * noise)) ** 2), "anchor_size": 20,
    }  # fmt: skip
    assert record(eps=0.5).scalars()["eps"] == 0.5


def test_scalars_leave_out_what_is_not_known() -> None:
    single = Anchor(n=100, B=1, loss=2.0, loss_s2=math.nan, g_norm2=9.0, s2=math.nan)
    assert record().scalars().keys() - record(anchor=single).scalars() == {"variance", "gradient_norm2", "rough_bound"}
    anchored = {"loss", "variance", "gradient_norm2", "rough_bound", "anchor_size"}
    assert record().scalars().keys() - record(anchor=None).scalars() == anchored
    assert "L" not in record(L=math.inf).scalars()


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install 'vcsg[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        records = tracked(writer)
    found = EventAccumulator(str(tmp_path)).Reload()
    assert set(found.Tags()["scalars"]) == {f"vcsg/{name}" for r in records for name in r.scalars()}
    for name in records[0].scalars():
        written = [(event.step, event.value) for event in found.Scalars(f"vcsg/{name}")]
        assert written == [(r.ifo, pytest.approx(r.scalars()[name], rel=1e-6)) for r in records]  # kept as float32


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module = pytest.importorskip("mlflow", reason="mlflow is not installed: pip install mlflow-skinny")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder, the one store that mlflow-skinny has
    module.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield module
    module.set_tracking_uri(None)


def test_mlflow(mlflow: Any) -> None:
    with mlflow.start_run() as run:
        records = tracked(mlflow)
    client = mlflow.MlflowClient()
    for name in records[0].scalars():
        written = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, f"vcsg/{name}")]
        assert written == [(r.ifo, r.scalars()[name]) for r in records]


def entries(path: Path) -> Iterator[bytes]:
    """The entries of a file that wandb wrote offline: a log of LevelDB's form, in blocks of 32 KiB."""
    data, at, entry = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # too little room for a header: the block ends in zeros
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        entry += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield entry
            entry = b""


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed: pip install wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=str(tmp_path), project="vcsg") as run:
        records = tracked(run)
        run.log({"own": 1.0})
        folder = Path(run.dir).parent
    wandb.teardown()  # its service writes to the end
    rows, axes = [], {}
    for data in entries(next(folder.glob("*.wandb"))):
        entry = wandb_internal_pb2.Record.FromString(data)
        if entry.WhichOneof("record_type") == "history":
            rows.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in entry.history.item})
        elif entry.WhichOneof("record_type") == "metric":
            axes[entry.metric.glob_name] = entry.metric.step_metric
    wanted = [{f"vcsg/{name}": value for name, value in r.scalars().items()} for r in records]
    assert [{name: value for name, value in row.items() if name[0] != "_"} for row in rows] == [*wanted, {"own": 1.0}]
    assert axes["vcsg/*"] == "vcsg/ifo"


def test_what_cannot_be_written_to_is_refused() -> None:
    with pytest.raises(TypeError, match=r"to is a PosixPath: give a SummaryWriter" if os.name == "posix" else "give a"):
        Tracker(Path("runs"))
    with pytest.raises(TypeError, match="to is a Logger: give a SummaryWriter"):
        Tracker(logging.getLogger("vcsg"))


def test_a_missing_package_is_named_with_its_extra() -> None:
    with patch.dict(sys.modules, {"skorch": None, "vcsg.integrations.with_skorch": None}):
        del sys.modules["vcsg.integrations.with_skorch"]
        with pytest.raises(ModuleNotFoundError, match=r"FiniteSumRegressor needs skorch: pip install 'vcsg\[skorch\]'"):
            integrations.__getattr__("FiniteSumRegressor")
    with pytest.raises(AttributeError, match=r"module 'vcsg.integrations' has no attribute 'Callback'"):
        integrations.__getattr__("Callback")
    assert {*integrations._EXTRAS, "Tracker"} == set(integrations.__all__)
    with pytest.raises(TypeError, match="to is a Logger: give a SummaryWriter"):
        Tracker(logging.getLogger("vcsg"))
