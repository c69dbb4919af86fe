"""Small graphs for the tests of path queries, and what is true of them by Python's own sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from hypothesis import strategies as st
from torch import Tensor

from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph, Queries

Triple = tuple[int, int, int]
Plain = tuple[dict[str, list[Triple]], int, int]
Rows = list[tuple[int, list[int], int]]


def graph_of(
    triples: dict[str, list[Triple]], entities: int | None = None, relations: int | None = None
) -> KnowledgeGraph:
    every = [triple for some in triples.values() for triple in some]
    n = entities or 1 + max(max(head, tail) for head, _, tail in every)
    r = relations or 1 + max(relation for _, relation, _ in every)
    names = tuple(f"e{k}" for k in range(n)), tuple(f"r{k}" for k in range(r))
    tensors = {
        split: torch.tensor(sorted(set(some)), dtype=torch.int32).view(-1, 3)
        for split, some in triples.items()
    }
    return KnowledgeGraph(*names, tensors)


def random_graph(entities: int, relations: int, triples: int, seed: int) -> KnowledgeGraph:
    """Distinct random triples, about two thirds of them for training."""
    generator = torch.Generator().manual_seed(seed)
    every = torch.randperm(entities * relations * entities, generator=generator)[:triples].tolist()
    rows = [(k // entities // relations, k // entities % relations, k % entities) for k in every]
    a, b = 2 * triples // 3, 5 * triples // 6
    splits = {"train": rows[:a], "validation": rows[a:b], "test": rows[b:]}
    return graph_of(splits, entities, relations)


def edges_of(graph: KnowledgeGraph, *splits: str) -> set[Triple]:
    """Triples and their inverses."""
    r = len(graph.relations)
    rows = [row for split in splits or graph.triples for row in graph.triples[split].tolist()]
    return {(h, k, t) for h, k, t in rows} | {(t, k + r, h) for h, k, t in rows}


def reached_by(edges: set[Triple], source: int, path: Sequence[int]) -> set[int]:
    now = {source}
    for relation in path:
        now = {tail for head, label, tail in edges if head in now and label == relation}
    return now


def mark_by_hand(graph: KnowledgeGraph, source: int, path: list[int], entity: int) -> str:
    """By Python's sets: triples of training, then of validation too, then of all."""
    names = {"train": "training", "validation": "validation", "test": "test"}
    splits = tuple(graph.triples)
    for count, split in enumerate(splits, 1):
        if entity in reached_by(edges_of(graph, *splits[:count]), source, path):
            return names[split]
    return "new"


def rows_of(queries: Queries) -> Rows:
    columns: tuple[Tensor, ...] = (queries.source, queries.path, queries.target)
    return list(zip(*(column.tolist() for column in columns), strict=True))


# Strategies give plain values: beartype draws random numbers, which hypothesis wants for itself.


@st.composite
def graphs(draw: st.DrawFn) -> Plain:
    """What :func:`graph_of` takes."""
    entities, relations = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    entity, relation = st.integers(0, entities - 1), st.integers(0, relations - 1)
    triples = st.lists(st.tuples(entity, relation, entity), min_size=1, max_size=12)
    return {split: draw(triples) for split in ("train", "validation", "test")}, entities, relations


def queries_on(plain: Plain, hops: int) -> st.SearchStrategy[Rows]:
    """Any queries, also such that lead nowhere or elsewhere than to their target."""
    _, entities, relations = plain
    entity = st.integers(0, entities - 1)
    path = st.lists(st.integers(0, 2 * relations - 1), min_size=hops, max_size=hops)
    return st.lists(st.tuples(entity, path, entity), min_size=1, max_size=8)


def queries_of(rows: Rows) -> Queries:
    columns = zip(*rows, strict=True)
    return Queries(*(torch.tensor(column, dtype=torch.int32) for column in columns))


def write_ring(folder: Path, entities: int, steps: dict[str, int], every: int = 4) -> None:
    """Entities on a circle; each relation leads so many on. Some triples are tests too."""
    lines = [
        f"e{k}\t{name}\te{(k + step) % entities}"
        for name, step in steps.items()
        for k in range(entities)
    ]
    for split, chosen in (("train", lines), ("valid", lines[::every]), ("test", lines[2::every])):
        (folder / f"{split}.txt").write_text("\n".join(chosen) + "\n")
