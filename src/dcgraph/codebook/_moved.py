r"""Mixtures at moved logits, block by block: for estimators whose gradient is at other logits.

Gumbel-Rao, gapped straight-through and their kin have the gradient J(w) v / tau, where w is the
softmax of a / tau and a the logits S = <q, C>, each moved by a constant that depends on S, on noise
and on the choice D:

============= ==================================================== ================
kind          a of a category j that is not chosen                 a of the choice
============= ==================================================== ================
"capped"      :math:`\min(S_j, o)`                                 given
"noisy"       :math:`s (S_j / s + o) + \beta G_j`                  given
"conditional" :math:`-s \log(e^{-F_j - S_j / s - o} + e^{-F_D})`   given
============= ==================================================== ================

with s the scale, o the offset of a row, G the noise of the problem, F fresh noise and
:math:`F_D`, that of the choice, in the place of beta.

This is torch on every device: a pass forward for the log-sum-exp and the mixture, a pass back for
the gradients, and never more than a block of the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from .._philox import GROUP, draw_gumbel_at
from ._problem import Problem

Kind = Literal["capped", "noisy", "conditional"]

_ENTRIES = {"cpu": 1 << 20, "cuda": 1 << 24}
"""Of a block of logits."""


def mix_moved(
    p: Problem, kind: Kind, index: Tensor, lead: Tensor, scale: Tensor, offset: Tensor
) -> Tensor:
    """The mixture [groups, rows, dim] at moved logits.

    Its gradient reaches the query and, through the logits, the codebook: the rows that are mixed
    get none as such.

    Args:
        p: the problem, with tau, keys or noise, and mask.
        kind: how the logits are moved, see above.
        index: the choice.
        lead: a of the choice, [groups, rows], as the two others.
        scale: s.
        offset: o.
    """
    if p.shard is not None:
        raise ValueError(
            "moved logits are not there for a codebook divided over ranks; use another estimator."
        )
    stats = torch.stack([p.tau, p.beta, lead, scale, offset]).detach()
    found: tuple[Tensor, Tensor] = _Moved.apply(  # type: ignore[no-untyped-call]
        p.query, p.codebook, stats, index, p.keys, p.noise, p.mask, p.noisy, kind
    )
    return found[0]


def _blocks(p: Problem) -> Iterator[slice]:
    groups, rows, n, _ = p.shape
    entries = _ENTRIES["cpu" if p.query.device.type == "cpu" else "cuda"]
    width = max(1, entries // max(1, groups * rows) // GROUP) * GROUP
    return (slice(first, min(first + width, n)) for first in range(0, n, width))


def _moved(p: Problem, kind: Kind, stats: Tensor, index: Tensor, part: slice) -> Tensor:
    """a of a block, -inf where masked."""
    _, beta, lead, scale, offset = (value.unsqueeze(-1) for value in stats)
    a = p.query.to(p.compute_dtype) @ p.codebook[:, part].to(p.compute_dtype).mT
    if kind == "capped":
        a = torch.minimum(a, offset)
    else:
        noise = _noise(p, part)
        if kind == "noisy":
            a = a + scale * offset
            a = a if noise is None else a + beta * noise
        else:
            assert noise is not None
            a = -scale * torch.logaddexp(-noise - a / scale - offset, -beta)
    columns = torch.arange(part.start, part.stop, device=a.device)
    a = torch.where(columns == index.unsqueeze(-1), lead, a)
    return a if p.mask is None else a.masked_fill(~p.mask[..., part], -math.inf)


def _noise(p: Problem, part: slice) -> Tensor | None:
    if not p.noisy:
        return None
    if p.noise is not None:
        return p.noise[..., part]
    return draw_gumbel_at(p.keys, part.start, part.stop - part.start, p.compute_dtype)


class _Moved(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, Tensor]:
        p, stats, index, kind = _problem(arguments)
        tau = stats[0].unsqueeze(-1)
        top = torch.full_like(tau, -math.inf)
        total = torch.zeros_like(tau)
        mixture = torch.zeros_like(p.query, dtype=p.compute_dtype)
        for part in _blocks(p):
            a = _moved(p, kind, stats, index, part) / tau
            high = torch.maximum(top, a.amax(-1, keepdim=True))
            finite = high.masked_fill(high == -math.inf, 0.0)
            shrink, w = (top - finite).exp(), (a - finite).exp()
            total = total * shrink + w.sum(-1, keepdim=True)
            mixture = mixture * shrink + w @ p.codebook[:, part].to(p.compute_dtype)
            top = high
        some = total.masked_fill(total == 0, 1.0)
        lse = (top + some.log()).squeeze(-1)
        return (mixture / some).to(p.query.dtype), lse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        mixture, lse = output
        ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(*inputs[:7], mixture, lse)
        ctx.options = inputs[7:]

    @staticmethod
    def backward(ctx: Any, v: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        *tensors, mixture, lse = ctx.saved_tensors
        p, stats, index, kind = _problem((*tensors, *ctx.options))
        tau, dtype = stats[0].unsqueeze(-1), p.compute_dtype
        v = v.to(dtype)
        inner = (v * mixture.to(dtype)).sum(-1, keepdim=True)
        low = lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1)
        d_query, of_codes = torch.zeros_like(v), []
        for part in _blocks(p):
            codes = p.codebook[:, part].to(dtype)
            w = (_moved(p, kind, stats, index, part) / tau - low).exp()
            delta = w * (v @ codes.mT - inner) / tau
            d_query = d_query + delta @ codes
            of_codes.append(delta.mT @ p.query.to(dtype))
        d_codebook = torch.cat(of_codes, 1).to(p.codebook.dtype)
        return d_query.to(p.query.dtype), d_codebook, *[None] * 7


def _problem(arguments: tuple[Any, ...]) -> tuple[Problem, Tensor, Tensor, Kind]:
    query, codebook, stats, index, keys, noise, mask, noisy, kind = arguments
    p = Problem(query, codebook, stats[0], stats[1], keys, noise, mask, None, None, noisy)
    return p, stats, index, kind


def critical_steps(p: Problem, index: Tensor, top: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`dcgraph.estimators._imle.critical_steps` of the gradient <v, C> of the logits.

    Also the largest entry of that gradient.
    """
    own = (v * p.codes(index.clamp(min=0)).to(p.compute_dtype)).sum(-1, keepdim=True)
    least = torch.full_like(top, math.inf)
    largest = torch.zeros_like(top).amax()
    for part in _blocks(p):
        codes = p.codebook[:, part].to(p.compute_dtype)
        a = p.query.to(p.compute_dtype) @ codes.mT
        noise = _noise(p, part)
        a = a if noise is None else a + p.beta.unsqueeze(-1) * noise
        a = a if p.mask is None else a.masked_fill(~p.mask[..., part], -math.inf)
        g = v @ codes.mT
        speed = (g - own).abs()
        lead = top.unsqueeze(-1) - a
        steps = torch.where(speed > 0, lead / speed.clamp(min=1e-30), math.inf)
        columns = torch.arange(part.start, part.stop, device=a.device)
        steps = steps.masked_fill(columns == index.unsqueeze(-1), math.inf)
        least = torch.minimum(least, steps.amin(-1))
        largest = torch.maximum(largest, g.abs().amax())
    return least, largest
