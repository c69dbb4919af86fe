"""Path queries whose entities are divided over ranks; programs for ``ranks.run``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import dcgraph as dc
from dcgraph._checks import unchecked
from dcgraph._streams import Streams
from dcgraph.distributed import shard_rows
from dcgraph.distributed._shards import Shard
from dcgraph.experiments.engine import Callbacks, Execution, Interrupted, Outcome, train
from dcgraph.experiments.engine.checkpoint import load, save
from dcgraph.experiments.engine.divided import DividedRows
from dcgraph.experiments.engine.ranks import Ranks
from dcgraph.experiments.engine.runs import perform
from dcgraph.experiments.tasks.paths.model import ComplEx, DiscreteComplEx, PathModel, Shape
from dcgraph.experiments.tasks.paths.settings import PathSettings
from dcgraph.experiments.tasks.paths.task import Paths
from dcgraph.population._rows import RowPopulation
from parity import DATA, QUICK, TASK
from ranks import Found
from ring_of_paths import STEPS, settings_for
from shards import wire
from small_graphs import write_ring
from training_on_ranks import folder, here, jobs_in, said

QUERIES, HOPS, WIDTH = 20, 3, 6
"""Of single steps."""

ENTITIES = 13  # which neither two nor three ranks divide evenly
TASK_OF_PATHS = Paths()
SETTINGS: dict[str, dict[str, Any]] = {
    "soft": {
        "average": 0.9, "subject_dropout": 0.1, "object_dropout": 0.2, "relation_dropout": 0.1,
    },
    "hard": {
        "estimator": "straight_through_gumbel_softmax", "gate": "call", "noise": "reversed",
        "l2_entities": 1e-3, "l2_relations": 1e-3,
    },
    "complex": {"model": "complex", "object_dropout": 0.2},
    "diverging": {"lr": 1e30},
}  # fmt: skip


def divided() -> Ranks:
    return replace(here(), divided="codebook")


def write_graph(place: Path) -> None:
    (place / "ring").mkdir()
    write_ring(place / "ring", ENTITIES, STEPS)


def settings_in(place: Path, name: str, **changes: Any) -> PathSettings:
    quick = {"epochs": 4, "evaluate_every": 2, "beam": 2, "seed": 3}
    return settings_for(place / "ring", **quick | SETTINGS[name] | changes)


def trained_in(place: Path, name: str, ranks: Ranks, path: Path | None = None) -> Outcome:
    """With a path, on from there."""
    settings = settings_in(place, name)
    data = TASK_OF_PATHS.data(settings)
    return train(TASK_OF_PATHS, [settings], data, save_to=path, resume=True, ranks=ranks)


def found_in(outcome: Outcome) -> Found:
    """As plain values, of which rank 0 has all."""
    return {
        "weights": outcome.best_weights,
        "curve": [
            [one.step, *one.loss, *(value for some in one.metrics.values() for value in some)]
            for one in outcome.curve
        ],
        "metrics": {str(metric): value for metric, value in outcome.metrics[0].items()},
        "calibration": outcome.calibration[0],
        "stopped at": outcome.stopped_at,
    }


def trains() -> Found:
    return {name: found_in(trained_in(folder(), name, divided())) for name in SETTINGS}


class Sampled(Paths):
    """Also evaluated by sampling, which draws."""

    def execution(self, settings: PathSettings) -> Execution:
        return replace(super().execution(settings), decoders=("argmax", "sample"))


def is_sampled() -> Found:
    """A checkpoint is refused where ranks have other weights in common."""
    task, settings = Sampled(), settings_in(folder(), "soft")
    data, path = task.data(settings), folder() / "sampled.pt"
    return {"said": said(lambda: train(task, [settings], data, save_to=path, ranks=divided()))}


def is_not_finite() -> Found:
    """The loss of a step, before and after one rank has found a gradient that is not finite."""
    settings, group = settings_in(folder(), "soft"), dist.group.WORLD
    assert group is not None
    population = RowPopulation(partial(TASK_OF_PATHS.divided_model, settings, group), [3])
    rows = DividedRows(population, partial(TASK_OF_PATHS.model, settings), divided())
    gradients = [torch.zeros_like(part) for part in population.slices(population.weights).values()]
    before, _ = rows.agree(torch.ones(1), gradients)
    if here().rank == 1:
        gradients[0][0, 0] = torch.inf
    after, _ = rows.agree(torch.ones(1), gradients)
    return {"before": before, "after": after}


def writes() -> Found:
    """Records and models of two seeds, one after the other."""
    place = folder() / "divided"
    replicas = [settings_in(folder(), "soft", seed=seed) for seed in (3, 4)]
    jobs = jobs_in(place, replicas)
    outcomes = perform(TASK_OF_PATHS, jobs, place / "work", ranks=divided())
    return {"trained": [len(outcome.replicas) for outcome in outcomes]}


def is_stopped() -> Found:
    """Half-way, by a signal to rank 0."""

    def stop(step: int, steps: int) -> None:
        if step >= steps // 2:
            os.kill(os.getpid(), signal.SIGTERM)

    settings, path = settings_in(folder(), "soft"), folder() / "divided-3.pt"
    data, own = TASK_OF_PATHS.data(settings), Callbacks(progress=stop)
    try:
        train(TASK_OF_PATHS, [settings], data, save_to=path, callbacks=own, ranks=divided())
    except Interrupted as interrupted:
        return {"code": interrupted.exit_code}
    return {}


def is_resumed() -> Found:
    """What three ranks have begun; and what they might have begun, but for a damage."""
    path, damaged = folder() / "divided-3.pt", folder() / "damaged.pt"
    if here().rank == 0:
        content = load(path)
        moment = content["state.first_moment"]
        save(damaged, content | {"state.first_moment": moment[:, :-1].clone()})
    found: Found = {"damaged": said(lambda: trained_in(folder(), "soft", divided(), damaged))}
    found |= found_in(trained_in(folder(), "soft", divided(), path))
    return found | {"random": torch.rand(3)}  # on which a GPU's dropout would depend


def refuses() -> Found:
    """By what is asked for."""

    def ask(**changes: Any) -> str:
        settings = settings_in(folder(), "soft", **changes)
        data = TASK_OF_PATHS.data(settings)
        return said(lambda: train(TASK_OF_PATHS, [settings], data, ranks=divided()))

    settings = [settings_in(folder(), "soft", seed=seed) for seed in range(2)]
    data = TASK_OF_PATHS.data(settings[0])
    group = dist.group.WORLD
    assert group is not None
    model = TASK_OF_PATHS.divided_model(settings[0], group)
    two = torch.zeros(2, dtype=torch.long)
    return {
        "transe": ask(model="transe"),
        "coke": ask(model="coke"),
        "top_k": ask(top_k=3),
        "two": said(lambda: train(TASK_OF_PATHS, settings, data, ranks=divided())),
        "another task": said(lambda: train(TASK, [QUICK], DATA, ranks=divided())),
        "scores": said(lambda: model(two, two.unsqueeze(1))),
    }


def losses() -> Found:
    """Of one step: how far loss, rows and gradients are from those of one process.

    Of many entities a hop has no matrix of logits in one process either.
    """
    return {
        f"{type(one).__name__} of {count}, {options}": _error(count, options, one, other)
        for count in (ENTITIES, 4099)
        for options, one, other in _models(count)
    }


def bytes_on_the_wire() -> Found:
    """Of a query of a step."""
    own = {name: model for name, model, _ in _models(4099, l2_entities=0.0)}
    models = {"soft": own["gumbel_softmax"], "complex": own["no hop"]}
    models["straight through"] = own["straight_through"]
    of_hard = {name: model for name, model, _ in _models(4099)}
    models["hard"] = of_hard["straight_through_gumbel_softmax"]
    found = {}
    for name, model in models.items():
        for _ in range(2):  # at first ranks agree what to do
            with Streams([7]).only(0), unchecked(), wire() as sent:
                loss = model.loss(*_queries(4099))
                torch.autograd.grad(loss.sum(), list(model.parameters()))
        found[name] = sum(sent.values()) / QUERIES
    return found


def _queries(entities: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randint(entities, (2, QUERIES), generator=generator)
    return source, torch.randint(4, (QUERIES, HOPS), generator=generator), target


def _models(entities: int, l2_entities: float = 0.1) -> Iterator[tuple[str, PathModel, PathModel]]:
    group = dist.group.WORLD
    assert group is not None
    shard = Shard(group, shard_rows(entities, group).start, entities)
    plain = Shape(
        entities, 4, WIDTH, subject_dropout=0.2, object_dropout=0.3, relation_dropout=0.2,
        l2_entities=l2_entities,
    )  # fmt: skip
    makes: dict[str, Callable[[Shape], PathModel]] = {
        estimator: partial(DiscreteComplEx, estimator=estimator)
        for estimator in ("gumbel_softmax", "straight_through_gumbel_softmax", "straight_through")
    }
    for name, make in {**makes, "no hop": ComplEx}.items():
        pair = []
        for shape in (replace(plain, shard=shard), plain):
            torch.manual_seed(1)
            pair.append(make(shape))
            if name != "no hop":
                dc.Dials.constant(pair[-1], tau=2.0, beta=1.0, alpha=0.5)
        yield name, pair[0], pair[1]


def _error(entities: int, options: str, own: PathModel, whole: PathModel) -> float:
    found = []
    for model in (own, whole):
        with Streams([7]).only(0):
            loss = model.loss(*_queries(entities))
        gradients = torch.autograd.grad(loss.sum(), list(model.parameters()))
        found.append([loss, *model.parameters(), *gradients])
    rows, worst = shard_rows(entities, dist.group.WORLD), 0.0
    for mine, of_all in zip(*found, strict=True):
        same: Tensor = of_all if mine.shape == of_all.shape else of_all[rows.start : rows.stop]
        worst = max(worst, float((mine - same).abs().max().detach() / of_all.abs().max().detach()))
    return worst
