"""Path queries in files: source, tab, relations between commas, tab, target.

``**name`` is the inverse of a relation. Beside text there are .npz files with the arrays ``source``
[n], ``path`` [n, longest], padded with -1 on the right, and ``target`` [n], numbered like the
graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from ...engine.datasets import DataError
from .arrays import read_arrays
from .graph import INVERSE, KnowledgeGraph
from .names import numbering
from .queries import Queries
from .text import columns_of, fail_at, numbers_of, read_lines, shown, write_lines

ENDINGS = (".npz", ".txt", ".txt.gz")


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
        fail_at(path, lines, lambda line: _complaint(line, entity_of, relation_of))
    longest = max(map(len, paths))
    table = torch.tensor([each + [-1] * (longest - len(each)) for each in paths])
    return _by_length(source, table[numbers_of(texts, kinds).long()], target)


def _relation_numbers(graph: KnowledgeGraph, used: set[str]) -> dict[str, int]:
    forward = numbering(graph.relations, {name.removeprefix(INVERSE) for name in used})
    backward = {INVERSE + name: len(forward) + number for name, number in forward.items()}
    return forward | backward


def _complaint(line: str, entity_of: Mapping[str, int], relation_of: Mapping[str, int]) -> str:
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
    write_lines(path, chain.from_iterable(_lines_of(group, graph) for group in groups))


def _lines_of(group: Queries, graph: KnowledgeGraph) -> Iterator[str]:
    entities, relations = graph.entities, graph.relation_names
    for source, path, target in zip(*(t.tolist() for t in group.table().values()), strict=True):
        names = ",".join([relations[number] for number in path])
        yield f"{entities[source]}\t{names}\t{entities[target]}"
