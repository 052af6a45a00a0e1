"""LIBSVM's format: small files against plain loops, broken lines by number, and the real sets."""

import bz2
import gzip
import hashlib
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from vcsg.workloads import CSR, DataError, load_data_set, read_libsvm
from vcsg.workloads import libsvm as module
from vcsg.workloads.libsvm import read_set, with_test

TEXT = b"+1 1:0.5 3:-2e-1\n-1 2:1\n\n-1.0 1:.25 2:3. 3:4 \r\n+1\n"
DENSE = [[0.5, 0, -0.2], [0, 1, 0], [0.25, 3, 4], [0, 0, 0]]
LABELS = [1, -1, -1, 1]
REAL = [
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("VCSG_DATA"), reason="VCSG_DATA is not set: the real set is not there"),
]


def write(folder: Path, text: bytes, name: str = "rows") -> Path:
    (folder / name).write_bytes(text)
    return folder / name


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("end", [b"", b"\n\n"])
@pytest.mark.parametrize("block", [1 << 22, 24, 17])
def test_rows_and_labels(
    tmp_path: Path, pack: Callable[[bytes], bytes], end: bytes, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    rows, labels = read_libsvm(write(tmp_path, pack(TEXT.rstrip() + end)))
    assert rows.shape == (4, 3)
    assert labels.tolist() == LABELS
    assert rows.dense().tolist() == DENSE
    assert rows.indptr.tolist() == [0, 2, 3, 6, 6]
    assert rows.indices.tolist() == [0, 2, 1, 0, 1, 2]
    assert (rows.data.dtype, rows.indices.dtype, rows.indptr.dtype) == (np.float64, np.int32, np.int64)


def test_many_rows_by_a_plain_loop(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines, expected = [], np.zeros((300, 40))
    for row in expected:
        columns = np.sort(rng.choice(40, rng.integers(0, 41), replace=False))
        row[columns] = rng.standard_normal(len(columns))
        lines.append(" ".join(["1", *(f"{c + 1}:{row[c]!r}" for c in columns.tolist())]))
    text = "\n".join(lines).replace("np.float64(", "").replace(")", "")
    rows, _ = read_libsvm(write(tmp_path, text.encode()))
    assert np.array_equal(rows.dense(), expected[:, : rows.shape[1]])
    assert not expected[:, rows.shape[1] :].any()


BROKEN = {
    "empty": (b"", "has no rows"),
    "blank lines": (b"\n \n\r\n", "has no rows"),
    "a word": (b"1 1:1\n1 one:1\n", r"line 2: b'1 one:1' is not of the form"),
    "no index": (b"1 1:1\n\n1 2\n", "line 3"),
    "no value": (b"1 1:\n", "line 1"),
    "a gap after the colon": (b"1 1: 2\n", "line 1"),
    "two colons": (b"1 1:2:3 4\n", "line 1"),
    "a label with a colon": (b"1:2 3\n", "line 1"),
    "a query id": (b"1 qid:3 1:2\n", "line 1"),
    "labels in a list": (b"1,2 1:2\n", "line 1"),
    "not a number": (b"1 1:nan\n", "line 1"),
    "infinite": (b"1 1:inf\n", "line 1"),
    "too large": (b"1 1:1e999\n", "beyond the range of float64"),
    "a comment": (b"1 1:2 # why\n", "line 1"),
    "binary": (bytes(range(256)), "line 1"),
    "an index of 0": (b"1 1:1\n1 0:1\n", "row 2: index 0 is out of order"),
    "descending": (b"1 1:1\n1 1:1 3:1 2:1\n1 1:1\n", "row 2: index 2 is out of order"),
    "twice": (b"1 1:1 1:2\n", "row 1: index 1 is out of order"),
    "a huge index": (b"1 1234567890:1\n", "line 1"),
    "gzip cut off": (gzip.compress(TEXT)[:-9], "cannot be read"),
    "xz cut off": (lzma.compress(TEXT)[:-9], "cannot be read"),
    "xz damaged": (lzma.compress(TEXT)[:30] + b"\xff" + lzma.compress(TEXT)[31:], "cannot be read"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_named(tmp_path: Path, case: str) -> None:
    content, message = BROKEN[case]
    with pytest.raises(DataError, match=f"rows.*{message}"):
        read_libsvm(write(tmp_path, content))


def test_a_line_number_counts_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 64)
    with pytest.raises(DataError, match="line 51"):
        read_libsvm(write(tmp_path, b"1 1:2\n" * 50 + b"1 2;3\n" + b"1 1:2\n" * 9))


def test_a_file_without_lines_is_given_up_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 64)
    with pytest.raises(DataError, match="a line of more than 64 bytes"):
        read_libsvm(write(tmp_path, b"1" * 1000))


def test_time_is_linear_in_the_text(tmp_path: Path) -> None:
    """A pattern that backtracks would not end: 2^20 ways to split these digits."""
    with pytest.raises(DataError, match="line 1"):
        read_libsvm(write(tmp_path, b"1 " + b"1" * (1 << 20) + b"\n"))


def test_too_large_for_a_dense_array() -> None:
    rows = CSR(np.ones(1), np.zeros(1, np.int32), np.array([0, 1]), (1, 1 << 31))
    with pytest.raises(DataError, match=r"1 × 2,147,483,648 values would take 17 GB"):
        rows.dense()


def test_a_set_of_two_classes(tmp_path: Path) -> None:
    data = read_set([write(tmp_path, TEXT), write(tmp_path, b"1 4:2\n-1 1:1\n", "rows.t")])
    assert data.classes == 2
    assert data.train[1].tolist() == [1, 0, 0, 1]
    assert data.test[1].tolist() == [1, 0]
    assert data.train[0].tolist() == [[*row, 0] for row in DENSE]
    assert data.test[0].tolist() == [[0, 0, 0, 2], [1, 0, 0, 0]]
    assert data.train[0].dtype == torch.float64


def test_a_set_without_test_rows(tmp_path: Path) -> None:
    data = read_set([write(tmp_path, TEXT)])
    assert data.test[0].shape == (0, 3)
    assert data.test[1].shape == (0,)


def test_a_set_with_real_targets(tmp_path: Path) -> None:
    data = read_set([write(tmp_path, b"1.5 1:1\n2 1:2\n-3 1:1\n")])
    assert data.classes == 0
    assert data.train[1].tolist() == [1.5, 2, -3]


def test_a_test_set_of_other_classes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows.t has the label 3, and .*rows only -1 and 1"):
        read_set([write(tmp_path, TEXT), write(tmp_path, b"3 1:1\n", "rows.t")])


@pytest.mark.parametrize(("name", "test"), [("w8a", "w8a.t"), ("w8a.bz2", "w8a.t.xz"), ("v1.2", "v1.2.t")])
def test_the_test_rows_lie_beside(tmp_path: Path, name: str, test: str) -> None:
    path = write(tmp_path, TEXT, name)
    assert with_test(path) == [path]
    other = write(tmp_path, TEXT, test)
    assert with_test(path) == [path, other]


class TestReal:
    pytestmark = REAL

    @pytest.mark.parametrize(
        ("name", "shape", "test_rows", "positive", "values"),
        [("a9a", (32_561, 123), 16_281, 7_841, 451_592), ("phishing", (11_055, 68), 0, 6_157, 331_650)],
    )
    def test_counts(self, name: str, shape: tuple[int, int], test_rows: int, positive: int, values: int) -> None:
        data = load_data_set(name)
        assert tuple(data.train[0].shape) == shape
        assert len(data.test[0]) == test_rows
        assert data.train[1].sum().item() == positive
        assert data.train[0].count_nonzero().item() == values
        assert test_rows == 0 or data.test[1].sum().item() == 3_846

    def test_digest_of_what_was_read(self) -> None:
        """The text is written again from the arrays, and has the published checksum."""
        path = Path(os.environ["VCSG_DATA"]) / "libsvm" / "a9a.xz"
        rows, labels = read_libsvm(path)
        lines = []
        for i, label in enumerate(labels.tolist()):
            part = slice(*rows.indptr[i : i + 2].tolist())
            pairs = zip(rows.indices[part].tolist(), rows.data[part].tolist(), strict=True)
            lines.append(f"{label:+.0f} " + "".join(f"{column + 1}:{value:g} " for column, value in pairs) + "\n")
        assert hashlib.md5("".join(lines).encode()).hexdigest() == "fb3596510d780aaf76a06dc721d49662"
