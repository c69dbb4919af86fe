"""The training loop can stand on path queries: tables of each length, sets for all splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dcgraph.experiments.engine import Settings, Task, train
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.task import Batch, Data, Execution
from dcgraph.experiments.tasks.paths.data import PathData
from dcgraph.experiments.tasks.paths.data.walks import sample
from dcgraph.experiments.tasks.paths.evaluation import (
    EvaluationSet,
    evaluate,
    evaluation_sets,
    negatives,
    rank,
)
from small_graphs import graph_of

ENTITIES, RELATIONS = 24, 2
LENGTHS = dict.fromkeys(("train", "validation", "test"), range(2, 4))


def clock() -> PathData:
    """Entities on a circle; one relation leads one on, the other five."""
    triples = [
        (k, r, (k + step) % ENTITIES) for k in range(ENTITIES) for r, step in ((0, 1), (1, 5))
    ]
    graph = graph_of({"train": triples, "validation": triples[::3], "test": triples[1::3]})
    return PathData(graph, sample(graph, 0, LENGTHS))


class Turns(nn.Module):
    """Eight angles for each entity and relation; those of the relations are added on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.entities = nn.Parameter(torch.randn(ENTITIES, 8))
        self.relations = nn.Parameter(torch.randn(2 * RELATIONS, 8))

    def forward(self, source: Tensor, path: Tensor) -> Tensor:
        at = self.entities[source.long()] + self.relations[path.long()].sum(-2)
        return 4 * torch.cos(at.unsqueeze(-2) - self.entities).mean(-1)


@dataclass(frozen=True, kw_only=True)
class Plain(Settings):
    """Nothing of its own."""


class Clock(Task[Plain]):
    name: ClassVar[str] = "clock"
    settings: ClassVar[type[Settings]] = Plain
    presets: ClassVar[Mapping[str, Settings]] = {"default": Plain(epochs=12, batch=24, lr=0.1)}

    def data(self, settings: Plain, data_dir: Path | None = None) -> Data:
        source = clock()
        asked = evaluation_sets(source, "all", cache=data_dir)
        tables = {split: asked[split].tables for split in asked}
        train_tables = [group.table() for group in source.splits["train"]]
        splits = {"train": train_tables, **tables}
        return Data(splits, source.fingerprint, asked["test"].constants, _to_batch)

    def model(self, settings: Plain) -> nn.Module:
        return Turns()

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, " examples"]:
        scores = model(batch["source"], batch["path"])
        return cross_entropy(scores, batch["target"].long(), reduction="none")

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, " examples"]]:
        ranks = rank(model(batch["source"], batch["path"]), batch["target"], batch["others"])
        return {name: value.float() for name, value in ranks.metrics("all").items()}

    def execution(self, settings: Plain) -> Execution:
        return Execution(monitor="MRR")


def _to_batch(constants: Batch, rows: Batch, training: bool) -> Batch:
    return rows if training else rows | {"others": negatives(constants, rows, ENTITIES)}


def test_a_population_trains_and_is_measured_as_each_model_by_itself(tmp_path: Path) -> None:
    task, settings = Clock(), Plain(epochs=12, batch=24, lr=0.1)
    data = task.data(settings, tmp_path)
    replicas = [Plain(epochs=12, batch=24, lr=0.1, seed=seed) for seed in (0, 1)]
    outcome = train(task, replicas, data)
    asked = EvaluationSet("all", ENTITIES, list(data.tables("test")), data.constants, 0)
    for replica in (0, 1):
        own = evaluate(outcome.model(replica), asked, block=50).averages
        for name, value in own.items():
            assert outcome.metrics[replica][Metric(name)] == pytest.approx(value, abs=1e-4)
        first = outcome.curve[0].metrics[Metric("MRR", "validation")][replica]
        assert first is not None and own["MRR"] > max(0.4, first)
