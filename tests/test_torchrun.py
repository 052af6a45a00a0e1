"""`torchrun -m vcsg run`: the run of one process, whatever becomes of a rank on the way. Real processes throughout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
import safetensors.torch
import torch

import vcsg

WORKLOAD = "synthetic:n=1500,d=20/nonconvex-logistic"
RUN = ["-m", "vcsg", "run", WORKLOAD, "--seed", "3", "--budget", "12passes", "--every", "4", "--set", "b_min=16"]
DISCRETE = ("epoch", "regime", "B", "b", "length", "ifo", "anchor_size")
LIMIT = 240
"""Seconds for a job, on a busy machine."""


def start(ranks: int, out: Path, *more: str, restarts: int = 0) -> subprocess.Popen[str]:
    torchrun = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
    torchrun += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
    command = [sys.executable, *(torchrun if ranks > 1 else []), *RUN, *more, "--out", str(out)]
    source = str(Path(vcsg.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    environment["VCSG_TIMEOUT"] = "120"
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def finish(job: subprocess.Popen[str]) -> str:
    try:
        return job.communicate(timeout=LIMIT)[0]
    finally:
        # The ranks too, where the launcher did not come to end them.
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)


def ranks_of(job: subprocess.Popen[str]) -> list[int]:
    """The processes that torchrun has started, first rank first."""
    return [int(pid) for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]


def wait_for_checkpoint(job: subprocess.Popen[str], out: Path) -> None:
    deadline = time.monotonic() + LIMIT
    while not list(out.glob("checkpoint-*")):
        assert job.poll() is None, finish(job)
        assert time.monotonic() < deadline
        time.sleep(0.02)


def outcome(out: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, object]]]:
    assert json.loads((out / "run.json").read_text())["status"] == "finished"
    epochs = [json.loads(line) for line in (out / "epochs.jsonl").read_text().splitlines()]
    weights = safetensors.torch.load_file(out / "weights.safetensors")
    return weights, [{key: epoch[key] for key in DISCRETE} for epoch in epochs]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("one") / "run"
    job = start(1, out)
    said = finish(job)
    assert job.returncode == 0, said
    return out


def assert_same(out: Path, expected: Path) -> None:
    (weights, epochs), (there, before) = outcome(out), outcome(expected)
    assert epochs == before
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, there[name], rtol=0, atol=1e-9)


def test_a_job_is_the_run_of_one_process(undisturbed: Path, tmp_path: Path) -> None:
    job = start(3, tmp_path / "run")
    said = finish(job)
    assert job.returncode == 0, said
    assert said.count("Records: ") == 1  # one rank speaks
    assert_same(tmp_path / "run", undisturbed)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the ranks by /proc")
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_and_a_restart(undisturbed: Path, tmp_path: Path, victim: int) -> None:
    out = tmp_path / "run"
    job = start(2, out, "--resume", "--checkpoint-seconds", "0", restarts=3)
    wait_for_checkpoint(job, out)
    killed = ranks_of(job)[victim]
    os.kill(killed, signal.SIGKILL)
    said = finish(job)
    assert job.returncode == 0, said
    assert f"(pid: {killed})" in said or "Signal 9" in said or "exitcode: -9" in said, said
    assert_same(out, undisturbed)


def test_another_number_of_ranks_goes_on(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    job = start(2, out, "--checkpoint-seconds", "0")
    wait_for_checkpoint(job, out)
    job.send_signal(signal.SIGTERM)
    finish(job)
    assert job.returncode != 0
    again = start(1, out, "--resume")
    said = finish(again)
    assert again.returncode == 0, said
    assert_same(out, undisturbed)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["compare", WORKLOAD], "vcsg compare starts processes of its own"),
        (["run", WORKLOAD, "--method", "adamw"], "adamw is a baseline and runs in one process"),
    ],
)
def test_what_runs_in_one_process_alone(
    command: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from vcsg.cli import app
    from vcsg.study.running import torchrun

    monkeypatch.setattr(torchrun, "count", lambda: 2)
    monkeypatch.setattr(torchrun, "joined", lambda _: nullcontext(0))
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert message in done.output
