"""How functions are compiled: cached on disk, without the interpreter's lock, with the freedom to reorder sums."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

try:
    import numba
    import scipy  # noqa: F401
    import sklearn  # noqa: F401
    from numba.types import unliteral
except ImportError as error:
    raise ImportError(f"vcsg.linear needs {error.name}: pip install 'vcsg[linear]'", name=error.name) from error

import vcsg.linear.kernels.notice  # noqa: F401  (listens from the first compilation on)

Function = Callable[..., Any]

FAST = {"reassoc", "contract", "arcp", "nsz"}
"""The compiler flags that let sums be vectorised. NaN and infinity keep their meaning: they must be noticed."""


def njit(function: Function) -> Function:
    """Compile on the first call with each kind of arguments, and keep the result on disk."""
    compiled: Function = numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy", no_cfunc_wrapper=True)(
        function
    )
    _depend_on(compiled, digest(Path(__file__).parent))
    return compiled


@cache
def digest(folder: Path) -> str:
    """A digest of all Python files of a folder."""
    found = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()


def _depend_on(compiled: Any, sources: str) -> None:
    """Take what is on disk for compiled only from these sources.

    numba looks at the file of the function alone, and most of what a loop consists of is in others. Where a version of
    numba keeps its files otherwise, that is all it looks at.
    """
    file: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        file._source_stamp = file._source_stamp, sources


def inlined(function: Function) -> Function:
    """Compile a small function as part of the loop that calls it.

    It should take numbers and pointers: an array argument costs a reference count on every call.
    """
    compiled: Function = numba.njit(
        nogil=True, fastmath=FAST, forceinline=True, error_model="numpy", no_cfunc_wrapper=True
    )(function)
    _forget_constants(compiled)
    return compiled


def _forget_constants(compiled: Any) -> None:
    """Let calls with a constant, such as 0, share what is compiled for any number: numba compiles anew for each."""
    find = compiled.get_call_template
    compiled.get_call_template = lambda args, kws: find(
        tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in kws.items()}
    )


def pasted(function: Function) -> Function:
    """Copy a function into each place that calls it, before anything is compiled: for functions called in few places.

    It spares the compilation of the function by itself. What is decided by a tuple's length cannot be in it.
    """
    compiled: Function = numba.njit(nogil=True, fastmath=FAST, inline="always", error_model="numpy")(function)
    return compiled
