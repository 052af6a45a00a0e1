"""Checkpoints: what is kept, when, that a run goes on from them exactly, and which of them are refused."""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import vcsg
from vcsg import files
from vcsg.run.sampling import Phase
from vcsg.study.records import RunConfig, RunRecord
from vcsg.study.running.writing import RunWriter
from vcsg.training import saving
from vcsg.training.checkpoints import HEAD, Checkpoints, Damaged, decode, encode, write
from vcsg.training.saving import Generators, Saver

X = torch.randn(64, 5, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def fit(folder: Path | None = None, method: str = "svrg", **options: Any) -> vcsg.Result:
    given: dict[str, Any] = {"passes": 8, "test": (X[:20], Y[:20]), "every": 0.5, "checkpoint_seconds": 0}
    given |= {"L": 5.0, "checkpoint": folder, "resume": folder is not None} | options
    return vcsg.fit(net(), cross_entropy, (X, Y), method, **given)


class Crash(Exception):
    """Instead of a SIGKILL, which is tested elsewhere."""


def crash_at(epoch: int) -> Callable[[vcsg.Record], None]:
    def callback(record: vcsg.Record) -> None:
        if record.epoch == epoch:
            raise Crash

    return callback


def crashed(folder: Path, method: str = "svrg", epoch: int = 3, **options: Any) -> list[Path]:
    """The checkpoints of a run that came to this epoch."""
    with pytest.raises(Crash):
        fit(folder, method, callback=crash_at(epoch), **options)
    return sorted(folder.glob("*.vcsg"))


def same(one: vcsg.Result, other: vcsg.Result) -> bool:
    def told(result: vcsg.Result) -> Any:
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]
        return repr(rows), repr(result.records), result.ifo, result.stopped

    weights = (result.model.state_dict() for result in (one, other))
    return told(one) == told(other) and all(
        torch.equal(a, b) for a, b in zip(*(w.values() for w in weights), strict=True)
    )


# --- going on


@pytest.mark.parametrize("options", [{}, {"output": "weighted"}, {"L": None}], ids=["plain", "weighted", "L estimated"])
@pytest.mark.parametrize("method", ["vcsg", "saga", "spider", "storm", "sgd"])
def test_a_run_that_broke_off_goes_on_exactly(method: str, options: dict[str, Any], tmp_path: Path) -> None:
    options = {**options, **({"b": 4} if method in ("sgd", "saga", "storm") else {})}
    whole = fit(None, method, **options)
    crashed(tmp_path, method, 2, **options)
    crashed(tmp_path, method, 3, **options)
    found = fit(tmp_path, method, **options)
    assert same(found, whole)
    assert found.seconds > 0


def test_without_a_checkpoint_a_run_simply_starts(tmp_path: Path) -> None:
    assert same(fit(tmp_path / "a" / "b"), fit())


def test_a_run_at_its_end_is_there_and_goes_on_with_larger_limits(tmp_path: Path) -> None:
    told: list[vcsg.Record] = []
    short = fit(tmp_path, passes=4)
    assert same(fit(tmp_path, passes=4, callback=told.append), short)
    assert not told, "nothing was done again"
    assert same(fit(tmp_path, passes=8), fit())


def test_a_rule_that_was_met_is_still_met_and_another_goes_on(tmp_path: Path) -> None:
    def beyond(epoch: int) -> Callable[[vcsg.Record], bool]:
        return lambda record: record.epoch >= epoch

    first = fit(tmp_path, until=beyond(2))
    assert first.stopped == "until"
    assert same(fit(tmp_path, until=beyond(2)), first)
    assert same(fit(tmp_path, until=beyond(3)), fit(until=beyond(3)))


def test_the_rule_is_asked_about_every_record_once(tmp_path: Path) -> None:
    """A run that breaks off between the record of an epoch and the step after it."""
    asked: list[int] = []

    def rule(record: vcsg.Record) -> bool:
        asked.append(record.epoch)
        if len(asked) == 2:
            raise Crash
        return record.epoch == 2

    with pytest.raises(Crash):
        fit(tmp_path, until=rule)
    assert fit(tmp_path, until=rule).stopped == "until"
    assert asked == [1, 2, 2]


def test_generators_are_put_back(tmp_path: Path) -> None:
    class Tired:
        def __init__(self) -> None:
            self.drawn: list[float] = []

        def __call__(self, record: vcsg.Record) -> None:
            self.drawn.append(float(torch.rand(1)))

    def stop(record: vcsg.Record) -> None:
        first(record)
        if record.epoch == 3:
            raise Crash

    whole, first, second = Tired(), Tired(), Tired()
    fit(callback=whole)
    with pytest.raises(Crash):
        fit(tmp_path, callback=stop)
    torch.manual_seed(77)
    fit(tmp_path, callback=second)
    assert first.drawn[:2] + second.drawn == whole.drawn
    states = Generators().state_dict()
    expected = torch.rand(1)
    Generators().load_state_dict(states)
    assert torch.equal(torch.rand(1), expected)


# --- when


class Fake:
    """Checkpoints that count."""

    def __init__(self) -> None:
        self.saved = 0

    def save(self, state: Any) -> bool:
        self.saved += 1
        return True


def test_one_is_due_after_a_time_and_sooner_where_a_phase_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(saving.time, "monotonic", lambda: now)
    saver = Saver(Fake(), {}, 10.0)  # type: ignore[arg-type]
    one, two = (Phase("inner", number, 4, 4, 60, 0) for number in (1, 2))
    found = []
    for now, phase in ((1, one), (4, two), (6, two), (9.9, two), (10, two), (14, two), (14.9, one), (15.1, two)):  # noqa: B007
        found.append(saver.due(phase))
        if found[-1]:
            saver.save()
    assert found == [False, False, False, False, True, False, False, True]
    assert not saver.due_at_end()
    assert Saver(Fake(), {}, 10.0, lasting=True).due_at_end()  # type: ignore[arg-type]


def test_two_are_kept_and_the_clock_stands_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, count = saving.Checkpoints.save, 0

    def slow(self: Checkpoints, state: Any) -> bool:
        nonlocal count
        count += 1
        time.sleep(0.01)
        return plain(self, state)

    monkeypatch.setattr(saving.Checkpoints, "save", slow)
    begun = time.monotonic()
    result = fit(tmp_path)
    assert len(list(tmp_path.glob("*.vcsg"))) == 2
    assert result.seconds + 0.01 * count <= time.monotonic() - begun


# --- what is refused


def test_a_folder_with_a_checkpoint_is_not_written_over(tmp_path: Path) -> None:
    before = crashed(tmp_path)
    with pytest.raises(FileExistsError, match="holds a checkpoint: give resume=True"):
        fit(tmp_path, resume=False)
    assert sorted(tmp_path.glob("*.vcsg")) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "scsg"}, r"its method is .*svrg.*, here it is .*scsg"),
        ({"b": 4}, "its option b is None, here it is 4"),
        ({"method": vcsg.make("svrg", b=4)}, "its method is"),
        ({"L": 6.0}, "its option L is 5.0, here it is 6.0"),
        ({"seed": 1}, "its seed is 0, here it is 1"),
        ({"clip_norm": 1.0}, "its option clip_norm is None, here it is 1.0"),
    ],
)
def test_another_configuration_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    before = crashed(tmp_path)
    with pytest.raises(ValueError, match=f"is of another run: {message}"):
        fit(tmp_path, **change)
    assert sorted(tmp_path.glob("*.vcsg")) == before


def test_other_data_models_and_versions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed(tmp_path)
    rules: dict[str, Any] = {"L": 5.0, "passes": 8, "checkpoint": tmp_path, "resume": True}
    with pytest.raises(ValueError, match="its n is 64, here it is 50"):
        vcsg.fit(net(), cross_entropy, (X[:50], Y[:50]), "svrg", **rules)
    with pytest.raises(ValueError, match=r"its number of parameters is \d+, here it is 18"):
        vcsg.fit(nn.Linear(5, 3), cross_entropy, (X, Y), "svrg", **rules)
    monkeypatch.setattr("vcsg.training.saving.__version__", "99.0")
    with pytest.raises(ValueError, match=r"its vcsg version is .*, here it is '99.0'"):
        fit(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = crashed(tmp_path)[-1]
    path.write_bytes(path.read_bytes().replace(HEAD + b"1", HEAD + b"2", 1))
    with pytest.raises(ValueError, match="has format 2, this version of vcsg reads format 1"):
        fit(tmp_path)


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    path = crashed(tmp_path / "run")[-1]
    for content in (
        pickle.dumps(Hostile(tmp_path / "gone")),
        _saved({"config": {}, "state": Hostile(tmp_path / "gone")}),
    ):
        digest = hashlib.sha256(content).hexdigest()
        path.write_bytes(HEAD + f"1\n{digest}\n".encode() + content)
        with pytest.raises(ValueError, match="was not written by vcsg and is not loaded"):
            fit(tmp_path / "run")
    path.write_bytes(pickle.dumps(Hostile(tmp_path / "gone")))
    assert same(fit(tmp_path / "run"), fit()), "a file of another kind is damaged, and there is one before it"
    assert not (tmp_path / "gone").exists()


def _saved(content: Any) -> bytes:
    return bytes(encode(content)[1])


class Extra(nn.Linear):
    def get_extra_state(self) -> Any:
        return Path("anything")

    def set_extra_state(self, state: Any) -> None: ...


def test_a_state_that_could_not_be_loaded_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"let get_extra_state\(\) return these alone"):
        vcsg.fit(Extra(5, 3), cross_entropy, (X, Y), passes=1, checkpoint=tmp_path, checkpoint_seconds=0)
    assert not list(tmp_path.glob("*.vcsg"))


def test_bad_calls(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="resume=True without a folder"):
        fit(None, resume=True)
    for seconds in (-1, float("nan"), "60"):
        with pytest.raises(ValueError, match=r"checkpoint_seconds = .*at least 0"):
            fit(tmp_path, checkpoint_seconds=seconds)
    assert not list(tmp_path.iterdir())


# --- damage


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "flipped": flip,
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "one byte short": lambda path: os.truncate(path, path.stat().st_size - 1),
    "head alone": lambda path: os.truncate(path, 12),
    "empty": lambda path: os.truncate(path, 0),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_one_is_told_and_the_one_before_is_taken(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, last = crashed(tmp_path)
    DAMAGE[kind](last)
    with pytest.raises(Damaged, match=f"{last.name} is damaged"):
        decode(last)
    assert same(fit(tmp_path), fit())
    (told,) = [record.getMessage() for record in caplog.records if record.name == "vcsg.checkpoints"]
    assert f"{last} is damaged" in told
    assert told.endswith("it is removed, the one before is used")


def test_where_none_is_sound_the_run_begins_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in crashed(tmp_path):
        flip(path)
    assert same(fit(tmp_path), fit())
    told = [record.getMessage() for record in caplog.records if record.name == "vcsg.checkpoints"]
    assert "there is none before it" in told[-1]


def test_one_that_cannot_be_written_leaves_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = Checkpoints(tmp_path, {})
    assert made.save({"x": 1})

    def full(path: Path, *parts: Any) -> None:
        write(path, parts[0])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vcsg.training.checkpoints.write", full)
    assert [made.save({"x": 2}), made.save({"x": 3})] == [False, False]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000000001.vcsg"]
    monkeypatch.undo()
    assert made.save({"x": 4})
    found: list[Any] = []
    assert made.load(found.append)
    assert found == [{"x": 4}]
    assert len(caplog.messages) == 2, "told once, and that it went well again"
    assert "checkpoint-000000002.vcsg'; the last one is checkpoint-000000001.vcsg" in caplog.messages[0]


def test_records_that_are_shorter_than_a_checkpoint_counts_on(tmp_path: Path) -> None:
    config = RunConfig("w", "sgd", "SGD", {}, 0, {}, 1.0, "")
    writer = RunWriter(tmp_path, RunRecord(tmp_path, config, {}, "", "running"))
    writer.begin()
    writer.evaluation({"passes": 1.0})
    state = writer.state_dict()
    writer.evaluation({"passes": 2.0})
    writer.load_state_dict(state)
    assert (tmp_path / "evaluations.jsonl").read_bytes() == b'{"passes": 1.0}\n'
    os.truncate(tmp_path / "evaluations.jsonl", 4)
    with pytest.raises(Damaged, match=r"evaluations.jsonl has 4 bytes, and a checkpoint needs 16"):
        writer.load_state_dict(state)


# --- files


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    files.write_text(tmp_path / "a.json", "old")

    def fail(new: Path) -> None:
        assert new.suffix == ".json"
        new.write_text("ne")
        raise OSError(28, "No space left on device", str(new))

    with (
        pytest.raises(OSError, match=r"No space left on device: '.*/a\.json'"),
        files.replacing(tmp_path / "a.json") as new,
    ):
        fail(new)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "old"


def test_what_killed_writers_left_is_swept_away_and_nothing_else(tmp_path: Path) -> None:
    kept = [".hidden", "a.partial.json", "checkpoint-000000001.vcsg"]
    for name in (*kept, ".run-abc.partial.json", ".checkpoint-000000002-x_1.partial.vcsg"):
        (tmp_path / name).touch()
    with files.room_beside(tmp_path / "weights.safetensors") as room:
        (room / "a").touch()
        room.rename(tmp_path / ".weights-x_2.partial")  # it stays, as if the process had ended here
    files.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == kept


def test_a_line_that_did_not_fit_at_once_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    class Scant(io.FileIO):
        def write(self, data: Any) -> int:
            return super().write(data[:5])

    monkeypatch.setattr("builtins.open", lambda path, mode, buffering: Scant(path, mode))
    files.append(tmp_path / "a", b"12345678\n")
    monkeypatch.undo()
    assert (tmp_path / "a").read_bytes() == b"12345678\n"


def test_a_folder_is_one_process_s_alone(tmp_path: Path) -> None:
    def attempt() -> bool:
        """Whether another process gets it."""
        pid = os.fork()
        if not pid:
            files._held.clear()  # what was forked has not locked anything
            try:
                with files.locked(tmp_path):
                    os._exit(0)
            except BlockingIOError as error:
                os._exit(1 if f"in use by process {os.getppid()}" in str(error) else 2)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    with files.locked(tmp_path):
        assert not attempt()
        with pytest.raises(BlockingIOError, match="in use by this process already"), files.locked(tmp_path / "."):
            pass
        assert not attempt(), "and the attempt took nothing from the first"
    assert attempt()


def test_a_run_in_a_locked_folder_is_refused(tmp_path: Path) -> None:
    with files.locked(tmp_path), pytest.raises(BlockingIOError, match="in use"):
        fit(tmp_path)
