"""A model of whose largest parameters every rank has only some rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from ...population._rows import RowPopulation
from ...population._state import totals
from .ranks import Ranks, heard


class DividedRows:
    """Between the matrices of ranks, that have only their own rows of some parameters, and a whole.

    A matrix has a row of weights, or of what there is for each of them: their moments and averages.
    Parameters that are smaller here than in the whole model are divided, and the ranks have their
    rows one after the other. All others are alike on all ranks.
    """

    def __init__(
        self, own: RowPopulation, whole_model: Callable[[], nn.Module], ranks: Ranks
    ) -> None:
        with torch.device("meta"):  # shapes are enough
            self._whole = RowPopulation(whole_model, [0], "meta")
        self._own, self._ranks = own, ranks
        mine, of_all = own.slices(own.weights), self._whole.slices(self._whole.weights)
        divided = [name for name, rows in mine.items() if rows.shape != of_all[name].shape]
        everyones = ranks.everyones({name: mine[name].shape[1] for name in divided})
        self._counts = {name: [counts[name] for counts in everyones] for name in divided}

    @property
    def whole(self) -> Float[Tensor, "1 all_parameters"]:
        """What a whole matrix looks like; it has no numbers."""
        return self._whole.weights

    def alike(self, own: Float[Tensor, "1 parameters"]) -> Float[Tensor, " _"]:
        """The part of a matrix that all ranks have."""
        parts = self._own.slices(own).items()
        common = [part.flatten() for name, part in parts if name not in self._counts]
        return torch.cat([own.new_empty(0), *common])

    def gather(self, own: Float[Tensor, "1 parameters"]) -> Float[Tensor, "1 _"]:
        """The whole matrix, on the CPU of rank 0; elsewhere one without columns."""
        parts = self._own.slices(own.detach())
        if not self._ranks.is_main:
            for name in self._counts:
                self._pass(dist.send, parts[name].cpu().contiguous(), 0)
            return torch.empty(1, 0)
        whole = torch.zeros(self.whole.shape)
        for name, rows in self._whole.slices(whole).items():
            mine, *others = self._of_each(name, rows)
            mine.copy_(parts[name])
            for rank, theirs in enumerate(others, 1):
                self._pass(dist.recv, theirs, rank)
        return whole

    def scatter(self, whole: Float[Tensor, "1 all_parameters"] | None) -> Tensor:
        """The other way round: what each rank has of a matrix of rank 0, on the CPU."""
        own = torch.zeros(self._own.weights.shape)
        parts = self._own.slices(own)
        if whole is None:
            for name in self._counts:
                self._pass(dist.recv, parts[name], 0)
        else:
            for name, rows in self._whole.slices(whole.detach()).items():
                mine, *others = self._of_each(name, rows)
                parts[name].copy_(mine)
                for rank, theirs in enumerate(others, 1):
                    self._pass(dist.send, theirs.contiguous(), rank)
        for name, part in parts.items():
            if name not in self._counts:
                with heard():
                    dist.broadcast(part, 0, self._ranks.group)
        return own

    def _of_each(self, name: str, rows: Tensor) -> Sequence[Tensor]:
        """The rows of each rank; or what all of them have."""
        return rows.split(self._counts[name], 1) if name in self._counts else [rows]

    def _pass(self, way: Callable[..., object], rows: Tensor, rank: int) -> None:
        if rows.numel():
            with heard():
                way(rows, rank, self._ranks.group)

    def agree(
        self, loss: Float[Tensor, " 1"], gradients: Sequence[Tensor]
    ) -> tuple[Float[Tensor, " 1"], list[Tensor]]:
        """The same; but the loss is NaN on all ranks, if a gradient on one of them is not finite.

        A GPU adds up in any order, so that gradients of what all ranks have could differ in the
        last bit there: that of rank 0 counts.
        """
        agreed = [gradient.contiguous() for gradient in gradients]
        total = totals([gradient.flatten(1) for gradient in agreed])
        with heard():
            dist.all_reduce(total, group=self._ranks.group)
            for name, gradient in zip(self._own.slices(self._own.weights), agreed, strict=True):
                if gradient.is_cuda and name not in self._counts:
                    dist.broadcast(gradient, 0, self._ranks.group)
        return torch.where(total.isfinite(), loss, math.nan), agreed
