"""Rows of different lengths in one tensor, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Int, Int32, Int64
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row k is ``values[offsets[k] : offsets[k + 1]]``.

    >>> rows = ragged_of(torch.tensor([2, 0, 1]), torch.tensor([7, 8, 9]))
    >>> rows.lists()
    [[7, 8], [], [9]]
    """

    offsets: Int64[Tensor, " ends"]  # one more than there are rows
    values: Int32[Tensor, " values"]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Int64[Tensor, " rows"]:
        return self.offsets.diff()

    def take(self, rows: Int[Tensor, " some"]) -> Ragged:
        """Some of the rows, in a new order; a row may come several times.

        >>> rows = ragged_of(torch.tensor([2, 1]), torch.tensor([7, 8, 9]))
        >>> rows.take(torch.tensor([1, 0])).lists()
        [[9], [7, 8]]
        """
        return ragged_of(self.sizes_of(rows), self.values[self.positions(rows)])

    def sizes_of(self, rows: Int[Tensor, " some"]) -> Int64[Tensor, " some"]:
        """How many values some of the rows have."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def positions(self, rows: Int[Tensor, " some"]) -> Int64[Tensor, " found"]:
        """Where the values of some rows are, one row after the other."""
        sizes = self.sizes_of(rows)
        ends = sizes.cumsum(0)
        shift = (self.offsets[rows] - (ends - sizes)).repeat_interleave(sizes)
        return shift + torch.arange(len(shift), device=shift.device)

    def mask(self, rows: Int[Tensor, " some"], width: int) -> Bool[Tensor, "some {width}"]:
        """Which of the numbers below ``width`` are in each row; equal rows are made once.

        >>> Ragged(torch.tensor([0, 2]), torch.tensor([0, 2]).int()).mask(torch.tensor([0]), 3)
        tensor([[ True, False,  True]])
        """
        distinct, which = rows.unique(return_inverse=True)
        table = torch.zeros(len(distinct), width, dtype=torch.bool, device=rows.device)
        found = self.take(distinct)
        table[found.row_numbers(), found.values.long()] = True
        return table[which]

    def contain(
        self, rows: Int[Tensor, " some"], values: Int[Tensor, " some"]
    ) -> Bool[Tensor, " some"]:
        """Whether each of some rows contains the value given for it.

        >>> rows = ragged_of(torch.tensor([2, 1]), torch.tensor([7, 8, 9]))
        >>> rows.contain(torch.tensor([0, 1]), torch.tensor([8, 8]))
        tensor([ True, False])
        """
        found = self.take(rows)
        number = found.row_numbers()
        hits = torch.zeros(len(found), dtype=torch.int64, device=number.device)
        return hits.index_add_(0, number, (found.values == values[number]).long()) > 0

    def row_numbers(self) -> Int64[Tensor, " values"]:
        """The row of each value."""
        numbers = torch.arange(len(self), device=self.offsets.device)
        return numbers.repeat_interleave(self.sizes, output_size=len(self.values))

    def to(self, device: Any) -> Ragged:
        return Ragged(self.offsets.to(device), self.values.to(device))

    def lists(self) -> list[list[int]]:
        values: list[int] = self.values.tolist()
        ends = self.offsets.tolist()
        return [values[first:last] for first, last in pairwise(ends)]


def ragged_of(sizes: Int[Tensor, " rows"], values: Int[Tensor, " values"]) -> Ragged:
    """Rows of these sizes, filled with the values one after the other."""
    start = torch.zeros(1, dtype=torch.int64, device=sizes.device)
    return Ragged(torch.cat([start, sizes.cumsum(0)]), values.int())


def stacked(parts: Sequence[Ragged]) -> Ragged:
    """The rows of all parts, one part below the other."""
    sizes = torch.cat([part.sizes for part in parts])
    return ragged_of(sizes, torch.cat([part.values for part in parts]))


def portions(sizes: Int64[Tensor, " rows"], limit: int) -> Iterator[slice]:
    """Slices of rows whose sizes add up to ``limit`` at most, or that have a single row.

    >>> [(part.start, part.stop) for part in portions(torch.tensor([3, 1, 1, 9, 2]), limit=4)]
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    ends = sizes.cumsum(0).cpu()
    first, before = 0, 0
    while first < len(ends):
        stop = int(torch.searchsorted(ends, before + limit, right=True))
        stop = max(stop, first + 1)
        yield slice(first, stop)
        first, before = stop, int(ends[stop - 1])
