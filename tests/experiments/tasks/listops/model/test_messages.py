"""Messages: the paper's equation, kinds of receivers, dropout."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dcgraph.experiments.tasks.listops.baselines import StateTree
from dcgraph.experiments.tasks.listops.model.latent_tree import LatentTree
from dcgraph.experiments.tasks.listops.model.messages import (
    MessageLayers,
    Routes,
    kept,
    messages,
    messages_by_torch,
)
from dcgraph.experiments.tasks.listops.task import ListOps
from listops_models import VARIANTS


def test_messages_are_the_papers() -> None:
    """m_i = sum_j A_ji relu(W2 relu(W1 [e_i; x_j] + b1) + b2), with all pairs written out."""
    torch.manual_seed(0)
    dim, tokens = 6, torch.randint(4, (3, 9))
    embedding, x = torch.randn(4, dim), torch.randn(3, 9, dim)
    first, second = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)
    edges = torch.randn(3, 9, 9).softmax(-1)
    of_receiver = embedding[tokens].unsqueeze(2).expand(-1, -1, 9, -1)
    pairs = torch.cat([of_receiver, x.unsqueeze(1).expand(-1, 9, -1, -1)], -1)
    expected = torch.einsum("bji,bijd->bid", edges, second(first(pairs).relu()).relu())
    receiver = embedding @ first.weight[:, :dim].T + first.bias
    sender, routes = x @ first.weight[:, dim:].T, Routes(edges, tokens, 4)
    found = messages_by_torch(receiver, sender, second.weight, second.bias, routes)
    torch.testing.assert_close(found, expected)


def test_messages_go_only_to_receivers() -> None:
    torch.manual_seed(0)
    given = (torch.randn(2, 4), torch.randn(1, 3, 4), torch.randn(4, 4), torch.randn(4))
    kinds = torch.tensor([[1, -1, 0]])
    received = messages(*given, Routes(torch.rand(1, 3, 3), kinds, 2))
    assert received[0, 1].eq(0).all() and received[0, 0].ne(0).any()


def test_messages_only_to_the_root_are_those_to_all() -> None:
    """By kinds, and without them; one receiver is less than the kinds, so it is done otherwise."""
    torch.manual_seed(0)
    tokens, edges = torch.randint(4, (3, 9)), torch.rand(3, 9, 9)
    layers, x, rows = MessageLayers(5, dropout=0.0), torch.randn(3, 9, 5), torch.randn(4, 5)
    by_kind, each = Routes(edges, tokens, 4), Routes(edges)
    to_all = layers(rows, x, by_kind)
    torch.testing.assert_close(layers(rows[tokens], x, each), to_all)
    torch.testing.assert_close(layers(rows, x, by_kind.to_root()), to_all[:, :1])
    torch.testing.assert_close(layers(rows[tokens][:, :1], x, each.to_root()), to_all[:, :1])


def test_dropout_has_its_mean_and_is_shared_by_a_kind() -> None:
    torch.manual_seed(0)
    dim = 5
    # Positive inputs and an identity as W: without ReLUs in the way, dropout keeps the mean.
    given = (torch.rand(2, dim), torch.rand(1, 4, dim), torch.eye(dim), torch.zeros(dim))
    routes = Routes(torch.ones(1, 4, 4), torch.tensor([[0, 0, 1, 1]]), 2)
    draws = torch.stack([messages(*given, routes, dropout=0.3) for _ in range(3000)])
    whole = messages(*given, routes)
    torch.testing.assert_close(draws.mean(0), whole, rtol=0.05, atol=0.0)
    assert torch.equal(draws[:, 0, 0], draws[:, 0, 1]) and not torch.equal(
        draws[:, 0, 0], draws[:, 0, 2]
    )


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.93])
def test_units_are_kept_with_their_probability(dropout: float) -> None:
    torch.manual_seed(0)
    mask = kept((7, 51, 333), dropout, torch.device("cpu"))
    assert mask.shape == (7, 51, 333)
    error = float(mask.double().mean()) - (1 - dropout)
    assert abs(error) < 4 * (dropout * (1 - dropout) / mask.numel()) ** 0.5
    together = float((mask[..., 1:] & mask[..., :-1]).double().mean())
    assert together == pytest.approx((1 - dropout) ** 2, abs=0.01), "and independently"


@pytest.mark.parametrize("name", ["paper", "states"])
def test_the_first_layer_of_messages_starts_as_one_of_both_inputs(name: str) -> None:
    model = ListOps().model(VARIANTS[name])
    assert isinstance(model, LatentTree | StateTree)
    bound = 1 / 120**0.5
    for layer in (model.message.of_receiver, model.message.of_sender):
        assert 0.98 * bound < float(layer.weight.detach().abs().max()) <= bound
