"""Names of entities and relations, and the numbers that stand for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from ...engine.datasets import DataError
from .text import read_lines, shown


def numbering(names: Sequence[str], used: Collection[str]) -> dict[str, int]:
    """The number of each name that a file may use: its place among the names.

    A file may use these numbers themselves in place of all names. That is how it is read if none
    of its entries is a name and all of them are numbers.

    >>> numbering(["a", "b"], used={"b"}), numbering(["a", "b"], used={"1"})
    ({'a': 0, 'b': 1}, {'0': 0, '1': 1})
    """
    by_name = {name: number for number, name in enumerate(names)}
    if not any(entry in by_name for entry in used) and all(map(_is_number, used)):
        return {str(number): number for number in range(len(names))}
    return by_name


def in_order(used: Iterable[str]) -> list[str]:
    """Names in an order that does not depend on that of the file; numbers by their size.

    >>> in_order({"b", "a"}), in_order({"10", "9"})
    (['a', 'b'], ['9', '10'])
    """
    names = sorted(used)
    return sorted(names, key=int) if all(map(_is_number, names)) else names


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 19


def read_names(path: Path) -> list[str]:
    """The names of a file, one per line; the first line has number 0."""
    names = read_lines(path, "names, one per line")
    if len(set(names)) < len(names) or "" in names:
        seen: set[str] = set()
        for number, name in enumerate(names, 1):
            if not name or name in seen:
                reason = f"{shown(name)} is there already." if name else "the name is empty."
                raise DataError(f"{path}, line {number}: {reason}")
            seen.add(name)
    return names
