"""Every example runs as it stands, from a folder of its own, with warnings as errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SEEN = {
    "plain_loop": "3.0 passes, ",
    "ordinary_loader": "auto: 3.00 passes",
    "fit": "stopped: passes",
    "lr_scheduler": "pass 6: lr = 0.000",
    "mixed_precision": "bfloat16 autocast training loss",
    "own_dataset": "wrong",
    "resume": "the resumed run is identical",
    "linear_numpy": "spider",
    "step_rules": "b = 64 for n = 10000 on cpu",
    "linear_models": "then l-bfgs",
}
"""What each example prints, among the rest."""


def test_none_is_left_out() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(SEEN)


@pytest.mark.parametrize("name", SEEN)
def test_example_runs(name: str, tmp_path: Path) -> None:
    path = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Small models: more threads than one only wait for each other, the more so where tests run side by side.
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert SEEN[name] in done.stdout
    assert not done.stderr
