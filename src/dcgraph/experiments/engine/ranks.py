"""Ranks: processes that train together. torchrun starts them, torch.distributed connects them.

They say to each other what is to do, what was measured and what goes into files; nothing is said
inside a training step of a population. Rank 0 reads and writes all files and speaks to the user.
"""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ..._arguments import shown
from .errors import OtherRankError, RanksError, shortened

T = TypeVar("T")

Divided = Literal["replicas", "batch", "codebook"]
"""What each rank has a part of: the replicas of a population, the examples of every batch, or the
rows of a codebook."""

PATIENCE = "DCGRAPH_RANKS_TIMEOUT"
"""Environment variable: seconds that a rank waits for another one, by default ten minutes."""
_PATIENCE = 600.0


@dataclass(frozen=True)
class Ranks:
    """This rank among the others; without torchrun there is only one, and nobody to wait for."""

    rank: int = 0
    world: int = 1
    place: int = 0  # among the ranks of this machine
    divided: Divided = "replicas"
    on_machine: int = 1  # ranks of this machine

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def group(self) -> dist.ProcessGroup | None:
        """All ranks, for torch; not held here, for it must not outlive torch's own end of it."""
        return dist.group.WORLD if self.world > 1 else None

    @property
    def of_replicas(self) -> Ranks:
        """Those that divide the replicas: where batches are divided, every rank has all of them."""
        return self if self.divided == "replicas" else ONE_RANK

    @property
    def of_batches(self) -> Ranks:
        """Those that divide the examples of a batch."""
        return self if self.divided == "batch" else ONE_RANK

    @property
    def of_codebook(self) -> Ranks:
        """Those that divide the rows of a codebook; all else is alike on all of them."""
        return self if self.divided == "codebook" else ONE_RANK

    @property
    def of_model(self) -> Ranks:
        """Those that train one model together, by either of these ways."""
        return ONE_RANK if self.divided == "replicas" else self

    def everyones(self, value: T) -> list[T]:
        """The values of all ranks, in their order, on every rank."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        with heard():
            dist.all_gather_object(values, value)
        return values

    def at_main(self, value: T) -> list[T]:
        """The values of all ranks, on rank 0; none elsewhere."""
        if self.world == 1:
            return [value]
        values: list[Any] | None = [None] * self.world if self.is_main else None
        with heard():
            dist.gather_object(value, values, 0)
        return values or []

    def largest(self, *numbers: int) -> list[int]:
        """Of each number the largest of all ranks."""
        if self.world == 1:
            return list(numbers)
        together = torch.tensor(numbers)
        with heard():
            dist.all_reduce(together, dist.ReduceOp.MAX)
        return together.tolist()

    def by_main(self, make: Callable[[], T]) -> T:
        """What rank 0 makes, on every rank; its error there, elsewhere one that is not shown."""
        if self.world == 1:
            return make()
        made: list[Any] = [None, None]
        error: Exception | None = None
        if self.is_main:
            try:
                made[0] = make()
            except Exception as raised:
                error, made[1] = raised, f"{type(raised).__name__}: {shortened(raised)}"
        with heard():
            dist.broadcast_object_list(made, 0)
        if error is not None:
            raise error
        if made[1] is not None:
            raise OtherRankError(0, made[1])
        result: T = made[0]
        return result

    def by_each(self, make: Callable[[], T]) -> T:
        """What this rank makes, once all have made theirs; rank 0 says it, if one has failed."""
        if self.world == 1:
            return make()
        made: list[T] = []
        error: Exception | None = None
        try:
            made.append(make())
        except Exception as raised:
            error = raised
        said = self.everyones(f"{type(error).__name__}: {shortened(error)}" if error else None)
        failed = {rank: text for rank, text in enumerate(said) if text is not None}
        if error is not None and self.is_main:
            raise error
        for rank, text in failed.items():
            raise RanksError(f"rank {rank}: {text}") if self.is_main else OtherRankError(rank, text)
        return made[0]

    def main_first(self, make: Callable[[], T]) -> T:
        """What every rank makes for itself; rank 0 before the others, for it may fill a cache."""
        made: list[T] = []
        self.by_main(lambda: made.append(make()))
        return self.by_each(lambda: made[0] if made else make())

    def check_alike(self, facts: Mapping[str, str]) -> None:
        """That all ranks were started with the same, such as code and data; else they end."""
        everyones = self.everyones(dict(facts))

        def compare() -> None:
            for rank, other in enumerate(everyones):
                for name, value in facts.items():
                    if other[name] != value:
                        raise RanksError(
                            f"rank {rank} has other {name} than rank 0 ({shortened(other[name])} "
                            f"and {shortened(value)}); all of them need the same."
                        )

        self.by_main(compare)


ONE_RANK = Ranks()
"""Where there are no others."""


def gpus(ranks: Ranks, device: torch.device) -> int:
    """How many the ranks have together; several may share one. All of them call it."""
    return len(set(ranks.everyones((platform.node(), device.index))))


class Summed:
    """Adds up tensors of all ranks, in place: by NCCL where every rank has a GPU of its own."""

    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        self._group: dist.ProcessGroup | None = None  # all ranks
        if device.type == "cuda" and gpus(ranks, device) == ranks.world:
            self._group = dist.new_group(backend="nccl")

    def __call__(self, values: Tensor) -> None:
        with heard():
            dist.all_reduce(values, dist.ReduceOp.SUM, self._group)


@contextmanager
def started_ranks(divided: Divided = "replicas") -> Iterator[Ranks]:
    """The ranks that torchrun has started, connected over gloo until the end; or only this one."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or dist.is_initialized() or "RANK" not in os.environ:
        yield ONE_RANK
        return
    try:
        patience = timedelta(seconds=float(os.environ.get(PATIENCE, _PATIENCE)))
    except (ValueError, OverflowError):
        asked = shown(os.environ[PATIENCE])
        raise RanksError(f"{PATIENCE}={asked} is no number of seconds.") from None
    with heard():
        dist.init_process_group("gloo", timeout=patience)
    try:
        place = int(os.environ.get("LOCAL_RANK", "0"))
        on_machine = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        yield Ranks(dist.get_rank(), world, place, divided, on_machine)
        with heard():  # who leaves first would be taken for lost
            dist.barrier()
    finally:
        gc.collect()  # a model in a cycle may hold the group
        dist.destroy_process_group()


def was_restarted() -> bool:
    """Whether torchrun starts these ranks again, after one of them has failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


@contextmanager
def heard() -> Iterator[None]:
    """A rank that is gone, or does not answer, as one line."""
    try:
        yield
    except RuntimeError as error:  # of gloo, and of the store by which ranks meet
        raise RanksError(
            f"another rank has stopped, or does not answer ({shortened(error)}); see what it said."
        ) from error


def joined(parts: Sequence[Sequence[T]]) -> list[T]:
    """Lists of the ranks, one after the other."""
    return [one for part in parts for one in part]
