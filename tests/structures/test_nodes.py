"""The node that chooses a tree: relaxed and hard, traced, probed, in populations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.population import Population
from dcgraph.structures import STRUCTURES, TreeEdges, arborescence, one_parent
from trees import (
    NAMES,
)


@pytest.mark.parametrize("name", NAMES)
def test_node_relaxes_in_training_and_is_a_tree_in_eval(name: str) -> None:
    torch.manual_seed(0)
    structure, node = STRUCTURES[name], TreeEdges(name)
    dc.Dials(tau=2.0, beta=0.5).attach(node)
    theta, noise = torch.randn(3, 6, 6), dc.gumbel((3, 6, 6))
    used = torch.arange(6) < torch.tensor([[6], [5], [2]])
    mask = (torch.rand(3, 6, 6) < 0.7) | (torch.arange(6) == 0)
    relaxed = node(theta, mask=mask, rows=used, noise=noise)
    torch.testing.assert_close(
        relaxed, structure.marginals((theta + 0.5 * noise) / 2.0, mask, used)
    )
    assert not torch.equal(node(theta, rows=used), node(theta, rows=used))
    node.eval()
    for decode, parents in (
        ("argmax", structure.argmax(theta, mask, used)),
        ("sample", structure.sample(theta, mask, used, noise=noise)),
    ):
        node.decode = decode  # type: ignore[assignment]
        edges = node(theta, mask=mask, rows=used, noise=noise)
        expected = dc.one_hot(parents, 6)
        if name == "spanning_tree":
            expected = expected + expected.mT
        assert torch.equal(edges, expected)
    node.decode = "best"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="argmax"):
        node(theta)


def test_a_spanning_tree_has_one_noise_per_edge() -> None:
    node = TreeEdges("spanning_tree")
    theta = torch.randn(5, 5)
    edges = node(theta)
    assert torch.equal(edges, edges.mT)
    noise = dc.gumbel((5, 5))
    assert torch.equal(node(theta, noise=noise), node(theta, noise=noise.tril()))


class Parser(nn.Module):
    """Scores of edges from numbers, and what arrives at the root."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.score = nn.Linear(1, 36)
        self.edge = TreeEdges(name)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        scores = self.score(x).unflatten(-1, (6, 6))
        used = torch.arange(6) < torch.tensor([[6], [5], [4]])
        received: Tensor = self.edge(scores, rows=used, noise=noise)[..., 0].sum(-1)
        return received


@pytest.mark.parametrize("name", NAMES)
def test_trace_and_probe_see_the_node(name: str) -> None:
    torch.manual_seed(0)
    model = Parser(name)
    x = torch.randn(3, 1)
    assert [found for found, _ in dc.named_nodes(model)] == ["edge"]
    report = dc.probe(model, lambda: model(x).square().sum())
    (row,) = report.readings
    assert row.name == "edge" and row.categories == 6
    assert row.logit_gradient is not None and row.logit_gradient > 0
    assert row.gap is not None and 0 < row.gap < 1
    model.eval()
    with dc.trace(model) as steps:
        model(x)
    (step,) = steps
    assert (step.index[:, 0] == -1).all() and (step.index[0, 1:] >= 0).all()
    assert step.index[2].tolist()[4:] == [-1, -1]
    assert step.probability.isfinite().all()


def test_gap_counts_only_rows_with_a_choice() -> None:
    # Relaxed and hard edges agree, so there is no gap, though root and padding choose nothing.
    node = TreeEdges("arborescence")
    dc.Dials(tau=0.01, beta=0.0).attach(node)
    theta = torch.randn(6, 6, requires_grad=True)
    used = torch.arange(6) < 4
    report = dc.probe(node, lambda: node(theta, rows=used).sum())
    assert report.readings[0].gap == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("training", [True, False])
def test_a_population_of_parsers_equals_single_parsers(name: str, training: bool) -> None:
    population = Population(lambda: Parser(name), [0, 1, 2], torch.device("cpu"))
    dc.Dials.constant(population, tau=[1.0, 2.0, 3.0], beta=[0.0, 0.5, 1.0])
    population.train(training)
    x, noise = torch.randn(3, 1), dc.gumbel((3, 3, 6, 6))
    mapped = population.map(lambda model, noise: model(x, noise), noise, in_dims=0)
    for r in range(3):
        torch.testing.assert_close(mapped[r], population.replica(r)(x, noise[r]))


def test_it_learns_a_tree_through_the_marginals() -> None:
    torch.manual_seed(0)
    node = TreeEdges("arborescence")
    theta = nn.Parameter(torch.zeros(5, 5))
    target = torch.tensor([-1, 0, 1, 1, 3])
    optimizer = torch.optim.Adam([theta], lr=0.1)
    for _ in range(150):
        loss = (node(theta) - dc.one_hot(target, 5)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert torch.equal(arborescence.argmax(theta), target)


def test_one_parent_is_what_categorical_does() -> None:
    theta, noise = torch.randn(2, 6, 6), dc.gumbel((2, 6, 6))
    rows = ~torch.eye(6, dtype=torch.bool)
    alone = dc.gumbel_softmax(theta, 2.0, mask=rows, noise=noise)
    torch.testing.assert_close(one_parent.marginals((theta + noise) / 2.0)[:, 1:], alone[:, 1:])
