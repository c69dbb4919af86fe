"""What a node with a large codebook tells an observer: the same answers, without a matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .._observe import Event
from ._estimators import Seen
from ._functions import choose, log_sum_exp, mix


@dataclass(frozen=True)
class CodebookEvent(Event):
    """One call of a node whose logits are products of its input with a codebook."""

    codebook: Tensor | None = None
    seen: Seen | None = None  # in training

    @property
    def categories(self) -> int:
        return self._codebook.shape[-2]

    @property
    def _codebook(self) -> Tensor:
        assert self.codebook is not None
        return self.codebook.detach()

    @property
    def _query(self) -> Tensor:
        return self.input.detach().to(self._codebook.dtype)

    @property
    def _seen(self) -> Seen:
        assert self.seen is not None
        return self.seen

    def chosen(self) -> Tensor:
        return self._seen.chosen() if self.index is None else self.index

    def most_probable(self) -> Tensor:
        return choose(self._query, self._codebook, beta=0.0, mask=self.mask)[0]

    def probability(self, index: Tensor) -> Tensor:
        codes = self._codebook[index.clamp(min=0)]
        theta = (self._query * codes).sum(-1).float()
        return (theta - self._log_sum_exp()).exp()

    @torch.no_grad()
    def entropy(self) -> Tensor:
        """log sum exp(theta) - <p, theta>, and <p, theta> is the query times its mixture."""
        lse = self._log_sum_exp()
        mean = mix(self._query, self._codebook, beta=0.0, mask=self.mask)
        entropy = lse - (self._query * mean).sum(-1).float()
        return entropy.masked_fill(lse == -math.inf, 0.0)

    def largest_weight(self) -> Tensor:
        return self._seen.largest_weight()

    def weight(self, index: Tensor) -> Tensor:
        return self._seen.weight(index)

    @torch.no_grad()
    def _log_sum_exp(self) -> Tensor:
        return log_sum_exp(self._query, self._codebook, mask=self.mask)
