"""The definition: logits, noise and softmax as whole matrices, and torch's own gradients."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._philox import draw_gumbel_at
from ..functional import one_hot, straight_through
from ._problem import Problem


def scan(p: Problem, *, mixes: bool, chooses: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As :func:`dcgraph.codebook._operators.scan`."""
    codebook = _codebook(p)
    a = _perturbed(p, codebook)
    top, index = a.max(-1)
    empty = top == -math.inf
    index = index.masked_fill(empty, -1) if p.index is None else p.index
    if not mixes:
        lse = a.logsumexp(-1)
        if p.target is not None:
            lse = lse - a.gather(-1, p.target.unsqueeze(-1)).squeeze(-1)
        return a.new_empty(0), lse, index, top
    none = empty.unsqueeze(-1)
    z = a.masked_fill(none, 0.0).softmax(-1).masked_fill(none, 0.0)
    if chooses or p.index is not None:
        z = straight_through(one_hot(index, z.shape[-1], z.dtype), z)
    return z.to(codebook.dtype) @ codebook, a.logsumexp(-1), index, top


def _codebook(p: Problem) -> Tensor:
    codebook = p.codebook.to(p.query.dtype)
    if not p.dropout:
        return codebook
    every = torch.arange(codebook.shape[1], device=codebook.device)
    return codebook * p.kept(every.expand(len(codebook), -1)).to(codebook.dtype)


def _perturbed(p: Problem, codebook: Tensor) -> Tensor:
    """a = (S + beta G) / tau."""
    a = (p.query @ codebook.mT).to(p.island)
    if p.noisy:
        noise = p.noise
        if noise is None:
            noise = draw_gumbel_at(p.keys, 0, codebook.shape[1], p.island)
        a = a + p.beta.unsqueeze(-1) * noise
    a = a / p.tau.unsqueeze(-1)
    return a if p.mask is None else a.masked_fill(~p.mask, -math.inf)
