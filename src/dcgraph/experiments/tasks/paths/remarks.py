"""What to say of a trained model: whether it has learned its graph, and whether that carries over.

Both are compared with a baseline that knows of a query only its last relation: it ranks entities by
how often that relation leads to them in training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ...engine.panels import Remark
from .data import PathData
from .data.graph import KnowledgeGraph, Queries, inverse_paths, joined, single_hops
from .evaluation import Score, at_once, evaluate, evaluation_sets_of

MOST = 2_000
"""Queries of a kind that are asked at most, before their inverses."""

_LITTLE = 0.5  # of the training triples: whoever recalls no more has learned little
_MUCH = 0.9  # MRR of who needs not be ahead of anyone
_AHEAD = 0.02  # of MRR: less is no difference
_ENOUGH = 20  # queries, to say that there is none


@dataclass(frozen=True)
class Comparison:
    """MRR and H@k of the model and of the baseline, on the same queries."""

    queries: int
    model: Mapping[str, float]
    baseline: Mapping[str, float]

    def ahead(self) -> bool:
        mine = self.model["MRR"]
        return mine >= _MUCH or mine > self.baseline["MRR"] + _AHEAD


@dataclass(frozen=True)
class Learned:
    """On training triples and on validation triples; None where there is nothing to ask.

    Where no triple could be kept for validation, it is on the validation paths.
    """

    training: Comparison | None
    validation: Comparison | None
    paths: bool = False

    def remarks(self) -> list[Remark]:
        """One line for people, and a warning if there is a reason."""
        said = []
        if self.training is not None:
            said.append(f"recalls {self.training.model['H@1']:.0%} of the training triples (H@1)")
        if self.validation is not None:
            what, share = "paths" if self.paths else "triples", self.validation.model
            common = f"{self.validation.baseline['H@10']:.0%}"
            said.append(
                f"answers {share['H@1']:.0%} of the validation {what} at once and "
                f"{share['H@10']:.0%} among its first 10 (the commonest answers to a relation: "
                f"{common})"
            )
        if not said:
            return []
        warnings = self._warnings()
        return [Remark(f"The model {' and '.join(said)}."), *warnings[:1]]

    def _warnings(self) -> list[Remark]:
        found = []
        seen, unseen = self.training, self.validation
        if seen is not None and (seen.model["H@1"] <= _LITTLE or not seen.ahead()):
            found.append(
                "it has not learned its graph: the commonest answer to a relation recalls "
                f"{seen.baseline['H@1']:.0%} of the training triples; train for longer (--epochs), "
                "or with --preset auto."
            )
        if unseen is not None and unseen.queries >= _ENOUGH and not unseen.ahead():
            found.append(
                "what it has learned does not carry over: it answers unseen triples no better than "
                "the commonest answers to a relation do; take its new answers for guesses."
            )
        return [Remark(text, warning=True) for text in found]


def learned(model: Score, source: PathData) -> Learned:
    """Measured with the model on the CPU, with realistic ties, among all entities."""
    triples = single_hops(source.graph.triples["train"])
    groups = source.splits.get("validation", [])
    asked = [group for group in groups if group.hops == 1]
    return Learned(
        _compared(source.graph, [triples], model),
        _compared(source.graph, asked or groups, model),
        paths=not asked,
    )


def commonest(graph: KnowledgeGraph) -> Score:
    """How often the last relation of a path leads to each entity in training."""
    triples = single_hops(graph.triples["train"])
    both = joined([triples, inverse_paths(triples, len(graph.relations))])
    places = both.path[:, 0].long(), both.target.long()
    counts = torch.zeros(2 * len(graph.relations), len(graph.entities))
    counts.index_put_(places, torch.ones(len(both)), accumulate=True)

    def score(source: Tensor, path: Tensor) -> Float[Tensor, "queries entities"]:
        return counts[path[:, -1].long()]

    return score


def _compared(graph: KnowledgeGraph, groups: Sequence[Queries], model: Score) -> Comparison | None:
    """On queries and their inverses."""
    some = [group[:: -(-len(group) // MOST)] for group in groups if len(group)]
    if not some:
        return None
    asked = evaluation_sets_of(graph.adjacency(), {"asked": some}, "all")["asked"]
    if not len(asked):
        return None
    block = at_once(len(graph.entities))
    ways = (model, commonest(graph))
    first, second = (evaluate(way, asked, block=block).averages for way in ways)
    return Comparison(len(asked), first, second)
