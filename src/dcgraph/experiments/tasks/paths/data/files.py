"""Graphs and path queries in files, ours or anyone's.

A folder holds ``train.txt``, ``test.txt`` and perhaps ``valid.txt`` (or ``dev.txt`` or
``validation.txt``), with a head, a tab, a relation, a tab and a tail per line. A fourth column says
1 for true and -1 for false; false triples are left out. ``entities.txt`` and ``relations.txt`` (or
``relation.txt``), a name per line, fix the numbering; without them names are sorted.

Path queries stand in files of the same names in the folder ``paths`` beside the triples: source,
tab, relations between commas, tab, target. ``**name`` is the inverse of a relation. Beside text
there are .npz files with the arrays ``source`` [n], ``path`` [n, longest], padded with -1 on the
right, and ``target`` [n], numbered like the graph.

Every text file may be in gzip, with ``.gz`` at the end of its name.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NoReturn

import torch
from jaxtyping import Int32
from torch import Tensor

from ....engine.errors import DataError
from .graph import INVERSE, KnowledgeGraph, Queries
from .text import (
    columns_of,
    fail_at,
    in_order,
    numbering,
    numbers_of,
    read_lines,
    read_names,
    shown,
    write_lines,
)

SPLITS = {
    "train": ("train",),
    "validation": ("valid", "dev", "validation"),
    "test": ("test",),
}
"""The splits, and how their files are called; the first is the name that is written."""

TEXT = (".txt", ".txt.gz")
TEXT_OR_ARRAYS = (".npz", *TEXT)
"""How the names of files of triples and of path queries end."""

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
                "head, a relation and a tail per line, between tabs."
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
        splits[split] = _distinct(torch.stack(numbers, 1), len(names[0]), len(names[1]))
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


def _distinct(triples: Int32[Tensor, "n 3"], entities: int, relations: int) -> Int32[Tensor, "m 3"]:
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


def read_queries(path: Path, graph: KnowledgeGraph) -> list[Queries]:
    """The path queries of a file, those of one length together, shorter ones first."""
    return _from_arrays(path, graph) if path.suffix == ".npz" else _from_text(path, graph)


def _from_text(path: Path, graph: KnowledgeGraph) -> list[Queries]:
    lines = read_lines(path, "path queries")
    sources, texts, targets = columns_of(path, lines, ("source", "path", "target"))
    entity_of = numbering(graph.entities, {*sources, *targets})
    kinds = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    relation_of = _relation_numbers(graph, {name for text in kinds for name in text.split(",")})
    try:
        paths = [[relation_of[name] for name in text.split(",")] for text in kinds]
        source, target = numbers_of(sources, entity_of), numbers_of(targets, entity_of)
    except KeyError:
        fail_at(path, lines, lambda line: _query_complaint(line, entity_of, relation_of))
    longest = max(map(len, paths))
    table = torch.tensor([each + [-1] * (longest - len(each)) for each in paths])
    return _by_length(source, table[numbers_of(texts, kinds).long()], target)


def _relation_numbers(graph: KnowledgeGraph, used: set[str]) -> dict[str, int]:
    forward = numbering(graph.relations, {name.removeprefix(INVERSE) for name in used})
    backward = {INVERSE + name: len(forward) + number for name, number in forward.items()}
    return forward | backward


def _query_complaint(
    line: str, entity_of: Mapping[str, int], relation_of: Mapping[str, int]
) -> str:
    source, relations, target = line.split("\t")
    for name in (source, target):
        if name not in entity_of:
            return f"the entity {shown(name)} is not in the graph."
    unknown = [name for name in relations.split(",") if name not in relation_of]
    return f"the relation {shown(unknown[0])} is not in the graph." if unknown else ""


def _from_arrays(path: Path, graph: KnowledgeGraph) -> list[Queries]:
    source, relations, target = read_arrays(path, ("source", "path", "target"))
    rows = relations.shape[:1]
    if relations.ndim != 2 or not source.shape == target.shape == rows:
        raise DataError(f"{path}: source, path and target do not fit together; replace it.")
    if not relations.numel():
        raise DataError(f"{path} has no queries, or paths without relations; replace it.")
    for name, numbers, least, limit in (
        ("source", source, 0, len(graph.entities)),
        ("path", relations, -1, 2 * len(graph.relations)),
        ("target", target, 0, len(graph.entities)),
    ):
        low, high = (int(extreme) for extreme in numbers.aminmax())
        if low < least or high >= limit:
            raise DataError(
                f"{path}: {name} has numbers from {low} to {high}, but the graph has "
                f"{least} to {limit - 1}; replace it."
            )
    used = relations >= 0
    if not bool(used[:, 0].all()) or bool((used[:, 1:] & ~used[:, :-1]).any()):
        raise DataError(f"{path}: a path is empty or has a gap; pad it with -1 on the right.")
    return _by_length(source, relations, target)


def read_arrays(path: Path, names: Sequence[str]) -> list[Tensor]:
    """The arrays of these names in an .npz file, of signed integers; nothing in it is run."""
    import numpy as np  # optional extra

    try:
        with zipfile.ZipFile(path):  # np.load would take other files for an array or a pickle
            archive = np.load(path, allow_pickle=False)
        with archive:
            arrays = [np.asarray(archive[name]) for name in names]
    except KeyError:
        raise DataError(f"{path}: the arrays {', '.join(names)} are needed; replace it.") from None
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        raise DataError(f"{path} is damaged or no .npz file of numbers; replace it.") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; replace it.") from error
    for name, array in zip(names, arrays, strict=True):
        if array.dtype.kind != "i" or not array.ndim:
            raise DataError(f"{path}: {name} is no array of signed integers; replace it.")
    native = (array.astype(array.dtype.newbyteorder("="), order="C") for array in arrays)
    return [torch.from_numpy(array) for array in native]


def _by_length(source: Tensor, relations: Tensor, target: Tensor) -> list[Queries]:
    hops = (relations >= 0).sum(1)
    groups = []
    for length in hops.unique().tolist():
        rows = (hops == length).nonzero().flatten()
        path = relations[:, :length][rows].int()
        groups.append(Queries(source[rows].int(), path, target[rows].int()))
    return groups


def write_queries(path: Path, groups: Sequence[Queries], graph: KnowledgeGraph) -> None:
    """A text file that :func:`read_queries` reads."""
    comma = next((name for name in graph.relations if "," in name), None)
    if comma is not None:
        raise DataError(
            f"the relation {shown(comma)} has a comma, which separates relations in files of "
            "path queries; rename it."
        )
    write_lines(path, chain.from_iterable(_query_lines(group, graph) for group in groups))


def _query_lines(group: Queries, graph: KnowledgeGraph) -> Iterator[str]:
    entities, relations = graph.entities, graph.relation_names
    for source, path, target in zip(*(t.tolist() for t in group.table().values()), strict=True):
        names = ",".join([relations[number] for number in path])
        yield f"{entities[source]}\t{names}\t{entities[target]}"
