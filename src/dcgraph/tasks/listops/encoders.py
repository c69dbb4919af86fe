"""Encoders: from tokens to a score for every pair of a token and its possible parent."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...dialled import Dialled
from ...functional import one_hot
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

    The score is log p_ij. (A bracket's depth is such a counter, +1 for an operator and -1 for ],
    and the parent is the nearest operator one level up; but this has to be found.)

    Args:
        counters: how many.
        whole: whether a token moves a counter by a whole number, see :class:`Rounding`. Such
            counters do not drift, however long the input.
        spread: of the initial moves.
    """

    def __init__(self, counters: int = 4, *, whole: bool = False, spread: float = 0.3) -> None:
        super().__init__()
        self.rounding = Rounding() if whole else None
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
        if self.rounding is None:
            return self.moves
        moves: Tensor = self.rounding(self.moves)
        return moves


class Rounding(Dialled):
    """To whole numbers in eval mode; in training mode by and by, while alpha goes from 1/2 to 1.

    The gradient is that of the number itself.
    """

    dial_names = ("alpha",)
    alpha: Tensor

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        share = (2 * self.alpha - 1).clamp(min=0) if self.training else 1.0
        return x + share * (x.round() - x).detach()


def nearest(match: Float[Tensor, "batch length length"]) -> Float[Tensor, "batch length length"]:
    r"""log p_ij that j is the nearest match before i, from logits of single matches.

    >>> nearest(torch.tensor([[[0.0, 0, 0], [50, 0, 0], [50, -50, 0]]]))[0].exp().tril(-1).round()
    tensor([[0., 0., 0.],
            [1., 0., 0.],
            [1., 0., 0.]])
    """
    length = match.shape[-1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=match.device).tril(-1)
    refused = F.logsigmoid(-match).masked_fill(~earlier, 0.0)
    between = refused.sum(-1, keepdim=True) - refused.cumsum(-1)
    return F.logsigmoid(match) + between
