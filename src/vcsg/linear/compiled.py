"""numba, set up once: compiled to disk, without the interpreter's lock, with the freedom to reorder sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

try:
    import numba
    import scipy  # noqa: F401
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(f"vcsg.linear needs {error.name}: pip install 'vcsg[linear]'", name=error.name) from error

Function = TypeVar("Function", bound=Callable[..., Any])

FAST = {"reassoc", "contract", "arcp", "nsz"}
"""What sums need to be vectorised; NaN and infinity keep their meaning, for they must be noticed."""


def njit(function: Function) -> Function:
    return cast(Function, numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")(function))


def inlined(function: Function) -> Function:
    return cast(Function, numba.njit(fastmath=FAST, inline="always", error_model="numpy")(function))
