"""DropRes, the residual connection that is dropped more and more often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ._arguments import Gate, Mode, check_choice
from ._checks import Dial, check_dial, check_one_per_row, check_padding, may_read, read
from ._dialled import Dialled
from .noise import draw_uniform

__all__ = ["DropRes", "Gate", "Mode", "drop_residual"]


def drop_residual(
    value: Float[Tensor, "*shape"],
    residual: Float[Tensor, "*shape"],
    alpha: Dial,
    *,
    mode: Mode = "drop",
    gate: Gate = "call",
    rows: Bool[Tensor, "..."] | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*shape"]:
    r"""DropRes: the residual takes part with probability 1 - alpha, else it is dropped.

    With h the value, u the residual and :math:`b \sim` Bernoulli(1 - alpha):

    ============ ============================ ==========================================
    mode         v                            expected Jacobian :math:`\partial v / \partial u`
    ============ ============================ ==========================================
    "drop"       :math:`h + b u`              :math:`J_h + (1 - \alpha) I`
    "replace"    :math:`b u + (1 - b) h`      :math:`\alpha J_h + (1 - \alpha) I`
    "weighted"   :math:`(1-\alpha)u+\alpha h`  :math:`\alpha J_h + (1 - \alpha) I`, for sure
    "always"     :math:`h + u`                :math:`J_h + I`, for sure
    ============ ============================ ==========================================

    "drop" is the paper's. "replace" and "weighted" never leave the range of u and h, which gates
    and probabilities need; "replace" is also never between the two. "always" is for comparison.

    Args:
        value: h, the output of the discrete step, [..., width].
        residual: u, what bypasses it.
        alpha: share of dropped residuals in [0, 1], a number or a tensor with one value per vector.
        mode: how the two are combined.
        gate: what shares one draw b: the whole "call" (as the authors' code), one "example" (the
            first dimension), one "vector" (all but the last), or one "element", each unit of each
            vector.
        rows: False for vectors that are padding, [...]: they draw nothing and keep their value.
        generator: where to draw from; None is torch's global generator.

    >>> import torch, dcgraph as dc
    >>> value, residual = torch.zeros(2), torch.ones(2)
    >>> dc.drop_residual(value, residual, alpha=0.0), dc.drop_residual(value, residual, alpha=1.0)
    (tensor([1., 1.]), tensor([0., 0.]))
    """
    check_dial("alpha", alpha)
    check_choice("mode", mode, get_args(Mode))
    check_choice("gate", gate, get_args(Gate))
    check_residual(value, residual)
    check_one_per_row("alpha", alpha, "an output", value, -1)
    if rows is not None:
        check_padding(rows, value.shape[:-1])
    if mode in ("weighted", "always"):
        mixed = value + residual if mode == "always" else (1 - alpha) * residual + alpha * value
        return mixed if rows is None else torch.where(rows.unsqueeze(-1), mixed, value)
    kept: Tensor | bool
    if rows is None and isinstance(alpha, int | float) and alpha in (0, 1):
        kept = alpha == 0
    elif rows is None and isinstance(alpha, int | float) and gate == "call":
        draw = draw_uniform((1,) * value.ndim, generator, value.device)
        number = read(draw)
        kept = draw >= alpha if number is None else number >= alpha
    else:
        kept = draw_gate(value.shape, alpha, gate, generator, value.device, rows)
    if isinstance(kept, bool):
        if not kept:
            return value
        return value + residual if mode == "drop" else residual
    if mode == "drop":
        return value + torch.where(kept, residual, 0.0)
    return torch.where(kept, residual, value)


def draw_gate(
    shape: Sequence[int],
    alpha: Dial,
    gate: Gate,
    generator: torch.Generator | None,
    device: torch.device,
    rows: Bool[Tensor, "..."] | None = None,
) -> Bool[Tensor, "..."]:
    """b, True where the residual is kept, of size 1 along each dimension that shares a draw.

    Where ``rows`` are given, nothing is drawn for, and kept in, what they leave out; in a call
    whose values cannot be read all is drawn.
    """
    own = {"call": 0, "example": min(1, len(shape) - 1), "vector": len(shape) - 1}
    drawn = own.get(gate, len(shape))
    sizes = *shape[:drawn], *(1,) * (len(shape) - drawn)
    if rows is None:
        return draw_uniform(sizes, generator, device) >= alpha
    valid = rows.unsqueeze(-1)
    used = valid.expand(*shape)
    if drawn < len(shape):
        used = used.flatten(drawn).any(-1)
    count = read(used.sum()) if may_read(used) else None
    if count is None:
        return (draw_uniform(sizes, generator, device) >= alpha) & valid
    draws = torch.full(sizes, -1.0, device=device)  # below any alpha
    draws.view(used.shape)[used] = draw_uniform((int(count),), generator, device)
    return (draws >= alpha) & valid


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

    It goes around anything whose input and output have one shape: ``y = dropres(layer(x), x)``.

    Args:
        mode: "drop" adds the residual with probability 1 - alpha (the paper's DropRes), "replace"
            lets it through instead of the output, "weighted" fades it, and "always" adds it. See
            :func:`dcgraph.drop_residual`.
        gate: what shares one draw of "drop" and "replace", see there.

    >>> import torch, dcgraph as dc
    >>> dropres = dc.DropRes("replace", gate="element")
    >>> dials = dc.Dials.constant(dropres, alpha=0.0)  # at the start of training
    >>> dropres(torch.zeros(3), torch.ones(3)), dropres.eval()(torch.zeros(3), torch.ones(3))
    (tensor([1., 1., 1.]), tensor([0., 0., 0.]))
    """

    dial_names = ("alpha",)
    alpha: Tensor

    def __init__(self, mode: Mode = "drop", gate: Gate = "call") -> None:
        super().__init__()
        check_choice("mode", mode, get_args(Mode))
        check_choice("gate", gate, get_args(Gate))
        self.mode: Mode = mode
        self.gate: Gate = gate

    def forward(
        self,
        value: Float[Tensor, "*shape"],
        residual: Float[Tensor, "*shape"],
        *,
        rows: Bool[Tensor, "..."] | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*shape"]:
        if not self.training:
            return value
        self.note_training()
        return self.combine(value, residual, rows, generator)

    if TYPE_CHECKING:
        __call__ = forward

    def combine(
        self,
        value: Tensor,
        residual: Tensor,
        rows: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """What comes out in training mode."""
        return drop_residual(
            value,
            residual,
            self.dial("alpha"),
            mode=self.mode,
            gate=self.gate,
            rows=rows,
            generator=generator,
        )

    def extra_repr(self) -> str:
        return f"mode={self.mode!r}, gate={self.gate!r}"
