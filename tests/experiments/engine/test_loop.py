"""The training loop: it repeats, learns, keeps the best weights, and stops what diverges."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dcgraph.experiments.engine import (
    Batch,
    Callbacks,
    Data,
    Evaluation,
    Interrupted,
    Metric,
    Outcome,
    train,
)
from dcgraph.experiments.engine.order import order_of_epoch
from dcgraph.experiments.engine.runs import make_records
from parity import ACCURACY, DATA, QUICK, TASK, THREE, Lengths, Parity, ParitySettings, same


def test_the_same_seeds_repeat_bit_for_bit() -> None:
    one, two = train(TASK, THREE, DATA), train(TASK, THREE, DATA)
    assert same(one, two)
    assert [look.step for look in one.curve] == [4, 8, 12, 16]
    sampled = replace(ACCURACY, decoder="sample")
    assert set(one.curve[0].metrics) == {ACCURACY, sampled}
    assert set(one.metrics[0]) == {replace(metric, set="test") for metric in (ACCURACY, sampled)}


def test_batches_have_one_shape_and_every_replica_its_own_order(tmp_path: Path) -> None:
    task = Lengths()
    data = task.data(QUICK)
    assert data.sizes("train") == [64, 10] and data.size("test") == 26
    seen: list[tuple[int, ...]] = []

    class Watched(Lengths):
        def loss(self, model: nn.Module, batch: Batch) -> Tensor:
            if model.training:
                seen.append(tuple(batch["bits"].shape))
            return super().loss(model, batch)

    one = train(Watched(), THREE, data)
    assert one.steps == 2 * (8 + 1), "10 examples give one whole batch of 8"
    steps = seen[: one.steps + 8]  # and a probe for each evaluation and replica
    assert steps.count((8, 2)) == 2 and set(steps) >= {(8, 2), (8, 3)}
    assert same(one, train(task, THREE, data)), "and it repeats"

    def stop(step: int, steps: int) -> None:
        if step >= 5:
            os.kill(os.getpid(), signal.SIGINT)

    path = tmp_path / "checkpoint.pt"
    with pytest.raises(Interrupted):
        train(task, THREE, data, save_to=path, callbacks=Callbacks(progress=stop))
    assert same(one, train(task, THREE, data, save_to=path, resume=True)), "also when cut off"


class Counted(Parity):
    """Its loss is the number of the example, whatever the model does."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return 0 * super().loss(model, batch) + batch["number"]


def test_the_loss_of_a_curve_is_the_mean_since_the_last_evaluation() -> None:
    """The numbers of the examples in the order of each replica, which differ."""
    numbered = {"train": {**DATA.table("train"), "number": torch.arange(64.0)}}
    splits = {s: {**DATA.table(s), "number": torch.zeros(16)} for s in ("validation", "test")}
    outcome = train(Counted(), THREE, replace(DATA, splits=numbered | splits))
    records = make_records(TASK, outcome, DATA)
    for index, settings in enumerate(THREE):
        orders = [order_of_epoch(64, settings.seed, epoch).float() for epoch in range(2)]
        means = [half.mean().item() for order in orders for half in order.split(32)]
        assert [one.loss[index] for one in outcome.curve] == pytest.approx(means)
        assert records[index].curve.loss == pytest.approx(means)


class Constant(Parity):
    """All evaluations are equally good."""

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"accuracy": torch.ones(len(batch["parity"]))}


def test_of_equally_good_weights_the_earliest_are_kept() -> None:
    outcome = train(Constant(), THREE, DATA)
    assert outcome.best_step == [4, 4, 4]
    assert [r.selection.step for r in make_records(TASK, outcome, DATA)] == [4, 4, 4]


def test_it_learns() -> None:
    long = replace(QUICK, epochs=30, lr=3e-2, alpha_step=0.05, gamma=0.05, evaluations=1)
    outcome = train(TASK, [replace(long, seed=seed) for seed in range(6)], DATA)
    assert max(final[Metric("accuracy")] or 0 for final in outcome.metrics) == 1.0
    model = outcome.model(0)
    assert not model.training


def test_the_best_weights_are_those_of_the_best_evaluation() -> None:
    outcome = train(TASK, THREE, DATA)
    for index in range(len(THREE)):
        values = [look.metrics[ACCURACY][index] or 0.0 for look in outcome.curve]
        assert values[[4, 8, 12, 16].index(outcome.best_step[index])] == max(values)
        assert outcome.score(index) == max(values)
    held_out = DATA.table("validation")
    model = outcome.model(1)
    right = TASK.metrics(model, held_out)["accuracy"].mean()
    assert float(right) == pytest.approx(outcome.score(1))


def test_a_diverging_replica_is_reported_and_its_best_weights_stay() -> None:
    wild = replace(QUICK, seed=7, lr=1e30)
    told: list[tuple[ParitySettings, int]] = []
    outcome = train(
        TASK,
        [THREE[0], wild],
        DATA,
        callbacks=Callbacks(stopped=lambda s, step: told.append((s, step))),  # type: ignore[arg-type]
    )
    assert [settings.seed for settings, _ in told] == [7]
    assert outcome.stopped_at[0] is None and outcome.stopped_at[1] == told[0][1]
    assert outcome.curve[-1].metrics[ACCURACY][1] is None
    assert outcome.curve[-1].loss[1] is None
    assert outcome.best_weights.isfinite().all()
    alone = train(TASK, [THREE[0], replace(QUICK, seed=7)], DATA)
    assert torch.equal(alone.population.weights[0], outcome.population.weights[0])


def test_a_population_that_diverges_as_a_whole_stops_early() -> None:
    wild = [replace(QUICK, seed=seed, lr=1e30, epochs=500) for seed in range(2)]
    outcome = train(TASK, wild, DATA)
    assert outcome.population.device.type == "cpu"
    assert all(step is not None and step < 100 for step in outcome.stopped_at)
    assert len(outcome.curve) < 100


def test_a_single_replica_that_diverges_is_stopped_too() -> None:
    """Without vmap the nodes could read their logits, and would complain before the loop looks."""
    outcome = train(TASK, [replace(QUICK, lr=1e30)], DATA)
    assert outcome.stopped_at[0] is not None and outcome.best_weights.isfinite().all()


def test_a_pruned_replica_stops_and_changes_nothing_in_the_others(tmp_path: Path) -> None:
    heard: list[int] = []
    whole, path = train(TASK, THREE, DATA), tmp_path / "checkpoint.pt"

    def prune(new: Evaluation) -> list[int]:
        return [1] if new.step == 8 else []

    pruning = Callbacks(evaluation=prune, stopped=lambda settings, step: heard.append(step))
    outcome = train(TASK, THREE, DATA, callbacks=pruning)
    values = [[one.metrics[ACCURACY][index] for one in outcome.curve] for index in range(3)]
    assert [value is None for value in values[1]] == [False, False, True, True]
    assert outcome.stopped_at == [None] * 3 and not heard, "nothing was not finite"
    assert outcome.best_step[1] <= 8 and outcome.metrics[1]
    for index in (0, 2):
        assert torch.equal(whole.population.weights[index], outcome.population.weights[index])
        assert whole.metrics[index] == outcome.metrics[index]

    def stop(step: int, steps: int) -> None:
        if step >= 10:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        train(TASK, THREE, DATA, save_to=path, callbacks=replace(pruning, progress=stop))
    brought: list[int] = []
    resumed = Callbacks(resumed=lambda curve: brought.extend(one.step for one in curve))
    again = train(TASK, THREE, DATA, save_to=path, resume=True, callbacks=resumed)
    assert same(again, outcome) and again.stopped_at == [None] * 3 and brought == [4, 8, 12]


def test_a_population_that_is_pruned_as_a_whole_ends() -> None:
    outcome = train(TASK, THREE, DATA, callbacks=Callbacks(evaluation=lambda new: range(3)))
    assert [evaluation.step for evaluation in outcome.curve] == [4] and outcome.metrics[2]


def test_data_are_checked_before_training() -> None:
    with pytest.raises(ValueError, match="no split 'test'"):
        train(TASK, THREE, DATA.only("train", "validation"))
    with pytest.raises(ValueError, match="as many rows"):
        Data(
            {"train": {"x": torch.zeros(3), "y": torch.zeros(2)}, "test": {"x": torch.zeros(1)}}, ""
        )


def test_in_a_thread_ctrl_c_is_left_to_the_main_thread() -> None:
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(train(TASK, THREE[:1], DATA)))
    thread.start()
    thread.join()
    assert len(outcomes) == 1


def test_replicas_of_different_structure_are_refused() -> None:
    with pytest.raises(ValueError, match="differ only in settings per replica"):
        train(TASK, [QUICK, replace(QUICK, width=4)], DATA)
    with pytest.raises(
        ValueError, match="batch=65, but there are at most 64 training examples; use"
    ):
        train(TASK, [replace(QUICK, batch=65)], DATA)


def test_an_evaluation_may_be_due_every_few_epochs() -> None:
    settings = replace(QUICK, epochs=5, evaluations=1, evaluate_every=2)
    outcome = train(Parity(), [settings], DATA)
    assert [look.step / 8 for look in outcome.curve] == [2, 4, 5], "in epochs of 8 steps"
