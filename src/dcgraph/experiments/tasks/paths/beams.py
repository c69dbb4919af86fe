r"""Following several entities at once, where one choice after each relation is not enough.

The answer to a query with one relation is a distribution over entities, the softmax of a model's
scores. A longer query asks for an entity on the way, whichever it is:

.. math:: p(o \mid s, r_1 \dots r_k) = \sum_e p(e \mid s, r_1 \dots r_{k-1}) \, p(o \mid e, r_k).

The sum goes over all entities. A *beam* keeps the most probable ones after each relation and what
is left of their probabilities, scaled to a sum of one. Every step is still from an entity to an
entity; a beam of one takes the argmax, as the paper does. (A search by beams with the scores of a
model of triples is also the idea of CQD, Arakelyan et al., 2021.)

A sum over entities needs probabilities that can be trusted, and those of a trained model may be too
flat or too sharp. Scores are therefore multiplied by a *sharpness*, one over the temperature of Guo
et al. (2017), which is chosen on validation queries and has no effect on the argmax of shares.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from .evaluation import Score

SHARPNESSES = (1.0, 1.5, 2.0, 3.0)
"""Those that are tried."""


@dataclass(frozen=True, eq=False)
class Beam:
    """The entities after some relations, the most probable first, and the log-weights of all.

    Where steps are shares, weights are probabilities.
    """

    everyone: Float[Tensor, "queries entities"]
    followed: Int64[Tensor, "queries beam"]

    def of_followed(self) -> Float[Tensor, "queries beam"]:
        """The log-weights of those that are followed."""
        return self.everyone.gather(1, self.followed)


def check_beam(beam: int, sharpness: float = 1.0) -> None:
    if beam < 1:
        raise ValueError(f"beam={beam}, but at least 1 entity is followed.")
    if not 0 < sharpness < math.inf:
        raise ValueError(
            f"sharpness={sharpness}, but scores are multiplied by it; use a finite number above 0."
        )


def shares(score: Score, sharpness: float = 1.0) -> Score:
    """Log-probabilities of the answers to single relations: the steps that a beam takes."""
    check_beam(1, sharpness)
    return lambda source, path: (sharpness * score(source, path)).log_softmax(1)


def follow(
    step: Score, source: Int[Tensor, " queries"], path: Int[Tensor, "queries hops"], beam: int
) -> Iterator[Beam]:
    """Where paths have led after each relation; ``step`` is asked about single relations only.

    Those that are followed are asked about one after the other, so that memory does not depend on
    how many they are.
    """
    check_beam(beam)
    if not path.shape[1]:
        raise ValueError("a path has at least 1 relation.")
    at, weight = source.unsqueeze(1), torch.zeros(len(source), 1, device=source.device)
    for relation in path.unbind(1):
        parts = (
            step(entity, relation.unsqueeze(1)) + share.unsqueeze(1)
            for entity, share in zip(at.unbind(1), weight.unbind(1), strict=True)
        )
        everyone = reduce(torch.logaddexp, parts)
        now = Beam(everyone, everyone.topk(min(beam, everyone.shape[1]), 1).indices)
        yield now
        at, weight = now.followed.to(source.dtype), now.of_followed().log_softmax(1)


def by_steps(step: Score, beam: int) -> Score:
    """The logarithms of the weights of answers, with so many entities followed at once."""

    def answers(source: Tensor, path: Tensor) -> Tensor:
        (last,) = deque(follow(step, source, path, beam), maxlen=1)  # keeps no other
        return last.everyone

    return answers


def by_beam(score: Score, beam: int, sharpness: float = 1.0) -> Score:
    """The log-probabilities of answers: the steps are the shares of a model's scores."""
    return by_steps(shares(score, sharpness), beam)
