"""Evaluation: whom an answer is ranked among, its rank, and what is computed from ranks.

There are two protocols, which differ in the **candidates** of an answer.

*range* (Guu et al., 2015): the candidates are the entities that the last relation of the path can
lead to at all, wherever it starts. Measured are the mean quantile (MQ) and the share of answers
among the first 10 (H@10).

*all*: the candidates are all entities, as for single triples (Bordes et al., 2013), and the inverse
of every path is asked, too. Measured are the mean reciprocal rank (MRR) and the shares of answers
among the first 1, 3 and 10.

In both an entity that the query reaches in the whole graph is right too, so it is not counted
against an answer: the **negatives** are the candidates without what the path reaches. Queries
without negatives are left out.

A negative with a higher score than the answer ranks before it. Those with the same score are
decided by a **tie rule**: *optimistic* ranks them all behind the answer, *pessimistic* all before
it, and *realistic* takes the mean of both ranks, so that a model that gives everything the same
score is in the middle. The paper counts only strictly higher scores: its rule is the optimistic
one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Float64, Int, Int32
from torch import Tensor

from ...._arguments import check_choice
from ...engine.metrics import Ties
from ...engine.task import Batch, fingerprint_of
from .data import PathData, disk_cached
from .data.graph import CSR, Adjacency, Queries, inverse_paths, portions
from .data.walks import Reached, reachable

Protocol = Literal["range", "all"]

Score = Callable[
    [Int32[Tensor, "queries"], Int32[Tensor, "queries hops"]], Float[Tensor, "queries entities"]
]
"""A model: from sources and paths of one length to a score for each entity, higher is better."""

METRICS: dict[str, tuple[str, ...]] = {
    "range": ("MQ", "H@10"),
    "all": ("MRR", "H@1", "H@3", "H@10"),
}
"""What is measured by each protocol."""

TIES: dict[Ties, float] = {"realistic": 0.5, "optimistic": 0.0, "pessimistic": 1.0}
"""The share of negatives with the same score that ranks before the answer."""

_WORDS = {
    "range": "negatives: what the last relation can lead to, without what the path reaches",
    "all": "negatives: all entities without what the path reaches; inverse paths are asked too",
}

_AT_ONCE = 1 << 22  # members of sets that are looked at together
_SCORES = 1 << 28  # that are made at once: one gigabyte
_MANY = 100_000  # queries whose answers take so long to find that one wants to know why

K = TypeVar("K")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """Queries to ask, and what is needed to find the negatives of their answers.

    A table for each length has, beside ``source``, ``path`` and ``target``, the number ``right`` of
    the set of right answers. ``constants`` are the same for all tables: these sets and, for the
    protocol *range*, the range of every relation.
    """

    protocol: Protocol
    entities: int
    tables: list[Batch]
    constants: Batch
    skipped: int  # queries without negatives

    def __len__(self) -> int:
        return sum(len(table["target"]) for table in self.tables)

    def first(self, queries: int) -> EvaluationSet:
        """A small one, with at most so many queries of each length: to try whether all works."""
        tables = [{name: tensor[:queries] for name, tensor in t.items()} for t in self.tables]
        return EvaluationSet(self.protocol, self.entities, tables, self.constants, self.skipped)

    def to(self, device: Any) -> EvaluationSet:
        tables = [{name: tensor.to(device) for name, tensor in t.items()} for t in self.tables]
        constants = {name: tensor.to(device) for name, tensor in self.constants.items()}
        return EvaluationSet(self.protocol, self.entities, tables, constants, self.skipped)


def evaluation_sets(
    data: PathData,
    protocol: Protocol,
    *splits: str,
    cache: Path | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, EvaluationSet]:
    """Splits as they are asked by a protocol; validation and test if none is named.

    What queries reach is found once, on the device, and kept in the disk cache ``cache``, or else
    the user's. The result is on the CPU.
    """

    def reach(graph: Adjacency, groups: Sequence[Queries]) -> Reached:
        asked = [tensor for group in groups for tensor in (group.source, group.path)]

        def make() -> Batch:
            if (count := sum(map(len, groups))) >= _MANY:
                _log.info("Finding all answers of %s queries: a minute or so, once.", f"{count:,}")
            found = reachable(graph.to(device), [group.to(device) for group in groups]).to("cpu")
            numbers = {f"of_{number}": of for number, of in enumerate(found.of)}
            return {"offsets": found.sets.offsets, "members": found.sets.values, **numbers}

        name = f"reached-{fingerprint_of(data.graph.fingerprint, *asked)}"
        kept = disk_cached(name, make, cache)
        sets = CSR(kept["offsets"], kept["members"])
        return Reached(sets, [kept[f"of_{number}"] for number in range(len(groups))])

    chosen = splits or [split for split in data.splits if split != "train"]
    queries = {split: data.splits[split] for split in chosen}
    return evaluation_sets_of(data.graph.adjacency(), queries, protocol, reach)


def evaluation_sets_of(
    graph: Adjacency,
    splits: Mapping[str, Sequence[Queries]],
    protocol: Protocol,
    reach: Callable[[Adjacency, Sequence[Queries]], Reached] = reachable,
) -> dict[str, EvaluationSet]:
    """Prepare queries to be asked; ``graph`` is that of all true triples.

    All splits have the same ``constants``. ``reach`` finds what queries reach.
    """
    check_choice("protocol", protocol, METRICS)
    asked: dict[str, list[Queries]] = {}
    for split, groups in splits.items():
        inverses = [inverse_paths(group, graph.relations // 2) for group in groups]
        asked[split] = [*groups, *(inverses if protocol == "all" else [])]
    reached = reach(graph, [group for groups in asked.values() for group in groups])
    ranges = graph.ranges()
    constants = {"right_offsets": reached.sets.offsets, "right_members": reached.sets.values}
    if protocol == "range":
        constants |= {"range_offsets": ranges.offsets, "range_members": ranges.values}
    candidates = ranges if protocol == "range" else graph.entities
    sets = iter(reached.of)
    made = {}
    for split, groups in asked.items():
        tables: list[Batch] = [group.table() | {"right": next(sets)} for group in groups]
        joined = _joined([_with_negatives(table, candidates, reached.sets) for table in tables])
        skipped = sum(map(len, groups)) - sum(len(table["target"]) for table in joined)
        made[split] = EvaluationSet(protocol, graph.entities, joined, constants, skipped)
    return made


def _with_negatives(table: Batch, candidates: CSR | int, sets: CSR) -> Batch:
    """The rows that have any; ``candidates`` by the last relation, or how many all are.

    What a path reaches is in the range of its last relation, so sizes tell how many candidates
    are left. A single one may be the target itself, if that is a candidate and yet not reached.
    """
    last, right, target = table["path"][:, -1].long(), table["right"].long(), table["target"]
    if isinstance(candidates, int):
        sizes = torch.full_like(last, candidates)
    else:
        sizes = candidates.sizes_of(last)
    left = sizes - sets.sizes_of(right)
    single = (left == 1).nonzero().flatten()
    for some in portions(sizes[single], _AT_ONCE):
        rows = single[some]
        negative = sets.contain(right[rows], target[rows])
        if not isinstance(candidates, int):
            negative |= ~candidates.contain(last[rows], target[rows])
        left[rows] = negative.long()
    kept = (left > 0).nonzero().flatten()
    return {name: tensor[kept] for name, tensor in table.items()}


def _joined(tables: Sequence[Batch]) -> list[Batch]:
    """Tables of the same length as one; empty ones are left out."""
    by_length: dict[int, list[Batch]] = {}
    for table in tables:
        if len(table["target"]):
            by_length.setdefault(table["path"].shape[1], []).append(table)
    return [
        {name: torch.cat([part[name] for part in by_length[hops]]) for name in by_length[hops][0]}
        for hops in sorted(by_length)
    ]


def negatives(constants: Batch, rows: Batch, entities: int) -> Bool[Tensor, "queries {entities}"]:
    """Whom the targets of some rows of an evaluation set are ranked among."""
    right = CSR(constants["right_offsets"], constants["right_members"])
    mask = ~right.mask(rows["right"], entities)
    if "range_offsets" in constants:
        ranges = CSR(constants["range_offsets"], constants["range_members"])
        mask &= ranges.mask(rows["path"][:, -1], entities)
    target = rows["target"].long().unsqueeze(1)
    return mask.scatter_(1, target, False)  # also if the graph does not know this answer


@dataclass(frozen=True, eq=False)
class Ranks:
    """Of each answer: how many negatives have a higher score, the same score, and how many all are.

    The rank follows from a tie rule.
    """

    higher: Int32[Tensor, "*queries"]
    same: Int32[Tensor, "*queries"]
    negatives: Int32[Tensor, "*queries"]

    def ranks(self, ties: Ties = "realistic") -> Float64[Tensor, "*queries"]:
        """From 1, the best.

        >>> Ranks(*torch.tensor([[2], [1], [9]]).int()).ranks("realistic")
        tensor([3.5000], dtype=torch.float64)
        """
        return 1 + self._before(ties)

    def quantiles(self, ties: Ties = "realistic") -> Float64[Tensor, "*queries"]:
        """The share of negatives behind the answer; 1 is the best. NaN where there are none.

        >>> Ranks(*torch.tensor([[2], [1], [10]]).int()).quantiles("pessimistic")
        tensor([0.7000], dtype=torch.float64)
        """
        return (self.negatives - self._before(ties)) / self.negatives

    def metrics(
        self, protocol: Protocol, ties: Ties = "realistic"
    ) -> dict[str, Float64[Tensor, "*queries"]]:
        """What the protocol measures, for each query; averages are reported."""
        ranks = self.ranks(ties)
        known = {
            "MQ": self.quantiles(ties),
            "MRR": 1 / ranks,
            **{f"H@{k}": (ranks <= k).double() for k in (1, 3, 10)},
        }
        return {name: known[name] for name in METRICS[protocol]}

    def averages(self, protocol: Protocol, ties: Ties = "realistic") -> dict[str, float]:
        return {name: float(each.mean()) for name, each in self.metrics(protocol, ties).items()}

    def _before(self, ties: Ties) -> Tensor:
        check_choice("ties", ties, TIES)
        return self.higher + TIES[ties] * self.same.double()


def rank(
    scores: Float[Tensor, "queries entities"],
    target: Int[Tensor, " queries"],
    negatives: Bool[Tensor, "queries entities"],
) -> Ranks:
    """How the target of each query ranks among its negatives.

    A score that is not a number counts as higher than everything, and if it is the target's own,
    all negatives rank before it: a model that has diverged is not rewarded. Works under vmap.
    """
    own = scores.gather(1, target.long().unsqueeze(1))
    higher, same = ~(scores <= own) & negatives, (scores == own) & negatives
    return Ranks(*(each.sum(1, dtype=torch.int32) for each in (higher, same, negatives)))


@torch.no_grad()
def rank_all(score: Score, asked: EvaluationSet, block: int = 512) -> dict[int, Ranks]:
    """The ranks of the answers to all queries, by length; on the device of the evaluation set.

    ``block`` queries are asked at once, which bounds the memory: about ten bytes for each of them
    and each entity, besides what the model itself needs.
    """
    if block < 1:
        raise ValueError(f"block={block}, but at least 1 query is asked at once.")
    ranks = {}
    for table in asked.tables:
        parts = []
        for first in range(0, len(table["target"]), block):
            rows = {name: tensor[first : first + block] for name, tensor in table.items()}
            scores = score(rows["source"], rows["path"])
            mask = negatives(asked.constants, rows, asked.entities)
            parts.append(rank(scores, rows["target"], mask))
        ranks[table["path"].shape[1]] = joined_ranks(parts)
    return ranks


def at_once(entities: int) -> int:
    """How many queries to ask together, so that their scores take a gigabyte at most."""
    return max(1, _SCORES // entities)


def joined_ranks(parts: Sequence[Ranks]) -> Ranks:
    columns = zip(*((part.higher, part.same, part.negatives) for part in parts), strict=True)
    return Ranks(*map(torch.cat, columns))


@dataclass(frozen=True)
class Evaluation:
    """Averages over all queries and over those of each length, and how they were made."""

    protocol: Protocol
    ties: Ties
    queries: int
    skipped: int
    averages: dict[str, float]
    by_length: dict[int, dict[str, float]]

    def words(self) -> str:
        """The protocol in a line."""
        left_out = f"; {self.skipped:,} without negatives left out" if self.skipped else ""
        return f"{self.queries:,} queries{left_out}; {_WORDS[self.protocol]}; ties: {self.ties}."


def evaluate(
    score: Score, asked: EvaluationSet, ties: Ties = "realistic", block: int = 512
) -> Evaluation:
    """Measure a model by the protocol of the evaluation set."""
    ranks = rank_all(score, asked, block)
    if not ranks:
        raise ValueError("no query has negatives; there is nothing to measure.")
    averages = joined_ranks(list(ranks.values())).averages(asked.protocol, ties)
    by_length = {hops: some.averages(asked.protocol, ties) for hops, some in ranks.items()}
    return Evaluation(asked.protocol, ties, len(asked), asked.skipped, averages, by_length)


def best_of(scores: Mapping[K, Score], asked: EvaluationSet, metric: str, block: int) -> K:
    """Which of these ways to score answers the queries best; of equally good ones the first."""
    return max(scores, key=lambda way: evaluate(scores[way], asked, block=block).averages[metric])
