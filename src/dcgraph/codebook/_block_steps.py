"""What happens to a block of logits between the matrix products, in torch.

The reference implementation of ``kernels._codebook_blocks`` and ``_codebook_blocks_backward``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._philox import draw_gumbel_at
from ._blocks import Block, State
from ._problem import Problem

IN_PLACE = True  # whether the weights may stand where the scores do


def logits_at(p: Problem, index: Tensor) -> Tensor:
    """The logits of one category of each row, without noise."""
    return (p.query.to(p.compute_dtype) * p.codes(index).to(p.compute_dtype)).sum(-1) / p.tau


def absorb(
    p: Problem,
    part: Block,
    scores: Tensor,
    weights: Tensor,
    state: State,
    number: int,
    mixes: bool,
    chooses: bool,
) -> None:
    """Bring block ``number`` into the state; its scores S become weights exp(a - base).

    The base of a row is its maximum so far.
    """
    if number == 0:
        state.top.fill_(-math.inf)
        state.total.zero_()
        state.index.fill_(-1)
    a, _ = _perturb(p, part, scores)
    if chooses:
        high, at = a.max(-1)
        state.index = state.index.where(~(high > state.top), at + part.first)
    else:
        high = a.amax(-1)
    top = state.top.maximum(high)
    finite = top.masked_fill(top == -math.inf, 0.0)  # -inf less itself would be NaN
    factor = (state.top - finite).exp_()
    a.sub_(finite.unsqueeze(-1)).exp_()
    state.top = state.base[..., number] = top
    if mixes:
        if number > 0:
            state.mixture.mul_(factor.unsqueeze(-1))
        a = weights.copy_(a)
    # Of what is stored, so that a row divided by it is a mixture exactly.
    state.total = state.total * factor + a.sum(-1, dtype=state.total.dtype)


def finish(state: State) -> tuple[Tensor, Tensor, Tensor]:
    """The mixture, log-sum-exp and maximum of every row; no weight at all gives 0 and -inf."""
    total = state.total.masked_fill(state.total == 0, 1.0)
    mixture = state.mixture.div_(total.unsqueeze(-1))
    return mixture, state.top + total.log(), state.top


def offsets(
    p: Problem, of_mixture: Tensor | None, mixture: Tensor, of_lse: Tensor | None
) -> Tensor:
    """of_lse - <of_mixture, mixture> of every row."""
    offset = torch.zeros_like(p.tau) if of_lse is None else of_lse.to(p.compute_dtype)
    if of_mixture is None:
        return offset
    return offset - (of_mixture.to(p.compute_dtype) * mixture.to(p.compute_dtype)).sum(-1)


def differentiate(
    p: Problem,
    part: Block,
    scores: Tensor,
    pairs: Tensor,
    lse: Tensor,
    offset: Tensor,
    of_lse: Tensor | None,
    learns_dials: bool,
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """From S over <v, C> to delta over z; also the gradients of tau and beta if asked for.

    There is no <v, C> where v is none, and no place for z where it is not needed. Returns the sum
    of delta of every row, in parts, if there is only a mixture; and those gradients.
    """
    rows = p.query.shape[1]
    a, noise = _perturb(p, part, scores[:, :rows])
    kept_a = a.masked_fill(a == -math.inf, 0.0) if learns_dials else None
    z = a.sub_(lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1)).exp_()
    if scores.shape[1] > rows:
        delta = scores[:, rows:] + offset.unsqueeze(-1)
        delta.mul_(z)
    else:
        delta = z * offset.unsqueeze(-1)
    if p.target is not None and of_lse is not None:
        inside = (p.target >= part.new) & (p.target < part.last)
        at = (p.target - part.first).clamp(0, part.width - 1).unsqueeze(-1)
        delta.scatter_add_(-1, at, -(of_lse * inside).unsqueeze(-1).to(delta.dtype))
    over_tau = delta / p.tau.unsqueeze(-1)
    if pairs.shape[1] > rows:
        pairs[:, rows:].copy_(z)
    pairs[:, :rows].copy_(over_tau)
    stored = pairs[:, :rows, : None if of_lse is None else 0]
    sums = stored.sum(-1, keepdim=True, dtype=p.compute_dtype)
    if kept_a is None:
        return sums, None
    d_tau = -(over_tau * kept_a).sum(-1)
    d_beta = torch.zeros_like(d_tau) if noise is None else (over_tau * noise).sum(-1)
    return sums, (d_tau, d_beta)


def sums_kept(p: Problem, products: Tensor, weights: Tensor, base: Tensor, lse: Tensor) -> Tensor:
    """The sums of z <v, C> and of z of every row, with the weights w = exp(a - base) of before.

    The last dimension has parts of them, the one before it the two.
    """
    both = torch.stack([torch.linalg.vecdot(products, weights), weights.sum(-1)], -1)
    return (both * _factor(base, lse)).unsqueeze(-1)


def differentiate_kept(
    p: Problem, delta: Tensor, weights: Tensor, base: Tensor, lse: Tensor, offset: Tensor
) -> Tensor:
    """From <v, C> to delta in its place, with the weights w = exp(a - base) of before.

    Returns the sum of delta of every row, in parts.
    """
    z = weights * _factor(base, lse)
    delta.copy_((delta + offset.unsqueeze(-1)).mul_(z).div_(p.tau.unsqueeze(-1)))
    return delta.sum(-1, keepdim=True, dtype=p.compute_dtype)


def stack_query_and_v(query: Tensor, v: Tensor, sums: Tensor, base: Tensor, lse: Tensor) -> Tensor:
    """q over f (v - e q), which delta over w is multiplied with for the gradient of the codebook.

    e, the excess of a row, is the sum of its deltas, which should be 0; f is z / w.
    """
    less = v - sums.sum(-1, keepdim=True) * query
    return torch.cat([query, (less * _factor(base, lse)).to(v.dtype)], 1)


def subtract_excess(d_query: Tensor, sums: Tensor, mixture: Tensor, dtype: torch.dtype) -> Tensor:
    """dq - e m in that dtype, with the excess e of every row, see :func:`stack_query_and_v`."""
    return (d_query - sums.sum(-1, keepdim=True) * mixture).to(dtype)


def _factor(base: Tensor, lse: Tensor) -> Tensor:
    """z / w of every row."""
    return (base - lse.masked_fill(lse == -math.inf, 0.0)).exp().unsqueeze(-1)


def _perturb(p: Problem, part: Block, scores: Tensor) -> tuple[Tensor, Tensor | None]:
    """a = (S + beta G) / tau in the place of S, and G."""
    noise = None
    if p.noisy:
        if p.noise is None:
            noise = draw_gumbel_at(p.keys, p.first + part.first, part.width, p.compute_dtype)
        else:
            noise = p.noise[..., part.first : part.last]
        scores.addcmul_(noise, p.beta.unsqueeze(-1))
    scores.div_(p.tau.unsqueeze(-1))
    if p.mask is not None:
        scores.masked_fill_(~p.mask[..., part.first : part.last], -math.inf)
    scores[..., : part.new - part.first] = -math.inf
    return scores, noise
