"""Encoders: from tokens to a score for every pair of a token and its possible parent."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ....functional import one_hot
from .expressions import TOKENS
from .recurrent import TokenLSTM


class TwoLSTMs(nn.Module):
    """The paper's encoder: score_ij = q_i k_j, where q and k are the states of two LSTMs."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.lstms = TokenLSTM(len(TOKENS), dim, lstms=2)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length length"]:
        q, k = self.lstms(tokens)
        scores: Tensor = q @ k.mT
        return scores


class Counters(nn.Module):
    r"""Counters in place of a memory: they carry to inputs of any length.

    Every token moves each counter by a learned amount; c_i is what the tokens before i add up to.
    A token j matches as a parent of i, the better the closer their counters are to a learned
    distance:

    .. math::
        m_{ij} = b_{t_i t_j} - \sum_k w_k (c_{ik} - c_{jk} - d_k)^2

    The parent is the *nearest* match: going back from i, the first token that is accepted, each
    with probability :math:`\sigma(m_{ij})`:

    .. math::
        p_{ij} = \sigma(m_{ij}) \prod_{j < l < i} (1 - \sigma(m_{il}))

    The score is log p_ij. The first token is accepted by all that come to it, so the p_ij of a
    token add up to 1: else all matches could become improbable and compete as scores do, and then
    the nearest one need not win. (A bracket's depth is such a counter, +1 for an operator and -1
    for ], and the parent is the nearest operator one level up; but this has to be found.)

    In eval mode every token moves a counter by -g, 0 or g, see :func:`ternary`.

    Args:
        counters: how many.
        spread: of the initial moves.
    """

    def __init__(self, counters: int = 4, *, spread: float = 0.3) -> None:
        super().__init__()
        self.moves = nn.Parameter(spread * torch.randn(len(TOKENS), counters))
        self.distance = nn.Parameter(torch.zeros(counters))
        self.sharpness = nn.Parameter(torch.zeros(counters))
        self.bias = nn.Parameter(torch.zeros(len(TOKENS), len(TOKENS)))

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length length"]:
        token = one_hot(tokens, len(TOKENS))
        moves = token @ self.table()
        before = moves.cumsum(1) - moves
        apart = before.unsqueeze(2) - before.unsqueeze(1) - self.distance
        match = token @ self.bias @ token.mT - apart.square() @ F.softplus(self.sharpness)
        return nearest(match)

    def table(self) -> Float[Tensor, "tokens counters"]:
        """By how much each token moves each counter."""
        return self.moves if self.training else ternary(self.moves)


def ternary(x: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """Each column as -g, 0 and g: what is more than half of its largest, by the mean size of these.

    A counter that moves so returns to where it was, however long the input.

    >>> ternary(torch.tensor([[-1.1], [0.9], [0.1]]))
    tensor([[-1.],
            [ 1.],
            [ 0.]])
    """
    size = x.abs()
    large = size > 0.5 * size.amax(0)
    g = (size * large).sum(0) / large.sum(0).clamp(min=1)
    return x.sign() * large * g


def nearest(
    match: Float[Tensor, "batch length length"],
) -> Float[Tensor, "batch length length"]:
    r"""log p_ij that j is the nearest match before i, from logits of single matches.

    The first token matches where no other one does.

    >>> nearest(torch.tensor([[[0.0, 0, 0], [-50, 0, 0], [50, 50, 0]]]))[0].exp().tril(-1).round()
    tensor([[0., 0., 0.],
            [1., 0., 0.],
            [0., 1., 0.]])
    """
    length = match.shape[-1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=match.device).tril(-1)
    refused = F.logsigmoid(-match).masked_fill(~earlier, 0.0)
    between = refused.sum(-1, keepdim=True) - refused.cumsum(-1)
    first = torch.arange(length, device=match.device) == 0
    return F.logsigmoid(match).masked_fill(first, 0.0) + between
