"""An LSTM written out, so that it maps over replicas, which torch's own does not."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..... import kernels
from .....functional import one_hot


class TokenLSTM(nn.Module):
    """LSTMs that read the same tokens, one direction, one layer: states [..., lstms, tokens, dim].

    The input of a step is one of a few tokens, so what it adds to the gates is a small table, made
    once and looked up.
    """

    def __init__(self, tokens: int, dim: int, lstms: int = 1) -> None:
        super().__init__()
        bound = 1 / math.sqrt(dim)  # as torch.nn.LSTM
        self.embedding = nn.Parameter(torch.randn(tokens, dim))
        self.input = nn.Parameter(torch.empty(lstms, 4 * dim, dim).uniform_(-bound, bound))
        self.recurrent = nn.Parameter(torch.empty(lstms, 4 * dim, dim).uniform_(-bound, bound))
        # torch has two such biases, which act as their sum (and learn twice as fast).
        bias = torch.empty(2, lstms, 4 * dim).uniform_(-bound, bound).sum(0)
        self.bias = nn.Parameter(bias)

    def forward(
        self, tokens: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "lstms batch length dim"]:
        table = self.embedding @ self.input.mT + self.bias.unsqueeze(1)  # [lstms, tokens, 4 dim]
        gates = one_hot(tokens.T, table.shape[1]).unsqueeze(1) @ table
        return lstm(gates, self.recurrent).movedim(0, 2)


def lstm(
    gates: Float[Tensor, "length lstms batch four_dim"],
    recurrent: Float[Tensor, "lstms four_dim dim"],
) -> Float[Tensor, "length lstms batch dim"]:
    """:func:`lstm_by_steps`, as one kernel where there is one."""
    if _has_kernel(gates, recurrent):
        from ..kernels.lstm import lstm_states  # it needs Triton, which not every torch has

        return lstm_states(gates, recurrent)
    return lstm_by_steps(gates, recurrent)


def lstm_by_steps(
    gates: Float[Tensor, "length lstms batch four_dim"],
    recurrent: Float[Tensor, "lstms four_dim dim"],
) -> Float[Tensor, "length lstms batch dim"]:
    r"""States of LSTMs, given what the inputs add to their gates i, f, g, o:

    .. math::
        c_t = \sigma(f) c_{t-1} + \sigma(i) \tanh(g), \qquad h_t = \sigma(o) \tanh(c_t)
    """
    weights = recurrent.mT
    states = []
    hidden: Tensor | None = None
    cell: Tensor | None = None
    for added in gates.unbind(0):
        total = added if hidden is None else added + hidden @ weights
        i, f, g, o = total.chunk(4, -1)
        new = i.sigmoid() * g.tanh()
        cell = new if cell is None else f.sigmoid() * cell + new
        hidden = o.sigmoid() * cell.tanh()
        states.append(hidden)
    return torch.stack(states)


def _has_kernel(gates: Tensor, recurrent: Tensor) -> bool:
    return (
        gates.is_cuda
        and gates.dtype == recurrent.dtype == torch.float32
        and _kernel_fits(recurrent.shape[-1], gates.device)
    )


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _kernel_fits(dim: int, device: torch.device) -> bool:
    if not kernels.available():
        return False
    from ..kernels.lstm import fits  # it needs Triton

    return fits(dim, device)
