"""The order of examples and of tables in an epoch, which is only a matter of seeds; and when a run
is evaluated."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def one_seed(numbers: Sequence[int]) -> int:
    """One seed from several numbers; order matters."""
    mixed = len(numbers)
    for number in numbers:
        mixed = (mixed * 6364136223846793005 + number + 1442695040888963407) % 2**63
    return mixed


def order_of_epoch(size: int, seed: int, epoch: int, table: int = 0) -> Tensor:
    """The order in which a replica sees the examples of a table: a matter of seed and epoch."""
    generator = torch.Generator().manual_seed(one_seed([seed, epoch, table][: 3 if table else 2]))
    return torch.randperm(size, generator=generator)


def schedule_of_epoch(batches: Sequence[int], epoch: int) -> list[int]:
    """Which table each batch of an epoch comes from, at random.

    All replicas of all runs have the same schedule, for a population needs batches of one shape.
    """
    tables = torch.repeat_interleave(torch.arange(len(batches)), torch.tensor(batches))
    generator = torch.Generator().manual_seed(epoch)
    shuffled: list[int] = tables[torch.randperm(len(tables), generator=generator)].tolist()
    return shuffled


@dataclass(frozen=True)
class Evaluations:
    """The steps after which a run is evaluated, ascending; computed, for there may be billions.

    >>> steps = Evaluations(epochs=5, per_epoch=10, in_an_epoch=2, every=2)
    >>> [steps[k] for k in range(len(steps))], steps.after(20), 20 in steps, 25 in steps
    ([15, 20, 35, 40, 45, 50], 35, True, False)
    """

    epochs: int
    per_epoch: int  # training steps
    in_an_epoch: int
    every: int = 1  # epochs from one that has evaluations to the next; the last one has

    @property
    def _each(self) -> int:
        return min(self.in_an_epoch, self.per_epoch)

    def __len__(self) -> int:
        return -(-self.epochs // self.every) * self._each

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < len(self):
            raise IndexError(index)
        group, k = divmod(index, self._each)
        epoch = min((group + 1) * self.every, self.epochs) - 1
        return epoch * self.per_epoch + self.per_epoch * (k + 1) // self._each

    def __contains__(self, step: int) -> bool:
        before = bisect_right(self, step - 1)
        return before < len(self) and self[before] == step

    def after(self, step: int) -> int:
        """The first one after a step, which must not be the last."""
        return self[bisect_right(self, step)]
