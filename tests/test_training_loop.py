"""The example that the library was designed from: a model of one's own in a plain loop."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dcgraph as dc


class Encoder(nn.Linear):
    def __init__(self, dim: int) -> None:
        super().__init__(12, dim)


class MLP(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, inputs), nn.ReLU(), nn.Linear(inputs, outputs))


class Adder(nn.Module):
    def __init__(self, dim: int = 84, symbols: int = 19) -> None:
        super().__init__()
        self.encode = Encoder(dim)
        self.symbol = dc.Discrete(dim, symbols)
        self.add = MLP(2 * dim, dim)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = self.symbol(self.encode(a)), self.symbol(self.encode(b))
        return self.symbol.logits(self.add(torch.cat([x, y], -1)))


def test_the_example_that_the_library_was_designed_from() -> None:
    torch.manual_seed(0)
    a, b, total = torch.randn(16, 12), torch.randn(16, 12), torch.randint(19, (16,))
    loader = [(a, b, total)] * 300
    model = Adder()
    optimizer = torch.optim.Adam(model.parameters())
    dials = dc.Dials(
        tau=8.0, beta=dc.temp_match(8.0, gamma=0.008), alpha=dc.linear(0, 1, 500), every=150
    ).attach(model)

    for images_a, images_b, total in loader:
        loss = F.cross_entropy(model(images_a, images_b), total)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dials.step()
    assert dials.schedule_steps == 2 and model.symbol.alpha is not None
    assert model.symbol.alpha.item() == pytest.approx(0.004)

    report = dc.probe(model, lambda: F.cross_entropy(model(a, b), total))
    assert report.loss < 0.5, "it has learnt the batch"
    model.eval()
    with dc.trace(model) as steps:
        model(a, b)
    assert [step.index.shape for step in steps] == [(16,), (16,)]
