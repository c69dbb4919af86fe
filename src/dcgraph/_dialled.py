"""Modules with dials, which :class:`dcgraph.Dials` sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn


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
        raise TypeError(
            f"model is a {type(model).__name__}; pass a torch.nn.Module. The replicas of a "
            "population have dials of their own: population.set_dials([...]) sets them."
        )
    return [module for module in model.modules() if isinstance(module, Dialled)]


@torch.no_grad()
def set_dials(model: nn.Module, values: dict[str, float]) -> None:
    """Write tau, beta and alpha into a model, in place: a compiled or captured step sees them."""
    for module in dialled(model):
        for name in module.dial_names:
            module.get_buffer(name).fill_(values[name])
