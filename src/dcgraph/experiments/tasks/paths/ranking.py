"""Ranks of right answers among others, and what is computed from them.

A competitor with a higher score than the answer stands before it. Those with the same score are
decided by a tie rule: *optimistic* puts them all behind the answer, *pessimistic* all before it,
and *realistic* takes the mean of both ranks, so that a model that gives everything the same score
is in the middle. The paper counts strictly higher scores alone: its rule is the optimistic one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Float64, Int, Int32
from torch import Tensor

from ...._arguments import check_choice

Ties = Literal["realistic", "optimistic", "pessimistic", "paper"]

TIES: dict[str, float] = {"realistic": 0.5, "optimistic": 0.0, "pessimistic": 1.0, "paper": 0.0}
"""The share of competitors with the same score that stands before the answer."""


@dataclass(frozen=True, eq=False)
class Standing:
    """How each answer stands: competitors with a higher and with the same score, and all."""

    higher: Int32[Tensor, "*queries"]
    same: Int32[Tensor, "*queries"]
    competitors: Int32[Tensor, "*queries"]

    def ranks(self, ties: Ties = "realistic") -> Float64[Tensor, "*queries"]:
        """From 1, the best.

        >>> Standing(*torch.tensor([[2], [1], [9]]).int()).ranks("realistic")
        tensor([3.5000], dtype=torch.float64)
        """
        return 1 + self._before(ties)

    def quantiles(self, ties: Ties = "realistic") -> Float64[Tensor, "*queries"]:
        """The share of competitors behind the answer; 1 is the best. NaN where there are none.

        >>> Standing(*torch.tensor([[2], [1], [10]]).int()).quantiles("pessimistic")
        tensor([0.7000], dtype=torch.float64)
        """
        return (self.competitors - self._before(ties)) / self.competitors

    def _before(self, ties: Ties) -> Tensor:
        check_choice("ties", ties, TIES)
        return self.higher + TIES[ties] * self.same.double()


def standing(
    scores: Float[Tensor, "queries entities"],
    target: Int[Tensor, " queries"],
    competitors: Bool[Tensor, "queries entities"],
) -> Standing:
    """How the target of each query stands among its competitors.

    A score that is not a number counts as higher than everything, and if it is the target's own,
    all competitors stand before it: a model that has diverged is not rewarded. Works under vmap.
    """
    own = scores.gather(1, target.long().unsqueeze(1))
    higher, same = ~(scores <= own) & competitors, (scores == own) & competitors
    return Standing(*(each.sum(1, dtype=torch.int32) for each in (higher, same, competitors)))
