"""What several ranks do in the tests of training over ranks; programs for ``ranks.run``."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import dcgraph as dc
from dcgraph._streams import Streams
from dcgraph.experiments.engine import Callbacks, Data, Interrupted, Outcome, Settings, train
from dcgraph.experiments.engine.errors import CheckpointError, OtherRankError, RanksError
from dcgraph.experiments.engine.jobs import Job
from dcgraph.experiments.engine.order import one_seed
from dcgraph.experiments.engine.ranks import ONE_RANK, Divided, Ranks
from dcgraph.experiments.engine.runs import perform
from dcgraph.population._population import seed_of_noise
from parity import DATA, QUICK, TASK, Parity, ParitySettings
from ranks import Found

FIVE = [
    replace(QUICK, seed=0, average=0.9),
    replace(QUICK, seed=1, lr=1e30),  # diverges
    replace(QUICK, seed=2, tau=2.0),
    replace(QUICK, seed=3, lr=1e-2),
    replace(QUICK, seed=4, beta=0.5, tempmatch=False),
]
BESIDE = [FIVE[0], FIVE[3], FIVE[1], FIVE[4]]
"""Of two ranks the second has as its first replica one that diverges."""
TWO = [replace(QUICK, seed=seed, epochs=1) for seed in (7, 8)]


def here() -> Ranks:
    if not dist.is_initialized():
        return ONE_RANK
    return Ranks(dist.get_rank(), dist.get_world_size(), dist.get_rank())


def folder() -> Path:
    return Path(sys.argv[3])


def jobs_in(place: Path, replicas: Sequence[Any]) -> list[Job]:
    return [Job(r, place / f"{r.seed}.json", place / f"{r.seed}.safetensors") for r in replicas]


def run(place: Path, replicas: Sequence[Any], ranks: Ranks, **options: Any) -> list[int]:
    """Train them; the records and models are in that folder."""
    jobs = jobs_in(place, replicas)
    outcomes = perform(TASK, jobs, place / "work", ranks=ranks, **options)
    return [len(outcome.replicas) for outcome in outcomes]


def five() -> Found:
    return {"trained": run(folder() / f"five-{here().world}", FIVE, here())}


def two() -> Found:
    """With three ranks there are more of them than replicas."""
    return {"trained": run(folder() / f"two-{here().world}", TWO, here())}


def loop_of_ones_own() -> Found:
    return own_loop(dist.group.WORLD)


def own_loop(group: dist.ProcessGroup | None) -> Found:
    """A population in a loop as users write it."""
    population = dc.Population(
        lambda: dc.Discrete(4, 3, gate="example"), range(5), own_noise=True, group=group
    )
    dc.Dials.constant(population, tau=1.0, beta=1.0, alpha=0.5)
    optimizer = torch.optim.Adam(population.parameters(), lr=0.1)
    u = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(5):
        losses = population.map(lambda model, u: model(u).square().sum(), u)
        losses.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {
        "losses": population.gather(losses.detach()),
        "codebooks": population.gather(
            dict(population.stacked.named_parameters())["codebook"].detach()
        ),
        "own": list(population.share.own),
        "trained": population.replicas,
    }


def outside() -> Found:
    """A rank that is not in the group."""
    group = dist.new_group([0, 1])
    return {"said": said(lambda: dc.Population(lambda: dc.Discrete(4, 3), range(5), group=group))}


def batches_over(ranks: Ranks, path: Path, stops: bool = False) -> Outcome:
    """One model, of whose batches each rank has a part; stopped half-way, if asked for."""

    def stop(step: int, steps: int) -> None:
        if stops and step >= steps // 2:
            os.kill(os.getpid(), signal.SIGTERM)

    own = Callbacks(progress=stop)
    # Evaluated at the end only: an evaluation by sampling draws, too, and rank 0 makes it.
    settings = [replace(QUICK, seed=3, epochs=1, evaluations=1, average=0.9)]
    return train(TASK, settings, DATA, save_to=path, resume=True, callbacks=own, ranks=ranks)


def batches() -> Found:
    ranks, place = replace(here(), divided="batch"), folder()
    whole = batches_over(ranks, place / "whole.pt")
    code = None
    try:
        batches_over(ranks, place / "half.pt", stops=True)
    except Interrupted as stop:
        code = stop.exit_code
    resumed = batches_over(ranks, place / "half.pt")
    population = whole.population
    assert population._streams is not None
    return {
        "weights": population.weights,
        "resumed": resumed.population.weights,
        "curve": repr(whole.curve),
        "code": code,
        "streams": population._streams.state(),
        "three": said(lambda: train(TASK, [replace(QUICK, batch=9)], DATA, ranks=ranks)),
    }


def pruned(ranks: Ranks | None = None) -> Found:
    """Replica 3, which another rank than the first trains, is pruned at the first evaluation."""
    callbacks = Callbacks(evaluation=lambda evaluation: [3])
    outcome = train(TASK, FIVE, DATA, callbacks=callbacks, ranks=ranks or here())
    return {"curve": repr(outcome.curve), "stopped": outcome.stopped_at}


class OfTwoRanks(Streams):
    """What two ranks draw, one after the other, for the halves of a batch."""

    def __init__(self, seed: int) -> None:
        super().__init__([seed])
        self.ranks = [
            Streams([seed_of_noise(seed)]),  # as rank 0 has it, which is that of a single process
            Streams([one_seed([seed, 1])]),
        ]

    def draw(self, replica: torch.Tensor, shape: list[int], kind: str) -> torch.Tensor:
        half = [shape[0] // 2, *shape[1:]]
        return torch.cat([rank.draw(replica, half, kind) for rank in self.ranks])


def on_one_gpu() -> Found:
    """A population and divided batches, without noise, which on a GPU is a matter of the rank."""
    return trained_on(torch.device("cuda", 0), here())


def trained_on(device: torch.device, ranks: Ranks) -> Found:
    quiet = replace(QUICK, tempmatch=False, beta=0.0, dropres=False, evaluations=1)
    replicas = [replace(quiet, seed=seed) for seed in range(5)]
    found: Found = {}
    divisions: tuple[tuple[Divided, list[Any]], ...] = (
        ("replicas", [*replicas]),
        ("batch", [replicas[0]]),
    )
    for divided, some in divisions:
        outcome = train(TASK, some, DATA, device=device, ranks=replace(ranks, divided=divided))
        found[divided] = outcome.best_weights.cpu()
    return found


def cut(path: Path, ranks: Ranks, stops: bool, replicas: Sequence[ParitySettings] = FIVE) -> None:
    """Leave a checkpoint of a run that a signal to one of the ranks has stopped."""

    def stop(step: int, steps: int) -> None:
        if stops and step >= steps // 2:
            os.kill(os.getpid(), signal.SIGTERM)

    own = Callbacks(progress=stop)
    train(TASK, replicas, DATA, save_to=path, resume=True, callbacks=own, ranks=ranks)


def beside(ranks: Ranks | None = None, path: Path | None = None) -> Found:
    """A run that is cut off after one of its replicas has stopped, and goes on."""
    ranks, path = ranks or here(), path or folder() / "beside.pt"
    with suppress(Interrupted):
        cut(path, ranks, True, BESIDE)
    outcome = train(TASK, BESIDE, DATA, save_to=path, resume=True, ranks=ranks)
    return {"curve": repr(outcome.curve), "stopped": outcome.stopped_at}


def stopped() -> Found:
    """The signal comes to rank 0, whose callbacks are called."""
    try:
        cut(folder() / f"cut-{here().world}.pt", here(), True)
    except Interrupted as stop:
        return {"code": stop.exit_code}
    return {}


def resumed() -> Found:
    """What three ranks have begun."""
    path = folder() / "cut-3.pt"
    outcome = train(TASK, FIVE, DATA, save_to=path, resume=True, ranks=here())
    return {"curve": repr(outcome.curve), "metrics": repr(outcome.metrics)}


def said(do: Callable[[], object]) -> str:
    try:
        do()
    except (RanksError, OtherRankError, CheckpointError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


class OtherData(Parity):
    """Whose data are others on the last rank, or cannot be had there."""

    def __init__(self, missing: bool) -> None:
        self.missing = missing

    def data(self, settings: Any, data_dir: Path | None = None) -> Data:
        data = super().data(settings, data_dir)
        if here().rank < here().world - 1:
            return data
        if self.missing:
            raise ValueError("no such file")
        return replace(data, fingerprint="others")


class Uncalibrated(Parity):
    """Of which the last replica, which the last rank has, cannot be calibrated."""

    def calibrate(self, model: nn.Module, settings: Any, data: Data) -> dict[str, float]:
        if settings == FIVE[-1]:
            raise ValueError("no optimum")
        return {}


def errors() -> Found:
    ranks, place = here(), folder() / "errors"

    def perform_with(
        task: Parity, replicas: Sequence[Settings], out: Path = place
    ) -> Callable[[], object]:
        return lambda: list(perform(task, jobs_in(out, replicas), out / "work", ranks=ranks))

    other = [replace(QUICK, seed=ranks.rank)]
    found: Found = {
        "other data": said(perform_with(OtherData(False), TWO)),
        "no data": said(perform_with(OtherData(True), TWO)),
        "other settings": said(perform_with(TASK, other)),
    }
    found["calibration"] = said(lambda: train(Uncalibrated(), FIVE, DATA, ranks=ranks))
    broken = place / "run.pt"
    if ranks.is_main:
        broken.write_text("nothing")
    found["broken"] = said(lambda: train(TASK, TWO, DATA, save_to=broken, resume=True, ranks=ranks))
    nowhere = Path("/dev/full/run.pt")
    found["no place"] = said(lambda: train(TASK, TWO, DATA, save_to=nowhere, ranks=ranks))
    return found


def left_in(place: Path) -> dict[str, Any]:
    """All that does not depend on the machine: records without their seconds, and models."""
    found: dict[str, Any] = {}
    for path in sorted(place.iterdir()):
        if path.suffix == ".json":
            record = json.loads(path.read_text())
            found[path.name] = {k: v for k, v in record.items() if k not in ("seconds", "hardware")}
        else:
            found[path.name] = path.read_bytes()
    return found
