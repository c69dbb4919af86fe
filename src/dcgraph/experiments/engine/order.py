"""The order of examples and of tables in an epoch: only a matter of seeds."""

from __future__ import annotations

from collections.abc import Sequence

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
