"""Graphs in few bytes: back again as they were, and nothing else is taken for one."""

from __future__ import annotations

import json
import lzma
from typing import Any

import hypothesis
import pytest
import torch

from dcgraph.experiments.tasks.paths.data import packing
from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph
from dcgraph.experiments.tasks.paths.data.packing import pack, unpack
from small_graphs import Plain, graph_of, graphs, random_graph


@hypothesis.given(graphs())
@hypothesis.settings(max_examples=30, deadline=None)
def test_what_is_packed_comes_back(plain: Plain) -> None:
    graph = graph_of(*plain)
    found = unpack(pack(graph))
    assert found.fingerprint == graph.fingerprint and list(found.triples) == list(graph.triples)


def test_large_numbers_and_any_names_come_back() -> None:
    names = ("", "é", "\x1b[2J", "a b")[1:]
    entities = (*names, *(f"e{k}" for k in range(70_000)))
    triples = torch.tensor([[0, 0, 69_999], [1, 0, 300], [70_001, 0, 2]]).int()
    graph = KnowledgeGraph(entities, ("r",), {"train": triples, "test": triples[:1]})
    assert unpack(pack(graph)).fingerprint == graph.fingerprint


def test_equal_graphs_are_equal_bytes_and_few() -> None:
    a, b = (random_graph(100, 5, 3000, seed=0) for _ in range(2))
    assert pack(a) == pack(b) and len(pack(a)) < 3 * 3000


def changed(**names: Any) -> bytes:
    """A packed graph with other names."""
    content = lzma.decompress(pack(graph_of({"train": [(0, 0, 1)], "test": [(1, 0, 0)]})))
    end = 4 + int.from_bytes(content[:4], "little")
    text = json.dumps(json.loads(content[4:end]) | names).encode()
    return lzma.compress(len(text).to_bytes(4, "little") + text + content[end:])


@pytest.mark.parametrize(
    ("packed", "complaint"),
    [
        (b"", "cut"),
        (b"no graph, no graph", "damaged"),
        (pack(random_graph(5, 2, 20, 0))[:-9], "cut|damaged"),
        (lzma.compress(b"\x05\0\0\0{...."), "names of its graph are damaged"),
        (lzma.compress(b"\x02\0\0\0[]"), "another version"),
        (changed(format="dcgraph graph 2"), "another version"),
        (changed(entities=["a", "a"]), "entities without a name of their own"),
        (changed(entities=["a"]), "without a name"),
        (changed(entities=[1, 2]), "entities without a name of their own"),
        (changed(entities={}), "no entities"),
        (changed(entities=["a", "b\nc"]), "tab or a new line"),
        (changed(relations=["a\tb"]), "tab or a new line"),
        (changed(relations=["**r"]), r"begins with \*\*"),
        (changed(triples={"train": 1}), "other splits"),
        (changed(triples={"train": 1, "test": 1, "../x": 1}), "other splits"),
        (changed(triples={"train": 2, "test": 0}), "without triples"),
        (changed(triples={"train": True, "test": 1}), "without triples"),
        (changed(triples={"train": 2, "test": 1}), "other triples"),
    ],
)
def test_other_bytes_are_refused(packed: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        unpack(packed)


def test_bytes_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_LARGEST", 1000)
    with pytest.raises(ValueError, match="too large"):
        unpack(lzma.compress(bytes(10**6)))
