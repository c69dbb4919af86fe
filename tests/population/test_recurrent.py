"""Recurrent layers for populations against torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import dcgraph as dc

LAYERS: dict[str, tuple[Any, Any]] = {
    name: (getattr(nn, name), getattr(dc.population, name)) for name in ("RNN", "GRU", "LSTM")
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": True, "bias": False},
        {"num_layers": 2, "bidirectional": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("given", [False, True])
def test_it_computes_what_the_layer_of_torch_does(
    name: str, options: dict[str, Any], given: bool
) -> None:
    original, ours = (kind(4, 3, **options) for kind in LAYERS[name])
    ours.load_state_dict(original.state_dict())
    sequence = torch.randn(6, 5, 4)
    first: Any = None
    if given:
        layers = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
        states = torch.randn(2, layers, 6 if options.get("batch_first") else 5, 3)
        first = (states[0], states[1]) if name == "LSTM" else states[0]
    results = [layer(sequence, first) for layer in (original, ours)]
    torch.testing.assert_close(results[1], results[0])
    for layer, (output, state) in zip((original, ours), results, strict=True):
        (output.square().sum() + sum(part.sum() for part in state)).backward()
        assert all(p.grad is not None for p in layer.parameters())
    for own, expected in zip(ours.parameters(), original.parameters(), strict=True):
        torch.testing.assert_close(own.grad, expected.grad)
    if not options:
        torch.testing.assert_close(ours(sequence[:, 0]), original(sequence[:, 0]))


def test_the_relu_of_an_rnn() -> None:
    original, ours = nn.RNN(4, 3, nonlinearity="relu"), dc.population.RNN(4, 3, nonlinearity="relu")
    ours.load_state_dict(original.state_dict())
    sequence = torch.randn(6, 5, 4)
    torch.testing.assert_close(ours(sequence), original(sequence))


@pytest.mark.parametrize("name", LAYERS)
def test_it_maps_over_replicas(name: str) -> None:
    population = dc.Population(lambda: LAYERS[name][1](4, 3, 2, dropout=0.5), range(2)).eval()
    sequence = torch.randn(6, 5, 4)
    output, _ = population(sequence)
    torch.testing.assert_close(output[1], population.replica(1)(sequence)[0])
    assert not torch.equal(population.train()(sequence)[0], output), "dropout between the layers"


def test_what_it_does_not_do() -> None:
    with pytest.raises(ValueError, match="proj_size=2 is not supported"):
        dc.population.LSTM(4, 3, proj_size=2)
