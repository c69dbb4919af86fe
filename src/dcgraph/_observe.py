"""How the nodes notify an observer (a probe or a trace) of what passes through them.

Outside of a probe or trace nothing happens, and nothing at all in compiled code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .functional import entropy


@dataclass(frozen=True)
class Event:
    """One call of a node, or one watched tensor: what went in and what was decided.

    Observers ask its methods, not its matrices: a node with a large codebook has none.
    """

    source: nn.Module | str
    input: Tensor
    logits: Tensor | None = None
    relaxed: Tensor | None = None  # z in training, None where the choice was hard
    index: Tensor | None = None  # the hard choice, None where it was relaxed
    mask: Tensor | None = None

    @property
    def categories(self) -> int | None:
        """How many there are to choose from; None for a watched tensor."""
        return None if self.logits is None else self.logits.shape[-1]

    def theta(self) -> Tensor:
        """The logits as the choice saw them, masked ones -inf, in float32 and without gradient."""
        assert self.logits is not None
        theta = self.logits.detach().float()
        return theta if self.mask is None else theta.masked_fill(~self.mask, -math.inf)

    def z(self) -> Tensor:
        """The relaxed rows in float32 and without gradient."""
        assert self.relaxed is not None
        return self.relaxed.detach().float()

    def chosen(self) -> Tensor:
        """The category each row chose, relaxed rows by their largest entry."""
        return self.z().argmax(-1) if self.index is None else self.index

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


_observers: list[Callable[[Event], None]] = []


@contextmanager
def observing(observer: Callable[[Event], None]) -> Iterator[None]:
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def notify(event: Event) -> None:
    for observer in _observers:
        observer(event)


def is_observed() -> bool:
    return not torch.compiler.is_compiling() and bool(_observers)


def watch(name: str, tensor: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Give a tensor a row of its own in :func:`dcgraph.probe`; returns it unchanged.

    Put it around any tensor inside a model: ``x = dc.watch("embedding", self.embed(tokens))``.
    """
    if is_observed():
        notify(Event(name, tensor))
    return tensor
