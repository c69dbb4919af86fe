"""The training loop: one for all tasks, for one model and for a population."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..._dialled import dialled
from ..._streams import Streams
from ...population._rows import RowPopulation
from ...population._share import Share
from ...pruning import prune_categories
from .divided import DividedRows
from .errors import Interrupted
from .evaluation import Evaluator, some_rows, where
from .order import Evaluations, one_seed, order_of_epoch, schedule_of_epoch
from .outcome import Evaluation, Outcome
from .provenance import hardware
from .ranks import ONE_RANK, Ranks, joined
from .records import Readings
from .resume import Best, Progress, load, save
from .settings import Settings, dials_of
from .step import Stepper, batches_per_epoch
from .task import AnyTask, Data

T = TypeVar("T")

_PRUNED_BY = 4096  # training examples
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
    ranks: Ranks = ONE_RANK,
) -> Outcome:
    """Train replicas of one structure as one program.

    Every replica follows its own settings. After each evaluation the best weights so far are kept,
    by the metric that the task monitors on the validation split (on the test split, if there is no
    validation split). What the task calibrates is calibrated there too, before the test. A
    replica whose loss or gradient is not finite stops there and changes nothing in the others.

    Several ranks divide the replicas among them, and rank 0 has what all of them found. On the CPU
    every replica draws from random numbers of its own seed, so that the number of ranks makes no
    difference to the bit; except for a population of one, which is computed by other operations.

    Ranks that divide a codebook train one model, up to rounding as one process would. Each has only
    its own rows; rank 0 gathers them for evaluations, checkpoints and the outcome.

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
        callbacks: who hears how it goes, on rank 0.
        ranks: this rank among the others; all of them call this with the same arguments.

    Raises:
        Interrupted: after Ctrl-C, when the checkpoint is written.
    """
    run = _Run(task, replicas, data, torch.device(device), compiled, callbacks, ranks)
    if resume and save_to is not None and load(run, save_to):
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
        callbacks: Callbacks | None,
        ranks: Ranks,
    ) -> None:
        if not replicas or any(r.structure() != replicas[0].structure() for r in replicas):
            raise ValueError("the replicas of a population differ only in settings per replica.")
        for split in ("train", "test"):
            if split not in data.splits:
                raise ValueError(f"there is no split {split!r}; a task needs it.")
        self.task, self.everyone, self.ranks = task, list(replicas), ranks
        self.callbacks = callbacks if callbacks and ranks.is_main else Callbacks()
        self.share = Share(len(replicas), ranks.of_replicas.rank, ranks.of_replicas.world)
        self.replicas = replicas = self.share.of(self.everyone)
        self.data = data.to(device)
        first = self.replicas[0]
        self.batches = batches_per_epoch(data, first.batch)
        per_epoch = sum(self.batches)
        self.steps = first.epochs * per_epoch
        # Ranks that have parts of one batch draw apart. On a GPU the noise of a population depends
        # on the seeds of all its replicas.
        apart = [ranks.of_batches.rank] if ranks.of_batches.rank else []
        torch.manual_seed(one_seed([*(replica.seed for replica in replicas), *apart]))
        seeds = [replica.seed for replica in replicas]
        build: Callable[[], nn.Module] = partial(task.model, first)
        group = ranks.of_codebook.group
        if group is not None:
            if len(replicas) > 1:
                raise ValueError(
                    f"--divide codebook trains one model at a time, not {len(replicas)}; leave out "
                    "--at-once."
                )
            build = partial(task.divided_model, first, group)
        self.population = RowPopulation(build, seeds, device, own_noise=True)
        self.rows: DividedRows | None = None
        if group is not None:
            self.rows = DividedRows(self.population, partial(task.model, first), ranks)
        if apart and self.population._streams is not None:
            self.population._streams = Streams([one_seed([seed, *apart]) for seed in seeds])
        if compiled and device.type != "cuda":
            raise ValueError("compiled=True pays only on CUDA; leave it out on the CPU.")
        if compiled is None:
            long_enough = self.steps >= _COMPILE_FROM * len(self.batches)
            compiled = device.type == "cuda" and long_enough and task.execution(first).compiles
            compiled = compiled and self.rows is None
        self.stepper = Stepper(
            *(task, self.population, replicas, self.data, self.steps),
            everyone=self.everyone,
            ranks=ranks.of_batches,
            rows=self.rows,
            compiled=compiled,
        )
        if first.prune and not any(name.startswith("kept.") for name in self.stepper.state()):
            raise ValueError(
                f"prune={first.prune}, but this model has no nodes to prune; leave it out."
            )
        self.every = max(1, per_epoch // first.schedule_steps)
        self.dials = dials_of(self.replicas, self.every)
        if dialled(self.population):  # a baseline may have no nodes
            self.dials.attach(self.population)
        self.evaluator = Evaluator(task, self.replicas, self.data, self.population, self.stepper)
        self.best = Best.none(self.population.weights)
        self.so_far = Progress()
        self.per_epoch = per_epoch
        self._set_dials()
        self.evaluated = Evaluations(
            first.epochs, per_epoch, first.evaluations, first.evaluate_every
        )
        self.reported: set[int] = set()
        self.probed: set[int] = set()

    def finish(self, save_to: Path | None, save_every: float) -> Outcome:
        if self.so_far.step == 0:
            self._measured(self.stepper.tested_weights, Evaluator.try_out)
        going_on = self.stepper.trainer_state.alive.tolist()
        own = self._measured(
            self.population.weights,
            lambda evaluator, _: evaluator.steps_to_probe(self.evaluated, going_on),
        )
        # All ranks, or none: a curve has the readings of all replicas side by side.
        self.probed = set.intersection(*self.ranks.of_replicas.everyones(own))
        began = time.monotonic() - self.so_far.seconds
        saved = -math.inf  # soon the first time: a checkpoint that fails should fail early
        self._start_epoch()
        with _stop_signals() as asked_to_stop:
            while self.so_far.step < self.steps:
                self._advance()
                self.so_far.seconds = time.monotonic() - began
                if self.so_far.step in self.evaluated:
                    self._evaluate()
                late = self.ranks.is_main and time.monotonic() - saved >= save_every
                any_alive = bool(self.stepper.trainer_state.alive.any())
                asked, due, alive = self.ranks.largest(asked_to_stop(), late, any_alive)
                if save_to is not None and (asked or due or self.so_far.step == self.steps):
                    self.so_far.seconds = time.monotonic() - began
                    save(self, save_to)
                    saved = time.monotonic()
                if asked:
                    raise Interrupted(asked)
                if not alive:
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
        half = self.steps // 2
        prunes = self.replicas[0].prune > 0 and step < half
        if prunes:
            stops.append(half)
        count = min(stops) - step
        self.stepper.run(count)
        self.so_far.step = step = step + count
        if step % self.every == 0:
            self._set_dials()
        if prunes and step == half:
            self._prune_categories()
        if step % self.per_epoch == 0 and step < self.steps:
            self._start_epoch()
        if self.population.device.type == "cuda":  # wait, so that progress and Ctrl-C are true
            torch.cuda.synchronize(self.population.device)
        self.callbacks.progress(step, self.steps)

    def _prune_categories(self) -> None:
        """By what training examples choose; the weights that are tested are those from here on."""
        rows = some_rows(self.data, "train", _PRUNED_BY)
        batch, metrics = self.data.batch(rows, training=False), self.task.metrics
        prune_categories(
            self.population,
            lambda model: metrics(model, batch),
            share=self.replicas[0].prune,
        )
        self.best = Best.none(self.population.weights)

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
        split = self.evaluator.selected_by.set
        metrics = self._measured(
            weights, lambda evaluator, weights: evaluator.metrics(weights, split, alive)
        )
        before = self.so_far.curve[-1].step if self.so_far.curve else 0
        examples = (step - before) * self.stepper.batch
        losses = (state.loss_sum / max(1, examples)).tolist()
        state.loss_sum.zero_()
        monitored = metrics[self.evaluator.selected_by]
        self.best.update(weights, [float("nan") if m is None else m for m in monitored], step)
        probes: list[Readings | None] = []
        if step in self.probed:
            probes = self._measured(
                self.population.weights, lambda evaluator, _: evaluator.probes(alive)
            )
        loss = where(losses, alive)
        own = Evaluation(step, loss, metrics, probes).part(self.share.kept)
        evaluation = Evaluation.joined(self.ranks.of_replicas.everyones(own))
        self.so_far.curve.append(evaluation)
        self._prune(self.ranks.by_main(lambda: self.callbacks.evaluation(evaluation) or ()))
        self._report_stopped()

    def _prune(self, replicas: Collection[int]) -> None:
        """They stop as if their loss were not finite, but it was not that."""
        state, trained = self.stepper.trainer_state, self.share.trained
        last = self.so_far.curve[-1]
        for index in replicas:
            if last.loss[index] is None or index in self.so_far.pruned:
                continue  # it has stopped before
            self.so_far.pruned.append(index)
            if index in trained:
                state.alive[index - trained.start] = False
                state.stopped_at[index - trained.start] = self.so_far.step - 1

    def _report_stopped(self) -> None:
        own = self._stopped_at()[self.share.kept]
        for index, step in enumerate(joined(self.ranks.of_replicas.at_main(own))):
            if step is not None and index not in self.reported:
                self.reported.add(index)
                self.callbacks.stopped(self.everyone[index], step)

    def _stopped_at(self) -> list[int | None]:
        """Where a loss or gradient was not finite, for each replica."""
        stopped = self.stepper.trainer_state.stopped_at.tolist()
        found = zip(self.share.trained, stopped, strict=True)
        return [s if s >= 0 and k not in self.so_far.pruned else None for k, s in found]

    def _outcome(self) -> Outcome:
        self._report_stopped()
        calibration, metrics = self._measured(self.best.weights, Evaluator.final)
        outcome = Outcome(
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
            hardware=hardware(self.population.device, self.ranks),
            selected_by=self.evaluator.selected_by,
        )
        if self.rows is not None:
            gathered = self.rows.gather(self.best.weights)
            if self.ranks.is_main:
                whole = self._whole(gathered)
                return replace(outcome, population=whole, best_weights=whole.weights)
        return outcome if self.ranks.of_replicas.world == 1 else self._of_all_ranks(outcome)

    def _measured(self, weights: Tensor, measure: Callable[[Evaluator, Tensor], T]) -> T:
        """What is measured with these weights: by rank 0, where ranks train one model together.

        Where each has only its rows, rank 0 has all of them for so long; what it draws then does
        not count, for all ranks draw alike in training. Where replicas are divided, every rank
        measures its own, and rank 0 says what went wrong on another one.
        """
        if self.rows is None:
            return self.ranks.of_batches.by_main(
                lambda: self.ranks.of_replicas.by_each(lambda: measure(self.evaluator, weights))
            )
        gathered, streams = self.rows.gather(weights), self.population._streams

        def by_main() -> T:
            before = None if streams is None else streams.state()
            with torch.random.fork_rng(self._gpu()):
                whole = self._whole(gathered)
                evaluator = Evaluator(self.task, self.replicas, self.data, whole, self.stepper)
                found = measure(evaluator, whole.weights)
            if streams is not None and before is not None:
                streams.load_state(before)
            return found

        return self.ranks.by_main(by_main)

    def _whole(self, gathered: Tensor) -> RowPopulation:
        """With the rows of all ranks."""
        whole = self._population_with(gathered, self.population.device)
        whole._streams = self.population._streams
        return whole

    def _population_with(self, weights: Tensor, device: torch.device) -> RowPopulation:
        """Of all replicas, whoever trained them."""
        build, seeds = (
            partial(self.task.model, self.everyone[0]),
            [one.seed for one in self.everyone],
        )
        population = RowPopulation(build, seeds, device)
        population.weights.copy_(weights)
        if dialled(population):
            dials_of(self.everyone, self.every).attach(population).seek(self.so_far.step)
        return population

    def _gpu(self) -> list[torch.device]:
        device = self.population.device
        return [device] if device.type == "cuda" else []

    def _of_all_ranks(self, outcome: Outcome) -> Outcome:
        """On rank 0 with what the others have found, on the CPU; elsewhere as it is."""
        kept = self.share.kept
        own = {name: getattr(outcome, name)[kept] for name in _PER_REPLICA}
        parts = self.ranks.at_main(own | {"best_weights": own["best_weights"].cpu()})
        if not self.ranks.is_main:
            return outcome
        found: dict[str, Any] = {name: joined([part[name] for part in parts]) for name in parts[0]}
        found["best_weights"] = torch.cat([part["best_weights"] for part in parts])
        population = self._population_with(found["best_weights"], torch.device("cpu"))
        return replace(outcome, replicas=self.everyone, population=population, **found)


_PER_REPLICA = ("best_weights", "best_step", "stopped_at", "calibration", "metrics")
"""What an outcome has of each replica; its curve has been joined already."""

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
