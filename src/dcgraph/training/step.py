"""One training step of a population, eager or as a captured CUDA graph, and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..checks import unchecked
from ..nodes import Decode, Discrete, nodes
from .adam import adam_, moments_like
from .population import Population
from .settings import Settings
from .task import Batch, Data, Task

_WARM_UP = 3  # steps before a capture, so that libraries have allocated what they need
_EVALUATED_AT_ONCE = {"cpu": 4096, "cuda": 65536}  # examples times replicas


class Stepper:
    """Trains a population step by step; all that changes from step to step is in ``state``.

    The step reads nothing from the host: the order of the examples, the position in it and the
    dials are tensors on the device. So it can be captured once and replayed.
    """

    def __init__(
        self,
        task: Task,
        population: Population,
        replicas: Sequence[Settings],
        data: Data,
        steps: int,
        *,
        compiled: bool = False,
    ) -> None:
        self._task, self._population, self._data = task, population, data
        self._settings = replicas[0].structure()
        device, count = population.device, len(replicas)
        self._train = data.splits["train"]
        self.batch = replicas[0].batch
        self.steps_per_epoch = data.size("train") // self.batch
        if self.steps_per_epoch == 0:
            raise ValueError(
                f"batch={self.batch} is more than the {data.size('train')} training examples."
            )
        self._lr = _per_replica([s.lr for s in replicas], device)
        self._flat_steps = _per_replica([s.decay * steps for s in replicas], device)
        self._steps = steps
        self._average_decay = _per_replica([s.average for s in replicas], device)
        self._averages = any(s.average for s in replicas)
        self._moments = moments_like(population.weights)
        self._order = torch.zeros(
            count, self.steps_per_epoch, self.batch, dtype=torch.long, device=device
        )
        zero = torch.zeros((), dtype=torch.long, device=device)
        self._step, self._cursor = zero.clone(), zero.clone()
        self._average = population.weights.clone() if self._averages else population.weights
        self.alive: Bool[Tensor, " replicas"] = torch.ones(count, dtype=torch.bool, device=device)
        self.stopped_at: Int[Tensor, " replicas"] = torch.full((count,), -1, device=device)
        self.loss_sum: Float[Tensor, " replicas"] = torch.zeros(count, device=device)
        self._loss = torch.compile(self._losses, dynamic=False) if compiled else self._losses
        self._apply = torch.compile(self._update, dynamic=False) if compiled else self._update
        self._graph: torch.cuda.CUDAGraph | None = None

    def state(self) -> dict[str, Tensor]:
        """Every tensor that training changes; the same tensors, not copies."""
        state = {
            "weights": self._population.weights,
            "first_moment": self._moments.first,
            "second_moment": self._moments.second,
            "step": self._step,
            "cursor": self._cursor,
            "alive": self.alive,
            "stopped_at": self.stopped_at,
            "loss_sum": self.loss_sum,
        }
        if self._averages:
            state["average"] = self._average
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """In place, so that a captured step goes on from there."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    @property
    def tested_weights(self) -> Float[Tensor, "replicas parameters"]:
        """The weights to evaluate: averaged, for replicas that ask for it."""
        if not self._averages:
            return self._population.weights
        return torch.where(
            self._average_decay.unsqueeze(-1) > 0, self._average, self._population.weights
        )

    def start_epoch(self, orders: Sequence[Int[Tensor, " examples"]], step: int = 0) -> None:
        """Set the order of the examples, one permutation per replica, and the position in it."""
        used = self.steps_per_epoch * self.batch
        self._order.copy_(torch.stack(list(orders))[:, :used].view(self._order.shape))
        self._cursor.fill_(step)

    def run(self, steps: int) -> None:
        """Train; on CUDA the work is queued, not waited for."""
        if self._population.device.type != "cuda":
            for _ in range(steps):
                self._one_step()
            return
        if self._graph is None:
            self._capture()
        assert self._graph is not None
        for _ in range(steps):
            self._graph.replay()

    def _capture(self) -> None:
        before = {name: tensor.clone() for name, tensor in self.state().items()}
        generator = torch.cuda.get_rng_state(self._population.device)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._one_step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._one_step()
        self._graph = graph
        self.load_state(before)
        torch.cuda.set_rng_state(generator, self._population.device)

    def _one_step(self) -> None:
        index = self._order.index_select(1, self._cursor.view(1)).squeeze(1)
        leaf = self._population.weights.detach().requires_grad_()
        with unchecked():
            loss = self._loss(leaf, index)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        with torch.no_grad():
            self._apply(loss.detach(), gradient)

    def _losses(self, weights: Tensor, index: Tensor) -> Tensor:
        def summed_loss(model: nn.Module, chosen: Tensor) -> Tensor:
            rows = {name: table[chosen] for name, table in self._train.items()}
            batch = self._task.inputs(self._settings, self._data.shared, rows, training=True)
            return self._task.loss(model, batch).sum()

        losses: Tensor = self._population.map(summed_loss, weights, index, in_dims=(0,))
        return losses

    def _update(self, loss: Tensor, gradient: Tensor) -> None:
        # A replica with NaN or infinity stops here: its gradient becomes 0, its learning rate too.
        finite = loss.isfinite() & gradient.sum(-1).isfinite()
        self.stopped_at.copy_(torch.where(self.alive & ~finite, self._step, self.stopped_at))
        self.alive.logical_and_(finite)
        if not gradient.is_cpu or not bool(self.alive.all()):  # a pass over memory, seldom needed
            gradient = torch.where(self.alive.unsqueeze(-1), gradient, 0.0)
        self.loss_sum.add_(torch.where(self.alive, loss, 0.0))
        remaining = (self._steps - self._step) / (self._steps - self._flat_steps).clamp(min=1)
        lr = self._lr * remaining.clamp(max=1) * self.alive
        self._step.add_(1)
        self._cursor.add_(1)
        adam_(self._population.weights, gradient, self._moments, lr, self._step)
        if self._averages:  # the first steps count less, so that the start is forgotten
            decay = torch.minimum(self._average_decay, (1 + self._step) / (10 + self._step))
            self._average.lerp_(self._population.weights, (1 - decay).unsqueeze(-1))

    @torch.no_grad()
    def evaluate(
        self, weights: Float[Tensor, "replicas parameters"], split: str, decode: Decode
    ) -> dict[str, list[float]]:
        """The metrics of a split, one number per replica."""
        model, size = self._population.template, self._data.size(split)
        chunk = _EVALUATED_AT_ONCE.get(self._population.device.type, 4096) // weights.shape[0]
        sums: dict[str, Tensor] = {}
        model.eval()
        set_decode(model, decode)
        try:
            for rows in torch.arange(size, device=self._population.device).split(max(1, chunk)):
                for name, value in self._measure(weights, split, rows).items():
                    sums[name] = sums.get(name, 0) + value.double().sum(-1)
        finally:  # as models are by default; a replica taken out later is a copy of this one
            model.train()
            set_decode(model, "argmax")
        return {name: (total / size).tolist() for name, total in sums.items()}

    def _measure(self, weights: Tensor, split: str, chosen: Tensor) -> dict[str, Tensor]:
        rows = {name: table[chosen] for name, table in self._data.splits[split].items()}
        batch = self._task.inputs(self._settings, self._data.shared, rows, training=False)
        with unchecked():
            measured: dict[str, Tensor] = self._population.map(
                self._task.metrics, weights, batch, in_dims=(None,)
            )
        return measured


def set_decode(model: nn.Module, decode: Decode) -> None:
    """How every node of a model chooses in eval mode."""
    for _, node in nodes(model):
        (node.categorical if isinstance(node, Discrete) else node).decode = decode


def bytes_per_replica(task: Task, settings: Settings, data: Data) -> int:
    """What one more replica costs in training: weights, their moments and saved activations."""
    population = Population(lambda: task.model(settings), [0], torch.device("cpu"))
    saved = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal saved
        saved += tensor.numel() * tensor.element_size()
        return tensor

    rows = {name: table[: settings.batch].cpu() for name, table in data.splits["train"].items()}
    shared: Batch = {name: tensor.cpu() for name, tensor in data.shared.items()}
    identity: Callable[[Tensor], Tensor] = lambda tensor: tensor  # noqa: E731
    with torch.random.fork_rng(), torch.autograd.graph.saved_tensors_hooks(count, identity):
        batch = task.inputs(settings, shared, rows, training=True)
        task.loss(population.replica(0), batch)
    return 2 * saved + 8 * population.weights.numel() * population.weights.element_size()


def _per_replica(values: Sequence[float], device: torch.device) -> Float[Tensor, " replicas"]:
    return torch.tensor(values, dtype=torch.float32, device=device)
