"""Path queries on a GPU: captured training, sets of negatives of all sizes, precision, beams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from dcgraph.experiments.engine import train
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.tasks.paths.decoding import beam_search, bidirectional_steps, step_scores
from dcgraph.experiments.tasks.paths.evaluation import Score
from dcgraph.experiments.tasks.paths.model import DiscreteComplEx, Shape
from dcgraph.experiments.tasks.paths.settings import SMALL, PathSettings
from dcgraph.experiments.tasks.paths.task import Paths
from path_models import MODELS
from small_graphs import write_ring

MRR = Metric("MRR", "validation")

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    # torch's own: the compiler warns about its internals.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::UserWarning:torch"),
]


def settings_for(folder: Path, entities: int) -> PathSettings:
    """Without noise and dropout, so that runs on two devices differ only by rounding."""
    write_ring(folder, entities, {"next": 1, "skip": 5}, every=entities // 3)
    return replace(
        SMALL, graph=str(folder), dim=8, batch=min(entities, 512), epochs=2, evaluate_every=1,
        lr=1e-3, tempmatch=False, beta=0.0, dropres=False, subject_dropout=0.0,
        object_dropout=0.0, relation_dropout=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("entities", "compiled"), [(12, False), (12, True), (5000, False), (5000, True)]
)
def test_path_queries_train_as_on_the_cpu(entities: int, compiled: bool, tmp_path: Path) -> None:
    """5,000 entities are a large codebook, 12 are not."""
    task, settings = Paths(), settings_for(tmp_path, entities)
    replicas = [settings, replace(settings, seed=1, lr=3e-3)]
    data = task.data(settings)
    cpu = train(task, replicas, data)
    cuda = train(task, replicas, data, device="cuda", compiled=compiled)
    torch.testing.assert_close(
        cuda.population.weights.cpu(), cpu.population.weights, rtol=1e-3, atol=2e-3
    )
    for there, here in zip(cuda.curve, cpu.curve, strict=True):
        assert there.metrics[MRR] == pytest.approx(here.metrics[MRR], abs=0.02)


@pytest.mark.parametrize("model", [name for name in MODELS if name != "discrete"])
def test_every_baseline_trains_from_a_captured_step(model: str, tmp_path: Path) -> None:
    task, settings = Paths(), settings_for(tmp_path, 5000)
    one = replace(settings, model=model, precision="bf16", lr=0.02, epochs=4)  # type: ignore[arg-type]
    outcome = train(task, [one], task.data(one), device="cuda")
    first, last = (look.loss[0] for look in (outcome.curve[0], outcome.curve[-1]))
    assert first is not None and last is not None and last < first


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_less_precision_trains_too(precision: str, tmp_path: Path) -> None:
    task, settings = Paths(), settings_for(tmp_path, 5000)
    rough = replace(settings, precision=precision, object_dropout=0.1, noise="reversed")  # type: ignore[arg-type]
    noisy = replace(rough, tempmatch=True, dropres=True, lr=0.02, epochs=4)
    outcome = train(task, [noisy, replace(noisy, seed=1)], task.data(settings), device="cuda")
    first, last = outcome.curve[0].loss, outcome.curve[-1].loss
    assert outcome.stopped_at == [None, None]
    for before, after in zip(first, last, strict=True):
        assert before is not None and after is not None and after < before
    found = outcome.metrics[0][Metric("MRR", length=10)]
    assert found is not None and 0 < found <= 1


@torch.no_grad()
@pytest.mark.parametrize("way", [step_scores, lambda model: bidirectional_steps(model)(0.5)])
def test_a_beam_on_a_gpu_is_the_one_on_the_cpu(way: Callable[[nn.Module], Score]) -> None:
    torch.manual_seed(0)
    model = DiscreteComplEx(Shape(entities=500, relations=4, width=16)).eval()
    source, path = torch.arange(40).int(), torch.randint(4, (40, 5)).int()
    here = list(beam_search(way(model), source, path, 8))
    there = list(beam_search(way(model.cuda()), source.cuda(), path.cuda(), 8))
    for mine, other in zip(here, there, strict=True):
        assert torch.equal(mine.kept, other.kept.cpu())
        torch.testing.assert_close(mine.log_weights, other.log_weights.cpu(), rtol=1e-3, atol=1e-3)
