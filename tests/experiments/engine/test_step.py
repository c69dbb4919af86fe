"""Steps of a population: those of single models, diverging replicas, averages, learning rates."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

import dcgraph as dc
from dcgraph.experiments.engine.settings import dials_of
from dcgraph.experiments.engine.step import Stepper, bytes_per_replica
from dcgraph.population._rows import RowPopulation
from parity import QUICK, Parity, ParitySettings

TASK = Parity()
CPU = torch.device("cpu")


def stepper_of(replicas: list[ParitySettings], steps: int = 16) -> tuple[RowPopulation, Stepper]:
    population = RowPopulation(lambda: TASK.model(replicas[0]), [r.seed for r in replicas], CPU)
    dials_of(replicas).attach(population)
    stepper = Stepper(TASK, population, replicas, TASK.data(replicas[0]), steps)
    stepper.start_epoch([[torch.arange(64)] * len(replicas)], [0] * 8)
    return population, stepper


def test_training_a_population_equals_single_runs_without_noise() -> None:
    quiet = replace(QUICK, tempmatch=False, beta=0.0, dropres=False)
    replicas = [replace(quiet, seed=1), replace(quiet, seed=2, lr=1e-2, tau=2.0)]
    together, stepper = stepper_of(replicas)
    stepper.run(8)
    for r, replica in enumerate(replicas):
        torch.manual_seed(replica.seed)
        model = TASK.model(replica)
        dc.Dials(tau=replica.tau, beta=0.0, alpha=1.0).attach(model)
        optimizer = torch.optim.Adam(model.parameters(), replica.lr)
        train = TASK.data(replica).table("train")
        for k in range(8):
            rows = {name: table[8 * k : 8 * k + 8] for name, table in train.items()}
            TASK.loss(model, rows).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        for name, parameter in together.replica(r).named_parameters():
            torch.testing.assert_close(parameter, model.get_parameter(name), rtol=1e-4, atol=1e-5)


def test_replicas_draw_different_noise() -> None:
    same = [QUICK, replace(QUICK, lr=QUICK.lr)]  # two with one seed
    population, stepper = stepper_of([replace(s, tempmatch=False, beta=2.0) for s in same])
    assert torch.equal(population.weights[0], population.weights[1])
    stepper.run(1)
    assert not torch.equal(population.weights[0], population.weights[1])


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_a_diverging_replica_stops_and_changes_no_other_by_a_bit(poison: float) -> None:
    replicas = [replace(QUICK, seed=seed) for seed in range(3)]
    torch.manual_seed(0)
    healthy, stepper = stepper_of(replicas)
    stepper.run(8)
    torch.manual_seed(0)
    sick, sick_stepper = stepper_of(replicas)
    sick_stepper.run(3)
    sick.weights[1, 0] = poison
    frozen = sick.weights[1].clone()
    sick_stepper.run(5)
    assert sick_stepper.trainer_state.alive.tolist() == [True, False, True]
    assert sick_stepper.trainer_state.stopped_at.tolist() == [-1, 3, -1]
    for r in (0, 2):
        assert torch.equal(sick.weights[r], healthy.weights[r])
    torch.testing.assert_close(sick.weights[1], frozen, rtol=0, atol=0, equal_nan=True)
    assert stepper.trainer_state.alive.all()


def test_averaged_weights_follow_the_weights_of_those_who_ask() -> None:
    replicas = [replace(QUICK, seed=1), replace(QUICK, seed=1, average=0.5)]
    population, stepper = stepper_of(replicas)
    average, seen = population.weights[1].clone(), []
    for step in range(1, 5):
        stepper.run(1)
        seen.append(population.weights[1].clone())
        decay = min(0.5, (1 + step) / (10 + step))
        average.lerp_(seen[-1], 1 - decay)
    torch.testing.assert_close(stepper.tested_weights[1], average)
    assert torch.equal(stepper.tested_weights[0], population.weights[0])


def test_the_learning_rate_falls_linearly_after_its_share_of_training() -> None:
    """Adam's first steps move every weight by the learning rate, whatever the gradient."""
    population, stepper = stepper_of([replace(QUICK, decay=0.5)], steps=4)
    sizes = []
    for _ in range(4):
        before = population.weights.clone()
        stepper.run(1)
        sizes.append(float((population.weights - before).abs().max()) / QUICK.lr)
    assert sizes[0] == pytest.approx(1, rel=1e-3)
    assert sizes[3] < 0.6 * sizes[1]


def test_memory_of_a_replica_grows_with_the_batch() -> None:
    data = TASK.data(QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as that the nodes have no dials
        small, large = (bytes_per_replica(TASK, replace(QUICK, batch=b), data) for b in (8, 64))
    weights = 4 * sum(p.numel() for p in TASK.model(QUICK).parameters())
    assert 8 * weights < small < large < 8 * small


def test_a_look_at_the_memory_warns_of_no_missing_dials() -> None:
    """The loop attaches them later: each training began with a false warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bytes_per_replica(TASK, QUICK, TASK.data(QUICK)) > 0


def test_an_epoch_ends() -> None:
    _, stepper = stepper_of([QUICK], steps=8)
    stepper.run(6)
    with pytest.raises(ValueError, match="steps=3, but the epoch has only 2 left"):
        stepper.run(3)


@pytest.mark.parametrize("largest", [0, 100])
def test_large_parameters_are_columns_of_their_own(
    largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which changes nothing but how often Adam is called."""
    replicas = [replace(QUICK, seed=1), replace(QUICK, seed=2)]
    together, stepper = stepper_of(replicas)
    torch.manual_seed(0)
    stepper.run(8)
    counts = [len(list(together.columns(list(together.slices(together.weights).values()))))]
    monkeypatch.setattr("dcgraph.population._rows._LARGE", largest)
    apart, stepper = stepper_of(replicas)
    torch.manual_seed(0)
    stepper.run(8)
    counts += [len(list(apart.columns(list(apart.slices(apart.weights).values()))))]
    assert counts[0] == 1 < counts[1]
    assert torch.equal(together.weights, apart.weights)
