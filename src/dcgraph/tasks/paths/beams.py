r"""Following several entities at once, where one choice after each relation is not enough.

The answer to a query with one relation is a distribution over entities, the softmax of a model's
scores. A longer query asks for an entity on the way, whichever it is:

.. math:: p(o \mid s, r_1 \dots r_k) = \sum_e p(e \mid s, r_1 \dots r_{k-1}) \, p(o \mid e, r_k).

The sum goes over all entities. A *beam* keeps the most probable ones after each relation and what
is left of their probabilities, scaled to a sum of one. Every step is still from an entity to an
entity; a beam of one takes the argmax, as the paper does. (A search by beams with the scores of a
model of triples is also the idea of CQD, Arakelyan et al., 2021.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from .evaluation import Score


@dataclass(frozen=True, eq=False)
class Beam:
    """The entities after some relations, the most probable first, and log-probabilities of all."""

    everyone: Float[Tensor, "queries entities"]
    followed: Int64[Tensor, "queries beam"]

    def of_followed(self) -> Float[Tensor, "queries beam"]:
        """The log-probabilities of those that are followed."""
        return self.everyone.gather(1, self.followed)


def follow(
    score: Score, source: Int[Tensor, " queries"], path: Int[Tensor, "queries hops"], beam: int
) -> Iterator[Beam]:
    """Where paths have led after each relation; ``score`` is asked about single relations only.

    Those that are followed are asked about one after the other, so that memory does not depend on
    how many they are.
    """
    if beam < 1:
        raise ValueError(f"beam={beam}, but at least 1 entity is followed.")
    if not path.shape[1]:
        raise ValueError("a path has at least 1 relation.")
    at, weight = source.unsqueeze(1), torch.zeros(len(source), 1, device=source.device)
    for relation in path.unbind(1):
        parts = (
            score(entity, relation.unsqueeze(1)).log_softmax(1) + share.unsqueeze(1)
            for entity, share in zip(at.unbind(1), weight.unbind(1), strict=True)
        )
        everyone = reduce(torch.logaddexp, parts)
        now = Beam(everyone, everyone.topk(min(beam, everyone.shape[1]), 1).indices)
        yield now
        at, weight = now.followed.to(source.dtype), now.of_followed().log_softmax(1)


def by_beam(score: Score, beam: int) -> Score:
    """The log-probabilities of answers with so many entities followed after each relation."""

    def answers(source: Tensor, path: Tensor) -> Tensor:
        (last,) = deque(follow(score, source, path, beam), maxlen=1)  # the others need not be kept
        return last.everyone

    return answers
