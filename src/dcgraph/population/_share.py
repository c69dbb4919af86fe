"""Which replicas of a population a rank trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

if dist.is_available():
    # Imported later, such as by torch.func, its default arguments would hold the ranks of then for
    # ever, and a process that ends with some of their threads left is aborted.
    import torch.distributed.nn

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """The part of one rank: its own replicas, and those it trains.

    They are the same, except where a rank has fewer than two: then it trains neighbours as well,
    and nobody asks for those. A single replica is computed by other operations than several are,
    whose results differ in the last bit; and a population has at least one.
    """

    total: int
    rank: int = 0
    world: int = 1

    @property
    def own(self) -> range:
        """By even division, in the order of the ranks."""
        first = self.total * self.rank // self.world
        return range(first, self.total * (self.rank + 1) // self.world)

    @property
    def trained(self) -> range:
        own, least = self.own, min(2, self.total)
        if len(own) >= least:
            return own
        first = min(own.start, self.total - least)
        return range(first, first + least)

    def of(self, all_of_them: Sequence[T]) -> list[T]:
        """What a rank trains, of a list with an entry for every replica."""
        return [all_of_them[index] for index in self.trained]

    @property
    def kept(self) -> slice:
        """Where its own are among those it trains."""
        first = self.own.start - self.trained.start
        return slice(first, first + len(self.own))


def gathered(value: Tensor, share: Share, group: dist.ProcessGroup | None) -> Tensor:
    """A value [R, ...] of all replicas, in their order, on every rank and its device."""
    if share.world == 1:
        return value
    parts: list[Tensor] = [value] * share.world
    dist.all_gather_object(parts, value.detach()[share.kept].cpu(), group)
    return torch.cat(parts).to(value.device)
