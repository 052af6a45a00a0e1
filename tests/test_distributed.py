"""Several ranks of torch.distributed, as processes that torchrun starts, take the way of one; and when they cannot.

The scenarios are in ranks_runs.py, ranks_states.py and failures.py. They run once for all tests: on one rank here, then
on two and three.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ranks as scenarios
import ranks_runs  # noqa: F401
import ranks_states
import torch
from torch import Tensor

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch has no gloo here")

HERE = Path(__file__).parent
SEVERAL = (2, 3)
PATIENCE = 400.0
"""Seconds, for a machine with much else to do; nothing waits so long on a quiet one."""


def environment() -> dict[str, str]:
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return {**os.environ, "OMP_NUM_THREADS": "1", **loopback}


def torchrun(script: str, ranks: int, *arguments: object) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    meeting = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    return [*launcher, *meeting, str(HERE / script), *map(str, arguments)]


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """What every rank of one, two and three found."""
    folder = tmp_path_factory.mktemp("ranks")
    results = {1: [scenarios.perform(0, 1, folder)]}
    for ranks in SEVERAL:
        job = subprocess.run(
            torchrun("ranks_job.py", ranks, folder), env=environment(), capture_output=True, text=True, timeout=PATIENCE
        )
        assert job.returncode == 0, job.stdout + job.stderr
        results[ranks] = [torch.load(folder / f"found-{ranks}-{rank}.pt") for rank in range(ranks)]
    results[1][0]["resumed"] = ranks_states.resumed(0, 1, folder)
    return results


def compare(one: Any, other: Any, rtol: float, skip: tuple[str, ...] = (), at: str = "") -> None:
    """Whole numbers, words and truth values are equal; others to this tolerance, relative to the largest."""
    assert type(one) is type(other), at
    if isinstance(one, dict):
        assert one.keys() == other.keys(), at
        for key in one.keys() - set(skip):
            compare(one[key], other[key], rtol, skip, f"{at}/{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), at
        for i, (left, right) in enumerate(zip(one, other, strict=True)):
            compare(left, right, rtol, skip, f"{at}/{i}")
    elif isinstance(one, Tensor):
        assert one.shape == other.shape, at
        if rtol == 0 or not one.is_floating_point():
            assert torch.equal(one.nan_to_num(), other.nan_to_num()), at
        else:
            atol = rtol * max(1.0, one.abs().max().item())
            torch.testing.assert_close(one, other, rtol=rtol, atol=atol, msg=lambda text: f"{at}: {text}")
    elif isinstance(one, float) and not math.isnan(one):
        assert other == pytest.approx(one, rel=rtol, abs=rtol), at
    elif not isinstance(one, float):
        assert one == other, at


@pytest.mark.parametrize("name", sorted(scenarios.SCENARIOS))
@pytest.mark.parametrize("ranks", SEVERAL)
def test_all_ranks_have_the_same(found: dict[int, list[dict[str, Any]]], name: str, ranks: int) -> None:
    first, *others = (
        rank[name] for rank in found[ranks] if not isinstance(rank[name], dict) or "absent" not in rank[name]
    )
    for other in others:
        compare(first, other, rtol=0, skip=("own",))


@pytest.mark.parametrize("name", sorted(scenarios.SCENARIOS))
@pytest.mark.parametrize("ranks", SEVERAL)
def test_any_number_of_ranks_goes_the_same_way(found: dict[int, list[dict[str, Any]]], name: str, ranks: int) -> None:
    """Every size, length, regime, count and outcome is equal, and every point to 1e-9."""
    compare(found[1][0][name], found[ranks][0][name], rtol=1e-9, skip=("each", "own"))


@pytest.mark.parametrize("ranks", [1, *SEVERAL])
def test_a_state_of_any_moment_goes_on_with_another_number_of_ranks(
    found: dict[int, list[dict[str, Any]]], ranks: int
) -> None:
    """1 → 2, 2 → 3 and 3 → 1."""
    expected, ends = found[1][0]["states"]["ends"], found[ranks][0]["resumed"]["each"]
    assert set(ends) == set(ranks_states.RESUMED)
    for name, several in ends.items():
        assert len(several) > 5
        for end in several:
            compare(expected[name], end, rtol=1e-9, at=name)


def test_the_start_of_the_first_rank_is_that_of_all(found: dict[int, list[dict[str, Any]]]) -> None:
    for ranks in SEVERAL:
        compare(found[1][0]["one_start_for_all"], found[ranks][-1]["one_start_for_all"], rtol=1e-9)


def test_wrapped_and_plain_models_agree(found: dict[int, list[dict[str, Any]]]) -> None:
    for ranks in SEVERAL:
        plain, wrapped = found[ranks][0]["wrapped_model"]
        assert torch.equal(plain, wrapped)


def test_one_rank_can_stop_all(found: dict[int, list[dict[str, Any]]]) -> None:
    for ranks in SEVERAL:
        asked, signalled, seconds = found[ranks][0]["stopping"]["each"]
        compare(asked, signalled, rtol=0)
        assert asked[0] == 61 + 2 * 4 * 16 + 61 + 2 * 4, "asked for after the anchor of epoch 2, agreed on in the step"
        assert seconds[0] == 61, "asked for at once, agreed on with the anchor"


@pytest.mark.parametrize("ranks", SEVERAL)
def test_what_is_exchanged(found: dict[int, list[dict[str, Any]]], ranks: int) -> None:
    """P = 4 numbers in an inner step, twice that where a test needs both gradients; and two losses and a flag."""
    table = ranks * 7
    log = found[ranks][0]["exchanges"]["each"]
    for name, steps in log.items():
        for i, (kind, regime, last, sent) in enumerate(steps):
            expected = [ranks * 5] if i == 0 else []
            if kind == "inner":
                expected += [(8 if (name, regime) == ("vcsg", "first") else 4) + 3]
            elif last:
                expected += [4 + 1, table]
            assert sent == expected, (name, i, kind, regime)
    assert {regime for _, regime, _, _ in log["vcsg"]} >= {"start", "first"}


# --- failures


SCENES = {
    # what happens to which rank, who keeps the store, and what the others say
    "killed": (signal.SIGKILL, 1, "here", "no answer from rank 1 within"),
    "stopped": (signal.SIGSTOP, 1, "here", "no answer from rank 1 within"),
    "killed with the store": (
        signal.SIGKILL,
        0,
        "rank 0",
        "rank 0, which keeps the addresses of all, is gone or stopped",
    ),
    "stopped with the store": (
        signal.SIGSTOP,
        0,
        "rank 0",
        "rank 0, which keeps the addresses of all, is gone or stopped",
    ),
    "closure": (None, 1, "here", "rank 1 failed with RuntimeError: The size of tensor a"),
}


class Ranks:
    """Ranks without torchrun, so that each can be heard to the end."""

    def __init__(self, scene: str, folder: Path) -> None:
        self.signal, self.victim, keeper, self.expected = SCENES[scene]
        self.folder, self.store = folder, None
        ranks = 3 if keeper == "here" else 2
        if keeper == "here":
            self.store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port = self.store.port if self.store else 0
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(HERE / "failures.py"), scene, str(folder), str(rank), str(ranks), str(port)],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]

    def struck(self) -> bool:
        """Do it if all are at work, and tell whether it is done."""
        ready = all((self.folder / f"pid-{rank}").exists() for rank in range(len(self.processes)))
        if ready and self.signal is not None:
            self.processes[self.victim].send_signal(self.signal)
        return ready or self.signal is None

    def heard(self) -> list[str]:
        """What the others said in the time they have."""
        others = [process for rank, process in enumerate(self.processes) if rank != self.victim]
        return [process.communicate(timeout=PATIENCE)[0] for process in others]

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def struck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ranks]]:
    """All scenes at once: most of their time is waiting."""
    jobs = {scene: Ranks(scene, tmp_path_factory.mktemp("failures")) for scene in SCENES}
    try:
        waiting, deadline = list(jobs.values()), time.monotonic() + PATIENCE
        while waiting:
            assert time.monotonic() < deadline, f"no beginning of {len(waiting)} jobs in {PATIENCE} s"
            time.sleep(0.05)
            waiting = [job for job in waiting if not job.struck()]
        yield jobs
    finally:
        for job in jobs.values():
            job.end()


@pytest.mark.parametrize("scene", SCENES)
def test_the_others_name_the_rank_that_is_lost(struck: dict[str, Ranks], scene: str) -> None:
    job = struck[scene]
    for words in job.heard():
        assert words.startswith("ConnectionError: rank "), words
        assert "could not exchange with the others: " in words
        assert job.expected in words


def test_torchrun_ends_the_job_of_a_killed_rank(tmp_path: Path) -> None:
    command = torchrun("failures.py", 3, "killed", tmp_path)
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        try:
            deadline = time.monotonic() + PATIENCE
            while len(list(tmp_path.glob("pid-*"))) < 3:
                assert time.monotonic() < deadline, f"no beginning in {PATIENCE} s"
                time.sleep(0.05)
            os.kill(int((tmp_path / "pid-1").read_text()), signal.SIGKILL)
            words = job.communicate(timeout=PATIENCE)[0]
        finally:
            job.kill()
    assert job.returncode != 0
    assert "rank      : 1" in words
    assert "SIGKILL" in words


def test_nothing_keeps_the_group() -> None:
    """Its threads would outlive it, and abort the process at its end, now and then."""
    script = """
import weakref, torch, torch.distributed as dist, vcsg
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
group = weakref.ref(dist.group.WORLD)
optimizer = vcsg.SGD(torch.nn.Linear(2, 1).parameters(), n=4)
dist.destroy_process_group()
print(group())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.stdout, done.returncode) == ("None\n", 0), done.stderr
