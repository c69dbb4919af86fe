"""The training loop can stand on path queries: tables of each length, sets shared by all splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from dcgraph.experiments.tasks.paths.protocols import EvaluationSet, measured, negatives
from dcgraph.experiments.tasks.paths.ranking import rank
from dcgraph.experiments.tasks.paths.sampling import sample
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dcgraph.experiments.engine import Settings, Task, train
from dcgraph.experiments.engine.task import Batch, Data
from dcgraph.experiments.tasks.paths.data import PathData
from dcgraph.experiments.tasks.paths.evaluation import evaluate
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


class Clock(Task):
    name: ClassVar[str] = "clock"
    settings: ClassVar[type[Settings]] = Plain
    presets: ClassVar[Mapping[str, Settings]] = {"default": Plain(epochs=12, batch=24, lr=0.1)}
    monitor: ClassVar[str] = "MRR"

    def data(self, settings: Settings, data_dir: Path | None = None) -> Data:
        source = clock()
        asked = source.examinations("all", cache=data_dir)
        tables = {split: asked[split].tables for split in asked}
        train_tables = [group.table() for group in source.splits["train"]]
        shared = asked["test"].shared
        return Data({"train": train_tables, **tables}, source.fingerprint, shared)

    def model(self, settings: Settings) -> nn.Module:
        return Turns()

    def inputs(self, settings: Settings, shared: Batch, rows: Batch, training: bool) -> Batch:
        return rows if training else rows | {"others": negatives(shared, rows, ENTITIES)}

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, " examples"]:
        scores = model(batch["source"], batch["path"])
        return cross_entropy(scores, batch["target"].long(), reduction="none")

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, " examples"]]:
        ranks = rank(model(batch["source"], batch["path"]), batch["target"], batch["others"])
        return {name: value.float() for name, value in measured(ranks, "all").items()}


def test_a_population_trains_and_is_measured_as_each_model_alone(tmp_path: Path) -> None:
    task = Clock()
    settings = task.presets["default"]
    data = task.data(settings, tmp_path)
    replicas = [Plain(epochs=12, batch=24, lr=0.1, seed=seed) for seed in (0, 1)]
    outcome = train(task, replicas, data)
    exam = EvaluationSet("all", ENTITIES, list(data.tables("test")), data.shared, 0)
    for replica in (0, 1):
        alone = evaluate(outcome.model(replica), exam, block=50).averages
        for name, value in alone.items():
            assert outcome.test[replica][f"{name}/argmax"] == pytest.approx(value, abs=1e-4)
        first = outcome.curve[0].metrics["MRR/argmax"][replica]
        assert first is not None and alone["MRR"] > max(0.4, first)
