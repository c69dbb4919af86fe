"""Ours: a path is walked entity by entity, and every hop is a discrete step."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from ...nodes import Discrete
from ...noise import Law
from ...residual import Gate
from .composing import ComplEx, Shape, complex_product


class DiscreteComplEx(ComplEx):
    r"""The discrete-continuous ComplEx of the paper.

    After every relation but the last, the product :math:`u = s r` chooses an entity, with the
    scores of ComplEx as logits, and the next relation starts from that entity's vector: a
    :class:`dcgraph.Discrete` node whose codebook is the matrix of entities. In training DropRes
    adds s, the vector before the relation. After the last relation all entities are scored.

    The model has no parameters beyond those of ComplEx. In eval mode every hop is at an entity.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        estimator: str = "gumbel_softmax",
        noise: Law = "gumbel",
        gate: Gate = "call",
    ) -> None:
        super().__init__(shape)
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
            at = self.hop(u, residual=at.to(rows.dtype), codebook=rows)
        return complex_product(at, last, candidates[-1].dtype)
