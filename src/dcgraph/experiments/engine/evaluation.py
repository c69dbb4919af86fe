"""Evaluating a population: on the way, what the probe reads, and at the end."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...inspect import NoNodeCalledError, probe
from ...nodes import named_nodes
from ...population._rows import RowPopulation
from .metrics import Metric, Metrics
from .order import Evaluations
from .records import Readings
from .settings import Settings
from .step import Stepper
from .task import AnyTask, Batch, Data

_PROBES = 30  # probes in a run, at most
_PROBED = 256  # examples


class Evaluator:
    """Measures all replicas of a population with given weights.

    Weights are selected by the metric ``selected_by`` on the validation split (on the test split,
    if there is no validation split).
    """

    def __init__(
        self,
        task: AnyTask,
        replicas: Sequence[Settings],
        data: Data,
        population: RowPopulation,
        stepper: Stepper,
    ) -> None:
        self._task, self._replicas, self._data = task, replicas, data
        self._population, self._stepper = population, stepper
        execution = task.execution(replicas[0])
        self._has_nodes = any(True for _ in named_nodes(population))
        self._decoders = execution.decoders if self._has_nodes else ("argmax",)
        asked = execution.monitor_decoder
        decoder = asked if asked in self._decoders else "argmax"
        split = "validation" if "validation" in data.splits else "test"
        self.selected_by = Metric(execution.monitor, split, decoder)
        self._probed: nn.Module | None = None

    def try_out(self, weights: Float[Tensor, "replicas parameters"]) -> None:
        """Before the first step, so that an evaluation cannot fail after hours of training."""
        with torch.random.fork_rng():
            split = self.selected_by.set
            tried = self._stepper.evaluate(weights, split, "argmax", self._population)
        if (monitor := self.selected_by.name) not in tried:
            raise ValueError(
                f"the monitor {monitor!r} is not among the metrics of task "
                f"{self._task.name!r}: {', '.join(tried)}."
            )

    def metrics(
        self, weights: Float[Tensor, "replicas parameters"], split: str, alive: Sequence[bool]
    ) -> dict[Metric, list[float | None]]:
        """One number per replica, None for those that have stopped."""
        return {
            Metric(name, split, decoder): where(values, alive)
            for decoder in self._decoders
            for name, values in self._stepper.evaluate(
                weights, split, decoder, self._population
            ).items()
        }

    def steps_to_probe(self, evaluated: Evaluations, alive: Sequence[bool]) -> set[int]:
        """Some of the steps that are evaluated; none, where the chain cannot be probed.

        It is tried with a replica that has not stopped: a loss may refuse the weights of others.
        """
        count = min(_PROBES, len(evaluated)) if self._has_nodes else 0
        chosen = {evaluated[(k + 1) * len(evaluated) // count - 1] for k in range(count)}
        if not any(alive):
            return chosen
        try:
            return chosen if chosen and self._probe(alive.index(True)) else set()
        except NoNodeCalledError:  # such as by the shortest queries, if there are no others
            return set()
        except Exception as error:  # whatever is in somebody's loss; a probe is not worth a run
            warnings.warn(
                f"the chain of task {self._task.name!r} will not be probed, for its loss on "
                f"evaluation batches raises {type(error).__name__}: {error}",
                stacklevel=4,
            )
            return set()

    def probes(self, alive: Sequence[bool]) -> list[Readings | None]:
        """What the probe reads of each replica as it trains."""
        return [self._probe(index) if lives else None for index, lives in enumerate(alive)]

    def _probe(self, index: int) -> Readings:
        rows = some_rows(self._data, self.selected_by.set, _PROBED)
        batch = self._data.batch(rows, training=False)
        self._probed = model = self._population.replica(index, into=self._probed)
        # Summed, as in training: the gradient of an example is that of its own loss.
        with aside(self._population, index):
            report = probe(model, lambda: self._task.loss(model, batch).sum())
        return [_rounded(asdict(reading)) for reading in report.readings]

    def final(
        self, weights: Float[Tensor, "replicas parameters"]
    ) -> tuple[list[dict[str, float]], list[Metrics]]:
        """What is calibrated, and only then what is measured on the test split, of each replica."""

        def model(index: int) -> nn.Module:
            parameters = self._population.slices(weights)
            return self._population.replica(index, parameters=parameters).eval()

        calibration: list[dict[str, float]] = [{} for _ in self._replicas]
        if "validation" in self._data.splits:
            seen = self._data.only("validation")
            for index, settings in enumerate(self._replicas):
                with aside(self._population, index):
                    calibration[index] = self._task.calibrate(model(index), settings, seen)
        test = self.metrics(weights, "test", [True] * len(self._replicas))
        measured: list[Metrics] = []
        for index, settings in enumerate(self._replicas):
            with aside(self._population, index):
                own = self._task.final_metrics(
                    model(index), settings, self._data, calibration[index]
                )
            measured.append({metric: values[index] for metric, values in test.items()} | own)
        return calibration, measured


def aside(population: RowPopulation, index: int) -> AbstractContextManager[None]:
    """Inside, what is drawn is a matter of that replica, and its training does not notice."""
    streams = population._streams
    return nullcontext() if streams is None else streams.aside(index)


def some_rows(data: Data, split: str, count: int) -> Batch:
    """Examples spread over a table, at most so many: of several, that of the largest examples.

    (Deep chains are in long sequences. A table with too few examples is passed over.)
    """
    tables = data.tables(split)
    enough = [t for t, size in zip(tables, data.sizes(split), strict=True) if size >= count]
    chosen = max(enough or tables, key=lambda table: sum(t[0].numel() for t in table.values()))
    every = max(1, len(next(iter(chosen.values()))) // count)
    return {name: tensor[::every][:count] for name, tensor in chosen.items()}


def where(values: Sequence[float], alive: Sequence[bool]) -> list[float | None]:
    """None for the replicas that have stopped."""
    return [value if lives else None for value, lives in zip(values, alive, strict=True)]


def _rounded(value: Any) -> Any:
    """Three digits say all that a probe of some hundred examples knows."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value
