"""Graphs in text files, published ones or a user's.

A folder holds ``train.txt``, ``test.txt`` and perhaps ``valid.txt`` (or ``dev.txt`` or
``validation.txt``), with a head, a tab, a relation, a tab and a tail per line. A fourth column says
1 for true and -1 for false; false triples are left out. ``entities.txt`` and ``relations.txt`` (or
``relation.txt``), a name per line, fix the numbering; without them names are sorted. Every file may
be in gzip, with ``.gz`` at the end of its name.

A whole file is read at once, because that is fast; what is wrong with it is looked for only when
something is, line by line.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NoReturn

import torch
from jaxtyping import Int32
from torch import Tensor

from ....engine.errors import DataError
from ....engine.files import inflated, read_bytes, write_atomically
from .graph import INVERSE, KnowledgeGraph

SPLITS = {
    "train": ("train",),
    "validation": ("valid", "dev", "validation"),
    "test": ("test",),
}
"""The splits, and how their files are called; the first is the name that is written."""

TEXT = (".txt", ".txt.gz")
"""How the names of text files end."""

_TRIPLE = ("head", "relation", "tail")


def files_in(folder: Path) -> dict[str, Path]:
    """The files of a folder and of ``paths`` below it, by their names there."""
    return {
        str(path.relative_to(folder)): path
        for place in (folder, folder / "paths")
        for path in sorted(place.glob("*"))
        if path.is_file()
    }


def pick(files: Mapping[str, Path], names: Sequence[str], endings: Sequence[str]) -> Path | None:
    """The file with one of these names and endings, or None where there is none."""
    wanted = (f"{name}{ending}" for name in names for ending in endings)
    return next((files[name] for name in wanted if name in files), None)


def read_graph(files: Mapping[str, Path], name: str) -> KnowledgeGraph:
    """The graph of a folder's files, which are given by their names there.

    ``name`` is that of the graph or its folder, for complaints.
    """
    found = {split: pick(files, names, TEXT) for split, names in SPLITS.items()}
    for split in ("train", "test"):
        if found[split] is None:
            raise DataError(
                f"{name} has no {split}.txt or {split}.txt.gz; put a file of triples there, with a "
                "head, a relation and a tail per line, between tabs. Or name one file of triples "
                "in place of a folder: it is split."
            )
    return graph_of(
        {split: path for split, path in found.items() if path is not None},
        pick(files, ("entities",), TEXT),
        pick(files, ("relations", "relation"), TEXT),
    )


def graph_of(
    triples: Mapping[str, Path], entities: Path | None = None, relations: Path | None = None
) -> KnowledgeGraph:
    """The graph of files of triples, one for each split, and of lists of names if there are any."""
    lines = {path: read_lines(path, "triples") for path in triples.values()}
    columns = {path: _true_triples(path, lines[path]) for path in lines}
    entries = [
        {name for c in columns.values() for name in chain(c[0], c[2])},
        {name for c in columns.values() for name in c[1]},
    ]
    names = [
        in_order(used) if listed is None else read_names(listed)
        for used, listed in zip(entries, (entities, relations), strict=True)
    ]
    entity_of, relation_of = map(numbering, names, entries)
    splits = {}
    for split, path in triples.items():
        head, relation, tail = columns[path]
        try:
            numbers = [
                numbers_of(head, entity_of),
                numbers_of(relation, relation_of),
                numbers_of(tail, entity_of),
            ]
        except KeyError:
            _fail_at_unknown(path, lines[path], (entity_of, entities), (relation_of, relations))
        splits[split] = distinct(torch.stack(numbers, 1), len(names[0]), len(names[1]))
    if any(name.startswith(INVERSE) for name in names[1]):
        _fail_at_inverse(relations, names[1], lines)
    return KnowledgeGraph(tuple(names[0]), tuple(names[1]), splits)


def _true_triples(path: Path, lines: Sequence[str]) -> list[list[str]]:
    """Heads, relations and tails, without triples that are labelled as false."""
    columns = columns_of(path, lines, _TRIPLE, (*_TRIPLE, "label"))
    if len(columns) == 3:
        return columns
    *columns, labels = columns
    if not set(labels) <= {"1", "-1"}:
        fail_at(path, lines, _complaint_of_label)
    true = [label == "1" for label in labels]
    if not any(true):
        raise DataError(f"{path} has no triple with the label 1; true ones are needed.")
    return [[name for name, kept in zip(c, true, strict=True) if kept] for c in columns]


def _complaint_of_label(line: str) -> str:
    label = line.split("\t")[3]
    return "" if label in ("1", "-1") else f"the label is {shown(label)}, but it is 1 or -1."


def distinct(triples: Int32[Tensor, "n 3"], entities: int, relations: int) -> Int32[Tensor, "m 3"]:
    """Every triple once, sorted."""
    head, relation, tail = triples.unbind(1)
    key = ((head.long() * relations + relation) * entities + tail).unique()
    rest = key // entities
    return torch.stack([rest // relations, rest % relations, key % entities], 1).int()


def _fail_at_unknown(
    path: Path,
    lines: Sequence[str],
    entities: tuple[Mapping[str, int], Path | None],
    relations: tuple[Mapping[str, int], Path | None],
) -> NoReturn:
    def complaint(line: str) -> str:
        head, relation, tail, *label = line.split("\t")
        entries = ("entity", head, entities), ("relation", relation, relations)
        for kind, name, (known, listed) in (*entries, ("entity", tail, entities)):
            if name not in known and label != ["-1"]:
                return f"the {kind} {shown(name)} is not in {listed}; add it there."
        return ""

    fail_at(path, lines, complaint)


def _fail_at_inverse(
    listed: Path | None, names: Sequence[str], lines: Mapping[Path, Sequence[str]]
) -> NoReturn:
    """Inverse relations are made here; one in the triples would be a second of that name."""

    def complaint(name: str) -> str:
        reason = f"a name that begins with {INVERSE} is that of an inverse; rename the relation."
        return f"{shown(name)}: {reason}" if name.startswith(INVERSE) else ""

    if listed is not None:
        fail_at(listed, names, complaint)
    for path, rows in lines.items():
        if any(complaint(row.split("\t")[1]) for row in rows if row.strip()):
            fail_at(path, rows, lambda row: complaint(row.split("\t")[1]))
    raise AssertionError("a relation that is in no file")


def write_graph(folder: Path, graph: KnowledgeGraph) -> dict[Path, int]:
    """Files of names and triples that :func:`read_graph` reads; gives them and their lines."""
    contents: dict[str, Sequence[str] | Iterator[str]] = {
        "entities": graph.entities,
        "relations": graph.relations,
    }
    sizes = {"entities": len(graph.entities), "relations": len(graph.relations)}
    for split, triples in graph.triples.items():
        name = SPLITS[split][0]
        contents[name], sizes[name] = _triple_lines(graph, triples), len(triples)
    for name, lines in contents.items():
        write_lines(folder / f"{name}.txt.gz", lines)
    return {folder / f"{name}.txt.gz": size for name, size in sizes.items()}


def _triple_lines(graph: KnowledgeGraph, triples: Int32[Tensor, "n 3"]) -> Iterator[str]:
    for head, relation, tail in triples.tolist():
        yield f"{graph.entities[head]}\t{graph.relations[relation]}\t{graph.entities[tail]}"


def read_lines(path: Path, content: str) -> list[str]:
    """All lines of a text file; ``content`` says for the complaint what should be in it."""
    remedy = f"name a file of {content}."
    try:
        raw = read_bytes(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; {remedy}") from error
    try:
        raw = inflated(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged or not in gzip ({error}); {remedy}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {number}: not text in UTF-8; {remedy}") from error
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
