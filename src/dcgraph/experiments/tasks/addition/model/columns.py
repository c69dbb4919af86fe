"""Two numbers of several digits, added column by column with a carry that is learned, too."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .....nodes import Discrete, Residual, Similarity
from .adder import mlp


class ColumnAdder(nn.Module):
    """(symbol, symbol, carry) -> (digit of the result, next carry), from the last column to the
    first.

    An image becomes a symbol. A cell, the same for all columns, takes the symbols of a column and
    the carry, which is a discrete node too. What a symbol stands for, what the carry means, and how
    the cell adds is learned from the digits of the sums only. The first carry is a learned vector;
    a layer reads the leading digit of the result from the last one.

    Args:
        encoder: from images [N, h, w] to vectors [N, dim].
        dim: width of the vectors.
        symbols: rows of the codebook of the images.
        carries: rows of the codebook of the carry.
        init_std, similarity, residual, estimator, prunable: of both nodes, see :class:`Discrete`.
    """

    def __init__(
        self,
        encoder: nn.Module,
        dim: int,
        symbols: int,
        carries: int,
        *,
        init_std: float = 1.0,
        similarity: Similarity = "product",
        residual: Residual = "drop",
        estimator: str = "gumbel_softmax",
        prunable: bool = False,
    ) -> None:
        super().__init__()
        self.encode = encoder
        self.symbol, self.carry = (
            Discrete(
                dim, rows, gate="vector", init_std=init_std, similarity=similarity,
                residual=residual, estimator=estimator, prunable=prunable,
            )
            for rows in (symbols, carries)
        )  # fmt: skip
        self.start = nn.Parameter(init_std * torch.randn(dim))
        self.cell = nn.Sequential(mlp(3 * dim, 2 * dim, 2 * dim), nn.ReLU())
        self.digit = nn.Linear(2 * dim, 10)
        self.next = nn.Linear(2 * dim, dim)
        self.leading = nn.Linear(dim, 10)

    def forward(
        self, images: Float[Tensor, "batch images h w"]
    ) -> Float[Tensor, "batch digits 10"]:
        """Logits of the digits of the sum, the last digit first.

        The images are those of the first number and then of the second, the last digit first.
        """
        vectors = self.encode(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        left, right = self.symbol(vectors).chunk(2, 1)
        carry = self.start.expand(len(images), -1)
        digits = []
        for column in range(left.shape[1]):
            digit, following = self.add(left[:, column], right[:, column], carry)
            carry = self.carry(following)
            digits.append(digit)
        return torch.stack([*digits, self.leading(carry)], 1)

    def add(
        self,
        left: Float[Tensor, "n dim"],
        right: Float[Tensor, "n dim"],
        carry: Float[Tensor, "n dim"],
    ) -> tuple[Float[Tensor, "n 10"], Float[Tensor, "n dim"]]:
        """One column: logits of its digit, and the vector that the next carry is chosen by."""
        state = self.cell(torch.cat([left, right, carry], -1))
        return self.digit(state), self.next(state)

    def read(self, images: Float[Tensor, "n h w"]) -> Int[Tensor, " n"]:
        """The symbol of each image."""
        symbols: Tensor = self.symbol.logits(self.encode(images)).argmax(-1)
        return symbols

    @torch.no_grad()
    def table(self) -> CellTable:
        """What the cell does with all its inputs; the network by argmax does nothing else."""
        symbols, carries = self.symbol.codebook, torch.cat([self.carry.codebook, self.start[None]])
        n, states = len(symbols), len(carries)
        every = torch.cartesian_prod(torch.arange(states), torch.arange(n), torch.arange(n))
        carry, left, right = every.to(symbols.device).unbind(-1)
        digit, following = self.add(symbols[left], symbols[right], carries[carry])
        chosen = self.carry.logits(following).argmax(-1)
        shape = states, n, n
        return CellTable(
            digit.argmax(-1).view(shape),
            chosen.view(shape),
            self.leading(carries).argmax(-1),
        )


@dataclass(frozen=True)
class CellTable:
    """A column adder as integers. The last carry of each is the one to start with."""

    digit: Int[Tensor, "carries symbols symbols"]
    next: Int[Tensor, "carries symbols symbols"]
    leading: Int[Tensor, " carries"]

    @property
    def start(self) -> int:
        return len(self.leading) - 1

    def add(
        self, left: Int[Tensor, "n digits"], right: Int[Tensor, "n digits"]
    ) -> tuple[Int[Tensor, "n digits+1"], Int[Tensor, "n digits"]]:
        """The digits of the sums of numbers in symbols, the last digit first; and the carries."""
        carry = torch.full_like(left[:, 0], self.start)
        digits, carries = [], []
        for a, b in zip(left.unbind(1), right.unbind(1), strict=True):
            digits.append(self.digit[carry, a, b])
            carry = self.next[carry, a, b]
            carries.append(carry)
        return torch.stack([*digits, self.leading[carry]], 1), torch.stack(carries, 1)

    def wrong_entries(self, meaning: Int[Tensor, " symbols"]) -> tuple[int, int]:
        """How many entries that can be reached are wrong, and how many there are.

        Symbols in use are those with a meaning of 0 or more, the digit that they stand for. Numbers
        without an end are followed from the first column on: a carry is reached together with the
        true carry, 0 or 1, and an entry is wrong where its digit is, or, in the last column, the
        leading digit. One carry that is reached with 0 and with 1 cannot be right with both.
        """
        left, right, both = self._columns(meaning)
        wrong, reached = 0, self.reached(meaning)
        for carry, true in reached:
            total, following = both + true, self.next[carry, left, right]
            wrong_digit = self.digit[carry, left, right] != total % 10
            wrong_leading = self.leading[following] != total // 10
            wrong += int((wrong_digit | wrong_leading).sum())
        return wrong, len(reached) * len(both)

    def reached(self, meaning: Int[Tensor, " symbols"]) -> set[tuple[int, int]]:
        """Carries and the true carries with which they are reached, from the first column on."""
        left, right, both = self._columns(meaning)
        seen, new = set[tuple[int, int]](), {(self.start, 0)}
        while new:
            seen |= new
            found = set[tuple[int, int]]()
            for carry, true in new:
                pairs = torch.stack([self.next[carry, left, right], (both + true) // 10], 1)
                found |= {(a, b) for a, b in pairs.unique(dim=0).tolist()}
            new = found - seen
        return seen

    def _columns(self, meaning: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All pairs of symbols in use, and their sums."""
        used = (meaning >= 0).nonzero().flatten()
        left, right = torch.cartesian_prod(used, used).unbind(-1)
        return left, right, meaning[left] + meaning[right]
