"""The sizes of the graphs that the docs list, by the files themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dcgraph.experiments.engine.datasets import locate
from dcgraph.experiments.engine.errors import DataError
from dcgraph.experiments.tasks.paths.data import GRAPHS, load_graph

PAGE = Path(__file__).parents[1] / "paths-data.md"


@pytest.mark.parametrize("name", list(GRAPHS))
def test_the_docs_have_the_sizes_of_the_graphs(name: str) -> None:
    try:
        for file in GRAPHS[name].values():
            locate(replace(file, urls=()))  # a check does not download
    except DataError as error:
        pytest.skip(str(error))
    graph = load_graph(name)
    triples = ", ".join(f"{len(some):,}" for some in graph.triples.values())
    line = f"| `{name}` | {len(graph.entities):,} | {len(graph.relations)} | {triples} |"
    assert line in PAGE.read_text()
