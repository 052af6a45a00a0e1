"""Processes that are killed, asked to end, or cannot write: a run goes on as if nothing had happened."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vcsg.files import locked

sys.path.insert(0, str(Path(__file__).parent.parent))
kills: Any = importlib.import_module("benchmarks.kills")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    made = kills.Server()
    yield made
    made.close()


@pytest.fixture(scope="module")
def whole(server: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What runs leave that were never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    for kind in ("vcsg", "adamw", "fit"):
        assert server.run(kills.words(kind, folder / kind), folder / "log")[0] == 0, (folder / "log").read_text()
    return {kind: kills.content(folder / kind) for kind in ("vcsg", "adamw", "fit")}


@pytest.mark.parametrize("kind", [*kills.METHODS, "fit"])
def test_a_run_that_is_killed_again_and_again_is_the_run_that_was_not(server: Any, tmp_path: Path, kind: str) -> None:
    """Five times each, 35 in all; `python benchmarks/kills.py` does 200."""
    tally = kills.campaign(server, kind, 5, tmp_path)
    assert not tally.wrong
    assert tally.kills.total() == 5
    assert tally.finished


@pytest.mark.parametrize("place", list(kills.POINTS))
def test_every_place(server: Any, whole: dict[str, Any], tmp_path: Path, place: str) -> None:
    """The first time that the run comes there, so that there may be no checkpoint yet, and once more after that."""
    words = kills.words("vcsg", tmp_path / "run")
    assert server.run(words, tmp_path / "log", point=place, count=1)[0] == -signal.SIGKILL
    server.run(words, tmp_path / "log", point=place, count=2)
    assert server.run(words, tmp_path / "log")[0] == 0
    assert kills.content(tmp_path / "run") == whole["vcsg"]


# --- SIGTERM and Ctrl-C


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("kind", ["vcsg", "adamw"])
def test_a_signal_leaves_a_checkpoint(
    server: Any, whole: dict[str, Any], tmp_path: Path, kind: str, number: int, status: int
) -> None:
    """And a row of the last point, which is taken back when the run goes on."""
    folder, log = tmp_path / "run", tmp_path / "log"
    words = kills.words(kind, folder)
    words[words.index("--checkpoint-seconds") + 1] = "1000"
    assert server.run(words, log, point="inner phase", count=60, number=number)[0] == status, log.read_text()
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    assert len(list(folder.glob("checkpoint-*.vcsg"))) == 1
    assert "(1 interrupted)" in log.read_text()
    assert server.run(words, log)[0] == 0
    assert kills.content(folder) == whole[kind]
    assert "starts again" not in log.read_text()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_fit_returns_at_ctrl_c_and_ends_the_program_at_sigterm(
    server: Any, whole: dict[str, Any], tmp_path: Path, number: int, status: int
) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    words = kills.words("fit", folder)
    assert server.run(words, log, point="inner phase", count=60, number=number)[0] == status, log.read_text()
    assert (folder / "result.pt").exists() == (status == 0)
    assert server.run(words, log)[0] == 0
    assert kills.content(folder) == whole["fit"]


# --- a folder that cannot be written to, or is another's


def test_checkpoints_that_find_no_room_are_told_and_the_run_goes_on(
    server: Any, whole: dict[str, Any], tmp_path: Path
) -> None:
    """A file may have 9,000 bytes, of which a checkpoint has more and records have less."""
    folder, log = tmp_path / "run", tmp_path / "log"
    assert server.run(kills.words("adamw", folder), log, limit=9000)[0] == 0, log.read_text()
    assert "no checkpoint could be written: [Errno 27] File too large" in log.read_text()
    assert "there is none yet, and the run continues" in log.read_text()
    assert kills.content(folder) == whole["adamw"]


@pytest.mark.parametrize(("limit", "file"), [(300, "run.json"), (2000, "evaluations.jsonl")])
def test_records_that_find_no_room_end_the_run_and_it_can_go_on_later(
    server: Any, whole: dict[str, Any], tmp_path: Path, limit: int, file: str
) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    words = kills.words("adamw", folder)
    assert server.run(words, log, point="inner phase", count=20)[0] == -signal.SIGKILL
    (tmp_path / "other").mkdir()
    log = tmp_path / "other" / "log"
    assert server.run(words, log, limit=limit)[0] == 1, log.read_text()
    shown = log.read_text()
    assert "File too large" in shown
    assert str(folder / file) in shown.replace("\n", "")
    assert "Traceback" not in shown
    assert not list(folder.glob(".*partial*"))
    assert server.run(words, log)[0] == 0
    assert kills.content(folder) == whole["adamw"]


def test_a_folder_without_rights_is_named(server: Any, tmp_path: Path) -> None:
    """Root may write everywhere but where nobody may."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    if os.getuid() == 0:
        folder = Path("/sys")
    told = {"adamw": f"vcsg: {folder}/run: .*(not permitted|denied)", "fit": rf"\[Errno \d+\] .*: '{folder}/run'"}
    for kind, message in told.items():
        log = tmp_path / f"{kind}.log"
        assert server.run(kills.words(kind, folder / "run"), log)[0] == 1
        assert re.search(message, log.read_text())


def test_the_second_process_on_a_folder_is_refused(server: Any, tmp_path: Path) -> None:
    for kind in ("adamw", "fit"):
        folder, log = tmp_path / kind, tmp_path / f"{kind}.log"
        with locked(folder):
            assert server.run(kills.words(kind, folder), log)[0] == 1
        assert f"{folder} is in use by process {os.getpid()}: wait for it" in log.read_text().replace("\n", "")
        assert {path.name for path in folder.iterdir()} == {".lock"}
        assert server.run(kills.words(kind, folder), log)[0] == 0


# --- what --resume finds


def test_a_finished_run_is_shown_and_another_is_refused(server: Any, tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    words = kills.words("adamw", folder)
    assert server.run(words, log)[0] == 0
    before = kills.content(folder)
    assert server.run(words, log)[0] == 0
    assert "holds this run already, and it is finished" in log.read_text()
    for more, field in (("--seed 1", "seed"), ("--set b=4", "option b"), ("--budget 11passes", "budget")):
        assert server.run([*words, *more.split()], log)[0] == 2
        assert f"is of another run: its {field} is" in log.read_text()
    assert server.run([w for w in words if w != "--resume"], log)[0] == 1
    assert "holds a run already: give another folder, or continue the run with --resume" in log.read_text()
    assert kills.content(folder) == before


def test_one_that_was_broken_off_goes_on_with_more_passes_and_not_as_another(
    server: Any, whole: dict[str, Any], tmp_path: Path
) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    words = kills.words("adamw", folder)
    short = ["5passes" if word.endswith("passes") else word for word in words]
    assert server.run(short, log, point="final weights", count=1)[0] == -signal.SIGKILL
    left = kills.content(folder)
    assert server.run([*words, "--seed", "1"], log)[0] == 2
    assert "run.json is of another run: its seed is 0, here it is 1" in log.read_text().replace("\n", "")
    assert kills.content(folder) == left
    assert server.run(words, log)[0] == 0
    assert kills.content(folder)["weights.safetensors"] == whole["adamw"]["weights.safetensors"]


def test_damaged_checkpoints_are_told_and_the_run_is_the_same(
    server: Any, whole: dict[str, Any], tmp_path: Path
) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    words = kills.words("vcsg", folder)
    words[words.index("--checkpoint-seconds") + 1] = "0"
    for damaged, told in ((1, "the one before is used"), (3, "there is none before it")):
        assert server.run(words, log, point="after its rename", count=5)[0] == -signal.SIGKILL
        for path in sorted(folder.glob("checkpoint-*.vcsg"))[-damaged:]:
            os.truncate(path, path.stat().st_size - 1)
        assert server.run(words, log, point="inner phase", count=3)[0] == -signal.SIGKILL
        assert told in log.read_text()
    assert "before it had a sound checkpoint: it starts again from the beginning" in log.read_text()
    assert server.run(words, log)[0] == 0
    assert kills.content(folder) == whole["vcsg"]
