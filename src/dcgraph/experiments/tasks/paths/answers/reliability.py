"""New answers to sampled queries, and which of them are right: what probabilities are fitted on.

For validation the known triples are those of training, for the test also those of validation; right
is what the triples of the split itself bring.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..data.graph import Adjacency, KnowledgeGraph, Queries
from ..data.walks import hash_bits, hash_rows, walks
from ..evaluation import Score
from .answerer import search
from .calibration import Calibration, features, fit_lengths
from .candidates import Candidates, Rule
from .known import known_triples

LENGTHS = range(1, 6)
"""The lengths that are fitted; validation walks have these everywhere."""

TOP = 10
"""How many new answers to each query are looked at, the best."""

_SINGLE, _WALKS = 2000, 1000  # queries of one relation, and of each other length
_LARGE, _SHARE = 10_000, 0.5  # entities from which fewer queries are asked, and how many of them
_AT_ONCE = 1 << 22  # shares


@dataclass(frozen=True, eq=False)
class NewAnswers:
    """The best new answers to queries of one length."""

    share: Float[Tensor, " answers"]
    features: Float[Tensor, "answers 3"]
    right: Bool[Tensor, " answers"]


def natural_queries(graph: Adjacency, length: int, count: int, seed: int = 0) -> Queries:
    """Such as somebody asks who knows the graph.

    Of one relation: different pairs of an entity and a relation that leads on from it, as many as
    there are or ``count``; else random walks, some of them perhaps equal. Targets play no part.
    """
    stream = hash_rows(torch.tensor(seed), torch.tensor(length))
    if length == 1:
        drawn = hash_bits(torch.arange(len(graph.steps)) ^ stream).argsort()[:count].sort().values
        steps = graph.steps[drawn]
        source = (steps // graph.relations).int()
        return Queries(source, (steps % graph.relations).int().unsqueeze(1), source)
    return walks(graph, length, 0, count, stream)


@torch.no_grad()
def new_answers(
    steps: Score,
    graph: KnowledgeGraph,
    split: str,
    length: int,
    width: int,
    rule: Rule = "auto",
    device: torch.device | str = "cpu",
) -> NewAnswers:
    """Of queries in the graph of a split and those before it."""
    before = tuple(graph.triples)[: tuple(graph.triples).index(split)]
    known, whole = known_triples(graph, before), known_triples(graph, (*before, split))
    size = len(graph.entities)
    wanted = (_SINGLE if length == 1 else _WALKS) * (_SHARE if size > _LARGE else 1)
    queries = natural_queries(whole.everything, length, int(wanted))
    candidates = Candidates(known.everything, rule)
    parts = []
    block = max(1, _AT_ONCE // (size * length))
    for first in range(0, len(queries), block):
        some = queries[first : first + block]
        shares = search(steps, candidates, some.to(device), width)[-1].shares
        unknown = known.reached(some)[-1] == len(known.marks)
        right = whole.reached(some)[-1] < len(whole.marks)
        best = shares.masked_fill(~unknown, -torch.inf).topk(min(TOP, size), 1)
        there = best.values > -torch.inf
        own = best.indices.unsqueeze(-1).expand(-1, -1, 3)
        parts.append(
            NewAnswers(
                best.values[there].double().exp(),
                features(shares, unknown).gather(1, own)[there],
                right.gather(1, best.indices)[there],
            )
        )
    columns = zip(*((part.share, part.features, part.right) for part in parts), strict=True)
    return NewAnswers(*map(torch.cat, columns))


def calibrated(
    steps: Score, graph: KnowledgeGraph, width: int, device: torch.device | str = "cpu"
) -> Calibration:
    """Fitted on validation; of the lengths of which there are enough answers."""
    if "validation" not in graph.triples:
        return Calibration({})
    found = {
        length: new_answers(steps, graph, "validation", length, width, device=device)
        for length in LENGTHS
    }
    return fit_lengths({k: (one.features, one.right) for k, one in found.items()})
