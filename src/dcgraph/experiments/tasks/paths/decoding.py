r"""Decoding: the entities on the way of a path, by argmax or by beam search.

The answer to a query with one relation is a distribution over entities, the softmax of a model's
scores. A longer query asks for an entity on the way, whichever it is:

.. math:: p(o \mid s, r_1 \dots r_k) = \sum_e p(e \mid s, r_1 \dots r_{k-1}) \, p(o \mid e, r_k).

The sum goes over all entities. **Beam search** keeps the most probable ones after each relation and
what is left of their probabilities, scaled to a sum of one. Every step is still from an entity to
an entity; a beam of width 1 takes the argmax, as the paper does. (Beam search with the scores of a
model of triples is also the idea of CQD, Arakelyan et al., 2021.)

A sum over entities needs probabilities that can be trusted, and those of a trained model may be too
flat or too sharp. Scores are therefore multiplied by an **inverse temperature** (Guo et al., 2017),
which is chosen on the validation split and has no effect on an argmax.

**Bidirectional scoring** scores a triple in both directions. Triples are trained in both, the
second by an inverse relation with a vector of its own. So a model has two opinions on a triple
(e, r, o): the probability of o among the answers to (e, r), which is the step of a beam search, and
the probability of e among the answers to (o, r^-1). A step may take both,

.. math:: p(o \mid e, r)^{1 - w} \, p(e \mid o, r^{-1})^w,

which need not sum to one; both have the inverse temperature of the beam search. Where e has d
answers and o is the answer of d', all equally likely, w = 1/2 makes it :math:`1 / \sqrt{d d'}`, the
symmetric normalisation of graphs. The weight w is chosen on the validation split, after the inverse
temperature; 0 is a plain beam search. The log-partitions of the inverse direction from all entities
are computed once for each relation.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn

from ....codebook import logsumexp
from ....inspect import trace
from .data.graph import KnowledgeGraph, Queries, inverse
from .data.walks import reachable
from .evaluation import EvaluationSet, Score, best_of
from .model import Bidirectional

INVERSE_TEMPERATURES = (1.0, 1.5, 2.0, 3.0)
BIDIRECTIONAL_WEIGHTS = (0.0, 0.25, 0.5)
"""Those that calibration tries."""

_MANY = 20_000  # entities, for which the inverse direction takes a CPU long

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Beam:
    """The entities kept after some relations, the best first, and the log-weights of all.

    Where steps are probabilities, weights are too.
    """

    log_weights: Float[Tensor, "queries entities"]
    kept: Int64[Tensor, "queries width"]

    def log_weights_of_kept(self) -> Float[Tensor, "queries width"]:
        return self.log_weights.gather(1, self.kept)


def check_beam(width: int, inverse_temperature: float = 1.0) -> None:
    if width < 1:
        raise ValueError(f"beam={width}, but a beam keeps at least 1 entity.")
    if not 0 < inverse_temperature < math.inf:
        raise ValueError(
            f"inverse_temperature={inverse_temperature}, but scores are multiplied by it; use a "
            "finite number above 0."
        )


def beam_search(
    step: Score, source: Int[Tensor, " queries"], path: Int[Tensor, "queries hops"], width: int
) -> Iterator[Beam]:
    """Where paths have led after each relation; ``step`` is asked about single relations only.

    The entities kept are asked about one after the other, so that memory does not depend on the
    width.
    """
    check_beam(width)
    if not path.shape[1]:
        raise ValueError("a path has at least 1 relation.")
    at, weight = source.unsqueeze(1), torch.zeros(len(source), 1, device=source.device)
    for relation in path.unbind(1):
        parts = (
            step(entity, relation.unsqueeze(1)) + share.unsqueeze(1)
            for entity, share in zip(at.unbind(1), weight.unbind(1), strict=True)
        )
        everyone = reduce(torch.logaddexp, parts)
        now = Beam(everyone, everyone.topk(min(width, everyone.shape[1]), 1).indices)
        yield now
        at, weight = now.kept.to(source.dtype), now.log_weights_of_kept().log_softmax(1)


def beam_scores(step: Score, width: int) -> Score:
    """The log-weights of answers by a beam search of this width."""

    def answers(source: Tensor, path: Tensor) -> Tensor:
        (last,) = deque(beam_search(step, source, path, width), maxlen=1)  # keeps no other
        return last.log_weights

    return answers


def step_scores(
    model: Score, inverse_temperature: float = 1.0, bidirectional_weight: float | None = None
) -> Score:
    """The steps of a beam search: log-probabilities of the answers to single relations.

    With a weight they are scored in both directions, which not all models can do.
    """
    if bidirectional_weight is not None:
        assert isinstance(model, nn.Module)
        return bidirectional_steps(model, inverse_temperature)(bidirectional_weight)
    check_beam(1, inverse_temperature)
    return lambda source, path: (inverse_temperature * model(source, path)).log_softmax(1)


def bidirectional_steps(
    model: nn.Module, inverse_temperature: float = 1.0
) -> Callable[[float], Score]:
    """By the weight of the inverse direction: the logarithms of the steps of a beam search.

    What all weights need is computed once.
    """
    model = check_bidirectional(model)
    forward = step_scores(model, inverse_temperature)
    candidates = model.candidates().detach()
    entities, relations = len(candidates), len(model.relations)
    everyone = torch.arange(entities, dtype=torch.int32, device=candidates.device)
    partitions = candidates.new_empty(relations, entities)
    known: set[int] = set()

    @torch.no_grad()
    def log_partitions(relation: Int[Tensor, " queries"]) -> Float[Tensor, "queries entities"]:
        if not known and entities > _MANY and not candidates.is_cuda:
            _log.info("Bidirectional scoring takes a CPU a while for each relation, up to minutes.")
        for number in set(relation.unique().tolist()) - known:
            along = torch.full_like(everyone, number).unsqueeze(1)
            query = inverse_temperature * model.query(everyone, along)
            partitions[number] = logsumexp(query, candidates)
            known.add(number)
        return partitions[relation]

    def weighted(weight: float) -> Score:
        check_weight(weight)

        def steps(
            source: Int[Tensor, " queries"], path: Int[Tensor, "queries 1"]
        ) -> Float[Tensor, "queries entities"]:
            inverted = inverse(path[:, 0].long(), relations // 2)
            query = model.source_queries(model.entities[source.long()], model.relations[inverted])
            backward = F.linear(inverse_temperature * query, candidates) - log_partitions(inverted)
            return (1 - weight) * forward(source, path) + weight * backward

        return steps if weight else forward

    return weighted


def check_bidirectional(model: nn.Module) -> Bidirectional:
    """The model itself, if it can score triples in both directions."""
    if not isinstance(model, Bidirectional):
        raise ValueError(
            f"bidirectional scoring is not implemented for {type(model).__name__}; "
            "leave --bidirectional out."
        )
    return model


def check_weight(weight: float) -> None:
    if not 0 <= weight <= 1:
        raise ValueError(f"bidirectional={weight}, but the weight lies in [0, 1].")


def calibrate_inverse_temperature(
    model: Score, asked: EvaluationSet, metric: str, width: int, block: int
) -> float:
    """The one with which a beam search of this width answers best."""
    steps = {value: step_scores(model, value) for value in INVERSE_TEMPERATURES}
    scores = {value: beam_scores(steps[value], width) for value in steps}
    return best_of(scores, asked, metric, block)


def calibrate_bidirectional_weight(
    model: nn.Module,
    inverse_temperature: float,
    asked: EvaluationSet,
    metric: str,
    width: int,
    block: int,
) -> float:
    """The one with which a bidirectional beam search of this width answers best."""
    steps = bidirectional_steps(model, inverse_temperature)
    scores = {weight: beam_scores(steps(weight), width) for weight in BIDIRECTIONAL_WEIGHTS}
    return best_of(scores, asked, metric, block)


@dataclass(frozen=True)
class Stop:
    """An entity on the way or at the end of it."""

    entity: str
    probability: float
    known: bool  # whether the path so far leads there in the graph of all triples


@dataclass(frozen=True)
class Walk:
    """A query, the entities after each relation except the last, and the ranked answers."""

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
                mark = "" if stop.known else "  (no such path is known)"
                lines.append(f"{begin}{stop.entity}  {stop.probability:.1%}{mark}")
                begin = " " * len(begin)
        rest = " -> ".join(self.relations[len(self.hops) :])
        known = f"{self.reached:,} known" if self.reached else "none known"
        lines.append(f"  {rest} -> ? ({known})")
        for rank, stop in enumerate(self.answers, 1):
            mark = "  known" if stop.known else ""
            lines.append(f"  {rank:>4}  {stop.probability:6.1%}  {stop.entity}{mark}")
        return "\n".join(lines)


@torch.no_grad()
def walk(
    model: nn.Module,
    graph: KnowledgeGraph,
    query: Queries,
    top: int = 10,
    beam: int | None = None,
    inverse_temperature: float = 1.0,
    bidirectional_weight: float | None = None,
) -> Walk:
    """Decode one query with a model in eval mode, for people to read.

    The model decodes by itself, the discrete one by argmax, or by a beam search of width ``beam``.
    """
    beginnings = [
        Queries(query.source, query.path[:, : hops + 1], query.target) for hops in range(query.hops)
    ]
    found = reachable(graph.adjacency(), beginnings)
    sets = [set(found.sets.take(of).lists()[0]) for of in found.of]
    if beam is None:
        chosen, scores = _decode_by_itself(model, query)
    else:
        step = step_scores(model, inverse_temperature, bidirectional_weight)
        chosen, scores = _decode_by_beam(step, query, beam)
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


_Decoded = tuple[list[list[tuple[int, float]]], Float[Tensor, " entities"]]
"""Entities on the way with their probabilities, and the scores of all at the end."""


def _decode_by_itself(model: nn.Module, query: Queries) -> _Decoded:
    with trace(model) as steps:
        scores = model(query.source, query.path)[0]
    return [[(int(one.index), float(one.probability))] for one in steps], scores


def _decode_by_beam(step: Score, query: Queries, width: int) -> _Decoded:
    *on_the_way, last = beam_search(step, query.source, query.path, width)
    chosen = []
    for now in on_the_way:
        kept = now.kept[0]
        probabilities = now.log_weights[0].softmax(0)[kept].tolist()
        chosen.append(list(zip(kept.tolist(), probabilities, strict=True)))
    return chosen, last.log_weights[0]


def _stop(graph: KnowledgeGraph, entity: int, probability: float, known: set[int]) -> Stop:
    return Stop(graph.entities[entity], probability, entity in known)
