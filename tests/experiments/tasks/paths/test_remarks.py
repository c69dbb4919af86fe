"""What is said of a trained model: recall and answers beside those of the commonest answers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dcgraph.experiments.tasks.paths.data import PathData
from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph
from dcgraph.experiments.tasks.paths.data.walks import sample
from dcgraph.experiments.tasks.paths.evaluation import Score
from dcgraph.experiments.tasks.paths.remarks import Comparison, Learned, commonest, learned
from small_graphs import edges_of, graph_of

TRIPLES = [(k, 0, (k + 1) % 30) for k in range(30)] + [(k, 1, k % 2) for k in range(2, 30)]


def source() -> PathData:
    graph = graph_of({"train": TRIPLES, "validation": TRIPLES[::3], "test": TRIPLES[::4]})
    return PathData(
        graph, sample(graph, 0, dict.fromkeys(("train", "validation", "test"), range(2, 3)))
    )


def knowing(graph: KnowledgeGraph, *splits: str) -> Score:
    """Scores 1 for what the triples of the splits have, for one relation."""
    edges = edges_of(graph, *splits)

    def score(start: Tensor, path: Tensor) -> Tensor:
        rows = [
            [float((s, r, e) in edges) for e in range(len(graph.entities))]
            for s, r in zip(start.tolist(), path[:, 0].tolist(), strict=True)
        ]
        return torch.tensor(rows)

    return score


def test_the_baseline_counts_where_relations_lead_in_training() -> None:
    counts = commonest(source().graph)(
        torch.tensor([5, 5]).int(), torch.tensor([[0, 1], [0, 3]]).int()
    )
    assert counts[0, :3].tolist() == [14, 14, 0] and counts.shape == (2, 30)
    assert counts[1].tolist() == [0.0, 0.0] + [1.0] * 28, "of the inverse of the second relation"


def test_a_model_that_knows_everything_and_one_that_knows_nothing() -> None:
    data = source()
    all_known = learned(knowing(data.graph), data)
    (said,) = all_known.remarks()
    assert not said.warning and "recalls 100% of the training triples (H@1)" in said.text
    assert "answers 100% of the validation triples at once" in said.text
    assert all_known.validation is not None and all_known.validation.queries == 2 * 20
    nothing = learned(lambda start, path: torch.zeros(len(start), 30), data)
    said, warning = nothing.remarks()
    assert "recalls 0% of the training triples" in said.text
    assert warning.warning and "has not learned its graph" in warning.text


def test_a_model_that_has_only_learned_by_heart_is_warned_of() -> None:
    other = [(k, 0, (k + 7) % 30) for k in range(30)]
    graph = graph_of({"train": TRIPLES, "validation": other, "test": other[:3]})
    data = PathData(
        graph, sample(graph, 0, dict.fromkeys(("train", "validation", "test"), range(2, 3)))
    )
    said, warning = learned(knowing(graph, "train"), data).remarks()
    assert "recalls 100%" in said.text and "does not carry over" in warning.text


def test_where_no_triple_validates_paths_do() -> None:
    graph = graph_of({"train": TRIPLES, "validation": [], "test": []})
    data = PathData(graph, sample(graph, 0))
    (said,) = learned(commonest(graph), data).remarks()[:1]
    assert "of the validation paths at once" in said.text
    without = PathData(graph, {name: data.splits[name] for name in ("train", "test")})
    found = learned(commonest(graph), without)
    assert found.validation is None and "validation" not in found.remarks()[0].text


@pytest.mark.parametrize(
    ("training", "validation", "queries", "warnings"),
    [
        ((0.98, 0.2), (0.4, 0.2), 60, []),
        ((0.3, 0.2), (0.1, 0.2), 60, ["has not learned"]),
        ((0.98, 0.98), (0.95, 0.97), 60, []),  # there is nothing to be ahead of
        ((0.98, 0.2), (0.2, 0.2), 60, ["does not carry over"]),
        ((0.98, 0.2), (0.2, 0.2), 6, []),  # too few to say so
        ((0.8, 0.8), (0.4, 0.2), 60, ["has not learned"]),
    ],
)
def test_when_it_is_warned(
    training: tuple[float, float],
    validation: tuple[float, float],
    queries: int,
    warnings: list[str],
) -> None:
    def both(shares: tuple[float, float], count: int) -> Comparison:
        model, baseline = ({"H@1": share, "H@10": share, "MRR": share} for share in shares)
        return Comparison(count, model, baseline)

    said = Learned(both(training, 500), both(validation, queries)).remarks()[1:]
    assert len(said) == len(warnings) and all(remark.warning for remark in said)
    assert all(word in remark.text for word, remark in zip(warnings, said, strict=True))
    assert Learned(None, None).remarks() == []
