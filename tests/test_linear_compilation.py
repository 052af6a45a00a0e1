"""What is told of compilation, and that rows which may not be written to need none of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vcsg.linear import LinearClassifier
from vcsg.linear.kernels import compiled, hessian, loops, order
from vcsg.linear.kernels.notice import CompileNotice
from vcsg.linear.problem import readable


def test_what_is_on_disk_depends_on_all_sources(tmp_path: Path) -> None:
    """numba itself looks at the file of a function alone: a change of a loss would leave its loops as they were."""
    own = compiled.digest(Path(compiled.__file__).parent)
    for loop in (loops.evaluate, loops.inner, hessian.gram, order._uniform):
        assert loop._cache._cache_file._source_stamp[-1] == own
    (tmp_path / "a.py").write_text("x = 1")
    before = compiled.digest(tmp_path)
    compiled.digest.cache_clear()
    (tmp_path / "a.py").write_text("x = 2")
    assert compiled.digest(tmp_path) != before
    compiled.digest.cache_clear()


class Terminal:
    """A stream that says whether it is a terminal, and keeps what is written."""

    def __init__(self, terminal: bool) -> None:
        self.terminal, self.text = terminal, ""

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(("terminal", "lines"), [(True, 4), (False, 1)])
def test_compilation_is_told_after_two_seconds(terminal: bool, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = Terminal(terminal), [0.0]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("vcsg.linear.kernels.notice.time.perf_counter", lambda: now[0])
    notice = CompileNotice()
    for seconds in (1.5, 0.4, 0.2, 0.2):  # 1.5, 1.9, 2.1 and 2.3 s in all
        notice.on_start(None)
        notice.on_start(None)
        now[0] += seconds
        notice.on_end(None)
        notice.on_end(None)
        now[0] += 100.0  # time between compilations does not count
    assert stream.text.count(" functions in 2 s") == lines


def test_rows_that_may_not_be_written_to_take_the_same_loops() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    expected = LinearClassifier(solver="l-bfgs").fit(X, y).coef_
    before = len(loops.evaluate.signatures)
    X.setflags(write=False)
    np.testing.assert_allclose(LinearClassifier(solver="l-bfgs").fit(X, y).coef_, expected, rtol=1e-9)
    assert len(loops.evaluate.signatures) == before
    view = readable(X)
    assert np.shares_memory(view, X)
    assert view.flags.writeable
    assert not X.flags.writeable


FIRST_FIT = """
import numpy as np
from vcsg.linear import LinearClassifier, linear_path
from vcsg.linear.kernels.notice import NOTICE
rng = np.random.default_rng(0)
X = rng.normal(size=({n}, 20)) + rng.normal(size=({n}, 1))
y = X[:, 0] + rng.logistic(size={n})
LinearClassifier(random_state=0).fit(X, y > 0) if {fit} else linear_path(X, y, n_alphas=5)
print(NOTICE.done)
"""


@pytest.mark.parametrize(("n", "fit", "most"), [(10_000, True, 13), (1000, True, 8), (1000, False, 12)])
def test_a_first_fit_or_path_compiles_few_functions(n: int, fit: bool, most: int, tmp_path: Path) -> None:
    """Each takes numba a tenth of a second or more; a first fit once compiled 45 and took seven seconds."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FIRST_FIT.format(n=n, fit=fit)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert 5 < int(done.stdout) <= most
