"""The training loop: one for all tasks, for one model and for a population."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..._dialled import dialled
from ...population._rows import RowPopulation
from . import checkpoint
from .errors import CheckpointError, Interrupted
from .evaluation import Evaluator, where
from .metrics import Metric
from .order import Evaluations, one_seed, order_of_epoch, schedule_of_epoch
from .outcome import Evaluation, Outcome
from .settings import Settings, dials_of
from .step import Stepper, batches_per_epoch, check_like
from .task import AnyTask, Data

_LONGEST = 1e10  # seconds; some centuries
_LONGEST_RUN = 64  # steps between two looks at the clock and at Ctrl-C
_COMPILE_FROM = 60_000  # steps after which compiling (half a minute) has paid for itself on CUDA


@dataclass
class Callbacks:
    """Who hears how training goes; every function may be left out.

    What ``evaluation`` returns are the replicas to prune, if there are any: they stop there, and
    nothing changes in the others. ``resumed`` hears the evaluations that a checkpoint brought.
    """

    progress: Callable[[int, int], None] = lambda step, steps: None
    evaluation: Callable[[Evaluation], Collection[int] | None] = lambda evaluation: None
    stopped: Callable[[Settings, int], None] = lambda settings, step: None
    resumed: Callable[[Sequence[Evaluation]], None] = lambda evaluations: None


@dataclass
class _Best:
    """The best weights of every replica so far, by the monitored metric."""

    weights: Tensor
    value: list[float]
    step: list[int]

    def update(self, weights: Tensor, values: Sequence[float], step: int) -> None:
        for replica, value in enumerate(values):
            if value > self.value[replica]:  # never for NaN; of equals the earlier stays
                self.weights[replica].copy_(weights[replica])
                self.value[replica], self.step[replica] = value, step


@dataclass
class _Progress:
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
    def from_json(text: str) -> _Progress:
        stored = json.loads(text)
        curve = [Evaluation.from_dict(one) for one in stored.pop("curve")]
        return _Progress(**stored, curve=curve)


def train(
    task: AnyTask,
    replicas: Sequence[Settings],
    data: Data,
    *,
    device: torch.device | str = "cpu",
    save_to: Path | None = None,
    save_every: float = 60.0,
    resume: bool = False,
    compiled: bool | None = None,
    callbacks: Callbacks | None = None,
) -> Outcome:
    """Train replicas of one structure as one program.

    Every replica follows its own settings. After each evaluation the best weights so far are kept,
    by the metric that the task monitors on the validation split (on the test split, if there is no
    validation split). What the task calibrates is calibrated there too, before the test. A
    replica whose loss or gradient is not finite stops there and changes nothing in the others.

    Args:
        task: what to train.
        replicas: one settings object per replica, alike in all settings except those per replica.
        data: what ``task.data`` gave; moved to the device here.
        device: where to train.
        save_to: the checkpoint file, written at once, every ``save_every`` seconds, on Ctrl-C and
            at the end. On the CPU a resumed run repeats an uninterrupted one bit for bit.
        resume: go on from that file, if it exists.
        compiled: whether to compile the step; by default only for long runs on CUDA. (On the CPU
            it took 30 to 50 s and the step was no faster.)
        callbacks: who hears how it goes.

    Raises:
        Interrupted: after Ctrl-C, when the checkpoint is written.
    """
    run = _Run(task, replicas, data, torch.device(device), compiled, callbacks or Callbacks())
    if resume and save_to is not None and save_to.exists():
        run.load(save_to)
        run.callbacks.resumed(run.so_far.curve)
    return run.finish(save_to, save_every)


class _Run:
    def __init__(
        self,
        task: AnyTask,
        replicas: Sequence[Settings],
        data: Data,
        device: torch.device,
        compiled: bool | None,
        callbacks: Callbacks,
    ) -> None:
        if not replicas or any(r.structure() != replicas[0].structure() for r in replicas):
            raise ValueError("the replicas of a population differ only in settings per replica.")
        for split in ("train", "test"):
            if split not in data.splits:
                raise ValueError(f"there is no split {split!r}; a task needs it.")
        self.task, self.replicas, self.callbacks = task, list(replicas), callbacks
        self.data = data.to(device)
        first = self.replicas[0]
        self.batches = batches_per_epoch(data, first.batch)
        per_epoch = sum(self.batches)
        self.steps = first.epochs * per_epoch
        # The noise of a population depends on the seeds of all its replicas.
        torch.manual_seed(one_seed([replica.seed for replica in replicas]))
        seeds = [replica.seed for replica in replicas]
        self.population = RowPopulation(lambda: task.model(first), seeds, device)
        if compiled and device.type != "cuda":
            raise ValueError("compiled=True pays only on CUDA; leave it out on the CPU.")
        if compiled is None:
            long_enough = self.steps >= _COMPILE_FROM * len(self.batches)
            compiled = device.type == "cuda" and long_enough and task.execution(first).compiles
        self.stepper = Stepper(
            task, self.population, replicas, self.data, self.steps, compiled=compiled
        )
        self.every = max(1, per_epoch // first.schedule_steps)
        self.dials = dials_of(self.replicas, self.every)
        if dialled(self.population):  # a baseline may have no nodes
            self.dials.attach(self.population)
        self.evaluator = Evaluator(task, self.replicas, self.data, self.population, self.stepper)
        self.best = _Best(
            self.population.weights.clone(), [-math.inf] * len(seeds), [0] * len(seeds)
        )
        self.so_far = _Progress()
        self.per_epoch = per_epoch
        self._set_dials()
        self.evaluated = Evaluations(
            first.epochs, per_epoch, first.evaluations, first.evaluate_every
        )
        self.reported: set[int] = set()
        self.probed: set[int] = set()

    def finish(self, save_to: Path | None, save_every: float) -> Outcome:
        if self.so_far.step == 0:
            self.evaluator.try_out()
        self.probed = self.evaluator.steps_to_probe(self.evaluated)
        began = time.monotonic() - self.so_far.seconds
        saved = -math.inf  # soon the first time: a checkpoint that fails should fail early
        self._start_epoch()
        with _stop_signals() as asked_to_stop:
            while self.so_far.step < self.steps:
                self._advance()
                self.so_far.seconds = time.monotonic() - began
                if self.so_far.step in self.evaluated:
                    self._evaluate()
                asked, done = asked_to_stop(), self.so_far.step == self.steps
                due = asked or done or time.monotonic() - saved >= save_every
                if save_to is not None and due:
                    self.so_far.seconds = time.monotonic() - began
                    self.save(save_to)
                    saved = time.monotonic()
                if asked:
                    raise Interrupted(asked)
                if not bool(self.stepper.trainer_state.alive.any()):
                    break
        self.so_far.seconds = time.monotonic() - began
        return self._outcome()

    def _advance(self) -> None:
        """Up to the next step of the schedules, evaluation or end of an epoch."""
        step = self.so_far.step
        stops = [
            step + _LONGEST_RUN,
            (step // self.every + 1) * self.every,
            (step // self.per_epoch + 1) * self.per_epoch,
            self.evaluated.after(step),
        ]
        count = min(stops) - step
        self.stepper.run(count)
        self.so_far.step = step = step + count
        if step % self.every == 0:
            self._set_dials()
        if step % self.per_epoch == 0 and step < self.steps:
            self._start_epoch()
        if self.population.device.type == "cuda":  # wait, so that progress and Ctrl-C are true
            torch.cuda.synchronize(self.population.device)
        self.callbacks.progress(step, self.steps)

    def _set_dials(self) -> None:
        """What the dials are worth depends only on the step."""
        self.dials.seek(self.so_far.step)

    def _start_epoch(self) -> None:
        epoch, inside = divmod(self.so_far.step, self.per_epoch)
        orders = [
            [order_of_epoch(size, replica.seed, epoch, table) for replica in self.replicas]
            for table, size in enumerate(self.data.sizes("train"))
        ]
        self.stepper.start_epoch(orders, schedule_of_epoch(self.batches, epoch), inside)

    def _evaluate(self) -> None:
        weights, state, step = (
            self.stepper.tested_weights,
            self.stepper.trainer_state,
            self.so_far.step,
        )
        alive = state.alive.tolist()
        metrics = self.evaluator.metrics(weights, self.evaluator.selected_by.set, alive)
        before = self.so_far.curve[-1].step if self.so_far.curve else 0
        examples = (step - before) * self.stepper.batch
        losses = (state.loss_sum / max(1, examples)).tolist()
        state.loss_sum.zero_()
        monitored = metrics[self.evaluator.selected_by]
        self.best.update(weights, [float("nan") if m is None else m for m in monitored], step)
        probes = self.evaluator.probes(alive) if step in self.probed else []
        loss = where(losses, alive)
        evaluation = Evaluation(step, loss, metrics, probes)
        self.so_far.curve.append(evaluation)
        self._prune(self.callbacks.evaluation(evaluation) or ())
        self._report_stopped()

    def _prune(self, replicas: Collection[int]) -> None:
        """They stop as if their loss were not finite, but it was not that."""
        state = self.stepper.trainer_state
        for index in replicas:
            if bool(state.alive[index]):
                state.alive[index] = False
                state.stopped_at[index] = self.so_far.step - 1
                self.so_far.pruned.append(index)

    def _report_stopped(self) -> None:
        for index, step in enumerate(self._stopped_at()):
            if step is not None and index not in self.reported:
                self.reported.add(index)
                self.callbacks.stopped(self.replicas[index], step)

    def _stopped_at(self) -> list[int | None]:
        """Where a loss or gradient was not finite, for each replica."""
        stopped = self.stepper.trainer_state.stopped_at.tolist()
        pruned = self.so_far.pruned
        return [s if s >= 0 and k not in pruned else None for k, s in enumerate(stopped)]

    def _outcome(self) -> Outcome:
        self._report_stopped()
        calibration, metrics = self.evaluator.final(self.best.weights)
        return Outcome(
            replicas=self.replicas,
            population=self.population,
            best_weights=self.best.weights,
            best_step=self.best.step,
            stopped_at=self._stopped_at(),
            curve=self.so_far.curve,
            calibration=calibration,
            metrics=metrics,
            seconds=self.so_far.seconds,
            steps=self.steps,
            selected_by=self.evaluator.selected_by,
        )

    def save(self, path: Path) -> None:
        device = self.population.device
        content: dict[str, Any] = {
            "task": self.task.name,
            "replicas": json.dumps([asdict(replica) for replica in self.replicas]),
            "data": self.data.fingerprint,
            "progress": self.so_far.to_json(),
            "state": self.stepper.state(),
            "best": {
                "weights": self.best.weights,
                "value": self.best.value,
                "step": self.best.step,
            },
            "random": torch.get_rng_state(),
        }
        if device.type == "cuda":
            content["random_cuda"] = torch.cuda.get_rng_state(device)
        checkpoint.save(path, content)

    def load(self, path: Path) -> None:
        content = checkpoint.load(path)
        mine = json.dumps([asdict(replica) for replica in self.replicas])
        for name, value, what in (
            ("task", self.task.name, "another task"),
            ("replicas", mine, "other settings"),
            ("data", self.data.fingerprint, "other data"),
        ):
            if content.get(name) != value:
                raise CheckpointError(
                    f"{str(path)!r} was made with {what}; choose another --out, or delete it."
                )
        try:
            self._restore(content)
        except Exception as error:  # torch raises all sorts of errors
            raise checkpoint.damaged(path, error) from error

    def _restore(self, content: dict[str, Any]) -> None:
        """What :meth:`save` has saved; nothing is believed unseen, for it comes from a file."""
        progress, best = _Progress.from_json(content["progress"]), content["best"]
        replicas = len(self.replicas)
        progress.check(self.steps, replicas, self.evaluated, self.evaluator.selected_by)
        check_like("best weights", best["weights"], self.population.weights)
        for name, kind in (("value", float), ("step", int)):
            kinds = [type(one) for one in best[name]] if isinstance(best[name], list) else []
            if kinds != [kind] * replicas:
                raise ValueError(f"best {name} is not a list of {replicas} of {kind.__name__}")
        if not all(0 <= step <= progress.step for step in best["step"]):
            raise ValueError(f"best weights of a step after {progress.step}")
        if any(math.isnan(value) for value in best["value"]):
            raise ValueError("best value is NaN")
        check_like("random", content["random"], torch.get_rng_state())
        self.stepper.load_state(content["state"])
        state = self.stepper.trainer_state
        if (step := int(state.step)) != progress.step:
            raise ValueError(f"step {step} and step {progress.step}")
        stopped = state.stopped_at
        if bool(((stopped < -1) | (stopped >= max(1, step))).any()) or not torch.equal(
            state.alive, stopped < 0
        ):
            raise ValueError("replicas that have and have not stopped")
        # A copy: what a file says is one tensor may be one number in memory, or need a gradient.
        weights = torch.empty_like(self.population.weights).copy_(best["weights"].detach())
        self.best = _Best(weights, best["value"], best["step"])
        self.so_far = progress
        self._set_dials()
        torch.set_rng_state(content["random"])
        if self.population.device.type == "cuda" and "random_cuda" in content:
            torch.cuda.set_rng_state(content["random_cuda"], self.population.device)


_STOPS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""Ctrl-C, what a job scheduler sends before it kills, and that the terminal is gone."""


@contextmanager
def _stop_signals() -> Iterator[Callable[[], int]]:
    """Signals to stop as a question to ask: which one came, or 0. A second one ends at once.

    One that was ignored stays so, as under nohup.
    """
    asked = 0
    before: dict[int, Any] = {}

    def remember(number: int, frame: object) -> None:
        nonlocal asked
        asked = number
        for one in before:
            ends = signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL
            signal.signal(one, ends)

    try:
        for one in _STOPS:
            if signal.getsignal(one) not in (signal.SIG_IGN, None):
                before[one] = signal.signal(one, remember)
    except ValueError:  # only the main thread may handle signals
        yield lambda: 0
        return
    try:
        yield lambda: asked
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
