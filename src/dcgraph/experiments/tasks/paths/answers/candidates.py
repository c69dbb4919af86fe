r"""Candidates: what a relation can lead to, as far as the known triples can tell.

Three sets, the smallest first, each a part of the next:

- *range*: the entities that the relation is known to lead to;
- *kind*: also every entity that takes part in the graph as one of these does. An entity takes part
  by the relations that lead on from it, inverse ones among them. Two relations *go together* if
  both lead on from some entity. An entity is of the kind if one of its relations goes together with
  the inverse of the given one: towns have no relation that a mother has. An entity without any
  triple may be anything;
- *all* entities.

Which of them is safe is measured on the triples themselves. Each is left out in turn; it is
**lost** if its end is then not in the set. A set is taken only if, with a confidence of 95 per
cent, it loses fewer than 2 per cent of triples: the upper end of Wilson's interval,

.. math:: \frac{\hat p + z^2 / 2n + z \sqrt{\hat p (1 - \hat p) / n + z^2 / 4n^2}}{1 + z^2 / n},

with a share :math:`\hat p` of n triples lost, and z = 1.645. Even if none is lost that takes 133
triples. For the range of a relation these are its own triples. For the kind, which is about the
graph as a whole, they are the triples of all relations, read in both directions; besides, of its
own triples a relation may lose no more than 2 per cent. Where neither set can be taken all entities
are candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from ..data.graph import Adjacency, inverse

Rule = Literal["auto", "range", "kind", "all"]

RULES = ("range", "kind", "all")
"""The sets, from the smallest to the largest."""

LOST = 0.02
"""The share of triples that may be lost, at most."""

_Z = 1.645  # one-sided, 95 per cent
_MANY = 4096  # relations of which it is not counted how often two go together


def upper_end(lost: int, triples: int) -> float:
    """Of Wilson's interval for the share that is lost: it is less, with a confidence of 95 %.

    >>> [round(upper_end(*counts), 4) for counts in ((0, 132), (0, 133), (0, 0), (5, 1000))]
    [0.0201, 0.0199, 1.0, 0.0102]
    """
    if not triples:
        return 1.0
    share, square = lost / triples, _Z * _Z / triples
    spread = _Z * math.sqrt(share * (1 - share) / triples + square / (4 * triples))
    return (share + square / 2 + spread) / (1 + square)


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidates of each relation in the graph of some triples, inverse relations too."""

    graph: Adjacency
    rule: Rule = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "_masks", {})
        object.__setattr__(self, "_counts", {})

    def rule_for(self, relation: int) -> str:
        """Which of the sets it is."""
        if self.rule != "auto":
            return self.rule
        of_range, of_kind = self._lost["range"], self._lost.get("kind")
        triples = int(self._triples[relation])
        if upper_end(int(of_range[relation]), triples) <= LOST:
            return "range"
        if of_kind is None or int(of_kind[relation]) > LOST * triples:
            return "all"
        pooled = upper_end(int(of_kind.sum()), int(self._triples.sum()))
        return "kind" if pooled <= LOST else "all"

    def of(self, relation: int) -> Bool[Tensor, " entities"]:
        """Whether each entity is a candidate."""
        masks: dict[int, Tensor] = self.__dict__["_masks"]
        if relation not in masks:
            masks[relation] = self._set(self.rule_for(relation), relation)
        return masks[relation]

    def count(self, relation: int) -> int:
        """How many entities are candidates."""
        counts: dict[int, int] = self.__dict__["_counts"]
        if relation not in counts:
            counts[relation] = int(self.of(relation).sum())
        return counts[relation]

    def mask(self, relations: Int[Tensor, " queries"]) -> Bool[Tensor, "queries entities"]:
        """The candidates of each query's relation, on the device of ``relations``."""
        distinct, which = relations.unique(return_inverse=True)
        masks = torch.stack([self.of(number) for number in distinct.tolist()])
        return masks.to(relations.device)[which]

    def losses(self) -> dict[str, tuple[Int64[Tensor, " relations"], Int64[Tensor, " relations"]]]:
        """For each set that is smaller than all: triples lost, and triples, of every relation."""
        return {rule: (lost, self._triples) for rule, lost in self._lost.items()}

    def _set(self, rule: str, relation: int) -> Bool[Tensor, " entities"]:
        entities = self.graph.entities
        if rule == "all":
            return torch.ones(entities, dtype=torch.bool)
        end = self._inverses[relation]
        chosen = self._labels == end
        if rule == "kind":
            if self._together is None:
                return torch.ones(entities, dtype=torch.bool)
            chosen |= self._together[end][self._labels] > 0
        found = torch.zeros(entities, dtype=torch.bool)
        found[self._starts[chosen]] = True
        return found | self._isolated if rule == "kind" else found

    @cached_property
    def _starts(self) -> Int64[Tensor, " steps"]:
        """The entity of every step of the graph."""
        return self.graph.steps // self.graph.relations

    @cached_property
    def _labels(self) -> Int64[Tensor, " steps"]:
        """The relation of every step of the graph."""
        return self.graph.steps % self.graph.relations

    @cached_property
    def _inverses(self) -> Int64[Tensor, " relations"]:
        every = torch.arange(self.graph.relations)
        return inverse(every, self.graph.relations // 2)

    @cached_property
    def _isolated(self) -> Bool[Tensor, " entities"]:
        return self.graph.first.diff() == 0

    @cached_property
    def _together(self) -> Int64[Tensor, "relations relations"] | None:
        """From how many entities two relations lead on."""
        relations = self.graph.relations
        if relations > _MANY:
            return None
        counts = torch.zeros(relations, relations, dtype=torch.int64)
        sizes = self.graph.first.diff()
        for width in sizes.unique().tolist():  # entities with as many relations, together
            if not width:
                continue
            begin = self.graph.first[:-1][sizes == width]
            labels = self._labels[begin.unsqueeze(1) + torch.arange(width)]
            for column in range(width):
                pairs = labels[:, column : column + 1] * relations + labels
                counts += torch.bincount(pairs.flatten(), minlength=relations**2).view_as(counts)
        return counts

    @cached_property
    def _triples(self) -> Int64[Tensor, " relations"]:
        """How many triples each relation has."""
        counts = torch.zeros(self.graph.relations, dtype=torch.int64)
        return counts.index_add_(0, self._labels, self.graph.ends.sizes)

    @cached_property
    def _lost(self) -> dict[str, Int64[Tensor, " relations"]]:
        """How many triples of each relation are lost, by the set."""
        ends = self._inverses[self._labels]  # the step back says what leads there
        single = self.graph.ends.sizes == 1
        found = {"range": torch.bincount(ends[single], minlength=self.graph.relations)}
        if self._together is not None:
            lost = single & ~self._is_of_the_kind_without(single)
            found["kind"] = torch.bincount(ends[lost], minlength=self.graph.relations)
        return found

    def _is_of_the_kind_without(self, single: Tensor) -> Bool[Tensor, " steps"]:
        """Whether the entity of a step would be of the kind if it did not have that step.

        It is if another of its steps goes together with this one at a second entity, or if it has
        no other.
        """
        assert self._together is not None
        found = torch.zeros_like(single)
        degree = self.graph.first.diff()[self._starts]
        found[degree == 1] = True
        for width in degree[single].unique().tolist():
            rows = (single & (degree == width)).nonzero().flatten()
            begin = self.graph.first[self._starts[rows]]
            others = begin.unsqueeze(1) + torch.arange(width)
            counts = self._together[self._labels[rows].unsqueeze(1), self._labels[others]]
            found[rows] |= ((counts > 1) & (others != rows.unsqueeze(1))).any(1)
        return found
