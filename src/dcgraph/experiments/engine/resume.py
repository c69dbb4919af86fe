"""What a run has come to; how that goes into a checkpoint, and out of one, on several ranks too."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..._streams import Streams
from . import checkpoint
from .errors import CheckpointError
from .metrics import Metric
from .order import Evaluations, one_seed
from .outcome import Evaluation
from .ranks import ONE_RANK, joined
from .step import check_like

if TYPE_CHECKING:
    from .loop import _Run

_LONGEST = 1e10  # seconds; some centuries


@dataclass
class Best:
    """The best weights of every replica so far, by the monitored metric."""

    weights: Tensor
    value: list[float]
    step: list[int]

    @staticmethod
    def none(weights: Tensor) -> Best:
        """Before anything was evaluated."""
        replicas = len(weights)
        return Best(weights.clone(), [-math.inf] * replicas, [0] * replicas)

    def update(self, weights: Tensor, values: Sequence[float], step: int) -> None:
        for replica, value in enumerate(values):
            if value > self.value[replica]:  # never for NaN; of equals the earlier stays
                self.weights[replica].copy_(weights[replica])
                self.value[replica], self.step[replica] = value, step


@dataclass
class Progress:
    """Everything a checkpoint holds beside the tensors of the stepper."""

    step: int = 0
    seconds: float = 0.0
    curve: list[Evaluation] = field(default_factory=list)
    pruned: list[int] = field(default_factory=list)

    def check(self, steps: int, replicas: int, evaluated: Evaluations, selected_by: Metric) -> None:
        """That a run of so many steps and replicas can have come so far."""
        if type(self.step) is not int or not 0 <= self.step <= steps:
            raise ValueError(f"step {self.step!r:.40} of {steps}")
        if type(self.seconds) not in (int, float) or not 0 <= self.seconds < _LONGEST:
            raise ValueError(f"{self.seconds!r:.40} seconds")
        if any(type(one) is not int or not 0 <= one < replicas for one in self.pruned):
            raise ValueError(f"pruned replicas {self.pruned!r:.40} of {replicas}")
        found = [evaluation.step for evaluation in self.curve]
        if len(found) > len(evaluated) or found != [evaluated[k] for k in range(len(found))]:
            raise ValueError(f"evaluations after steps that have none, up to step {self.step}")
        if (found[-1] if found else 0) > self.step or (
            len(found) < len(evaluated) and evaluated[len(found)] <= self.step
        ):
            raise ValueError(f"{len(found)} evaluations at step {self.step}")
        for evaluation in self.curve:
            evaluation.check(replicas)
            if selected_by not in evaluation.metrics:
                raise ValueError(f"an evaluation at step {evaluation.step} without its metric")
            if evaluation.metrics.keys() != self.curve[0].metrics.keys():
                raise ValueError(f"an evaluation at step {evaluation.step} with other metrics")

    def to_json(self) -> str:
        return json.dumps({**vars(self), "curve": [one.to_dict() for one in self.curve]})

    @staticmethod
    def from_json(text: str) -> Progress:
        stored = json.loads(text)
        curve = [Evaluation.from_dict(one) for one in stored.pop("curve")]
        return Progress(**stored, curve=curve)


def save(run: _Run, path: Path) -> None:
    """All ranks call it; rank 0 writes one file, that any number of ranks can go on from."""
    weights = run.population.weights
    alike = weights if run.rows is None else run.rows.alike(weights)
    run.ranks.of_model.check_alike({"weights": f"{alike.double().sum().item()!r}"})
    parts = run.ranks.of_replicas.at_main(_own_state(run))

    def write() -> None:
        content = {
            "task": run.task.name,
            "replicas": json.dumps([asdict(replica) for replica in run.everyone]),
            "data": run.data.fingerprint,
            "progress": run.so_far.to_json(),
        }
        checkpoint.save(path, content | _together(parts))

    run.ranks.by_main(write)


def _own_state(run: _Run) -> dict[str, Any]:
    """What changes in training, of the replicas that are this rank's own."""
    kept, device, streams = run.share.kept, run.population.device, run.population._streams
    each = {f"state.{name}": tensor for name, tensor in run.stepper.state().items()}
    each["best.weights"] = run.best.weights
    if streams is not None:
        each["streams"] = streams.state()
    if run.rows is not None:
        each |= {name: run.rows.gather(each[name]) for name in _matrices(run)}
    own: dict[str, Any] = {
        name: tensor if name in _COMMON else tensor[kept] for name, tensor in each.items()
    }
    if run.ranks.of_replicas.world > 1:
        own = {name: tensor.cpu() for name, tensor in own.items()}
    own |= {"best.value": run.best.value[kept], "best.step": run.best.step[kept]}
    own["random"] = [torch.get_rng_state()]
    own["random_cuda"] = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    among = run.ranks.of_batches  # whose ranks draw apart
    for name in ("random", "random_cuda"):
        own[name] = joined(among.everyones(own[name]))
    if "streams" in own and among.world > 1:
        own["streams"] = torch.cat(among.everyones(own["streams"]))
    return own


def _matrices(run: _Run) -> list[str]:
    """What has a number for each weight, as a checkpoint calls it."""
    names = {f"state.{name}" for name in run.stepper.state()} | {"best.weights"}
    return sorted(names & _OF_WEIGHTS)


def load(run: _Run, path: Path) -> bool:
    """Go on from a file, if it is there; all ranks call it, and rank 0 reads."""
    matrices: dict[str, Tensor] = {}

    def read() -> dict[str, Any] | None:
        if not path.exists():
            return None
        content = checkpoint.load(path)
        mine = json.dumps([asdict(replica) for replica in run.everyone])
        for name, value, what in (
            ("task", run.task.name, "another task"),
            ("replicas", mine, "other settings"),
            ("data", run.data.fingerprint, "other data"),
        ):
            if content.get(name) != value:
                raise CheckpointError(
                    f"{str(path)!r} was made with {what}; choose another --out, or delete it."
                )
        if run.rows is not None:
            try:
                for name in _matrices(run):
                    matrices[name] = content.pop(name)
                    check_like(name, matrices[name], run.rows.whole)
            except (KeyError, ValueError) as error:
                raise checkpoint.damaged(path, error) from error
        return content

    def restore(content: dict[str, Any]) -> None:
        try:
            _restore(run, content)
        except Exception as error:  # torch raises all sorts of errors
            raise checkpoint.damaged(path, error) from error

    content = run.ranks.by_main(read)
    if content is None:
        return False
    if run.rows is not None:
        for name in _matrices(run):
            content[name] = run.rows.scatter(matrices.pop(name, None))
    run.ranks.by_each(partial(restore, content))
    return True


def _restore(run: _Run, content: dict[str, Any]) -> None:
    """What :func:`save` has saved; nothing is believed unseen, for it comes from a file."""
    total, trained = run.share.total, slice(run.share.trained.start, run.share.trained.stop)

    def own(name: str) -> Any:
        found = content[name]
        if not isinstance(found, list | Tensor) or len(found) != total:
            raise ValueError(f"{name} is not of {total} replicas")
        return found[trained]

    progress = Progress.from_json(content["progress"])
    progress.check(run.steps, total, run.evaluated, run.evaluator.selected_by)
    weights = own("best.weights")
    check_like("best weights", weights, run.population.weights)
    best = {}
    for name, kind in (("best.value", float), ("best.step", int)):
        best[name] = own(name)
        if any(type(one) is not kind for one in content[name]):
            raise ValueError(f"{name} is not a list of {kind.__name__}")
    if not all(0 <= step <= progress.step for step in best["best.step"]):
        raise ValueError(f"best weights of a step after {progress.step}")
    if any(math.isnan(value) for value in best["best.value"]):
        raise ValueError("best value is NaN")
    _check_random(content)
    run.stepper.load_state(
        {
            name: content[f"state.{name}"] if f"state.{name}" in _COMMON else own(f"state.{name}")
            for name in run.stepper.state()
        }
    )
    state = run.stepper.trainer_state
    if (step := int(state.step)) != progress.step:
        raise ValueError(f"step {step} and step {progress.step}")
    stopped = state.stopped_at
    if bool(((stopped < -1) | (stopped >= max(1, step))).any()) or not torch.equal(
        state.alive, stopped < 0
    ):
        raise ValueError("replicas that have and have not stopped")
    # A copy: what a file says is one tensor may be one number in memory, or need a gradient.
    weights = torch.empty_like(run.population.weights).copy_(weights.detach())
    run.best = Best(weights, best["best.value"], best["best.step"])
    run.so_far = progress
    run.dials.seek(progress.step)
    _restore_random(run, content)


def _check_random(content: dict[str, Any]) -> None:
    for name in ("random", "random_cuda"):
        if not isinstance(content[name], list):
            raise ValueError(f"{name} is not a list")
    for state in content["random"]:
        check_like("random", state, torch.get_rng_state())


def _restore_random(run: _Run, content: dict[str, Any]) -> None:
    """Go on with the same random numbers.

    Those that a rank had for all its replicas cannot be divided anew. So with another number of
    ranks, or on another kind of device, others take their place, of the same distribution.
    """
    streams, device, step = run.population._streams, run.population.device, run.so_far.step
    drawing = run.ranks if run.rows is None else ONE_RANK  # else all of them draw alike
    seeds, rank = [replica.seed for replica in run.replicas], drawing.rank
    alike = len(content["random"]) == drawing.world
    if alike:
        torch.set_rng_state(content["random"][rank])
    else:
        torch.manual_seed(one_seed([*seeds, step, rank]))
    if device.type == "cuda" and alike and content["random_cuda"]:
        torch.cuda.set_rng_state(content["random_cuda"][rank], device)
    if streams is None:
        return
    saved, apart = content.get("streams"), run.ranks.of_batches
    if isinstance(saved, Tensor) and len(saved) == run.share.total * apart.world:
        first = run.share.total * apart.rank + run.share.trained.start
        own = saved[first : first + len(seeds)]
        check_like("streams", own, streams.state())
        streams.load_state(own)
    else:
        run.population._streams = Streams([one_seed([seed, step, apart.rank]) for seed in seeds])


_COMMON = frozenset({"state.step", "state.cursors"})
"""What all replicas, and so all ranks, have in common."""

_OF_WEIGHTS = frozenset(
    ["best.weights"]
    + [f"state.{name}" for name in ("weights", "first_moment", "second_moment", "average")]
)
"""What has a number for each weight, and so is divided as the weights are."""


def _together(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the ranks have saved, as one process would have it."""
    if len(parts) == 1:
        return parts[0]
    whole: dict[str, Any] = {}
    for name, first in parts[0].items():
        if isinstance(first, list):
            whole[name] = joined([part[name] for part in parts])
        else:
            whole[name] = first if name in _COMMON else torch.cat([part[name] for part in parts])
    return whole
