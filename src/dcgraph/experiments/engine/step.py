"""One training step of a population, eager or as a captured CUDA graph, and its evaluation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..._checks import unchecked
from ..._dialled import dialled
from ..._surrogate import surrogate
from ...dials import Dials
from ...nodes import Decode, Discrete, named_nodes
from ...population._adam import Block, adam_
from ...population._capture import WARM_UP, recording
from ...population._rows import RowPopulation
from ...population._state import advance_, initial_state, totals
from .divided import DividedRows
from .ranks import ONE_RANK, Ranks, Summed
from .settings import Settings
from .task import AnyTask, Batch, Data, Precision

_EVALUATED_AT_ONCE = {"cpu": 4096, "cuda": 65536}  # examples times replicas, if memory allows
_SHARE_OF_MEMORY = 0.25  # of a GPU, for what an evaluation computes on the way


class Stepper:
    """Trains a population step by step; all that changes from step to step is in ``state``.

    The step reads nothing from the host: the order of the examples, the position in it and the
    dials are tensors on the device. So it can be captured once and replayed.
    """

    def __init__(
        self,
        task: AnyTask,
        population: RowPopulation,
        replicas: Sequence[Settings],
        data: Data,
        steps: int,
        *,
        everyone: Sequence[Settings] = (),
        ranks: Ranks = ONE_RANK,
        rows: DividedRows | None = None,
        compiled: bool = False,
    ) -> None:
        self._task, self._population, self._data = task, population, data
        self._settings = replicas[0].structure()
        device, count = population.device, len(replicas)
        self._tables = data.tables("train")
        self.batch = replicas[0].batch
        self._lr = _per_replica([s.lr for s in replicas], device)
        self._flat_steps = _per_replica([s.decay * steps for s in replicas], device)
        self._steps = steps
        self._average_decay = _per_replica([s.average for s in replicas], device)
        everyone = everyone or replicas  # with those on other ranks
        self._averages = any(s.average for s in everyone)
        self._first_moment = torch.zeros_like(population.weights)
        self._second_moment = torch.zeros_like(population.weights)
        batches = batches_per_epoch(data, self.batch)
        own, left_over = divmod(self.batch, ranks.world)
        if left_over:
            raise ValueError(
                f"batch={self.batch} cannot be divided over {ranks.world} ranks; use a multiple."
            )
        self._own_examples = slice(ranks.rank * own, (ranks.rank + 1) * own)
        self._sum = Summed(ranks, device) if ranks.world > 1 else None
        self._rows = rows
        self._captures = device.type == "cuda" and rows is None  # ranks meet in the step
        self._orders = [
            torch.zeros(count, of_table, own, dtype=torch.long, device=device)
            for of_table in batches
        ]
        self._cursors = torch.zeros(len(batches), dtype=torch.long, device=device)
        self._schedule: Iterator[int] = iter(())
        self._average = population.weights.clone() if self._averages else population.weights
        self.trainer_state = initial_state(count, device)
        self._loss = torch.compile(self._losses, dynamic=False) if compiled else self._losses
        self._apply = torch.compile(self._update, dynamic=False) if compiled else self._update
        self._graphs: dict[int, _Replay] = {}
        self._evaluations: dict[
            tuple[str, str], tuple[torch.cuda.CUDAGraph, dict[str, Tensor]]
        ] = {}
        self._asked_before: set[tuple[str, str]] = set()
        self._evaluated = torch.empty_like(population.weights)
        # What is drawn in an evaluation depends on how it is divided.
        self._evaluated_at_once = _EVALUATED_AT_ONCE.get(device.type, 4096) // len(everyone)
        if device.type == "cuda" and rows is None:
            free, _ = torch.cuda.mem_get_info(device)
            per_example = max(1.0, saved_bytes(task, replicas[0], data) / self.batch)
            fitting = int(_SHARE_OF_MEMORY * free / (per_example * count))
            self._evaluated_at_once = min(self._evaluated_at_once, fitting)
        self._execution = task.execution(self._settings)
        if (most := self._execution.evaluated_at_once) is not None:
            self._evaluated_at_once = min(self._evaluated_at_once, most // len(everyone))
        self._evaluated_at_once = max(1, self._evaluated_at_once)

    def state(self) -> dict[str, Tensor]:
        """Every tensor that training changes; the same tensors, not copies."""
        state = {
            "weights": self._population.weights,
            "first_moment": self._first_moment,
            "second_moment": self._second_moment,
            "step": self.trainer_state.step,
            "cursors": self._cursors,
            "alive": self.trainer_state.alive,
            "stopped_at": self.trainer_state.stopped_at,
            "loss_sum": self.trainer_state.loss_sum,
        }
        if self._averages:
            state["average"] = self._average
        for name, node in named_nodes(self._population.stacked):
            if isinstance(node, Discrete) and node.kept is not None:
                state[f"kept.{name}"] = node.kept
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """In place, so that a captured step goes on from there."""
        own = self.state()
        for name, tensor in own.items():  # all of them before any is changed
            check_like(name, state[name], tensor)
        for name, tensor in own.items():
            tensor.copy_(state[name].detach())

    @property
    def tested_weights(self) -> Float[Tensor, "replicas parameters"]:
        """The weights to evaluate: averaged, for replicas that ask for it."""
        if not self._averages:
            return self._population.weights
        return torch.where(
            self._average_decay.unsqueeze(-1) > 0, self._average, self._population.weights
        )

    def start_epoch(
        self,
        orders: Sequence[Sequence[Int[Tensor, " _"]]],
        schedule: Sequence[int],
        step: int = 0,
    ) -> None:
        """Set the order of the examples, and the position in it.

        Args:
            orders: for each table one permutation of its examples per replica.
            schedule: which table each batch of the epoch comes from, the same for all replicas.
            step: how many batches of the epoch are done.
        """
        for order, permutations in zip(self._orders, orders, strict=True):
            batches = torch.stack(list(permutations))[:, : order.shape[1] * self.batch]
            of_all = batches.unflatten(1, (order.shape[1], self.batch))
            order.copy_(of_all[:, :, self._own_examples])
        done = [schedule[:step].count(table) for table in range(len(self._tables))]
        self._cursors.copy_(torch.tensor(done))
        self._schedule = iter(schedule[step:])

    def run(self, steps: int) -> None:
        """Train, at most to the end of the epoch; on CUDA the work is queued, not waited for."""
        tables = list(itertools.islice(self._schedule, steps))
        if len(tables) < steps:
            raise ValueError(f"steps={steps}, but the epoch has only {len(tables)} left.")
        for table in tables:
            if not self._captures:
                self._one_step(table)
                continue
            if table not in self._graphs:
                self._graphs[table] = self._captured(table)
            self._graphs[table]()

    def _captured(self, table: int) -> _Replay:
        """The step on a table as CUDA graphs; nothing has changed afterwards."""
        before = {name: tensor.clone() for name, tensor in self.state().items()}
        generator = torch.cuda.get_rng_state(self._population.device)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._cursors.zero_()  # there may be fewer batches left than this
                self._one_step(table)
        torch.cuda.current_stream().wait_stream(stream)
        self.load_state(before)
        graphs = [torch.cuda.CUDAGraph()]
        if self._sum is None:
            with recording(graphs[0], self._pool()):
                self._one_step(table)
            replay = graphs[0].replay
        else:  # ranks add up between two graphs
            with recording(graphs[0], self._pool()):
                found = self._joined(*self._found(table))
            graphs.append(torch.cuda.CUDAGraph())
            with recording(graphs[1], graphs[0].pool()):
                self._apply(*self._parted(found))
            replay = partial(_replay_around, graphs, partial(self._sum, found))
        self.load_state(before)
        torch.cuda.set_rng_state(generator, self._population.device)
        return _Replay(graphs, replay)

    def _pool(self) -> Any:
        """The memory that all graphs work in, for they run one after the other."""
        steps = (graph for step in self._graphs.values() for graph in step.graphs)
        others = (*steps, *(other for other, _ in self._evaluations.values()))
        return next((other.pool() for other in others), None)

    def _one_step(self, table: int) -> None:
        loss, gradients = self._found(table)
        if self._sum is not None:
            found = self._joined(loss, gradients)
            self._sum(found)
            loss, gradients = self._parted(found)
        if self._rows is not None:
            loss, gradients = self._rows.agree(loss, gradients)
        self._apply(loss, gradients)

    def _found(self, table: int) -> tuple[Tensor, Sequence[Tensor]]:
        """The summed losses and their gradients on the next batch, or on this rank's part of it."""
        cursor = self._cursors[table : table + 1]
        index = self._orders[table].index_select(1, cursor).squeeze(1)
        slices = self._population.slices(self._population.weights.detach())
        leaves = {name: tensor.requires_grad_() for name, tensor in slices.items()}
        with matmul_precision(self._execution.precision):
            with unchecked():
                loss = self._loss(leaves, index, table)
            gradients = torch.autograd.grad(
                loss.sum(), tuple(leaves.values()), materialize_grads=True
            )
        with torch.no_grad():
            cursor.add_(1)
        return loss.detach(), gradients

    @staticmethod
    def _joined(loss: Tensor, gradients: Sequence[Tensor]) -> Tensor:
        """As one vector, so that ranks add them up at once."""
        return torch.cat([loss.flatten(), *(gradient.flatten() for gradient in gradients)])

    def _parted(self, found: Tensor) -> tuple[Tensor, list[Tensor]]:
        shapes = [p.shape for p in self._population.slices(self._population.weights).values()]
        loss, *gradients = found.split([self._population.replicas, *(s.numel() for s in shapes)])
        return loss, [g.view(shape) for g, shape in zip(gradients, shapes, strict=True)]

    def _losses(self, weights: dict[str, Tensor], index: Tensor, table: int) -> Tensor:
        def summed_loss(model: nn.Module, rows: Batch) -> Tensor:
            batch = self._data.batch(rows, training=True)
            return surrogate(model, lambda: self._task.loss(model, batch)).sum()

        rows = {
            name: tensor.index_select(0, index.flatten()).unflatten(0, index.shape)
            for name, tensor in self._tables[table].items()
        }
        losses: Tensor = self._population.map(summed_loss, rows, in_dims=0, parameters=weights)
        return losses

    @torch.no_grad()
    def _update(self, loss: Tensor, gradients: Sequence[Tensor]) -> None:
        columns = list(self._population.columns(gradients))
        total = totals([gradient for _, gradient in columns])
        lr = advance_(self.trainer_state, loss, total, self._lr, self._flat_steps, self._steps)
        matrices = self._population.weights, self._first_moment, self._second_moment
        blocks = []
        for where, gradient in columns:
            weights, first, second = (matrix[:, where] for matrix in matrices)
            blocks.append(Block(weights, gradient, first, second, self.trainer_state.step))
        adam_(blocks, lr)
        if self._averages:  # the first steps count less, so that the start is forgotten
            step = self.trainer_state.step
            decay = torch.minimum(self._average_decay, (1 + step) / (10 + step))
            self._average.lerp_(self._population.weights, (1 - decay).unsqueeze(-1))

    @torch.no_grad()
    def evaluate(
        self,
        weights: Float[Tensor, "replicas parameters"],
        split: str,
        decode: Decode,
        population: RowPopulation | None = None,
    ) -> dict[str, list[float]]:
        """The metrics of a split, one number per replica.

        Where the rows of a codebook are divided, ``population`` is one that has all of them.
        """
        if population is None or population is self._population:
            sums = self._summed_metrics(weights, split, decode)
        else:
            sums = self._measure_all(population, weights, split, decode)
        count = self._data.size(split)
        return {name: (total / count).tolist() for name, total in sums.items()}

    def _summed_metrics(self, weights: Tensor, split: str, decode: Decode) -> dict[str, Tensor]:
        """On CUDA captured at the second time: what is seldom asked for is not worth it."""
        if not self._captures or not self._execution.captures_evaluation:
            return self._measure_all(self._population, weights, split, decode)
        key = split, decode
        if key not in self._asked_before:
            self._asked_before.add(key)
            return self._measure_all(self._population, weights, split, decode)
        self._evaluated.copy_(weights)
        if key not in self._evaluations:
            graph = torch.cuda.CUDAGraph()
            with recording(graph, self._pool()):
                sums = self._measure_all(self._population, self._evaluated, split, decode)
            self._evaluations[key] = graph, sums
        graph, sums = self._evaluations[key]
        graph.replay()
        return sums

    def _measure_all(
        self, population: RowPopulation, weights: Tensor, split: str, decode: Decode
    ) -> dict[str, Tensor]:
        chunk = self._evaluated_at_once
        sums: dict[str, Tensor] = {}
        population.eval()
        set_decode(population, decode)
        try:
            for table, count in zip(self._data.tables(split), self._data.sizes(split), strict=True):
                for first in range(0, count, chunk):
                    rows = {name: tensor[first : first + chunk] for name, tensor in table.items()}
                    for name, value in self._measure(population, weights, rows).items():
                        sums[name] = sums.get(name, 0) + value.double().sum(-1)
        finally:  # as models are by default; a replica taken out later is a copy of this one
            population.train()
            set_decode(population, "argmax")
        return sums

    def _measure(
        self, population: RowPopulation, weights: Tensor, rows: Batch
    ) -> dict[str, Tensor]:
        batch = self._data.batch(rows, training=False)
        with unchecked():
            measured: dict[str, Tensor] = population.map(
                self._task.metrics, batch, parameters=population.slices(weights)
            )
        return measured


def check_like(name: str, found: object, known: Tensor) -> None:
    """What was read from a file is a tensor as it has to be there.

    Its numbers may be anything: a replica that diverges has NaN, and stops there.
    """
    if (
        not isinstance(found, Tensor)
        or (found.dtype, found.shape, found.layout) != (known.dtype, known.shape, known.layout)
        or found.is_meta
    ):
        is_ = f"{found.dtype} {list(found.shape)}" if isinstance(found, Tensor) else type(found)
        raise ValueError(f"{name} is {is_}, not {known.dtype} {list(known.shape)}")


@dataclass(frozen=True)
class _Replay:
    """A captured step: its graphs, and what starts them."""

    graphs: list[torch.cuda.CUDAGraph]
    start: Callable[[], None]

    def __call__(self) -> None:
        self.start()


def _replay_around(graphs: Sequence[torch.cuda.CUDAGraph], between: Callable[[], None]) -> None:
    first, second = graphs
    first.replay()
    between()
    second.replay()


@contextmanager
def matmul_precision(precision: Precision) -> Iterator[None]:
    """How exact matrix products of float32 are inside; also those of a backward pass there."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def batches_per_epoch(data: Data, batch: int) -> list[int]:
    """How many whole batches each table of the training split gives; what is left over waits."""
    batches = [size // batch for size in data.sizes("train")]
    if not any(batches):
        most = max(data.sizes("train"))
        together = " of one length" if len(batches) > 1 else ""
        raise ValueError(
            f"batch={batch}, but there are at most {most} training examples{together}; use no more."
        )
    return batches


def set_decode(model: nn.Module, decode: Decode) -> None:
    """How every node of a model chooses in eval mode."""
    for _, node in named_nodes(model):
        (node.categorical if isinstance(node, Discrete) else node).decode = decode


def bytes_per_replica(task: AnyTask, settings: Settings, data: Data) -> int:
    """What one more replica costs in training: weights, their moments and saved activations."""
    with torch.random.fork_rng():
        parameters = sum(p.numel() for p in task.model(settings).parameters())
    return 2 * saved_bytes(task, settings, data) + 8 * parameters * torch.float32.itemsize


def saved_bytes(task: AnyTask, settings: Settings, data: Data) -> int:
    """What a model keeps for the backward pass of a batch, of the largest examples."""
    with torch.random.fork_rng():
        model = task.model(settings)
    saved = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal saved
        saved += tensor.numel() * tensor.element_size()
        return tensor

    largest = max(
        data.tables("train"), key=lambda table: sum(t[:1].numel() for t in table.values())
    )
    rows = {name: tensor[: settings.batch].cpu() for name, tensor in largest.items()}
    on_cpu = Data({}, "", {n: t.cpu() for n, t in data.constants.items()}, data.to_batch)
    identity: Callable[[Tensor], Tensor] = lambda tensor: tensor  # noqa: E731
    if dialled(model):  # else it would say that they are missing, in a run that has its own
        Dials.constant(model)
    with torch.random.fork_rng(), torch.autograd.graph.saved_tensors_hooks(count, identity):
        batch = on_cpu.batch(rows, training=True)
        surrogate(model, lambda: task.loss(model, batch))
    return saved


def _per_replica(values: Sequence[float], device: torch.device) -> Float[Tensor, " replicas"]:
    return torch.tensor(values, dtype=torch.float32, device=device)
