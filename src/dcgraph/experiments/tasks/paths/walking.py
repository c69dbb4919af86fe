"""What a model does with a query, hop by hop, for people to read."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...._arguments import closest
from ....inspect import trace
from ...engine.datasets import DataError
from .beams import follow
from .graph import INVERSE, KnowledgeGraph
from .looking_back import step
from .queries import Queries
from .reachability import reachable

_LISTED = 60  # names, at most, in a complaint


@dataclass(frozen=True)
class Stop:
    """An entity on the way or at the end of it."""

    entity: str
    probability: float
    known: bool  # whether the path so far leads there in the graph of all triples


@dataclass(frozen=True)
class Walk:
    """A query, where the model was after each relation but the last, and how it ranks answers."""

    source: str
    relations: tuple[str, ...]
    hops: tuple[tuple[Stop, ...], ...]  # the likeliest first; none for a model without choices
    answers: tuple[Stop, ...]  # the best first
    reached: int  # how many right answers the graph knows

    def text(self) -> str:
        lines = [self.source]
        for relation, stops in zip(self.relations, self.hops, strict=False):
            begin = f"  {relation} -> "
            for stop in stops:
                lines.append(begin + _shown(stop, "no such path is known"))
                begin = " " * len(begin)
        rest = " -> ".join(self.relations[len(self.hops) :])
        known = f"{self.reached:,} known" if self.reached else "none known"
        lines.append(f"  {rest} -> ? ({known})")
        for rank, stop in enumerate(self.answers, 1):
            mark = "  known" if stop.known else ""
            lines.append(f"  {rank:>4}  {stop.probability:6.1%}  {stop.entity}{mark}")
        return "\n".join(lines)


def _shown(stop: Stop, complaint: str) -> str:
    mark = "" if stop.known else f"  ({complaint})"
    return f"{stop.entity}  {stop.probability:.1%}{mark}"


def parse(graph: KnowledgeGraph, entity: str, path: str) -> Queries:
    """A query from words: a name, and names of relations between commas; ** goes backwards."""
    if entity not in graph.entities:
        raise DataError(f"unknown entity {entity!r}; {_near(entity, graph.entities)}")
    names = [word.strip() for word in path.split(",")]
    for name in names:
        if name not in graph.relation_names:
            backwards = name.startswith(INVERSE)
            known = graph.relation_names if backwards else graph.relations
            raise DataError(f"unknown relation {name!r}; {_near(name, known)}")
    numbers = [graph.relation_names.index(name) for name in names]
    start = torch.tensor([graph.entities.index(entity)], dtype=torch.int32)
    return Queries(start, torch.tensor([numbers], dtype=torch.int32), start)


def _near(name: str, known: Sequence[str]) -> str:
    """What was probably meant; a graph may have too many names to list them."""
    if len(known) <= _LISTED:
        return closest(name, known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"there are {len(known):,}, such as {', '.join(map(repr, known[:3]))}."


@torch.no_grad()
def walk(
    model: nn.Module,
    graph: KnowledgeGraph,
    query: Queries,
    top: int = 10,
    beam: int | None = None,
    sharpness: float = 1.0,
    back: float | None = None,
) -> Walk:
    """Follow the model, which is in eval mode, on one query: in its own way, or by a beam.

    A beam has a sharpness, and may look back with some weight.
    """
    beginnings = [
        Queries(query.source, query.path[:, : hops + 1], query.target) for hops in range(query.hops)
    ]
    found = reachable(graph.adjacency(), beginnings)
    sets = [set(found.sets.take(of).lists()[0]) for of in found.of]
    chosen, scores = _followed(model, query, beam, sharpness, back)
    hops = tuple(
        tuple(_stop(graph, entity, probability, known) for entity, probability in stops)
        for stops, known in zip(chosen, sets, strict=False)
    )
    best = scores.softmax(0).topk(min(top, len(scores)))
    answers = tuple(
        _stop(graph, index, value, sets[-1])
        for value, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )
    relations = tuple(graph.relation_names[k] for k in query.path[0].tolist())
    source = graph.entities[int(query.source)]
    return Walk(source, relations, hops, answers, len(sets[-1]))


def _followed(
    model: nn.Module, query: Queries, beam: int | None, sharpness: float, back: float | None
) -> tuple[list[list[tuple[int, float]]], Float[Tensor, " entities"]]:
    """Entities on the way with their probabilities, and the scores of all at the end."""
    if beam is None:
        with trace(model) as steps:
            scores = model(query.source, query.path)[0]
        return [[(int(one.index), float(one.probability))] for one in steps], scores
    *on_the_way, last = follow(step(model, sharpness, back), query.source, query.path, beam)
    chosen = []
    for now in on_the_way:
        followed = now.followed[0]
        probabilities = now.everyone[0].softmax(0)[followed].tolist()
        chosen.append(list(zip(followed.tolist(), probabilities, strict=True)))
    return chosen, last.everyone[0]


def _stop(graph: KnowledgeGraph, entity: int, probability: float, known: set[int]) -> Stop:
    return Stop(graph.entities[entity], probability, entity in known)
