"""Names that somebody mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def closest(name: object, known: Collection[str]) -> str:
    """The end of a sentence about an unknown name: what was probably meant, and what there is."""
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    there_are = f"here are: {', '.join(known)}."
    return f"did you mean {near[0]!r}? T{there_are}" if near else f"t{there_are}"
