"""Tables in text files, as they are or in gzip, and the numbers of the names in them.

Columns stand between tabs, one row per line.

A whole file is read at once, because that is fast; what is wrong with it is looked for only when
something is, line by line.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import torch
from jaxtyping import Int32
from torch import Tensor

from ....engine.errors import DataError
from ....engine.files import write_atomically


def read_lines(path: Path, content: str) -> list[str]:
    """All lines of a text file; ``content`` says for the complaint what should be in it."""
    remedy = f"name a file of {content}."
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged or not in gzip ({error}); {remedy}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; {remedy}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {number}: not text; {remedy}") from error
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def columns_of(path: Path, lines: Sequence[str], *forms: Sequence[str]) -> list[list[str]]:
    """The columns of a table; blank lines are skipped, and no entry may be empty.

    The table has one of the ``forms``, the names of its columns, in every line the same.
    """
    rows = [line for line in lines if line.strip()]
    counts = Counter(line.count("\t") + 1 for line in rows)
    if len(counts) == 1 and any(len(form) in counts for form in forms):
        (width,) = counts
        entries = "\t".join(rows).split("\t")
        if "" not in entries:
            return [entries[column::width] for column in range(width)]
    commonest = max(counts, key=lambda width: counts[width], default=0)
    return fail_at(path, lines, lambda line: _complaint(line, commonest, forms))


def _complaint(line: str, expected: int, forms: Sequence[Sequence[str]]) -> str:
    form = next((form for form in forms if len(form) == expected), forms[0])
    entries = line.split("\t")
    if len(entries) != len(form):
        has = "1 column" if len(entries) == 1 else f"{len(entries)} columns"
        return f"{has}, but there should be {len(form)} between tabs: {', '.join(form)}."
    empty = next((name for name, entry in zip(form, entries, strict=True) if not entry), None)
    return f"the {empty} is empty." if empty else ""


def fail_at(path: Path, lines: Iterable[str], complaint: Callable[[str], str]) -> NoReturn:
    """Raise the first complaint that a line gives rise to, with its number."""
    for number, line in enumerate(lines, 1):
        if line.strip() and (reason := complaint(line)):
            raise DataError(f"{path}, line {number}: {reason}")
    raise DataError(f"{path} has no rows; write one per line.")


def numbers_of(names: Iterable[str], number_of: Mapping[str, int]) -> Int32[Tensor, " n"]:
    """The number of each name; a KeyError for an unknown one."""
    return torch.frombuffer(array("i", map(number_of.__getitem__, names)), dtype=torch.int32)


def shown(name: str) -> str:
    """A name for a complaint, cut if it is long."""
    return repr(name if len(name) <= 40 else f"{name[:40]}...")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """A text file that :func:`read_lines` reads, all of it or nothing.

    The same lines give the same bytes: the gzip header has no name and no time.
    """

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            if path.suffix != ".gz":
                file.writelines(f"{line}\n".encode() for line in lines)
                return
            with gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed:
                packed.writelines(f"{line}\n".encode() for line in lines)

    try:
        write_atomically(path, write)
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}; name a folder that can be written."
        ) from error


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
