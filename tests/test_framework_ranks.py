"""Frameworks on two ranks take the way of a plain loop on two ranks, bit by bit, a checkpoint in between included."""

from __future__ import annotations

import importlib.util
import subprocess
from typing import Any

import pytest
import torch
from test_distributed import PATIENCE, environment, torchrun

FRAMEWORKS = ("lightning", "accelerate")
INSTALLED = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
pytestmark = [
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch has no gloo here"),
    pytest.mark.skipif(not INSTALLED, reason=f"none of {', '.join(FRAMEWORKS)} is installed"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What every rank found, of the framework and of a plain loop."""
    folder = tmp_path_factory.mktemp("frameworks")
    command = torchrun("framework_ranks_job.py", 2, folder)
    job = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert job.returncode == 0, job.stdout + job.stderr
    return [torch.load(folder / f"found-{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", ["vcsg", "auto"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_as_a_plain_loop(found: list[dict[str, Any]], framework: str, name: str) -> None:
    if framework not in INSTALLED:
        pytest.skip(f"{framework} is not installed: pip install 'vcsg[{framework}]'")
    (one, wanted), (other, _) = (each[f"{framework} {name}"] for each in found)
    for key in ("ifo", "record"):
        assert one[key] == other[key] == wanted[key]
    assert torch.equal(one["weights"], wanted["weights"])
    assert torch.equal(one["weights"], other["weights"])


def test_the_first_rank_writes_to_trackers(found: list[dict[str, Any]]) -> None:
    if "lightning" not in INSTALLED:
        pytest.skip("lightning is not installed: pip install 'vcsg[lightning]'")
    first, second = (each["lightning vcsg"][1]["written"] for each in found)
    assert first > 0
    assert second == 0
