"""The gradient estimators of ``dcgraph.estimators``, over a codebook, and what they show.

An estimator there makes a row z of the logits; here it makes z^T C of queries and codebook C, and
z is never there as a whole. An observer asks for single entries of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from .._checks import Dial
from .._observe import Event
from .._philox import draw_gumbel_of
from ..noise import Noise
from ._functions import choose, logsumexp, make_problem, mix, solve
from ._problem import Problem


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
        a = (p.query.to(p.compute_dtype) * p.codes(at).to(p.compute_dtype)).sum(-1)
        if p.noisy:
            noise = draw_gumbel_of(p.keys, at) if p.noise is None else _at(p.noise, at)
            a = a + p.beta * noise
        z = (a / p.tau - self.lse).exp()
        return (z if p.mask is None else z * _at(p.mask, at)).reshape(self.batch)


def _at(rows: Tensor, index: Tensor) -> Tensor:
    return rows.gather(-1, index.unsqueeze(-1)).squeeze(-1)


class CodebookEstimator(Protocol):
    """queries [..., dim] and codebook [categories, dim] -> z^T C, see :func:`dcgraph.mix`."""

    def __call__(
        self,
        query: Tensor,
        codebook: Tensor,
        *,
        tau: Dial,
        beta: Dial,
        mask: Tensor | None,
        noise: Noise | None,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Mixture]: ...


def gumbel_softmax(
    query: Tensor,
    codebook: Tensor,
    *,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
    hard: bool = False,
) -> tuple[Tensor, Mixture]:
    """:func:`dcgraph.mix`."""
    p, batch = make_problem(query, codebook, tau, beta, mask, noise, generator)
    value, lse, index, top = solve(p, mixes=True, chooses=hard)
    mixture = Mixture(replace(p, index=index) if hard else p, batch, lse.detach(), top.detach())
    return value.reshape(*batch, codebook.shape[-1]), mixture


def straight_through(
    query: Tensor,
    codebook: Tensor,
    *,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
) -> tuple[Tensor, Mixture]:
    """A row drawn from softmax(theta / beta), with the gradient of the mixture at softmax(theta /
    tau), which has no noise."""
    p, batch = make_problem(query, codebook, 1.0, beta, mask, noise, generator)
    with torch.no_grad():
        _, _, index, _ = solve(p, mixes=False, chooses=True)
    p, _ = make_problem(query, codebook, tau, 0.0, mask, None, None)
    p = replace(p, index=index)
    value, lse, _, top = solve(p, mixes=True, chooses=False)
    mixture = Mixture(p, batch, lse.detach(), top.detach())
    return value.reshape(*batch, codebook.shape[-1]), mixture


CODEBOOK_ESTIMATORS: dict[str, CodebookEstimator] = {
    "gumbel_softmax": gumbel_softmax,
    "straight_through_gumbel_softmax": partial(gumbel_softmax, hard=True),
    "straight_through": straight_through,
}


@dataclass(frozen=True)
class CodebookEvent(Event):
    """One call of a node whose logits are products of its input with a codebook.

    The answers are those of :class:`dcgraph._observe.Event`, without a matrix.
    """

    codebook: Tensor | None = None
    mixture: Mixture | None = None  # in training

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
    def _mixture(self) -> Mixture:
        assert self.mixture is not None
        return self.mixture

    def spread(self) -> float:
        """From the covariance of the rows; as if none were masked."""
        codes, query = self._codebook.float(), self.valid(self._query).float()
        centred = codes - codes.mean(0)
        variance = ((query @ (centred.mT @ centred / len(codes))) * query).sum(-1)
        return variance.mean().sqrt().item()

    def chosen(self) -> Tensor:
        index = self._mixture.chosen() if self.index is None else self.index
        return index if self.rows is None else index.masked_fill(~self.rows, -1)

    def most_probable(self) -> Tensor:
        return choose(self._query, self._codebook, beta=0.0, mask=self.mask)[0]

    def probability(self, index: Tensor) -> Tensor:
        codes = self._codebook[index.clamp(min=0)]
        theta = (self._query * codes).sum(-1).float()
        return (theta - self._logsumexp()).exp()

    @torch.no_grad()
    def entropy(self) -> Tensor:
        """log sum exp(theta) - <p, theta>, and <p, theta> is the query times its mixture."""
        lse = self._logsumexp()
        mean = mix(self._query, self._codebook, beta=0.0, mask=self.mask)
        entropy = lse - (self._query * mean).sum(-1).float()
        return entropy.masked_fill(lse == -math.inf, 0.0)

    def largest_weight(self) -> Tensor:
        return self._mixture.largest_weight()

    def weight(self, index: Tensor) -> Tensor:
        return self._mixture.weight(index)

    @torch.no_grad()
    def _logsumexp(self) -> Tensor:
        return logsumexp(self._query, self._codebook, mask=self.mask)
