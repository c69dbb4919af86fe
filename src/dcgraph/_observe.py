"""How the nodes notify an observer (a probe or a trace) of what passes through them.

Outside of a probe or trace nothing happens, and nothing at all in compiled code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .functional import entropy


@dataclass(frozen=True)
class Event:
    """One call of a node, or one watched tensor: what went in and what was decided.

    Observers ask its methods, not its matrices: a node with a large codebook has none. Rows that
    are padding are in all answers, and count in none: see :meth:`valid`.
    """

    source: nn.Module | str
    input: Tensor
    logits: Tensor | None = None
    relaxed: Tensor | None = None  # z in training, None where the choice was hard
    index: Tensor | None = None  # the hard choice, None where it was relaxed
    mask: Tensor | None = None
    rows: Tensor | None = None  # False for padding

    @property
    def categories(self) -> int | None:
        """How many there are to choose from; None for a watched tensor."""
        return None if self.logits is None else self.logits.shape[-1]

    def valid(self, values: Tensor) -> Tensor:
        """Of one value (or vector) per row those of rows that are no padding, as one list."""
        if self.rows is not None:
            return values[self.rows]
        batch = self.input.ndim - 1
        return values.flatten(0, batch - 1) if batch else values.unsqueeze(0)

    def theta(self) -> Tensor:
        """The logits as the choice saw them, masked ones -inf, in float32 and without gradient."""
        assert self.logits is not None
        theta = self.logits.detach().float()
        return theta if self.mask is None else theta.masked_fill(~self.mask, -math.inf)

    def spread(self) -> float:
        """The standard deviation of the logits within their rows; masked ones do not count."""
        theta = self.valid(self.theta())
        open_ = theta > -math.inf
        count = open_.sum(-1, keepdim=True).clamp(min=1)
        finite = theta.masked_fill(~open_, 0.0)
        centred = (finite - finite.sum(-1, keepdim=True) / count).masked_fill(~open_, 0.0)
        return (centred.square().sum(-1, keepdim=True) / count).mean().sqrt().item()

    def z(self) -> Tensor:
        """The relaxed rows in float32 and without gradient."""
        assert self.relaxed is not None
        return self.relaxed.detach().float()

    def chosen(self) -> Tensor:
        """The category each row chose, relaxed rows by their largest entry; -1 for none."""
        index = self.z().argmax(-1) if self.index is None else self.index
        return index if self.rows is None else index.masked_fill(~self.rows, -1)

    def most_probable(self) -> Tensor:
        """The argmax of theta."""
        return self.theta().argmax(-1)

    def probability(self, index: Tensor) -> Tensor:
        """softmax(theta) at one category of each row."""
        theta = self.theta()
        return (_at(theta, index) - theta.logsumexp(-1)).exp()

    def entropy(self) -> Tensor:
        """Of softmax(theta), in nats."""
        return entropy(self.theta())

    def largest_weight(self) -> Tensor:
        """The largest entry of each relaxed row."""
        return self.z().amax(-1)

    def weight(self, index: Tensor) -> Tensor:
        """z at one category of each row."""
        return _at(self.z(), index)


def _at(rows: Tensor, index: Tensor) -> Tensor:
    return rows.gather(-1, index.clamp(min=0).unsqueeze(-1)).squeeze(-1)


Observer = Callable[[Event], None]

_observers: ContextVar[tuple[Observer, ...]] = ContextVar("dcgraph observers", default=())
"""Of this thread: what other threads compute is none of their business."""


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    before = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(before)


@contextmanager
def unobserved() -> Iterator[None]:
    """Nodes notify nobody: where many models run as one, their tensors cannot be looked at."""
    before = _observers.set(())
    try:
        yield
    finally:
        _observers.reset(before)


_apart: ContextVar[bool] = ContextVar("dcgraph runs replicas apart", default=False)


def runs_apart() -> bool:
    """Whether a population is to run its replicas one after the other, so that each is observed."""
    return _apart.get()


@contextmanager
def apart() -> Iterator[None]:
    before = _apart.set(True)
    try:
        yield
    finally:
        _apart.reset(before)


def notify(event: Event) -> None:
    for observer in _observers.get():
        observer(event)


def is_observed() -> bool:
    return not torch.compiler.is_compiling() and bool(_observers.get())


def watch(name: str, tensor: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Give a tensor a row of its own in :func:`dcgraph.probe`; returns it unchanged.

    Put it around any tensor inside a model: ``x = dc.watch("embedding", self.embed(tokens))``.
    """
    if is_observed():
        notify(Event(name, tensor))
    return tensor


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Put modes, gradients and buffers (a BatchNorm's statistics, say) back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def forked(model: nn.Module) -> AbstractContextManager[None]:
    """Random states of the CPU and of the model's GPUs as they are now again afterwards."""
    tensors = (*model.parameters(), *model.buffers())
    return torch.random.fork_rng(sorted({t.device.index for t in tensors if t.is_cuda}))


def logit_spreads(model: nn.Module, closure: Callable[[], object]) -> list[float]:
    """The spread of the logits in every call of a node that ``closure`` makes in training mode.

    The replicas of a population are called one after the other. As after :func:`dcgraph.probe`,
    everything is as before afterwards.
    """
    own = {id(module) for module in model.modules()}
    spreads = []

    def record(event: Event) -> None:
        if event.categories and id(event.source) in own:
            spread = event.spread()
            if not math.isnan(spread):  # of a call whose rows are all padding
                spreads.append(spread)

    with restored(model), forked(model), torch.no_grad(), observing(record), apart():
        model.train()
        closure()
    if not spreads:
        raise ValueError(
            "the closure called no node of the model, or on padding only; call the model inside "
            "it, and compile it afterwards."
        )
    return spreads
