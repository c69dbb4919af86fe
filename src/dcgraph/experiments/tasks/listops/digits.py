"""The node that makes a state a digit, as one kernel where there is one."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .... import kernels
from ...._observe import is_observed
from ....nodes import Discrete
from ....residual import draw_gate

DIGITS = 10


def classifier(dim: int) -> nn.Sequential:
    """Pred of the paper: logits of the ten digits from a state."""
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, DIGITS, bias=False))


def as_digits(
    node: Discrete, x: Float[Tensor, "batch length dim"], codebook: Float[Tensor, "10 dim"]
) -> Float[Tensor, "batch length dim"]:
    """``node(x, codebook=codebook)`` for a node with a :func:`classifier`, of the same law."""
    if not _has_kernel(node, x):
        v: Tensor = node(x, codebook=codebook)
        return v
    from .kernels.discrete import discrete

    first, _, last = node.g  # type: ignore[misc]
    given = x.flatten(0, 1), first.weight, first.bias, last.weight, codebook, node.tau, node.beta
    of_choice, of_residual = (share.expand(x.shape[:2]).flatten() for share in _shares(node, x))
    inputs = (value.unsqueeze(0) for value in (*given, of_choice, of_residual))
    return discrete(*inputs).view(x.shape)


def _shares(node: Discrete, x: Tensor) -> tuple[Tensor, Tensor]:
    """How much of the choice and of the residual a state gets."""
    dropres, one = node.dropres, x.new_ones(1, 1)
    if dropres is None:
        return one, x.new_zeros(1, 1)
    if dropres.mode == "always":
        return one, one
    if dropres.mode == "weighted":
        return dropres.alpha * one, (1 - dropres.alpha) * one
    gate = draw_gate(x.shape, dropres.alpha, dropres.gate, None, x.device)
    return one, gate.squeeze(-1).to(x.dtype)


def _has_kernel(node: Discrete, x: Tensor) -> bool:
    usual = node.categorical.estimator == "gumbel_softmax" and node.categorical.noise == "gumbel"
    on_gpu = x.is_cuda and x.dtype == torch.float32
    if not (on_gpu and usual and node.training and kernels.available()) or is_observed():
        return False
    from .kernels.discrete import fits

    return fits(node.dim, node.categories)
