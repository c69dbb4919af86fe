"""Modules with dials, which :class:`dcgraph.Dials` sets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ._checks import Dial, may_read_cpu, try_to_read

Value = float | Sequence[float]
"""Of a dial: one for a model, or one for each replica of a population."""

_PATIENCE = 10_000
"""Calls of a node in training after which dials that have not stepped were forgotten."""

_UNATTACHED = (
    "a discrete node trains with no dials attached: tau, beta and alpha are 1, which is plain "
    "Gumbel-softmax. Attach them with dcgraph.Dials(...).attach(model), or say that it is meant "
    "with dcgraph.Dials.constant(model)."
)
_LOADED = (
    "weights were loaded into a model that trains with no dials attached: tau, beta and alpha are "
    "1, for they are not among the weights. Attach the dials as in the run before, and load their "
    "state with dials.load_state_dict(...); or say that it is meant with "
    "dcgraph.Dials.constant(model)."
)
_FORGOTTEN = (
    f"the dials have not stepped in {_PATIENCE:,} training calls of a node, so tau, beta and alpha "
    "stand still. Call dials.step() after each optimizer.step(), on every rank."
)
_EXPORTED = (
    "a discrete node is exported in training mode: the program will relax its choices and draw "
    "noise. For a program that decides, call model.eval() before the export."
)


@dataclass
class Clock:
    """How far the dials of a node are: shared by them and all their nodes."""

    moves: bool  # whether any schedule changes
    steps: int = 0


@dataclass
class _Attention:
    """What a node notices of its training; not an attribute of the module, which would be slow."""

    clock: Clock | None = None
    loaded: bool = False  # weights, since it was built
    said: bool = False
    steps: int = 0  # of the clock, at the last call
    calls: int = 0  # since then


class Dialled(nn.Module):
    """A module with dials: scalar float32 buffers, 1 until :class:`dcgraph.Dials` sets them.

    As buffers they follow the module to its device, a compiled step or a captured CUDA graph sees
    them change, and stacking models stacks them. They are not part of the state dict: what they
    are worth is a matter of the schedule, which ``Dials.state_dict`` saves.
    """

    dial_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        for name in self.dial_names:
            self.register_buffer(name, torch.ones((), dtype=torch.float32), persistent=False)
        self._attention = _Attention()

    def dial(self, name: str) -> Dial:
        """As a number where that is cheap to know, which saves operations; else the buffer."""
        value: Tensor = self._buffers[name]  # type: ignore[assignment]
        if value.is_cpu and value.ndim == 0 and may_read_cpu():
            number = try_to_read(value)
            return value if number is None else number
        return value

    def note_training(self) -> None:
        """Say once what would otherwise fail silently: dials that nobody attached or steps."""
        if torch.compiler.is_compiling():
            if torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling():
                warnings.warn(_EXPORTED, stacklevel=3)
            return
        own = self._attention
        if own.clock is None:
            if not own.said and torch.is_grad_enabled():
                own.said = True
                warnings.warn(_LOADED if own.loaded else _UNATTACHED, stacklevel=3)
        elif own.clock.moves:
            if own.steps != own.clock.steps:
                own.steps, own.calls = own.clock.steps, 0
            own.calls += 1
            if own.calls == _PATIENCE:
                warnings.warn(_FORGOTTEN, stacklevel=3)

    def _load_from_state_dict(self, *arguments: Any, **named: Any) -> None:
        self._attention.loaded = True
        super()._load_from_state_dict(*arguments, **named)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Dialled:
        before = {name: self.get_buffer(name) for name in self.dial_names}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, dial in before.items():
            moved = self.get_buffer(name)
            if dial.is_meta and not moved.is_meta:  # to_empty() left anything at all in it
                self._buffers[name] = torch.ones_like(moved, dtype=dial.dtype)
            elif moved.dtype != dial.dtype:  # half() must not round it
                self._buffers[name] = dial.to(moved.device)
        return self


def dialled(model: nn.Module) -> list[Dialled]:
    """Every module of a model that has dials."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; pass a torch.nn.Module.")
    return [module for module in model.modules() if isinstance(module, Dialled)]


def attach(model: nn.Module, clock: Clock) -> None:
    """The nodes of a model learn by which clock they go."""
    for module in dialled(model):
        module._attention.clock = clock


@torch.no_grad()
def set_dials(model: nn.Module, values: Mapping[str, Value], replica: int | None = None) -> None:
    """Write tau, beta and alpha into a model, in place: a compiled or captured step sees them.

    Args:
        model: a model, or a population.
        values: of each dial; several numbers are those of the replicas of a population.
        replica: write only those of one replica.
    """
    for module in dialled(model):
        for name in module.dial_names:
            dial, value = module.get_buffer(name), values[name]
            if isinstance(value, Sequence):
                dial.copy_(_per_replica(name, value, dial, replica))
            elif replica is None:
                dial.fill_(value)
            else:
                dial[replica].fill_(value)


def _per_replica(
    name: str, value: Sequence[float], dial: Tensor, replica: int | None
) -> Float[Tensor, " replicas"]:
    if dial.ndim == 0 or replica is not None:
        raise ValueError(
            f"{name} has {len(value)} values, one per replica, but this is one model; attach a "
            "dcgraph.Population, or give one value."
        )
    if len(value) != len(dial):
        raise ValueError(
            f"{name} has {len(value)} values, one per replica, but the population has {len(dial)} "
            "replicas; give as many."
        )
    return torch.tensor(value, dtype=dial.dtype)
