"""A population whose parameters are the rows of one matrix."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ._population import Population

_ALIGNMENT = 4  # floats: matrix products are faster on 16-byte boundaries
_LARGE = 1 << 20  # entries of a parameter that is not worth a copy


class RowPopulation(Population):
    """A population with all parameters of a replica in one row of a matrix ``weights``.

    So an optimizer, a moving average, the best weights so far and a checkpoint are each one tensor
    and one line. The parameters of the population are views of it: what is written there is seen
    here.
    """

    weights: Float[Tensor, "replicas parameters"]

    def __init__(
        self,
        build: Callable[[], nn.Module],
        seeds: Collection[SupportsIndex],
        device: torch.device | str | None = None,
        *,
        own_noise: bool = False,
    ) -> None:
        super().__init__(build, seeds, device, own_noise=own_noise)
        named = dict(self.stacked.named_parameters())
        self._shapes = {name: p.shape[1:] for name, p in named.items()}
        self._sizes = [n for shape in self._shapes.values() for n in _size_and_padding(shape)]
        self.weights = torch.zeros(self.replicas, sum(self._sizes), device=self.device)
        for name, view in self.slices(self.weights).items():
            with torch.no_grad():
                view.copy_(named[name])
            named[name].data = view

    def slices(self, rows: Float[Tensor, "*replicas parameters"]) -> dict[str, Tensor]:
        """Rows of weights as parameters, by name, as views."""
        slices = rows.split(self._sizes, -1)[::2]  # every other one is padding
        shapes = self._shapes.items()
        return {
            name: columns.unflatten(-1, shape) if shape else columns.squeeze(-1)
            for (name, shape), columns in zip(shapes, slices, strict=True)
        }

    def columns(self, slices: Sequence[Tensor]) -> Iterator[tuple[slice, Tensor]]:
        """Parameter slices in their order, such as gradients, as columns of ``weights``.

        A large one is handed back as it is, for a copy has its price. Small neighbours are joined,
        for each tensor handed back has one, too.
        """
        sizes, paddings = self._sizes[::2], self._sizes[1::2]
        starts = list(itertools.accumulate(self._sizes, initial=0))[::2]
        kinds = [place if size > _LARGE else -1 for place, size in enumerate(sizes)]
        for _, members in itertools.groupby(range(len(sizes)), kinds.__getitem__):
            first, *others = members
            parts = [slices[first].flatten(1)]
            for place in others:
                padding = parts[0].new_zeros(self.replicas, paddings[place - 1])
                parts += [padding, slices[place].flatten(1)]
            joined = torch.cat(parts, 1) if others else parts[0]
            yield slice(starts[first], starts[first] + joined.shape[1]), joined


def _size_and_padding(shape: torch.Size) -> tuple[int, int]:
    return shape.numel(), -shape.numel() % _ALIGNMENT
