"""A small graph with fixed scores, and what PyKEEN's evaluator says of it.

PyKEEN brings more than thirty packages, so it is asked once and its answers are kept in
``pykeen_reference.json``. To ask it again, in an environment with pykeen 1.11.1:

    PYTHONPATH=src:tests python tests/pykeen_reference.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph
from small_graphs import graph_of

ANSWERS = Path(__file__).with_suffix(".json")
ENTITIES, RELATIONS = 13, 3


def graph() -> KnowledgeGraph:
    """Triples by a rule; nothing is drawn."""
    rows = [(k * k % 13, k % 3, (5 * k + k // 3) % 13) for k in range(96)]
    splits = {"train": rows[:60], "validation": rows[60:75], "test": rows[75:]}
    return graph_of(splits, ENTITIES, RELATIONS)


def scores(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    """Whole numbers from 0 to 6, so that many are equal."""
    return ((3 * head + 5 * tail * tail + head * tail + 7 * relation) % 7).float()


def ask_pykeen() -> dict[str, Any]:
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import Model
    from pykeen.triples import CoreTriplesFactory
    from pykeen.version import get_version

    every = {split: triples.long() for split, triples in graph().triples.items()}

    class Fixed(Model):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.register_buffer("place", torch.zeros(1))  # PyKEEN looks for the device there

        def _reset_parameters_(self) -> None: ...

        def _get_entity_len(self, mode: Any = None) -> int:
            return ENTITIES

        def collect_regularization_term(self) -> float:
            return 0.0

        def score_hrt(self, hrt_batch: Tensor, **_: Any) -> Tensor:
            return scores(*hrt_batch.unbind(1)).unsqueeze(1)

        def score_t(self, hr_batch: Tensor, **_: Any) -> Tensor:
            head, relation = hr_batch.unsqueeze(2).unbind(1)
            return scores(head, relation, torch.arange(ENTITIES))

        def score_r(self, ht_batch: Tensor, **_: Any) -> Tensor:
            head, tail = ht_batch.unsqueeze(2).unbind(1)
            return scores(head, torch.arange(RELATIONS), tail)

        def score_h(self, rt_batch: Tensor, **_: Any) -> Tensor:
            relation, tail = rt_batch.unsqueeze(2).unbind(1)
            return scores(torch.arange(ENTITIES), relation, tail)

    factory = CoreTriplesFactory(every["train"], num_entities=ENTITIES, num_relations=RELATIONS)
    found = RankBasedEvaluator(filtered=True).evaluate(
        Fixed(triples_factory=factory),
        every["test"],
        batch_size=8,
        device=torch.device("cpu"),
        additional_filter_triples=[every["train"], every["validation"]],
        use_tqdm=False,
    )
    names = {
        "MRR": "inverse_harmonic_mean_rank",
        "H@1": "hits_at_1",
        "H@3": "hits_at_3",
        "H@10": "hits_at_10",
    }
    return {
        "pykeen": get_version(),
        **{
            ties: {
                ours: found.get_metric(f"both.{ties}.{theirs}") for ours, theirs in names.items()
            }
            for ties in ("optimistic", "realistic", "pessimistic")
        },
    }


if __name__ == "__main__":
    ANSWERS.write_text(json.dumps(ask_pykeen(), indent=1) + "\n")
