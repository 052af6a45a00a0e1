"""Names that a user gives: what an unknown one may have meant, and whether a new one is free."""

import difflib
from collections.abc import Collection, Iterable


def suggestion(word: str, known: Iterable[str]) -> str:
    """A sentence for an error about an unknown name: the known one that is nearest, if any is near, and all of them."""
    known = list(known)
    close = next(filter(None, (difflib.get_close_matches(w, known, n=1) for w in (word, word.lower()))), [])
    hint = f"did you mean {close[0]!r}? " if close else ""
    return hint + (f"There are {', '.join(known)}" if known else "there are none")


def check_new(kind: str, name: str, known: Collection[str], replace: bool) -> None:
    """Refuse to register over an existing name, unless that was asked for."""
    if name in known and not replace:
        raise ValueError(f"there is a {kind} {name!r} already: choose another name, or replace it with replace=True")
