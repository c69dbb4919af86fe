"""Small models that several tests use."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dcgraph as dc


class Adder(nn.Module):
    """Two vectors in, the category of their 'sum' out; the node is called twice and classifies."""

    def __init__(self, dim: int = 8, symbols: int = 5) -> None:
        super().__init__()
        self.encode = nn.Linear(6, dim)
        self.symbol = dc.Discrete(dim, symbols)
        self.add = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = self.symbol(self.encode(a)), self.symbol(self.encode(b))
        return self.symbol.logits(self.add(torch.cat([x, y], -1)))


class Chain(nn.Module):
    """Discrete nodes in a row. Between them stand rotations: these neither grow nor shrink a
    gradient, so whatever happens to it is the nodes' doing."""

    def __init__(self, length: int = 6, dim: int = 16, categories: int = 10) -> None:
        super().__init__()
        self.encode = nn.Linear(dim, dim)
        self.steps = nn.ModuleList(dc.Discrete(dim, categories) for _ in range(length))
        self.turns = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(length))
        for turn in self.turns:
            assert isinstance(turn, nn.Linear)
            nn.init.orthogonal_(turn.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encode(x)
        for step, turn in zip(self.steps, self.turns, strict=True):
            x = turn(step(x))
        return x
