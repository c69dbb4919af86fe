"""Probe: where in a chain of nodes the gradient dies, and which categories the nodes use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._observe import Event, forked, observing, restored
from ..nodes import named_nodes

SATURATED = 0.99
"""A relaxed row whose largest entry is above this passes hardly any gradient to its logits."""

LISTED = 256
"""Nodes with more categories than this get no reading of each: nobody looks at such a list."""


class NoNodeCalledError(ValueError):
    """There was no chain to look at."""


@dataclass(frozen=True)
class Categories:
    """What the probe read of each category of a node: means over the rows of one call."""

    use: tuple[float, ...]  # share of rows where it is the argmax of softmax(theta)
    weight: tuple[float, ...]  # z_j, its entry in the relaxed rows
    gradient: tuple[float, ...] | None  # |dL / dtheta_j|; None where no gradient arrives


@dataclass(frozen=True)
class Reading:
    """What the probe read at one call of a node, or at one watched tensor.

    Gradients are mean absolute values over all entries, None where no gradient arrives. What a
    watched tensor does not have is None.
    """

    name: str
    call: int
    gradient: float | None  # at the input u (for a Categorical, and a watched tensor, at itself)
    logit_gradient: float | None = None  # also None where logits are never a matrix, see probe
    entropy: float | None = None  # of softmax(theta), in nats, mean over rows
    largest: float | None = None  # largest probability of softmax(theta), mean over rows
    categories: int | None = None
    used: int | None = None  # categories that are the argmax of softmax(theta) in some row
    dead: int | None = None  # the others
    saturated: float | None = None  # share of relaxed rows with an entry above SATURATED
    gap: float | None = None  # distance of relaxed and hard rows, see probe
    by_category: Categories | None = None  # for nodes with at most LISTED categories
    group: int | None = None  # which of the groups it is, where groups are asked for


@dataclass(frozen=True)
class Report:
    """All readings in call order, with the loss in training mode and in hard mode."""

    loss: float
    hard_loss: float
    readings: tuple[Reading, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        grouped = any(reading.group is not None for reading in self.readings)
        head = tuple("call, group" if grouped and c == "call" else c for c in _COLUMNS)
        rows = [head, *map(self._cells, self.readings)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, f"loss {self.loss:.4g} relaxed, {self.hard_loss:.4g} hard"])

    def _last(self, group: int | None) -> float | None:
        """The gradient at the last call of a node, of the same group if it has that."""
        nodes = [one for one in reversed(self.readings) if one.categories]
        call = [one for one in nodes if (one.name, one.call) == (nodes[0].name, nodes[0].call)]
        same = [one for one in call if one.group == group]
        return (same or call)[0].gradient if call else None

    def _cells(self, reading: Reading) -> tuple[str, ...]:
        last = self._last(reading.group)
        ratio = reading.gradient / last if reading.gradient is not None and last else None
        of = f"/{reading.categories}" if reading.categories else ""
        return (
            reading.name,
            str(reading.call) if reading.group is None else f"{reading.call}, {reading.group}",
            _number(reading.gradient, ".2e"),
            _number(ratio, ".2g"),
            _number(reading.logit_gradient, ".2e"),
            _number(reading.entropy, ".2f"),
            _number(reading.largest, ".2f"),
            _number(reading.used, "d") + of,
            _number(reading.dead, "d"),
            _number(reading.saturated, ".0%"),
            _number(reading.gap, ".2f"),
        )


_COLUMNS: tuple[str, ...] = (
    *("node", "call", "|grad u|", "vs last", "|grad theta|", "entropy", "largest p"),
    *("used", "dead", "saturated", "soft-hard gap"),
)


def _number(value: float | int | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def probe(model: nn.Module, closure: Callable[[], Tensor], *, groups: int | None = None) -> Report:
    """Look inside the chain: run ``closure`` in training mode and in hard mode, and report.

    One row per call of a node, in call order (a node called k times gives k rows), and one for
    each tensor passed through :func:`dcgraph.watch`. The ``soft-hard gap`` is the mean distance
    between the relaxed row z of the training run and the one-hot row of the hard run, half the sum
    of absolute differences: 0 when the discrete model does what the relaxed one does, 1 when it
    always chooses otherwise. Rows that choose nothing do not count there, and padding (``rows=`` of
    a node) counts nowhere.

    A gradient is the whole one of that tensor: what else uses it, such as the residual or a second
    node, counts too. Raw data as input have none.

    A node with a large codebook (see :class:`dcgraph.Discrete`) never has a matrix of logits, and
    none is made for the probe: it has no gradient of theta.

    Parameters, their gradients, buffers, train/eval modes and torch's random state are as before
    afterwards.

    Args:
        model: a model with discrete nodes.
        closure: computes the loss, a scalar, from the model: ``lambda: loss(model(x), y)``.
        groups: a dimension of the choices, to report its positions apart: with 1 a node that is
            called on [batch, 8, K] has eight rows, for it makes eight choices. Nodes that do not
            have the dimension have one row, as ever.

    >>> import torch, dcgraph as dc
    >>> node = dc.Discrete(4, 3)
    >>> report = dc.probe(node, lambda: node(torch.ones(2, 4)).square().sum())
    >>> [(row.name, row.call, row.categories) for row in report.readings]
    [('Discrete', 0, 3)]
    """
    names = {id(node): name for name, node in named_nodes(model)}
    if not names:
        raise ValueError(f"{type(model).__name__} has no discrete nodes to probe.")
    with restored(model), torch.inference_mode(False), torch.enable_grad():
        hard_loss, hard = _run(model, closure, names, training=False)
        loss, soft = _run(model, closure, names, training=True)
        gradients = _gradients(loss, list(soft.values()))
    readings = tuple(
        reading
        for (name, call), event in soft.items()
        for reading in _readings(name, call, event, hard.get((name, call)), gradients, groups)
    )
    return Report(loss.item(), hard_loss.item(), readings)


def _run(
    model: nn.Module, closure: Callable[[], Tensor], names: dict[int, str], *, training: bool
) -> tuple[Tensor, dict[tuple[str, int], Event]]:
    """The loss, and what each node and watched tensor showed, by name and number of the call."""
    events: dict[tuple[str, int], Event] = {}
    calls: Counter[str] = Counter()

    def record(event: Event) -> None:
        name = event.source if isinstance(event.source, str) else names.get(id(event.source))
        if name is not None:
            events[name, calls[name]] = event
            calls[name] += 1

    model.train(training)
    with forked(model), observing(record):
        loss = closure()
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise ValueError(
            f"the closure returned {_describe(loss)}; it must return the loss, a scalar tensor."
        )
    if any(parameter.grad is not None for parameter in model.parameters()):
        raise ValueError("the closure called backward(); let it return the loss, and no more.")
    if not any(event.categories for event in events.values()):
        raise NoNodeCalledError(
            "the closure called no node of the model; call the model inside it, probe a compiled "
            "model before torch.compile, and of a population one model, population.replica(0)."
        )
    return loss.squeeze(), events


def _describe(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)


def _gradients(loss: Tensor, events: list[Event]) -> dict[int, Tensor]:
    """Absolute gradient of each tensor of the events, by id; .grad fields stay untouched."""
    tensors = {
        id(t): t
        for event in events
        for t in (event.input, event.logits)
        if t is not None and t.requires_grad
    }
    if not loss.requires_grad or not tensors:
        return {}
    found = torch.autograd.grad(loss, list(tensors.values()), allow_unused=True)
    return {
        key: gradient.float().abs()
        for key, gradient in zip(tensors, found, strict=True)
        if gradient is not None
    }


def _readings(
    name: str,
    call: int,
    event: Event,
    hard: Event | None,
    gradients: dict[int, Tensor],
    groups: int | None,
) -> Iterator[Reading]:
    """One for a call, or one for each of its groups."""
    at_input, at_logits = gradients.get(id(event.input)), gradients.get(id(event.logits))
    if event.categories is None:
        yield Reading(name, call, _mean(at_input))
        return
    choice, weight = event.most_probable(), event.largest_weight()
    hard_choice = None if hard is None else hard.index
    comparable = hard_choice is not None and hard_choice.shape == weight.shape
    values = _PerRow(
        event.categories,
        choice,
        event.entropy(),
        event.probability(choice),
        weight,
        hard_choice if comparable else None,
        event.weight(hard_choice) if hard_choice is not None and comparable else None,
        event.z() if event.relaxed is not None and event.categories <= LISTED else None,
        at_input,
        at_logits,
    )
    shape = choice.shape
    rows = torch.ones_like(choice, dtype=torch.bool) if event.rows is None else event.rows
    if groups is None or not -len(shape) <= groups < len(shape):
        yield values.reading(name, call, rows)
        return
    place = torch.arange(shape[groups], device=rows.device)
    place = place.view(-1, *(1,) * (len(shape) - 1 - groups % len(shape)))
    for group in range(shape[groups]):
        yield values.reading(name, call, rows & (place == group), group)


@dataclass(frozen=True)
class _PerRow:
    """What was read at each row of one call; the rows are the choices it made."""

    categories: int
    choice: Tensor
    entropy: Tensor
    largest: Tensor
    weight: Tensor
    hard_choice: Tensor | None
    hard_weight: Tensor | None
    z: Tensor | None
    gradient: Tensor | None
    logit_gradient: Tensor | None

    def reading(self, name: str, call: int, rows: Tensor, group: int | None = None) -> Reading:
        """Of those rows that are True, together."""
        choices = self.choice[rows]
        used = choices.unique().numel()
        by_category = None if self.z is None else self._by_category(choices, rows)
        return Reading(
            name,
            call,
            _mean(self.gradient, rows),
            _mean(self.logit_gradient, rows),
            _mean(self.entropy, rows),
            _mean(self.largest, rows),
            self.categories,
            used,
            self.categories - used,
            _mean((self.weight > SATURATED).float(), rows),
            self._gap(rows),
            by_category,
            group,
        )

    def _gap(self, rows: Tensor) -> float | None:
        """Half of sum |z - one_hot| is 1 - z[index]."""
        if self.hard_choice is None or self.hard_weight is None:
            return None
        return _mean(1 - self.hard_weight, rows & (self.hard_choice >= 0))  # the root has no choice

    def _by_category(self, choices: Tensor, rows: Tensor) -> Categories:
        assert self.z is not None
        count = max(1, len(choices))
        use = torch.bincount(choices, minlength=self.categories) / count
        gradient = self.logit_gradient
        return Categories(
            tuple(use.tolist()),
            tuple((self.z[rows].sum(0) / count).tolist()),
            None if gradient is None else tuple((gradient[rows].sum(0) / count).tolist()),
        )


def _mean(values: Tensor | None, rows: Tensor | None = None) -> float | None:
    """Over those rows; None where there is nothing."""
    if values is None:
        return None
    found = values if rows is None else values[rows]
    return found.mean().item() if found.numel() else None
