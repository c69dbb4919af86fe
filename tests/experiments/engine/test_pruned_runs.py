"""Runs whose codebooks are pruned halfway: when, by what, and that they resume alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dcgraph.experiments.engine.errors import Interrupted
from dcgraph.experiments.engine.loop import Callbacks, train
from dcgraph.experiments.tasks.addition.settings import DEMO
from dcgraph.experiments.tasks.addition.task import Addition
from dcgraph.nodes import Discrete, named_nodes

TASK = Addition()
SHORT = replace(DEMO, symbols=24, prune=0.05, batch=320, examples=6400, evaluations=4)
DATA = TASK.data(SHORT)


def kept(population: torch.nn.Module) -> list[torch.Tensor]:
    return [
        n.kept for _, n in named_nodes(population) if isinstance(n, Discrete) and n.kept is not None
    ]


def test_rare_symbols_are_pruned_halfway_and_the_best_weights_come_after() -> None:
    replicas = [replace(SHORT, seed=seed) for seed in range(2)]
    outcome = train(TASK, replicas, DATA)
    left = kept(outcome.population.stacked)
    assert [tuple(one.shape) for one in left] == [(2, 24), (2, 24)]
    assert all(0 < int(own.sum()) < 24 for one in left for own in one)
    assert all(step >= outcome.steps // 2 for step in outcome.best_step)
    whole = train(TASK, [replace(SHORT, prune=0.0)], DATA)
    assert kept(whole.population.stacked) == []


def test_a_pruned_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    whole = train(TASK, [SHORT], DATA)

    def stop(step: int, steps: int) -> None:
        if step >= 0.7 * steps:
            raise Interrupted(2)

    with pytest.raises(Interrupted):
        train(TASK, [SHORT], DATA, save_to=path, save_every=0.0, callbacks=Callbacks(progress=stop))
    resumed = train(TASK, [SHORT], DATA, save_to=path, resume=True)
    assert torch.equal(whole.best_weights, resumed.best_weights)
    for one, other in zip(
        kept(whole.population.stacked), kept(resumed.population.stacked), strict=True
    ):
        assert torch.equal(one, other)


def test_a_model_without_nodes_to_prune_says_so() -> None:
    with pytest.raises(ValueError, match="no nodes to prune"):
        train(TASK, [replace(SHORT, symbols=0)], DATA)
    with pytest.raises(ValueError, match="share of the choices"):
        replace(SHORT, prune=1.0)
