"""Where choices start."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import dcgraph as dc


@pytest.mark.parametrize("probability", [0.01, 1 / 5, 0.9, 0.999])
def test_a_category_is_favoured_as_said(probability: float) -> None:
    gates = nn.Parameter(torch.randn(7, 5))
    assert dc.init.favour_(gates, 3, probability) is gates
    p = gates.softmax(-1)
    torch.testing.assert_close(p[:, 3], torch.full((7,), probability))
    rest = (1 - probability) / 4
    torch.testing.assert_close(p[:, [0, 1, 2, 4]], torch.full((7, 4), rest))
    assert gates.requires_grad and gates.grad_fn is None


def test_a_layer_favours_by_its_bias() -> None:
    layer = nn.Linear(4, 5)
    before = layer.weight.clone()
    assert dc.init.favour_(layer, 2) is layer
    assert layer(torch.zeros(4)).softmax(-1)[2].item() == pytest.approx(0.9)
    assert torch.equal(layer.weight, before)
    single = torch.ones(3, 1)
    dc.init.favour_(single, 0)
    assert (single == 0).all(), "a single category is sure anyway"


@pytest.mark.parametrize(
    ("logits", "category", "probability", "message"),
    [
        (torch.zeros(3, 5), 5, 0.9, "category=5, but there are categories 0 to 4"),
        (torch.zeros(3, 5), -1, 0.9, "category=-1"),
        (torch.zeros(3, 5), 0, 1.0, "probability=1.0, but no finite logits"),
        (nn.Linear(4, 5, bias=False), 0, 0.9, "no bias to favour"),
        (torch.zeros(3, 5), 0, float("nan"), "probability=nan"),
    ],
)
def test_what_cannot_be_favoured(
    logits: Any, category: int, probability: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        dc.init.favour_(logits, category, probability)
