r"""Block by block of the codebook, so that memory does not grow with its rows.

Forward: the products of a block are perturbed and become weights w = exp(a - base), with a base
near the largest a of the row so far; the mixture of the block is added to the sum so far, which is
scaled down first where the base grew. What is left at the end is sum_j w_j C_j / sum_j w_j.

Backward: the products and their noise are made again, so that z = exp(a - lse) is known. With the
gradient v of the mixture m, and l of the log-sum-exp,

.. math::
    \delta_j = z_j (\langle v, C_j \rangle - \langle v, m \rangle + l) / \tau, \qquad
    dq = \sum_j \delta_j C_j, \qquad dC_j = \sum_{rows} (\delta_j q + z_j v) .

The queries and v stand side by side, and so do delta and z: a block needs three matrix products.
Where all weights of the forward pass together are few, they are kept, with room for delta beside
them, and of the first product a block needs only <v, C>. With w in the place of z, v has to bear
the factor between the two. Where a row was chosen, not mixed, the backward pass asks for m only in
<v, m>, which the weights kept and <v, C> give: m is not made at all. Where nothing is mixed,
kernels keep the products themselves.

What happens to a block between the products is ``steps``: in torch, or one kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _block_steps as block_steps
from . import _blocks as blocks
from ._blocks import Block, Kept, State
from ._problem import Problem


def steps(p: Problem, learns_dials: bool = False) -> Any:
    """The module that knows what happens between the products."""
    if blocks.has_kernels(p) and not learns_dials:
        from ..kernels import _codebook_blocks  # imports Triton

        return _codebook_blocks
    return block_steps


def forward(
    p: Problem, *, mixes: bool, chooses: bool, learns: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor, Kept]:
    """The mixture (if needed), log-sum-exp, argmax (if wanted) and maximum of a, for every row.

    If it ``learns`` from them, also weights for the backward pass, as long as they are few.
    """
    groups, rows, n, dim = p.shape
    compute_dtype, run = p.compute_dtype, steps(p)
    makes = blocks.makes_mixture(p, mixes, chooses, learns)
    new = p.query.new_empty
    query = p.query.to(blocks.product_dtype(p)).contiguous()
    keep = blocks.keeps(p, mixes, learns)
    parts = blocks.split(n, groups * rows, p.query.device, keep)
    widest = max(part.width for part in parts)
    shape, shape_of_bases = blocks.kept_shapes(p, mixes, learns)
    state = State(
        new(groups, rows, dtype=compute_dtype),
        new(groups, rows, len(parts), dtype=compute_dtype),
        new(groups, rows, dtype=compute_dtype),
        new(groups, rows, dtype=torch.int64),
        new(groups, rows, dim if makes else 0, dtype=compute_dtype),
    )
    in_place = (run.IN_PLACE and query.dtype == compute_dtype) or not mixes
    bases = state.base if keep else new(shape_of_bases, dtype=compute_dtype)
    kept = Kept(new(shape, dtype=blocks.kept_dtype(p, mixes)), bases)
    buffer = new(groups, rows, 0 if keep and in_place else widest, dtype=compute_dtype)
    weights = buffer if keep or in_place else query.new_empty(groups, rows, widest)
    for number, part in enumerate(parts):
        codes = _codes(p, part)
        own = kept.of(parts, number)[:, -rows:] if keep else weights[..., : part.width]
        scores = own if keep and in_place else buffer[..., : part.width]
        blocks.multiply(query, codes.mT, scores)
        run.absorb(p, part, scores, own, state, number, mixes, chooses)
        if makes:
            blocks.sum_up(own, codes, state.mixture, adds=number > 0)
    mixture, lse, top = run.finish(state)
    return mixture, lse, state.index, top, kept


def backward(
    p: Problem,
    mixture: Tensor,
    lse: Tensor,
    of_mixture: Tensor | None,
    of_lse: Tensor | None,
    kept: Kept,
    learns_dials: bool = False,
    inner: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, codebook, tau and beta; the last two are empty unless asked for.

    ``of_mixture`` and ``of_lse`` are those of the outputs. A row that was chosen has all of v: what
    it adds to the gradient of the codebook is not in here. Where ``inner`` is given, it is <v, m>,
    and the mixture may be any vector near m.
    """
    groups, rows, n, dim = p.shape
    compute_dtype, dtype, run = p.compute_dtype, blocks.product_dtype(p), steps(p, learns_dials)
    d_tau, d_beta = (p.tau.new_zeros((groups, rows) if learns_dials else 0) for _ in range(2))
    has_some = kept.entries.numel() > 0 and not learns_dials
    has_scores = has_some and kept.entries.shape[1] == rows
    if has_some and not has_scores and of_mixture is not None and of_lse is None:
        if p.index is None:
            gradients = _backward_of_weights(p, mixture, lse, of_mixture, kept, run)
        else:
            gradients = _backward_of_choice(p, p.index, lse, of_mixture, kept, run)
        return *gradients, d_tau, d_beta
    if of_mixture is not None and not mixture.shape[-1]:  # the weights were to be enough
        mixture = forward(p, mixes=True, chooses=False)[0]
    if inner is None:
        offset = run.offsets(p, of_mixture, mixture, of_lse)
    else:
        offset = run.offsets(p, None, mixture, of_lse) - inner
    # Side by side: queries over v here, and in a block S over <v, C>, then delta over z.
    both = p.query if of_mixture is None else torch.cat([p.query, of_mixture], 1)
    both = both.to(dtype).contiguous()
    # Of a row that was chosen, not mixed, z is of no use beyond delta.
    height = rows if p.index is not None else both.shape[1]
    parts = blocks.split(n, groups * rows, p.query.device, has_scores)
    pairs = both.new_empty(groups, both.shape[1], max(part.width for part in parts))
    in_place = has_scores or dtype == compute_dtype
    buffer = pairs if in_place else torch.empty_like(pairs, dtype=compute_dtype)
    d_query = both.new_empty(groups, rows, dim, dtype=compute_dtype)
    d_codebook = torch.empty_like(p.codebook, memory_format=torch.contiguous_format)
    of_parts = []
    for number, part in enumerate(parts):
        codes = _codes(p, part)
        scores, pair = buffer[..., : part.width], pairs[:, :height, : part.width]
        if has_scores:
            scores = kept.of(parts, number)
        else:
            blocks.multiply(both, codes.mT, scores)
        sums, dials = run.differentiate(p, part, scores, pair, lse, offset, of_lse, learns_dials)
        of_parts.append(sums)
        if dials is not None:
            d_tau += dials[0]
            d_beta += dials[1]
        blocks.sum_up(pair[:, :rows], codes, d_query, adds=number > 0)
        _multiply_into(d_codebook, p, part, pair, both[:, :height])
    if of_mixture is not None and of_lse is None:  # as in _backward_of_weights
        d_query = run.subtract_excess(d_query, torch.cat(of_parts, -1), mixture, p.gradient_dtype)
    return d_query.to(p.gradient_dtype), d_codebook, d_tau, d_beta


def _backward_of_weights(
    p: Problem,
    mixture: Tensor,
    lse: Tensor,
    of_mixture: Tensor,
    kept: Kept,
    run: Any,
) -> tuple[Tensor, Tensor]:
    r"""Gradients of query and codebook from the weights of the forward pass.

    The deltas of a row add up to 0. But <v, C> is as rough as the products are, and where one
    category has all the weight, delta is the difference of two equal numbers: what they add up to,
    the excess e, is all that is left. With :math:`\delta_j - e z_j` instead they do. For that no
    delta has to be changed: dq becomes less by e m, and v by e q.
    """
    groups, rows, n, dim = p.shape
    dtype = blocks.product_dtype(p)
    query, v = (value.to(dtype).contiguous() for value in (p.query, of_mixture))
    offset = run.offsets(p, of_mixture, mixture, None)
    parts = blocks.split(n, groups * rows, p.query.device, True)
    d_query = v.new_empty(groups, rows, dim, dtype=p.compute_dtype)
    d_codebook = torch.empty_like(p.codebook, memory_format=torch.contiguous_format)
    of_parts = []
    for number, part in enumerate(parts):
        codes = _codes(p, part)
        entries, base = kept.of(parts, number), kept.bases[..., number]
        delta = entries[:, :rows]
        blocks.multiply(v, codes.mT, delta)
        of_parts.append(run.differentiate_kept(p, delta, entries[:, rows:], base, lse, offset))
        blocks.sum_up(delta, codes, d_query, adds=number > 0)
    sums = of_parts[0] if len(parts) == 1 else torch.cat(of_parts, -1)
    for number, part in enumerate(parts):
        both = run.stack_query_and_v(query, v, sums, kept.bases[..., number], lse)
        _multiply_into(d_codebook, p, part, kept.of(parts, number), both)
    return run.subtract_excess(d_query, sums, mixture, p.query.dtype), d_codebook


def _backward_of_choice(
    p: Problem, index: Tensor, lse: Tensor, of_row: Tensor, kept: Kept, run: Any
) -> tuple[Tensor, Tensor]:
    """The same for rows that were chosen, not mixed: no weight has a share of v.

    <v, m> is the mean of <v, C> by the weights. Again the deltas should add up to 0, and the excess
    times any row of the codebook may be taken off dq. Most of it comes from the largest weight, and
    so from the row that was chosen. In dC it would be nothing beside v, which that row has all of.
    """
    groups, rows, n, dim = p.shape
    dtype = blocks.product_dtype(p)
    query, v = (value.to(dtype).contiguous() for value in (p.query, of_row))
    parts = blocks.split(n, groups * rows, p.query.device, True)
    of_parts = []
    for number, part in enumerate(parts):
        entries, base = kept.of(parts, number), kept.bases[..., number]
        inner = entries[:, :rows]
        blocks.multiply(v, _codes(p, part).mT, inner)
        of_parts.append(run.sums_kept(p, inner, entries[:, rows:], base, lse))
    total, of_weights = torch.cat(of_parts, -1).sum(-1).unbind(-1)
    offset = -total / of_weights.where(of_weights > 0, 1.0)
    d_query = v.new_empty(groups, rows, dim, dtype=p.compute_dtype)
    d_codebook = torch.empty_like(p.codebook, memory_format=torch.contiguous_format)
    of_parts = []
    for number, part in enumerate(parts):
        entries, base = kept.of(parts, number), kept.bases[..., number]
        delta = entries[:, :rows]
        of_parts.append(run.differentiate_kept(p, delta, entries[:, rows:], base, lse, offset))
        blocks.sum_up(delta, _codes(p, part), d_query, adds=number > 0)
        _multiply_into(d_codebook, p, part, delta, query)
    excess = torch.cat(of_parts, -1).sum(-1, keepdim=True)
    d_query -= excess * p.codes(index.clamp(min=0))
    return d_query.to(p.query.dtype), d_codebook


def _multiply_into(d_codebook: Tensor, p: Problem, part: Block, pair: Tensor, both: Tensor) -> None:
    """The gradient of a block of the codebook: delta over z times queries over v."""
    target = part.of(d_codebook)
    direct = target.dtype in (pair.dtype, torch.float32)
    product = target if direct else torch.empty_like(target, dtype=p.compute_dtype)
    if pair.dtype == torch.float32 and pair.is_cuda:
        both = both.mT.contiguous().mT  # in TF32 columns add up faster than rows
    blocks.multiply(pair.mT, both, product)
    if not direct:
        target.copy_(product)


def _codes(p: Problem, part: Block) -> Tensor:
    """Rows of the codebook, ready for products."""
    return part.of(p.codebook).to(blocks.product_dtype(p))
