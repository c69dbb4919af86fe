"""Baselines that read a path as a recurrent net reads a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .composing import PathModel, Shape


class PathRNN(PathModel):
    """A plain recurrent net over the relations, whose first state is the source (Das et al., 2017).

    h <- tanh(W h + U r + b), and the last state is the query.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.state = nn.Linear(shape.width, shape.width)
        self.input = nn.Linear(shape.width, shape.width, bias=False)

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        for relation in relations.unbind(1):
            source = torch.tanh(self.state(source) + self.input(relation))
        return source


class ROP(PathModel):
    """A gated recurrent net that predicts an entity at each hop (Yin et al., 2018).

    The prediction after a relation is where the next one starts, and the last one is the query. As
    everywhere here, the entities on the way are not given, so only the last prediction is trained.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.gates = nn.Linear(2 * shape.width, 2 * shape.width)
        self.proposal = nn.Linear(2 * shape.width, shape.width)
        self.prediction = nn.Linear(shape.width, shape.width)

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        for relation in relations.unbind(1):
            reset, update = self.gates(torch.cat([source, relation], 1)).sigmoid().chunk(2, 1)
            proposed = torch.tanh(self.proposal(torch.cat([reset * source, relation], 1)))
            source = self.prediction(update * source + (1 - update) * proposed)
        return source
