"""The two models the paper compares with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from .model.adder import LeNet


class Concatenated(nn.Module):
    """A network that sees the images side by side as one and answers with the sum."""

    def __init__(self, summands: int, numbers: int) -> None:
        super().__init__()
        columns = ((28 * summands - 4) // 2 - 4) // 2
        self.network = LeNet(16 * 4 * columns, 120, 84, numbers)

    def forward(
        self, images: Float[Tensor, "batch summands h w"]
    ) -> Float[Tensor, "batch numbers"]:
        side_by_side = torch.cat(images.unbind(1), -1)
        logits: Tensor = self.network(side_by_side)
        return logits


class Marginalised(nn.Module):
    r"""DeepProbLog for addition, as what it computes: the exact probability of every sum.

    The program ``add(X,Y,Z) :- digit(X,X2), digit(Y,Y2), Z is X2+Y2`` with a neural predicate for
    the digits has :math:`p(s) = \sum_{i+j=s} p_1(i)\,p_2(j)`. The rule of addition is given, the
    digits are learned.
    """

    def __init__(self, digit: nn.Module, digits: int = 10) -> None:
        super().__init__()
        self.digit = digit
        self.digits = digits

    def forward(
        self, images: Float[Tensor, "batch summands h w"]
    ) -> Float[Tensor, "batch numbers"]:
        stacked = images.transpose(0, 1)
        log_digits = F.log_softmax(self.digit(stacked.flatten(0, 1)), -1)
        total, *others = log_digits.unflatten(0, stacked.shape[:2])
        for other in others:
            total = log_prob_of_sum(total, other)
        result: Tensor = total
        return result

    def read(self, images: Float[Tensor, "n h w"]) -> Int[Tensor, " n"]:
        """The most probable digit of each image."""
        digits: Tensor = self.digit(images).argmax(-1)
        return digits


def log_prob_of_sum(
    left: Float[Tensor, "batch m"], right: Float[Tensor, "batch n"]
) -> Float[Tensor, "batch m+n-1"]:
    """log p(i + j) of two independent numbers i, j with the given log-probabilities.

    >>> import torch
    >>> coin = torch.tensor([[0.5, 0.5]]).log()
    >>> log_prob_of_sum(coin, coin).exp()
    tensor([[0.2500, 0.5000, 0.2500]])
    """
    m, n = left.shape[-1], right.shape[-1]
    totals = torch.arange(m + n - 1, device=left.device).unsqueeze(-1)
    i = totals - torch.arange(n, device=left.device)  # the left number, for each total and j
    possible = (i >= 0) & (i < m)
    terms = left[..., i.clamp(0, m - 1)] + right.unsqueeze(-2)
    return terms.masked_fill(~possible, -torch.inf).logsumexp(-1)
