"""What a name that is not known may have meant."""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was meant, if one is near, and all of them."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return hint + (f"There are {', '.join(known)}" if known else "there are none")
