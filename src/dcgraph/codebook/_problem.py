"""What all ways of mixing are given."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._philox import draw_kept


@dataclass(frozen=True)
class Problem:
    """Queries over a codebook, for several groups that have nothing to do with each other.

    The perturbed logits of a row are a = (S + beta G) / tau with S = query . codebook.
    """

    query: Tensor  # [groups, rows, dim]
    codebook: Tensor  # [groups, n, dim]
    tau: Tensor  # [groups, rows], as beta and keys
    beta: Tensor  # negative for reversed noise
    keys: Tensor  # of the noise, see dcgraph._philox
    noise: Tensor | None  # G [groups, rows, n] to replay, instead of the keys
    mask: Tensor | None  # [groups, rows, n], True where a category may be chosen
    target: Tensor | None  # [groups, rows]: wanted is lse(a) - a[target]
    index: Tensor | None  # [groups, rows]: wanted is this row, with the gradient of the mixture
    noisy: bool  # False where beta is known to be 0
    dropout: float

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Groups, rows, n, dim."""
        return *self.query.shape[:2], *self.codebook.shape[1:]

    @property
    def island(self) -> torch.dtype:
        """What sums and exponentials are computed in."""
        return torch.promote_types(self.query.dtype, torch.float32)

    def with_target(self, target: Tensor) -> Problem:
        return replace(self, target=target)

    def with_index(self, index: Tensor) -> Problem:
        return replace(self, index=index)

    def codes(self, index: Tensor) -> Tensor:
        """The rows [groups, rows, dim] of the codebook with these indices, after dropout."""
        wide = index.unsqueeze(-1).expand(*index.shape, self.codebook.shape[-1])
        codes = self.codebook.gather(1, wide)
        if self.dropout:
            codes = codes * self.kept(index).to(codes.dtype)
        return codes

    def kept(self, index: Tensor) -> Tensor:
        """Dropout factors [groups, rows, dim] of the rows with these indices."""
        return draw_kept(self.keys[:, 0], index, self.codebook.shape[-1], self.dropout)
