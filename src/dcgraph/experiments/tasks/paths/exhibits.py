"""What the page of a run shows of a model of path queries: walks, with the entities it chose."""

from __future__ import annotations

import copy

from torch import nn

from ...engine.panels import Examples, Exhibit, Shown
from ...engine.task import Data
from .graph import KnowledgeGraph
from .queries import Queries
from .walking import Walk, walk

_OF_EACH_LENGTH = 2
_LONGEST = 5  # longer walks are hard to read


def of_model(model: nn.Module, graph: KnowledgeGraph, data: Data) -> tuple[Exhibit, ...]:
    """Some test queries of each length, from the source to the best answer."""
    on_cpu = copy.deepcopy(model).cpu()
    walks = []
    for table in data.tables("test"):
        size, hops = table["path"].shape
        if hops > _LONGEST:
            continue
        for k in range(min(_OF_EACH_LENGTH, size)):
            row = slice(place := k * size // _OF_EACH_LENGTH, place + 1)
            query = Queries(*(table[name][row].cpu() for name in ("source", "path", "target")))
            walks.append(walk(on_cpu, graph, query, top=1))
    note = (
        "Test queries of each length. On the way stand the entities that the model chose, with "
        "their probabilities, at the end its best answer. Marked is whether the triples of all "
        "splits lead there by the relations so far."
    )
    return (Examples("Paths it walked", note, tuple(map(_row, walks))),)


def _row(walked: Walk) -> tuple[Shown, ...]:
    stops = [*(first for first, *_ in walked.hops), walked.answers[0]]
    between = [*walked.relations[: len(walked.hops)]]
    between.append(", ".join(walked.relations[len(walked.hops) :]))
    return (
        Shown("source", walked.source),
        *(
            Shown(f"{relation} ({stop.probability:.0%})", stop.entity, right=stop.known)
            for relation, stop in zip(between, stops, strict=True)
        ),
    )
