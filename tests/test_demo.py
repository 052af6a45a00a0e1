"""The demo as a user runs it: a process of its own, with settings that take seconds."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vcsg

SCRIPT = Path(__file__).parents[1] / "examples" / "demo.py"
PNG = b"\x89PNG\r\n\x1a\n"
ROW = re.compile(r"^ (\S.*?)  .* (\d+\.\d)  +(\d+\.\d)  +(\S+)  +(\d+\.\d\d)%  +(\d+\.\d\d)", re.MULTILINE)
"""method, passes, seconds, training loss, test error (%), ratio to the best"""


def start(cwd: Path, *options: str) -> subprocess.Popen[str]:
    paths = [str(Path(vcsg.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS")}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
    environment |= {"PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, str(SCRIPT), *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=pipe, stderr=pipe, text=True, encoding="utf-8")


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=120)
    finally:
        process.kill()


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(PNG)


def test_compares_methods(tmp_path: Path) -> None:
    process = start(tmp_path, "--passes", "1.5", "--methods", "vcsg-16", "sgd", "momentum", "--seed", "1")
    out, err = finish(process)
    assert (process.returncode, err) == (0, "")
    rows = {row[0]: row[1:] for row in ROW.findall(out)}
    assert list(rows) == ["SGD, momentum 0.9", "SGD", "VCSG, b ≥ 16"]
    for passes, seconds, loss, error, ratio in rows.values():
        assert 1.5 <= float(passes) < 1.6
        assert float(seconds) > 0
        assert 0 < float(loss) < 2.5
        assert 0 < float(error) < 95
        assert float(ratio) >= 1
    assert float(rows["SGD, momentum 0.9"][3]) < 15
    assert "(0.5, −0.5, 0.5)" in out
    assert "Lowest test error: SGD, momentum 0.9" in out
    assert "The best method with an anchor was VCSG, b ≥ 16" in out
    assert out.endswith("Plot: demo-output/demo.png\n")
    assert is_png(tmp_path / "demo-output" / "demo.png")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A child inherits an ignored SIGINT, which some runners set."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    process = start(tmp_path, "--passes", "60", "--methods", "momentum", "sgd", "--out", "kept")
    assert process.stdout is not None
    assert "60 passes" in process.stdout.readline()
    assert process.stdout.readline().startswith("SGD, momentum 0.9")
    process.send_signal(signal.SIGINT)
    out, err = finish(process)
    assert (process.returncode, err) == (130, "")
    rows = ROW.findall(out)
    assert [row[0] for row in rows] == ["SGD, momentum 0.9 (stopped)"]
    assert float(rows[0][1]) < 60
    assert "nothing to compare" in out
    assert is_png(tmp_path / "kept" / "demo.png")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--methods", "adam"), "invalid choice: 'adam'"),
        (("--passes", "0"), "0 is not a finite number above 0"),
        (("--passes", "many"), "invalid positive value: 'many'"),
        (("--seed", "-1"), "-1 is not a whole number, at least 0"),
    ],
)
def test_bad_options_fail_at_once(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    process = start(tmp_path, *options)
    out, err = finish(process)
    assert (process.returncode, out) == (2, "")
    assert message in err
    assert not list(tmp_path.iterdir())
