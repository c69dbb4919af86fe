r"""Rows divided over ranks: every rank goes over its own ones, and small sums make one answer.

Forward, a rank finds of its rows the largest a, their log-sum-exp and their mixture, as in one
process. The ranks take the largest a of all. Against it each rank weighs what it found, so that a
sum over the ranks has the whole mixture and the whole log-sum-exp.

Backward, the formulas of :mod:`._blockwise` ask for the whole log-sum-exp and <v, m>, and for
nothing else of other ranks. The gradient of own rows is complete; that of the query is a sum.

All ranks have the same queries, and go on with the same v. So they have the same gradient of v, and
what comes back to the query is the same, too: the gradient of one process, not a part of it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..distributed._shards import Shard, eager, reduce
from . import _blocks as blocks
from . import _blockwise as blockwise
from ._operators import add_to_chosen
from ._problem import Found, Problem, can_stream

_TENSORS = 9  # the fields of a Problem that are tensors or None; noisy and shard follow


@eager
def solve(p: Problem, *, mixes: bool, chooses: bool) -> Found:
    """As :func:`._operators.scan`, of the whole codebook; indices are those of the whole one.

    Where a row is only chosen, there is no log-sum-exp: nobody asks for it, and it would be a sum
    more.
    """
    fields = (p.query, p.codebook, p.tau, p.beta, p.keys, p.noise, p.mask, p.target, p.index)
    value, lse, index, top, *_ = _Scan.apply(*fields, p.noisy, p.shard, mixes, chooses)  # type: ignore[no-untyped-call]
    return value, lse, index, top


@eager
def rows_at(codebook: Tensor, index: Tensor, shard: Shard) -> Tensor:
    """Rows [groups, rows, dim] of the whole codebook, zeros for -1, with a gradient in own rows."""
    found: Tensor = _Rows.apply(codebook, index, shard)  # type: ignore[no-untyped-call]
    return found


def own(index: Tensor, shard: Shard, count: int) -> Tensor:
    """Numbers among the own rows, -1 for rows of other ranks."""
    here = index - shard.first
    return here.where((here >= 0) & (here < count), -1)


def _scan(p: Problem, *, mixes: bool, chooses: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The mixture, log-sum-exp, argmax and maximum of the own rows, of which there may be none."""
    groups, rows, n, dim = p.shape
    if not n:
        low = torch.full((groups, rows), -math.inf, dtype=p.compute_dtype, device=p.query.device)
        mixture = low.new_zeros(groups, rows, dim if mixes else 0)
        return mixture, low, torch.full_like(p.keys, -1), low.clone()
    if can_stream(p):
        from ..kernels import _codebook_stream as streaming  # imports Triton

        mixture, lse, index, top = streaming.forward(p, mixes=mixes, chooses=chooses)
    else:
        mixture, lse, index, top, _ = blockwise.forward(p, mixes=mixes, chooses=chooses)
    return mixture.to(p.compute_dtype), lse, index, top


def _best(top: Tensor, index: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """The largest a of all ranks and its place, the smallest one of a tie; -1 for none.

    In float32 both are one integer, whose order is that of a and then of the places.
    """
    if top.dtype != torch.float32:
        best = reduce(top.clone(), group, dist.ReduceOp.MAX)
        last = torch.iinfo(index.dtype).max
        place = index.where((top == best) & (index >= 0), last)
        place = reduce(place, group, dist.ReduceOp.MIN)
        return best, place.where(place < last, -1)
    top = top.masked_fill(top.isnan(), math.nan)  # there are negative ones
    bits = (top + 0.0).view(torch.int32).to(torch.int64)  # -0.0 is no less than 0.0
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    after = torch.where(index < 0, 0, _LAST - index)
    both = reduce((ordered << 32) + after, group, dist.ReduceOp.MAX)
    ordered, after = both >> 32, both & 0xFFFFFFFF
    bits = torch.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered)
    return bits.to(torch.int32).view(torch.float32), torch.where(after > 0, _LAST - after, -1)


_LAST = (1 << 32) - 1


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, ...]:
        *_, mixes, chooses = arguments
        p = Problem(*arguments[: _TENSORS + 2])
        shard: Shard = arguments[_TENSORS + 1]
        group, count = shard.group, p.codebook.shape[1]
        mixture, lse, best, top = _scan(p, mixes=mixes, chooses=chooses)
        index = best
        if chooses:
            best = torch.where(best < 0, -1, best + shard.first)
            top, index = _best(top, best, group)
        else:
            top = reduce(top.clone(), group, dist.ReduceOp.MAX)
        if chooses and not mixes and p.target is None:
            lse = torch.full_like(lse, math.nan)
            return mixture, lse, index, top, lse.clone(), mixture.clone()
        if p.index is not None:
            index = p.index.clone()
        hard = mixes and (chooses or p.index is not None)
        share = (lse - top.masked_fill(top == -math.inf, 0.0)).exp().unsqueeze(-1)
        parts = [share]
        if p.target is not None:
            parts.append(_at(p, own(p.target, shard, count)).unsqueeze(-1))
        if mixes:
            parts.append(_codes(p, own(index, shard, count)) if hard else mixture * share)
        sums = reduce(torch.cat(parts, -1), group, dist.ReduceOp.SUM)
        total, at_target, value = sums.tensor_split((1, len(parts) - mixes), -1)
        lost = total.squeeze(-1).isnan() & ~top.isinf()  # a maximum need not show a NaN
        top = top.masked_fill(lost, math.nan)
        total = total.masked_fill(total == 0, 1.0)
        lse = top + total.squeeze(-1).log()
        # For the backward pass: the mixture, or where a row was chosen only its part from here.
        mean = mixture * (share / total) if hard else value / total
        value = value if hard else mean
        loss = lse if p.target is None else lse - at_target.squeeze(-1)
        return value.to(p.query.dtype), loss, index, top, lse.clone(), mean.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        value, _, index, top, lse, mean = output
        ctx.mark_non_differentiable(index, top, lse, mean)
        ctx.set_materialize_grads(False)
        mixes, chooses = inputs[-2:]
        hard = mixes and (chooses or inputs[8] is not None)
        tensors = [*inputs[: _TENSORS - 1], index if hard else None]
        ctx.save_for_backward(lse, mean, value if hard else mean, *tensors)
        ctx.options = inputs[_TENSORS : _TENSORS + 2]

    @staticmethod
    def backward(ctx: Any, of_value: Any, of_lse: Any, *_: Any) -> tuple[Any, ...]:
        lse, mean, near, *fields = ctx.saved_tensors
        needs = ctx.needs_input_grad
        learns = bool(needs[2] or needs[3])
        given = lse, mean, near, of_value, of_lse, *fields, *ctx.options, needs[0], learns
        found = _ScanBackward.apply(*given)  # type: ignore[no-untyped-call]
        return (*found, *[None] * (_TENSORS - 4 + 4))

    @staticmethod
    def vmap(*_: Any) -> Any:
        raise RuntimeError(_NO_VMAP)


class _ScanBackward(torch.autograd.Function):
    @staticmethod
    def forward(*arguments: Any) -> tuple[Any, ...]:
        lse, mean, near, of_value, of_lse = arguments[:5]
        p = Problem(*arguments[5:-2])
        shard: Shard = arguments[-3]
        for_query, learns = arguments[-2:]
        groups, rows, n, dim = p.shape
        inner = None
        if p.index is not None and of_value is not None:
            inner = (of_value.to(p.compute_dtype) * mean).sum(-1)
            inner = reduce(inner, shard.group, dist.ReduceOp.SUM)
        local = replace(
            p,
            target=None if p.target is None else own(p.target, shard, n),
            index=None if p.index is None else own(p.index, shard, n),
        )
        if not n or (of_value is None and of_lse is None):
            d_query = lse.new_zeros(groups, rows, dim)
            dials = lse.new_zeros((2, groups, rows) if learns else (2, 0)).unbind(0)
            d_codebook = torch.zeros_like(p.codebook)
        elif can_stream(p) and not learns:
            from ..kernels import _codebook_stream_backward as streaming  # imports Triton

            d_query, d_codebook = streaming.backward(local, near, lse, of_value, of_lse, inner)
            dials = ()
        else:
            kept = blocks.Kept(lse.new_empty(0), lse.new_empty(0))
            d_query, d_codebook, *dials = blockwise.backward(
                local, near, lse, of_value, of_lse, kept, learns, inner
            )
        if local.index is not None and of_value is not None and n:
            add_to_chosen(local.index, of_value, d_codebook)
        parts = [d_query] * for_query + [d.unsqueeze(-1) for d in dials] * learns
        if not parts:
            return None, d_codebook, None, None
        sums = reduce(torch.cat(parts, -1), shard.group, dist.ReduceOp.SUM)
        d_tau, d_beta = sums[..., -2:].unbind(-1) if learns else (None, None)
        d_query = sums[..., :dim].to(p.query.dtype) if for_query else None
        return d_query, d_codebook, d_tau, d_beta

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> None:
        raise RuntimeError("over a codebook divided over ranks there is no second derivative.")

    @staticmethod
    def vmap(*_: Any) -> Any:
        raise RuntimeError(_NO_VMAP)


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(codebook: Tensor, index: Tensor, shard: Shard) -> Tensor:
        here = own(index, shard, codebook.shape[1])
        wide = torch.promote_types(codebook.dtype, torch.float32)
        rows = _gathered(codebook, here).to(wide)
        return reduce(rows, shard.group, dist.ReduceOp.SUM).to(codebook.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        codebook, index, shard = inputs
        ctx.save_for_backward(own(index, shard, codebook.shape[1]))
        ctx.like = codebook.shape, codebook.dtype

    @staticmethod
    def backward(ctx: Any, of_rows: Tensor) -> tuple[Tensor, None, None]:
        (here,), (shape, dtype) = ctx.saved_tensors, ctx.like
        d_codebook = of_rows.new_zeros(shape, dtype=dtype)
        if shape[1]:
            add_to_chosen(here, of_rows, d_codebook)
        return d_codebook, None, None

    @staticmethod
    def vmap(*_: Any) -> Any:
        raise RuntimeError(_NO_VMAP)


_NO_VMAP = (
    "a codebook divided over ranks cannot be used under vmap or in a population, for ranks meet in "
    "each call; leave out group= (or shard= of a Discrete node)."
)


def _codes(p: Problem, here: Tensor) -> Tensor:
    """Own rows, zeros for those of other ranks."""
    return _gathered(p.codebook, here).to(p.compute_dtype)


def _gathered(codebook: Tensor, here: Tensor) -> Tensor:
    if not codebook.shape[1]:
        return codebook.new_zeros(*here.shape, codebook.shape[-1])
    wide = here.clamp(min=0).unsqueeze(-1).expand(*here.shape, codebook.shape[-1])
    return codebook.gather(1, wide).masked_fill(here.unsqueeze(-1) < 0, 0.0)


def _at(p: Problem, here: Tensor) -> Tensor:
    """a at one own category of each row, 0 where another rank has it."""
    if not p.codebook.shape[1]:
        return torch.zeros_like(p.tau)
    at = here.clamp(min=0)
    a: Tensor = blockwise.steps(p).logits_at(p, at)
    if p.mask is not None:
        a = a.masked_fill(~p.mask.gather(-1, at.unsqueeze(-1)).squeeze(-1), -math.inf)
    return a.masked_fill(here < 0, 0.0)
