"""Ours: a path is walked entity by entity, and every hop is a discrete step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ....nodes import Discrete
from ....noise import Distribution
from ....residual import Gate
from .composing import ComplEx, Shape, complex_product


class DiscreteComplEx(ComplEx):
    r"""The discrete-continuous ComplEx of the paper.

    After every relation but the last, the product :math:`u = s r` chooses an entity, with the
    scores of ComplEx as logits, and the next relation starts from that entity's vector: a
    :class:`dcgraph.Discrete` node whose codebook is the matrix of entities. In training DropRes
    adds s, the vector before the relation. After the last relation all entities are scored.

    The model has no parameters beyond those of ComplEx. In eval mode every hop is at an entity.

    With ``nearest``, a hop of training chooses among that many entities of the highest scores, so
    that noise cannot carry it to any of the others; that needs the matrix of all scores.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        estimator: str = "gumbel_softmax",
        noise: Distribution = "gumbel",
        gate: Gate = "call",
        nearest: int = 0,
    ) -> None:
        super().__init__(shape)
        self.nearest = nearest
        self.hop = Discrete(
            *(shape.width, shape.entities),
            codebook="given",
            estimator=estimator,
            noise=noise,
            gate=gate,
        )

    def queries(
        self,
        source: Float[Tensor, "queries width"],
        relations: Float[Tensor, "queries hops width"],
        candidates: Sequence[Float[Tensor, "entities width"]],
    ) -> Float[Tensor, "queries width"]:
        *others, last = relations.unbind(1)
        at = source
        for relation, rows in zip(others, candidates[:-1], strict=True):
            u = complex_product(at, relation, rows.dtype)
            mask = self._near(u, rows) if self.training and self.nearest else None
            at = self.hop(u, residual=at.to(rows.dtype), codebook=rows, mask=mask)
        return complex_product(at, last, candidates[-1].dtype)

    @torch.no_grad()
    def _near(self, u: Tensor, rows: Tensor) -> Bool[Tensor, "queries entities"]:
        scores = F.linear(u, rows).float()
        count = min(self.nearest, len(rows))
        return scores >= scores.topk(count, -1).values[:, -1:]
