"""Trace: what each node decided, call by call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import overload

from jaxtyping import Float, Int
from torch import Tensor, nn

from .._observe import Event, observing
from ..nodes import named_nodes


@dataclass(frozen=True)
class Step:
    """What one call of one node decided."""

    node: str
    call: int  # which call of this node it is, from 0
    index: Int[Tensor, "*batch"]  # the category of each row, -1 where none was left
    probability: Float[Tensor, "*batch"]  # softmax(theta) of that category


_COLUMNS, _LINES = 16, 8
"""So many choices are printed side by side, and so many rows of several choices."""


class Trace(Sequence[Step]):
    """The steps of all nodes in call order; prints the choices of the first few rows.

    Choices [batch, 8] are printed so: a line for each example, with its eight choices. Padding, and
    rows without any category, are printed as a dash.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []

    @overload
    def __getitem__(self, item: int) -> Step: ...
    @overload
    def __getitem__(self, item: slice) -> Sequence[Step]: ...
    def __getitem__(self, item: int | slice) -> Step | Sequence[Step]:
        return self._steps[item]

    def __len__(self) -> int:
        return len(self._steps)

    def __str__(self) -> str:
        return "\n".join(line for step in self for line in _lines(step)) or "no node was called"


def _lines(step: Step) -> Iterator[str]:
    name, index = f"{step.node}[{step.call}]: ", step.index
    if index.ndim < 2:
        yield name + _row(index.reshape(-1), "rows")
        return
    rows = index.flatten(0, -2)
    for number, row in enumerate(rows[:_LINES]):
        yield (" " * len(name) if number else name) + _row(row, "choices")
    if len(rows) > _LINES:
        yield " " * len(name) + f"... {list(index.shape)}"


def _row(index: Tensor, of: str) -> str:
    shown = " ".join("-" if one < 0 else str(one) for one in index[:_COLUMNS].tolist())
    return shown if len(index) <= _COLUMNS else f"{shown} ... {len(index)} {of}"


@contextmanager
def trace(model: nn.Module) -> Iterator[Trace]:
    """Record what each node of ``model`` decides inside the ``with`` block.

    In eval mode these are the choices themselves; in training mode the largest entries of the
    relaxed rows. A compiled model does not report: trace the model it was made of.

    >>> import torch, dcgraph as dc
    >>> node = dc.Categorical().eval()
    >>> with dc.trace(node) as steps:
    ...     _ = node(torch.tensor([[1.0, 3.0], [2.0, 0.0]]))
    >>> print(steps)
    Categorical[0]: 1 0
    """
    names = {id(node): name for name, node in named_nodes(model)}
    calls: Counter[str] = Counter()
    steps = Trace()

    def record(event: Event) -> None:
        name = names.get(id(event.source))
        if name is None:
            return
        index = event.chosen()
        steps._steps.append(Step(name, calls[name], index, event.probability(index)))
        calls[name] += 1

    with observing(record):
        yield steps
