"""Asking a model all queries of an examination, block by block on its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from .protocols import Examination, Protocol, competitors, measured
from .ranking import Standing, Ties, standing

Score = Callable[
    [Int32[Tensor, "queries"], Int32[Tensor, "queries hops"]], Float[Tensor, "queries entities"]
]
"""A model: from sources and paths of one length to a score for each entity, higher is better."""

K = TypeVar("K")

_WORDS = {
    "range": "competitors: what the last relation can lead to, less what the path reaches",
    "all": "competitors: all entities less what the path reaches; paths are asked both ways",
}


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
        left_out = f"; {self.skipped:,} without competitors left out" if self.skipped else ""
        return f"{self.queries:,} queries{left_out}; {_WORDS[self.protocol]}; ties: {self.ties}."


@torch.no_grad()
def stand(score: Score, asked: Examination, block: int = 512) -> dict[int, Standing]:
    """How the answers to all queries stand, for each length; on the device of the examination.

    ``block`` queries are asked at once, which bounds the memory: about ten bytes for each of them
    and each entity, besides what the model itself needs.
    """
    if block < 1:
        raise ValueError(f"block={block}, but at least 1 query is asked at once.")
    stands = {}
    for table in asked.tables:
        parts = []
        for first in range(0, len(table["target"]), block):
            rows = {name: tensor[first : first + block] for name, tensor in table.items()}
            scores = score(rows["source"], rows["path"])
            mask = competitors(asked.shared, rows, asked.entities)
            parts.append(standing(scores, rows["target"], mask))
        stands[table["path"].shape[1]] = _joined(parts)
    return stands


def evaluate(
    score: Score, asked: Examination, ties: Ties = "realistic", block: int = 512
) -> Evaluation:
    """Measure a model by the protocol of the examination."""
    stands = stand(score, asked, block)
    if not stands:
        raise ValueError("no query has competitors; there is nothing to measure.")
    every = _joined(list(stands.values()))
    return Evaluation(
        asked.protocol,
        ties,
        len(asked),
        asked.skipped,
        _averages(every, asked.protocol, ties),
        {hops: _averages(stands[hops], asked.protocol, ties) for hops in stands},
    )


def best_way(ways: Mapping[K, Score], asked: Examination, metric: str, block: int) -> K:
    """Which of these ways to score answers the queries best; of equally good ones the first.

    They are queries with known answers that are not those of the test.
    """
    return max(ways, key=lambda way: evaluate(ways[way], asked, block=block).averages[metric])


def _averages(stands: Standing, protocol: Protocol, ties: Ties) -> dict[str, float]:
    return {name: float(v.mean()) for name, v in measured(stands, protocol, ties).items()}


def _joined(parts: list[Standing]) -> Standing:
    return Standing(
        torch.cat([part.higher for part in parts]),
        torch.cat([part.same for part in parts]),
        torch.cat([part.competitors for part in parts]),
    )
