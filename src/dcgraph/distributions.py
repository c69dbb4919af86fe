"""The distribution of a choice, in the conventions of :mod:`torch.distributions`."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl
from torch.distributions.utils import lazy_property

from ._checks import (
    Dial,
    check_logits,
    check_mask,
    check_padding,
    check_rows,
    may_read,
    try_to_read,
)
from .functional import entropy, gumbel_softmax, one_hot, sample
from .noise import Noise, draw_gumbel_in, is_zero

__all__ = ["OneHotCategorical"]


class OneHotCategorical(Distribution):
    r"""A choice among K categories, p = softmax(theta), with one-hot vectors as values.

    It is :class:`torch.distributions.OneHotCategorical` with masks and with noise that is finite:
    ``batch_shape`` is that of the rows, ``event_shape`` is [K]. ``logits`` [..., 8, K] are eight
    choices; ``torch.distributions.Independent(q, 1)`` makes one event of them.
    Everything is computed in float32 at least, and handed back in the dtype of the logits.

    Args:
        logits: theta, unnormalised log-probabilities. An entry of -inf is never chosen.
        mask: True where a category may be chosen, broadcast against the logits.
        rows: False for rows that are padding. They choose nothing, and that with certainty: their
            entropy, divergence and log-probability are 0, their samples zeros, and indices -1.
        validate_args: check the values handed to :meth:`log_prob`, where values can be read at all
            (see :func:`dcgraph.debug`); None is torch's default. Shapes are always checked.

    >>> import torch, dcgraph as dc
    >>> q = dc.OneHotCategorical(torch.tensor([[2.0, 0.0, 1.0]]), torch.tensor([True, True, False]))
    >>> q.probs
    tensor([[0.8808, 0.1192, 0.0000]])
    >>> q.log_prob(torch.tensor([0])), q.log_prob(torch.tensor([[1.0, 0.0, 0.0]]))
    (tensor([-0.1269]), tensor([-0.1269]))
    >>> torch.distributions.kl_divergence(q, q.uniform())
    tensor([0.3278])
    """

    arg_constraints = {"logits": constraints.independent(constraints.real, 1)}  # noqa: RUF012
    support = constraints.one_hot
    has_enumerate_support = True
    has_rsample = True

    def __init__(
        self,
        logits: Float[Tensor, "*batch categories"],
        mask: Bool[Tensor, "..."] | None = None,
        rows: Bool[Tensor, "*batch"] | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        check_logits(logits, -1)
        theta = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if mask is not None:
            check_mask(mask, logits)
            theta = theta.masked_fill(~mask, -math.inf)
        self.rows = rows
        if rows is not None:
            check_padding(rows, logits.shape[:-1])
            theta = torch.where(rows.unsqueeze(-1), theta, 0.0)  # whatever is in it, NaN too
        self.logits = theta.to(logits.dtype)
        self._checked = check_rows(theta, -1)
        # The arguments were checked here: torch's check would refuse logits of -inf.
        super().__init__(logits.shape[:-1], logits.shape[-1:], validate_args=False)
        self._validate_args = (
            Distribution._validate_args if validate_args is None else validate_args
        )

    @lazy_property
    def _log_probs(self) -> Tensor:
        """log p in the compute dtype; a row without any category has -inf everywhere."""
        theta = self.logits.to(torch.promote_types(self.logits.dtype, torch.float32))
        if self._checked:
            return theta.log_softmax(-1)
        empty = (theta == -math.inf).all(-1, keepdim=True)
        return theta.masked_fill(empty, 0.0).log_softmax(-1).masked_fill(empty, -math.inf)

    @property
    def log_probs(self) -> Float[Tensor, "*batch categories"]:
        """log p of every category, -inf where it is masked."""
        return self._log_probs.to(self.logits.dtype)

    @property
    def probs(self) -> Float[Tensor, "*batch categories"]:
        """p of every category."""
        return self._without_padding(self._log_probs.exp()).to(self.logits.dtype)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        p = self._log_probs.exp()
        return self._without_padding(p * (1 - p)).to(self.logits.dtype)

    @property
    def mode(self) -> Float[Tensor, "*batch categories"]:
        index = sample(self.logits, beta=0.0)
        return self._without_padding(one_hot(index, self.event_shape[0], self.logits.dtype))

    def log_prob(self, value: Float[Tensor, "..."] | Int[Tensor, "..."]) -> Float[Tensor, "..."]:
        """log p of one-hot vectors [..., K] of a floating dtype, or of indices [...] of integers.

        -inf for a category that is masked.
        """
        index = self._index_of(value)
        shape = torch.broadcast_shapes(index.shape, self.batch_shape)
        log_p = self._log_probs.expand(*shape, *self.event_shape)
        if self.rows is not None:  # of which the index is -1
            index = index.where(self.rows, 0)
        found = log_p.gather(-1, index.long().expand(shape).unsqueeze(-1)).squeeze(-1)
        return self._counted(found).to(self.logits.dtype)

    def _counted(self, values: Tensor) -> Tensor:
        """Of each row [..., *batch]; 0 where it is padding."""
        return values if self.rows is None else values.masked_fill(~self.rows, 0.0)

    def _without_padding(self, vectors: Tensor) -> Tensor:
        """Of each row [..., *batch, K]; zeros where it is padding."""
        if self.rows is None:
            return vectors
        return vectors.masked_fill(~self.rows.unsqueeze(-1), 0.0)

    def _index_of(self, value: Tensor) -> Tensor:
        """The category of each value. Shapes are always checked, values where they can be read."""
        categories, own = self.event_shape[0], tuple(self.batch_shape)
        one_hots = value.is_floating_point()
        rows = value.shape[:-1] if one_hots else value.shape
        if value.dtype == torch.bool or (one_hots and value.shape[-1:] != self.event_shape):
            raise ValueError(
                f"value is {value.dtype} of shape {tuple(value.shape)}; pass one-hot vectors [..., "
                f"{categories}] of a floating dtype, or indices of integers."
            )
        for have, want in zip(reversed(rows), reversed(own), strict=False):
            if have != want and 1 not in (have, want):
                raise ValueError(
                    f"values of shape {tuple(rows)} do not broadcast with the batch shape {own} of "
                    "the distribution; dimensions of samples come first."
                )
        if one_hots:
            self._check_support(constraints.one_hot.check(value), "a relaxed row, or another one")
            return value.argmax(-1)
        self._check_support((value >= 0) & (value < categories), "an index")
        return value

    def _check_support(self, inside: Tensor, what: str) -> None:
        if self.rows is not None:
            inside = inside | ~self.rows
        if self._validate_args and may_read(inside) and try_to_read(inside.all()) == 0:
            raise ValueError(
                f"{what} is not within the support: log_prob takes one-hot vectors, or indices "
                f"from 0 to {self.event_shape[0] - 1}."
            )

    def entropy(self) -> Float[Tensor, "*batch"]:
        """In nats; 0 for a single category."""
        return self._counted(entropy(self.logits))

    @torch.no_grad()
    def sample(  # type: ignore[override]
        self,
        sample_shape: torch.Size | tuple[int, ...] = (),
        *,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "..."]:
        """One-hot vectors ``[*sample_shape, *batch, K]``, without gradient."""
        index = self.sample_index(sample_shape, generator=generator)
        return one_hot(index, self.event_shape[0], self.logits.dtype)

    @torch.no_grad()
    def sample_index(
        self,
        sample_shape: torch.Size | tuple[int, ...] = (),
        *,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, "..."]:
        """The same as indices ``[*sample_shape, *batch]``, -1 for a row without any category."""
        theta = self._expanded_logits(sample_shape)
        index = sample(theta, noise=self._noise(None, theta, generator), generator=generator)
        return index if self.rows is None else index.masked_fill(~self.rows, -1)

    def rsample(  # type: ignore[override]
        self,
        sample_shape: torch.Size | tuple[int, ...] = (),
        *,
        tau: Dial = 1.0,
        beta: Dial = 1.0,
        hard: bool = False,
        noise: Noise | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "..."]:
        """Relaxed one-hot vectors with gradients: :func:`dcgraph.gumbel_softmax` of the logits.

        Only with ``beta=1`` and ``hard=True`` is it a draw of this distribution. So a relaxed ELBO
        is no bound on the likelihood: report the one at :meth:`sample`.
        """
        theta = self._expanded_logits(sample_shape)
        if not is_zero(beta):
            noise = self._noise(noise, theta, generator)
        z = gumbel_softmax(theta, tau, beta=beta, hard=hard, noise=noise, generator=generator)
        return self._without_padding(z)

    def _noise(
        self, noise: Noise | None, theta: Tensor, generator: torch.Generator | None
    ) -> Noise | None:
        """As it is, or drawn without any for padding."""
        if self.rows is None or isinstance(noise, Tensor):
            return noise
        dtype = torch.promote_types(theta.dtype, torch.float32)
        drawn = draw_gumbel_in(
            self.rows.expand(theta.shape[:-1]), theta.shape[-1], generator, dtype
        )
        return drawn.neg_() if noise == "reversed" else drawn

    def _expanded_logits(self, sample_shape: torch.Size | tuple[int, ...]) -> Tensor:
        return self.logits.expand(*sample_shape, *self.logits.shape)

    def uniform(self) -> OneHotCategorical:
        """All categories that are not masked, equally probable: the usual prior."""
        flat = torch.zeros_like(self.logits).masked_fill(self.logits == -math.inf, -math.inf)
        return OneHotCategorical(flat, rows=self.rows, validate_args=self._validate_args)

    def enumerate_support(self, expand: bool = True) -> Float[Tensor, "..."]:
        """All K one-hot vectors, ``[K, *batch, K]``; those of masked categories too."""
        categories = self.event_shape[0]
        values = torch.eye(categories, dtype=self.logits.dtype, device=self.logits.device)
        values = values.view(categories, *(1,) * len(self.batch_shape), categories)
        return values.expand(categories, *self.batch_shape, categories) if expand else values

    def expand(self, batch_shape: Any, _instance: Any = None) -> OneHotCategorical:
        logits = self.logits.expand(*batch_shape, *self.event_shape)
        rows = None if self.rows is None else self.rows.expand(batch_shape)
        return OneHotCategorical(logits, rows=rows, validate_args=self._validate_args)

    def __repr__(self) -> str:
        return f"OneHotCategorical({self.event_shape[0]} categories, {list(self.batch_shape)})"


@register_kl(OneHotCategorical, OneHotCategorical)  # type: ignore[untyped-decorator]
def _kl(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    r""":math:`\sum_i p_i (\log p_i - \log q_i)`; categories that p never chooses count nothing.

    Infinite where q never chooses what p may, however rarely.
    """
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"the distributions have {p.event_shape[0]} and {q.event_shape[0]} categories; a "
            "divergence is between two over the same categories."
        )
    log_p, log_q = p._log_probs, q._log_probs
    never = log_p == -math.inf
    difference = log_p.masked_fill(never, 0.0) - log_q.masked_fill(never, 0.0)
    # A probability so small that it is 0 in float32, times infinity, would be NaN.
    terms = (log_p.exp() * difference).masked_fill(difference == math.inf, math.inf)
    return q._counted(p._counted(terms.sum(-1))).to(p.logits.dtype)


@register_kl(OneHotCategorical, torch.distributions.OneHotCategorical)  # type: ignore[untyped-decorator]
def _kl_to_torchs(p: OneHotCategorical, q: torch.distributions.OneHotCategorical) -> Tensor:
    divergence: Tensor = _kl(p, OneHotCategorical(q.logits, validate_args=False))
    return divergence


@register_kl(torch.distributions.OneHotCategorical, OneHotCategorical)  # type: ignore[untyped-decorator]
def _kl_from_torchs(p: torch.distributions.OneHotCategorical, q: OneHotCategorical) -> Tensor:
    divergence: Tensor = _kl(OneHotCategorical(p.logits, validate_args=False), q)
    return divergence
