"""Seconds that it takes to draw the path queries of a graph, to prepare and to answer them.

    python benchmarks/queries.py            # measure on the CPU, and on CUDA where there is one
    python benchmarks/queries.py --table    # the records as a table, in docs/speed-paths.md

Drawn are all paths of FB15k-237, as for the paper's table. To prepare the test queries of a graph
is to find everything that is right for them; that is done once and kept. A model with random
weights, of the size of our presets, ranks the answers: the work does not depend on the weights.
On the CPU that is UMLS, on CUDA WN11, whose files are needed; without those of FB15k-237 nothing is
drawn. A run takes a few seconds on 2 CPU cores. It writes benchmarks/results/queries-DEVICE.json.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from common import Record, main, markdown, records, stopwatch

from dcgraph.experiments.engine.errors import DataError
from dcgraph.experiments.tasks.paths.data import load, load_graph
from dcgraph.experiments.tasks.paths.data.graph import Queries
from dcgraph.experiments.tasks.paths.data.walks import sample
from dcgraph.experiments.tasks.paths.decoding import beam_scores, step_scores
from dcgraph.experiments.tasks.paths.evaluation import (
    EvaluationSet,
    at_once,
    evaluation_sets,
    rank_all,
)
from dcgraph.experiments.tasks.paths.settings import BEST, SMALL, PathSettings
from dcgraph.experiments.tasks.paths.task import Paths

T = TypeVar("T")

SETTINGS = {"cpu": SMALL, "cuda": BEST}


def measure(name: str) -> Record:
    device = torch.device(name)
    rows: list[Record] = []

    def timed(what: str, graph: str, work: Callable[[], T], count: Callable[[T], int]) -> T:
        with stopwatch(device) as seconds:
            done = work()
        row = {"what": what, "graph": graph, "queries": count(done), "seconds": seconds[0]}
        rows.append(row)
        return done

    if name == "cpu":
        try:
            triples = load_graph("fb15k-237")
        except DataError as error:
            print(f"Nothing is drawn: {error}")
        else:
            timed("draw", "fb15k-237", lambda: sample(triples, 0), _drawn)
    settings = SETTINGS[name]
    graph, data = settings.graph, load(settings.graph)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)

        def prepared() -> EvaluationSet:
            protocol = settings.protocol
            return evaluation_sets(data, protocol, "test", cache=cache, device=device)["test"]

        timed("prepare", graph, prepared, len)
        asked = timed("prepare, kept", graph, prepared, len).to(device)
    model = _random_model(settings).to(device).eval()
    block = at_once(asked.entities)
    rank_all(model, asked.first(100), block)  # kernels are compiled here
    for what, way in (
        ("argmax", model),
        (f"beam search of width {settings.beam}", beam_scores(step_scores(model), settings.beam)),
    ):
        timed(f"rank, {what}", graph, partial(rank_all, way, asked, block), lambda _: len(asked))
    return {"rows": rows}


def _drawn(splits: Mapping[str, Sequence[Queries]]) -> int:
    """How many, without the triples, which nobody draws."""
    return sum(len(group) for groups in splits.values() for group in groups if group.hops > 1)


def _random_model(settings: PathSettings) -> torch.nn.Module:
    torch.manual_seed(0)
    return Paths().model(settings)


_OLDER = {"ask, argmax": "rank, argmax", "ask, beam of 16": "rank, beam search of width 16"}
"""What older records call it, and what it is called now."""


def table() -> str:
    """The records as Markdown."""
    rows = [
        [
            record["device"],
            row["graph"],
            _OLDER.get(row["what"], row["what"]),
            f"{row['queries']:,}",
            f"{row['seconds']:.1f}" if row["seconds"] >= 0.1 else f"{row['seconds']:.3f}",
        ]
        for record in records("queries")
        for row in record["rows"]
    ]
    return markdown(["device", "graph", "what", "queries", "seconds"], rows)


if __name__ == "__main__":
    main("queries", __doc__.split("\n")[0], measure, table)
