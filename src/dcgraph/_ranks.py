"""Dials of several ranks: whether they all step.

A rank whose dials stand still trains with another tau, beta and alpha, and nothing else shows it.
Each rank therefore leaves the number of its training steps in the key-value store of
torch.distributed and reads that of the next one. No rank waits for another: a collective operation
would hang for ever when one rank does not call it, which is the very mistake to be found.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import torch.distributed as dist

_PATIENCE = 100
"""Training steps by which ranks may differ; those of DDP differ by one."""

_places = itertools.count()  # of the dials of this process; the ranks make theirs in one order


class Position:
    """The number of steps of the dials of this rank, for the next rank to see."""

    def __init__(self) -> None:
        self._place = next(_places)
        self._readable = True
        self._said = False

    def publish(self, steps: int) -> None:
        """Let others know."""
        store = self._store()
        if store is not None:
            self._try(lambda: store.set(self._key(dist.get_rank()), str(steps)))

    def compare(self, steps: int, every: int) -> None:
        """Say once if the dials of the next rank are elsewhere."""
        store = None if self._said else self._store()
        if store is None:
            return
        other = (dist.get_rank() + 1) % dist.get_world_size()
        key = self._key(other)
        found = self._try(lambda: store.get(key) if store.check([key]) else None)
        if found is not None and abs(int(found) - steps) > max(2 * every, _PATIENCE):
            self._said = True
            warnings.warn(
                f"the dials of rank {other} have stepped {int(found):,} times, those of rank "
                f"{dist.get_rank()} {steps:,} times, so tau, beta and alpha differ. Call "
                "dials.step() after each optimizer.step(), on every rank.",
                stacklevel=4,
            )

    def _key(self, rank: int) -> str:
        return f"dcgraph/dials/{self._place}/{rank}"

    def _store(self) -> Any:
        """torch's own store, which has no public name; None where there is nobody to tell."""
        if not (self._readable and dist.is_available() and dist.is_initialized()):
            return None
        if dist.get_world_size() == 1:
            return None
        return self._try(lambda: dist.distributed_c10d._get_default_store())

    def _try(self, ask: Any) -> Any:
        """A store that cannot be reached, or is none any more, is no reason to stop training."""
        try:
            return ask()
        except (AttributeError, RuntimeError, ValueError):
            self._readable = False
            return None
