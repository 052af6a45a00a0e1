"""Reads LIBSVM's sparse text format, `label index:value …` with indices from 1, as compressed sparse rows.

Data sets of the LIBSVM collection (Chang and Lin) are classification with two labels, of which the smaller becomes
class 0, or regression where the labels are not two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vcsg.workloads.dataset import DataError, DataSet, Device
from vcsg.workloads.download import Download
from vcsg.workloads.source import Source
from vcsg.workloads.streams import SUFFIXES, present, unpacked

BLOCK = 1 << 22
"""The bytes of text that are parsed at once; no line may be longer."""

DENSE_LIMIT = 8 << 30
"""The most bytes that a dense array may have."""

# All quantifiers are possessive: without backtracking the time is linear, whatever the text.
_NUMBER = rb"[-+]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][-+]?+\d++)?+"
_LINE = rb"[ \t]*+" + _NUMBER + rb"(?:[ \t]++\d{1,9}+:" + _NUMBER + rb")*+[ \t\r]*+"
_TEXT = re.compile(rb"(?:(?:" + _LINE + rb"|[ \t\r]*+)\n)*+")


@dataclass(frozen=True, eq=False)
class CSR:
    """A sparse matrix by rows: row i has the values data[indptr[i]:indptr[i+1]] in the columns indices[…], from 0."""

    data: NDArray[np.float64]
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]
    shape: tuple[int, int]

    def dense(self) -> NDArray[np.float64]:
        """The matrix as a dense array."""
        n, d = self.shape
        if 8 * n * d > DENSE_LIMIT:
            raise DataError(f"{n:,} × {d:,} values would take {8e-9 * n * d:.0f} GB: too many for a dense array")
        values = np.zeros(self.shape)
        values[np.repeat(np.arange(n), np.diff(self.indptr)), self.indices] = self.data
        return values


def read_libsvm(path: str | Path) -> tuple[CSR, NDArray[np.float64]]:
    """Read the rows and labels of a file, plain or compressed. The highest index is the number of columns."""
    path, line = Path(path), 1
    labels, indices, data, lengths = [], [], [], []
    for text in _blocks(path):
        counts = np.array([row.count(b":") for row in text.split(b"\n") if row.strip()], np.int64)
        numbers = _numbers(path, text, line)
        at = np.cumsum(1 + 2 * counts) - (1 + 2 * counts)
        pairs = np.delete(numbers, at).reshape(-1, 2)
        labels.append(numbers[at])
        indices.append(pairs[:, 0].astype(np.int32) - 1)
        data.append(pairs[:, 1].copy())
        lengths.append(counts)
        line += text.count(b"\n")
    if not sum(map(len, labels)):
        raise DataError(f"{path} has no rows: give a file of lines 'label index:value …'")
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(lengths))))
    columns = np.concatenate(indices)
    _check_order(path, columns, indptr)
    shape = len(indptr) - 1, int(columns.max(initial=-1)) + 1
    return CSR(np.concatenate(data), columns, indptr, shape), np.concatenate(labels)


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield the text in pieces of complete lines."""
    rest = b""
    with unpacked(path) as file:
        while text := file.read(BLOCK):
            whole, newline, rest = (rest + text).rpartition(b"\n")
            if len(rest) > BLOCK:
                raise DataError(f"{path} has a line of more than {BLOCK:,} bytes: it is not a LIBSVM file")
            yield whole + newline
    yield rest + b"\n"


def _numbers(path: Path, text: bytes, line: int) -> NDArray[np.float64]:
    """All numbers of a text, which begins at this line of the file: for each line its label, then its pairs."""
    match = _TEXT.match(text)
    end = match.end() if match else 0
    if end < len(text):
        bad, line = text[end : text.index(b"\n", end)], line + text.count(b"\n", 0, end)
        raise DataError(
            f"{path}, line {line}: {bad[:60]!r} is not of the form 'label index:value …' with numbers alone; "
            "correct the line, or fetch the file again"
        )
    numbers = np.array(text.replace(b":", b" ").split(), np.float64)
    if not np.isfinite(numbers).all():
        raise DataError(f"{path} has a number beyond the range of float64, after line {line - 1:,}: scale the values")
    return numbers


def _check_order(path: Path, columns: NDArray[np.int32], indptr: NDArray[np.int64]) -> None:
    """Raise a DataError unless indices begin at 1 and ascend within each row, so that none occurs twice."""
    ascends = np.diff(columns, prepend=-1) > 0
    starts = indptr[:-1][np.diff(indptr) > 0]
    ascends[starts] = columns[starts] >= 0
    if not ascends.all():
        at = int(np.argmin(ascends))
        row = int(np.searchsorted(indptr, at, side="right"))
        raise DataError(
            f"{path}, row {row}: index {columns[at] + 1} is out of order; indices begin at 1 and ascend within a row"
        )


def read_set(files: list[Path], device: Device = None) -> DataSet:
    """Read a data set of dense float64 rows from a file of training rows and, if given, one of test rows."""
    (rows, labels), *tests = [read_libsvm(path) for path in files]
    if not tests:
        tests = [(CSR(np.empty(0), np.empty(0, np.int32), np.zeros(1, np.int64), (0, 0)), np.empty(0))]
    [(test_rows, test_labels)] = tests
    d = max(rows.shape[1], test_rows.shape[1])
    values = np.unique(labels)
    if len(values) == 2 and not np.isin(test_labels, values).all():
        strange = test_labels[~np.isin(test_labels, values)][0]
        raise DataError(f"{files[1]} has the label {strange:g}, and {files[0]} only {values[0]:g} and {values[1]:g}")
    train, test = (
        (_tensor(replace(part, shape=(part.shape[0], d)).dense(), device), _targets(targets, values, device))
        for part, targets in ((rows, labels), (test_rows, test_labels))
    )
    return DataSet(files[0].name, train, test, classes=2 if len(values) == 2 else 0)


def _tensor(values: NDArray[np.float64], device: Device) -> torch.Tensor:
    return torch.from_numpy(values).to(device)


def _targets(labels: NDArray[np.float64], values: NDArray[np.float64], device: Device) -> torch.Tensor:
    return _tensor(labels, device) if len(values) != 2 else _tensor(labels, device).eq(values[1]).long()


def find(folder: Path, name: str, test: bool) -> list[Path]:
    """The file `name` of a folder and, with `test`, the file `name`.t, plain or compressed; [] if one is missing."""
    found = [present(folder, part) for part in (name, *([f"{name}.t"] if test else []))]
    return [path for path in found if path] if all(found) else []


def with_test(path: Path) -> list[Path]:
    """The file and, if there is one, the file of test rows beside it: w8a.t or w8a.t.bz2 beside w8a.bz2."""
    stem = path.name.removesuffix(path.suffix) if path.suffix in SUFFIXES else path.name
    test = present(path.parent, f"{stem}.t")
    return [path, test] if test else [path]


def _of_collection(name: str, n: int, d: int, *downloads: Download) -> Source:
    return Source(
        name=name,
        folder="libsvm",
        n=n,
        shape=(d,),
        classes=2,
        find=partial(find, name=name, test=len(downloads) > 1),
        read=read_set,
        downloads=downloads,
    )


_URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
SOURCES = (
    _of_collection(
        "a9a",
        32_561,
        123,
        Download(f"{_URL}a9a", 2_329_875, ("sha256:f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",)),
        Download(
            f"{_URL}a9a.t", 1_164_628, ("sha256:1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",)
        ),
    ),
    _of_collection(
        "phishing",
        11_055,
        68,
        Download(
            f"{_URL}phishing",
            3_620_168,
            # Copies differ in the last newline.
            (
                "sha256:0cf66ef36604c393da9359b2e5d894a2df8aee31fd184633cefa138add2ef08a",
                "sha256:0b0ca40e17bc95e909bfa587c408bf69904571ace01dea26e34cafc464f2da93",
            ),
        ),
    ),
)
