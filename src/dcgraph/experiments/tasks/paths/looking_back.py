r"""Looking back from an answer: does the same relation lead from it to where we are?

Triples are trained in both directions, the second by an inverse relation with a vector of its own.
So a model has two opinions on a triple (e, r, o): the share of o among the answers to (e, r), which
is the step of a beam, and the share of e among the answers to (o, r^-1). A step may take both,

.. math:: p(o \mid e, r)^{1 - w} \, p(e \mid o, r^{-1})^w,

which need not sum to one; both shares have the sharpness of the beam. Where e has d answers and o
is the answer of d', all equally likely, w = 1/2 makes it :math:`1 / \sqrt{d d'}`, the symmetric
normalisation of graphs. The weight w is chosen on validation queries, after the sharpness; 0 is a
beam alone. The log-partitions of the ways back from all entities are computed once for each
relation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ....codebook import logsumexp
from .beams import shares
from .composing import Reversible
from .evaluation import Score
from .queries import inverse

WEIGHTS = (0.0, 0.25, 0.5)
"""Those that are tried."""
_MANY = 20_000  # entities, whose ways back take a CPU long

_log = logging.getLogger(__name__)


def step(model: nn.Module, sharpness: float = 1.0, back: float | None = None) -> Score:
    """What a beam takes: the shares of a model, or steps that look back with this weight."""
    return shares(model, sharpness) if back is None else looking_back(model, sharpness)(back)


def looking_back(model: nn.Module, sharpness: float = 1.0) -> Callable[[float], Score]:
    """By the weight of the way back: the logarithms of the steps that a beam takes.

    What all weights need is computed once.
    """
    model = reversible(model)
    there = shares(model, sharpness)
    candidates = model.candidates().detach()
    entities, relations = len(candidates), len(model.relations)
    everyone = torch.arange(entities, dtype=torch.int32, device=candidates.device)
    partitions = candidates.new_empty(relations, entities)
    known: set[int] = set()

    @torch.no_grad()
    def log_partitions(back: Int[Tensor, " queries"]) -> Float[Tensor, "queries entities"]:
        if not known and entities > _MANY and not candidates.is_cuda:
            _log.info("The ways back take a CPU a while for each relation, up to minutes.")
        for relation in set(back.unique().tolist()) - known:
            along = torch.full_like(everyone, relation).unsqueeze(1)
            query = sharpness * model.query(everyone, along)
            partitions[relation] = logsumexp(query, candidates)
            known.add(relation)
        return partitions[back]

    def weighed(weight: float) -> Score:
        check_weight(weight)

        def steps(
            source: Int[Tensor, " queries"], path: Int[Tensor, "queries 1"]
        ) -> Float[Tensor, "queries entities"]:
            back = inverse(path[:, 0].long(), relations // 2)
            query = model.queries_back(model.entities[source.long()], model.relations[back])
            way_back = F.linear(sharpness * query, candidates) - log_partitions(back)
            return (1 - weight) * there(source, path) + weight * way_back

        return steps if weight else there

    return weighed


def reversible(model: nn.Module) -> Reversible:
    """The model itself, if it knows a way back."""
    if not isinstance(model, Reversible):
        raise ValueError("this model knows no way back; leave --back out.")
    return model


def check_weight(weight: float) -> None:
    if not 0 <= weight <= 1:
        raise ValueError(f"back={weight}, but the weight of the way back lies in [0, 1].")
