"""A time in which the library warns of nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_warnings() -> Iterator[None]:
    """A context in which the logger `vcsg` passes errors alone: what it would warn of is expected, or recorded."""
    logger = logging.getLogger("vcsg")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
