"""DropRes, the residual connection that is dropped more and more often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ._arguments import Gate, Mode, check_choice
from ._checks import Dial, check_dial, check_one_per_row
from ._dialled import Dialled
from .noise import draw_uniform

__all__ = ["DropRes", "Gate", "Mode", "drop_residual"]


def drop_residual(
    value: Float[Tensor, "*shape"],
    residual: Float[Tensor, "*shape"],
    alpha: Dial,
    *,
    gate: Gate = "call",
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*shape"]:
    r"""DropRes: the residual is added with probability 1 - alpha, else dropped.

    :math:`v = h(z) + b u` with :math:`b \sim` Bernoulli(1 - alpha), so that in expectation
    :math:`\partial v / \partial u` keeps (1 - alpha) I beside what passes through the choice.

    Args:
        value: h(z), the output of the discrete step, [..., width].
        residual: u, what bypasses it.
        alpha: share of dropped residuals in [0, 1], a number or a tensor with one value per vector.
        gate: what shares one draw b: the whole "call" (as the authors' code), one "example" (the
            first dimension), one "vector" (all but the last), or one "element".
        generator: where to draw from; None is torch's global generator.

    >>> import torch, dcgraph as dc
    >>> value, residual = torch.zeros(2), torch.ones(2)
    >>> dc.drop_residual(value, residual, alpha=0.0), dc.drop_residual(value, residual, alpha=1.0)
    (tensor([1., 1.]), tensor([0., 0.]))
    """
    check_dial("alpha", alpha)
    check_choice("gate", gate, get_args(Gate))
    check_residual(value, residual)
    check_one_per_row("alpha", alpha, "an output", value, -1)
    if isinstance(alpha, int | float) and alpha in (0, 1):
        return value + residual if alpha == 0 else value
    kept = draw_gate(value.shape, alpha, gate, generator, value.device)
    return value + torch.where(kept, residual, 0.0)


def draw_gate(
    shape: Sequence[int],
    alpha: Dial,
    gate: Gate,
    generator: torch.Generator | None,
    device: torch.device,
) -> Bool[Tensor, "..."]:
    """b, True where the residual is kept, of size 1 along each dimension that shares a draw."""
    own = {"call": 0, "example": min(1, len(shape) - 1), "vector": len(shape) - 1}
    drawn = own.get(gate, len(shape))
    draws = draw_uniform((*shape[:drawn], *(1,) * (len(shape) - drawn)), generator, device)
    return draws >= alpha


def check_residual(value: Tensor, residual: Tensor) -> None:
    if residual.shape != value.shape:
        raise ValueError(
            f"the residual has shape {tuple(residual.shape)}, but the output of the discrete step "
            f"{tuple(value.shape)}; pass residual= of the output's shape, or use none "
            '(residual="none" of a Discrete node).'
        )
    if value.ndim == 0:
        raise ValueError("the output of the discrete step is a single number; pass vectors.")


class DropRes(Dialled):
    r"""The residual connection around a discrete step; gone in eval mode, whatever the mode.

    Args:
        mode: "drop" adds the residual u with probability 1 - alpha (the paper's DropRes). The other
            two are there for comparison: "always", v = h + u, and "weighted",
            v = (1 - alpha) u + alpha h.
        gate: what shares one draw of "drop", see :func:`dcgraph.drop_residual`.
    """

    dial_names = ("alpha",)
    alpha: Tensor

    def __init__(self, mode: Mode = "drop", gate: Gate = "call") -> None:
        super().__init__()
        check_choice("mode", mode, get_args(Mode))
        check_choice("gate", gate, get_args(Gate))
        self.mode = mode
        self.gate: Gate = gate

    def forward(
        self,
        value: Float[Tensor, "*shape"],
        residual: Float[Tensor, "*shape"],
        *,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*shape"]:
        if not self.training:
            return value
        if self.mode == "drop":
            return drop_residual(value, residual, self.alpha, gate=self.gate, generator=generator)
        check_residual(value, residual)
        if self.mode == "always":
            return value + residual
        return (1 - self.alpha) * residual + self.alpha * value

    def extra_repr(self) -> str:
        return f"mode={self.mode!r}, gate={self.gate!r}"
