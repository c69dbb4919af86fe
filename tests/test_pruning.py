"""Pruning: which categories go, that they never come back, and populations."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import dcgraph as dc


def node_with_shares(**changes: object) -> tuple[dc.Discrete, Tensor]:
    """Its rows are chosen 6, 3, 1 and 0 times in 10."""
    node = dc.Discrete(4, 4, prunable=True, **changes)  # type: ignore[arg-type]
    with torch.no_grad():
        node.codebook.copy_(torch.eye(4))
    index = torch.tensor([0] * 6 + [1] * 3 + [2])
    return node, torch.eye(4)[index] + 0.1 * torch.eye(4)[1]


def called(x: Tensor, model: nn.Module) -> object:
    return model(x)


def test_categories_with_less_than_their_share_go() -> None:
    for share, kept in ((0.05, [1, 1, 1, 0]), (0.2, [1, 1, 0, 0]), (0.9, [1, 0, 0, 0])):
        node, x = node_with_shares()
        left = dc.prune_categories(node, partial(called, x), share=share)
        assert node.kept is not None and node.kept.int().tolist() == kept
        assert left == [{"Discrete": sum(kept)}] and node.training


@pytest.mark.parametrize("large", [False, True])
def test_a_pruned_category_is_never_chosen_again(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, x = node_with_shares()
    if large:
        monkeypatch.setattr(dc.nodes, "LARGE", 4)
        assert node.is_large
    dc.prune_categories(node, lambda node: node(x), share=0.2)
    torch.manual_seed(0)
    for decode in ("argmax", "sample"):
        node.eval().categorical.decode = decode
        out = node(torch.randn(500, 4))
        assert {tuple(row) for row in out.tolist()} <= {(1, 0, 0, 0), (0, 1, 0, 0)}
    node.train()
    assert node(torch.randn(50, 4))[:, 2:].abs().max() == 0, "no share of a mixture either"
    node.categorical.decode = "argmax"
    only = torch.tensor([False, True, True, True])
    assert (node.eval()(torch.eye(4), mask=only) == torch.eye(4)[1]).all()
    assert node.logits(torch.eye(4)).isneginf().sum(0).tolist() == [0, 0, 4, 4]
    probabilities = node.distribution(torch.eye(4)).probs
    assert probabilities[:, 2:].max() == 0 and probabilities.sum(-1).allclose(torch.ones(4))


def test_what_was_pruned_is_saved_and_loaded() -> None:
    node, x = node_with_shares()
    dc.prune_categories(node, lambda node: node(x), share=0.2)
    fresh = dc.Discrete(4, 4, prunable=True)
    fresh.load_state_dict(node.state_dict())
    assert fresh.kept is not None and node.kept is not None
    assert torch.equal(fresh.kept, node.kept)
    assert "kept" not in dc.Discrete(4, 4).state_dict(), "nothing changes for other nodes"


def test_each_replica_of_a_population_is_pruned_by_its_own_choices() -> None:
    def build() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 4), dc.Discrete(4, 6, prunable=True))

    population, x = dc.Population(build, range(3)), torch.randn(200, 4)
    alone = [population.replica(index) for index in range(3)]
    left = dc.prune_categories(population, lambda model: model(x), share=0.1)
    for index, model in enumerate(alone):
        assert dc.prune_categories(model, lambda model: model(x), share=0.1) == [left[index]]
        own = population.replica(index).eval()
        assert torch.equal(own(x), model.eval()(x))
        torch.testing.assert_close(population.eval()(x)[index], own(x))
    assert len({tuple(one.items()) for one in left}) > 1, "they differ"


def test_no_gradient_reaches_what_was_pruned() -> None:
    node, x = node_with_shares()
    dc.prune_categories(node, lambda node: node(x), share=0.2)
    node(x).pow(2).sum().backward()
    assert node.codebook.grad is not None
    assert node.codebook.grad[2:].abs().max() == 0 < node.codebook.grad[:2].abs().max()


def test_calls_that_cannot_be_answered() -> None:
    node, x = node_with_shares()
    with pytest.raises(ValueError, match="prunable=True"):
        dc.prune_categories(dc.Discrete(4, 4), lambda node: node(x))
    with pytest.raises(ValueError, match="did not call the node '0'"):
        dc.prune_categories(nn.Sequential(node), lambda model: None)
    with pytest.raises(ValueError, match="share=1"):
        dc.prune_categories(node, lambda node: node(x), share=1.0)
    before = copy.deepcopy(node.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in node.state_dict().items())
