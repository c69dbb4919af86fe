"""A graph that is one file of triples: how it is read, and how it is split.

**Reading.** A line has a head, a relation and a tail between tabs, commas, semicolons or spaces,
whichever fit every line; in a table with commas or semicolons names may stand in quotation marks. A
fourth column may say 1 for true and -1 for false. A first line of column names, such as "head,
relation, tail", is left out.

**The split.** Every entity and every relation is seen in training, for a model knows nothing of one
that is not. So a triple may be kept for validation or test only if its head, its relation and its
tail each have another one that is left for training. Triples are looked at in the order of a hash
of their names and the seed: the split depends neither on the order of the file nor on the machine.
It is made anew whenever the file is read, so a model keeps a fingerprint of it.
"""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from ....engine.errors import DataError
from .files import distinct, fail_at, in_order, numbers_of, read_lines, shown
from .graph import INVERSE, KnowledgeGraph

SHARE = 0.1
"""Of the triples, for validation and again for test."""

MOST = 500
"""Triples that are kept for each: more take time, are missing in training, and say hardly more."""

Names = tuple[str, str, str]

_SEPARATORS = {"tabs": "\t", "commas": ",", "semicolons": ";", "spaces": " "}
_COLUMNS = ("head", "relation", "tail")
_HEADINGS = (
    {"head", "subject", "source", "from", "start", "h", "s", "entity1", "node1"},
    {"relation", "predicate", "edge", "type", "rel", "label", "r", "p"},
    {"tail", "object", "target", "to", "end", "t", "o", "entity2", "node2"},
)


@dataclass(frozen=True)
class Triples:
    """The triples of a file, every one once, and what was seen on the way."""

    triples: tuple[Names, ...]
    separator: str  # in words
    header: bool
    repeated: int
    false: int


def read_one(path: Path, seed: int = 0) -> tuple[KnowledgeGraph, str]:
    """The graph of a file, split; and in a few lines what was done with it."""
    read = read_triples(path)
    split = split_of(read.triples, seed)
    entities = in_order({name for head, _, tail in read.triples for name in (head, tail)})
    relations = in_order({relation for _, relation, _ in read.triples})
    entity_of = {name: number for number, name in enumerate(entities)}
    relation_of = {name: number for number, name in enumerate(relations)}
    tensors = {}
    for name, some in split.items():
        if not some:
            tensors[name] = torch.empty(0, 3, dtype=torch.int32)
            continue
        heads, labels, tails = zip(*some, strict=True)
        columns = (heads, entity_of), (labels, relation_of), (tails, entity_of)
        numbers = [numbers_of(names, known) for names, known in columns]
        tensors[name] = distinct(torch.stack(numbers, 1), len(entities), len(relations))
    graph = KnowledgeGraph(tuple(entities), tuple(relations), tensors)
    return graph, _described(path, read, graph)


def read_triples(path: Path) -> Triples:
    """The true triples of a file, in its order."""
    lines = read_lines(path, "triples")
    separator = _separator_of(path, lines)
    numbered = [(n, line) for n, line in enumerate(lines, 1) if line.strip()]
    rows = [(n, _entries(line, separator)) for n, line in numbered]
    for number, row in rows:
        if "" in row[:3]:
            raise DataError(f"{path}, line {number}: the {_COLUMNS[row.index('')]} is empty.")
    header = _is_header([row for _, row in rows])
    if header:
        rows = rows[1:]
    if not rows:
        raise DataError(f"{path} has no triples after its first line; write one per line.")
    true: list[Names] = []
    for number, row in rows:
        if len(row) == 4 and row[3] not in ("1", "-1"):
            raise DataError(
                f"{path}, line {number}: the label is {shown(row[3])}, but it is 1 or -1."
            )
        if row[1].startswith(INVERSE):
            raise DataError(
                f"{path}, line {number}: {shown(row[1])}: a name that begins with {INVERSE} is "
                "that of an inverse; rename the relation."
            )
        if row[3:] != ["-1"]:
            true.append((row[0], row[1], row[2]))
    if not true:
        raise DataError(f"{path} has no triple with the label 1; true ones are needed.")
    once = tuple(dict.fromkeys(true))
    return Triples(once, separator, header, len(true) - len(once), len(rows) - len(true))


def _separator_of(path: Path, lines: Sequence[str]) -> str:
    """The first that gives every line three columns, or every line four."""
    rows = [line for line in lines if line.strip()]
    if not rows:
        raise DataError(f"{path} has no rows; write one per line.")
    widths: dict[str, Counter[int]] = {}
    for name in _SEPARATORS:
        widths[name] = Counter(len(_entries(line, name)) for line in rows)
        if len(widths[name]) == 1 and (3 in widths[name] or 4 in widths[name]):
            return name
    fitting = {name: max(counts[3], counts[4]) for name, counts in widths.items()}
    best = max(fitting, key=lambda name: fitting[name])
    if not fitting[best]:
        return fail_at(path, lines, _not_a_triple)
    return _fail_at_width(path, lines, best, 3 if widths[best][3] >= widths[best][4] else 4)


def _fail_at_width(path: Path, lines: Sequence[str], separator: str, width: int) -> NoReturn:
    def complaint(line: str) -> str:
        found = len(_entries(line, separator))
        if found == width:
            return ""
        has = "1 column" if found == 1 else f"{found} columns"
        return f"{has} between {separator}, but most lines have {width}; mend it, or use tabs."

    fail_at(path, lines, complaint)


def _not_a_triple(line: str) -> str:
    cut = line if len(line) <= 40 else f"{line[:40]}..."
    return (
        f"{cut!r} is no triple; write a head, a relation and a tail per line, between tabs, commas "
        "or spaces."
    )


def _entries(line: str, separator: str) -> list[str]:
    if separator == "spaces":
        return line.split()
    if separator == "tabs" or '"' not in line:
        return [entry.strip() for entry in line.split(_SEPARATORS[separator])]
    try:
        (row,) = csv.reader([line], delimiter=_SEPARATORS[separator], skipinitialspace=True)
    except csv.Error:  # a line of another system in the midst of it, or far too long
        return [line]
    return [entry.strip() for entry in row]


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has names of columns, which no other row uses."""
    first, *others = rows
    if not all(name.lower() in known for name, known in zip(first[:3], _HEADINGS, strict=True)):
        return False
    ends, relation = {first[0], first[2]}, first[1]
    return not any(ends & {row[0], row[2]} or row[1] == relation for row in others)


def split_of(triples: Iterable[Names], seed: int = 0) -> dict[str, list[Names]]:
    """Different triples, by split; validation and test are empty where none can be kept.

    >>> split = split_of([("a", "to", "b"), ("b", "to", "c"), ("c", "to", "a")])
    >>> {name: len(some) for name, some in split.items()}
    {'train': 2, 'validation': 1, 'test': 0}
    """
    order = sorted(set(triples), key=lambda triple: (_digest(triple, seed), triple))
    wanted = 2 * min(MOST, max(1, round(SHARE * len(order))))
    entities = Counter(name for head, _, tail in order for name in {head, tail})
    relations = Counter(relation for _, relation, _ in order)
    train: list[Names] = []
    kept: list[Names] = []
    for triple in order:
        head, relation, tail = triple
        ends = {head, tail}
        needed = relations[relation] == 1 or any(entities[name] == 1 for name in ends)
        if needed or len(kept) == wanted:
            train.append(triple)
            continue
        kept.append(triple)
        relations[relation] -= 1
        entities.subtract(ends)
    return {"train": train, "validation": kept[::2], "test": kept[1::2]}


def _digest(triple: Names, seed: int) -> bytes:
    text = "\0".join((*triple, str(seed)))
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _described(path: Path, read: Triples, graph: KnowledgeGraph) -> str:
    sizes = {split: len(some) for split, some in graph.triples.items()}
    more = [
        "its first line is a header" if read.header else "",
        f"{read.repeated:,} repeated lines left out" if read.repeated else "",
        f"{read.false:,} false triples left out" if read.false else "",
    ]
    about = "".join(f"; {part}" for part in more if part)
    lines = [
        f"{path.name}: {len(read.triples):,} triples between {read.separator}, "
        f"{len(graph.entities):,} entities, {len(graph.relations):,} relations{about}.",
        f"Split: {sizes['train']:,} triples for training, {sizes['validation']:,} for validation, "
        f"{sizes['test']:,} for test; training has every entity and every relation.",
    ]
    none = [split for split in ("validation", "test") if not sizes[split]]
    if none:
        lines.append(
            f"No triple can be left out of training for {' or '.join(none)}, for each is the only "
            "one of an entity or a relation; longer paths are asked there, of known triples."
        )
    comma = next((name for name in graph.relations if "," in name), None)
    if comma is not None:
        lines.append(
            f"The relation {shown(comma)} has a comma, which separates the relations of a query; "
            "rename it to ask for it."
        )
    return "\n".join(lines)
