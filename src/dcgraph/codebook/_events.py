"""What a node with a large codebook shows to an observer: single entries, and no matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from .._observe import Event
from .._philox import draw_gumbel_of
from ..distributed._shards import Shard, reduce
from ._functions import choose, logsumexp, mix, rows_at, solve
from ._problem import Problem
from ._sharded import own
from ._sharded import rows_at as rows_of_all


@dataclass(frozen=True)
class Mixture:
    """What a mixture was made of, for who looks at single entries of z."""

    problem: Problem
    batch: tuple[int, ...]
    lse: Tensor  # of a, [groups, rows]
    top: Tensor  # the largest a

    def chosen(self) -> Tensor:
        """Where z is largest."""
        index = self.problem.index
        if index is None:
            with torch.no_grad():
                _, _, index, _ = solve(self.problem, mixes=False, chooses=True)
        return index.reshape(self.batch)

    def largest_weight(self) -> Tensor:
        """The largest entry of z, or 0 where there is none."""
        weight = (self.top - self.lse).exp().nan_to_num(0.0)
        if self.problem.index is not None:
            weight = (self.problem.index >= 0).to(weight.dtype)
        return weight.reshape(self.batch)

    def weight(self, index: Tensor) -> Tensor:
        """z at one category of each row."""
        p, at = self.problem, index.clamp(min=0).reshape(self.lse.shape)
        if p.index is not None:
            return (p.index == at).to(self.lse.dtype).reshape(self.batch)
        a = (p.query.to(p.compute_dtype) * rows_at(p, at).to(p.compute_dtype)).sum(-1)
        if p.noisy:
            noise = draw_gumbel_of(p.keys, at) if p.noise is None else _at(p, p.noise, at)
            a = a + p.beta * noise
        z = (a / p.tau - self.lse).exp()
        return (z if p.mask is None else z * _at(p, p.mask, at)).reshape(self.batch)


def _at(p: Problem, rows: Tensor, index: Tensor) -> Tensor:
    """One column of each row; of columns divided over ranks a sum, for one rank has it."""
    if p.shard is None:
        return rows.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    here = own(index, p.shard, p.codebook.shape[1])
    if not rows.shape[-1]:
        found = torch.zeros_like(p.tau)
    else:
        found = rows.gather(-1, here.clamp(min=0).unsqueeze(-1)).squeeze(-1).to(p.compute_dtype)
    return reduce(found.masked_fill(here < 0, 0.0), p.shard.group, dist.ReduceOp.SUM)


@dataclass(frozen=True)
class CodebookEvent(Event):
    """One call of a node whose logits are products of its input with a codebook.

    The answers are those of :class:`dcgraph._observe.Event`, without a matrix.
    """

    codebook: Tensor | None = None
    mixture: Mixture | None = None  # in training
    shard: Shard | None = None  # which rows the codebook has, if not all

    @property
    def categories(self) -> int:
        return self._codebook.shape[-2] if self.shard is None else self.shard.rows

    @property
    def _group(self) -> dist.ProcessGroup | None:
        return None if self.shard is None else self.shard.group

    @property
    def _codebook(self) -> Tensor:
        assert self.codebook is not None
        return self.codebook.detach()

    @property
    def _query(self) -> Tensor:
        return self.input.detach().to(self._codebook.dtype)

    @property
    def _mixture(self) -> Mixture:
        assert self.mixture is not None
        return self.mixture

    def spread(self) -> float:
        """From the covariance of the rows; as if none were masked."""
        codes, query = self._codebook.float(), self.valid(self._query).float()
        if self.shard is None:
            centred = codes - codes.mean(0)
        else:
            mean = reduce(codes.sum(0), self.shard.group, dist.ReduceOp.SUM) / self.categories
            centred = codes - mean
        moments = centred.mT @ centred / self.categories
        if self.shard is not None:
            moments = reduce(moments, self.shard.group, dist.ReduceOp.SUM)
        variance = ((query @ moments) * query).sum(-1)
        return variance.mean().sqrt().item()

    def chosen(self) -> Tensor:
        index = self._mixture.chosen() if self.index is None else self.index
        return index if self.rows is None else index.masked_fill(~self.rows, -1)

    def most_probable(self) -> Tensor:
        return choose(self._query, self._codebook, beta=0.0, mask=self.mask, group=self._group)[0]

    def probability(self, index: Tensor) -> Tensor:
        if self.shard is None:
            codes = self._codebook[index.clamp(min=0)]
        else:
            flat = index.clamp(min=0).reshape(1, -1)
            codes = rows_of_all(self._codebook.unsqueeze(0), flat, self.shard)
            codes = codes.reshape(*index.shape, -1)
        theta = (self._query * codes).sum(-1).float()
        return (theta - self._logsumexp()).exp()

    @torch.no_grad()
    def entropy(self) -> Tensor:
        """log sum exp(theta) - <p, theta>, and <p, theta> is the query times its mixture."""
        lse = self._logsumexp()
        mean = mix(self._query, self._codebook, beta=0.0, mask=self.mask, group=self._group)
        entropy = lse - (self._query * mean).sum(-1).float()
        return entropy.masked_fill(lse == -math.inf, 0.0)

    def largest_weight(self) -> Tensor:
        return self._mixture.largest_weight()

    def weight(self, index: Tensor) -> Tensor:
        return self._mixture.weight(index)

    @torch.no_grad()
    def _logsumexp(self) -> Tensor:
        return logsumexp(self._query, self._codebook, mask=self.mask, group=self._group)
