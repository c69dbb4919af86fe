"""What the kernels share as operators of torch."""

from typing import Any

import torch
from torch import Tensor


def differentiable(function: type[torch.autograd.Function], operator: Any) -> Any:
    """Which of the two to call: torch.func differentiates a Function but no custom operator, and
    torch.compile traces through an operator but not always through a Function."""
    return operator if torch.compiler.is_compiling() else function.apply


def in_front(value: Tensor, dim: int | None, size: int) -> Tensor:
    """A tensor with the dimension that vmap maps as its first one, also where it has none."""
    return value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)


def models_in_front(operator: Any, results: int, *, seeded: bool = True) -> None:
    """Let vmap join its dimension with the first of all tensors, that of models, except of a seed.

    If it is ``seeded``, the last tensor is the seed. One serves all replicas, because every model
    draws from places of its own.
    """

    def mapped(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> Any:
        size, joined = info.batch_size, list(arguments)
        places = [k for k, value in enumerate(arguments) if isinstance(value, Tensor)]
        seeds = [places.pop()] if seeded else []
        for k in places:
            first = in_front(arguments[k], in_dims[k], size)
            joined[k] = first.reshape(-1, *first.shape[2:])
        for k in seeds:
            seed, dim = arguments[k], in_dims[k]
            joined[k] = seed if dim is None else seed.select(dim, 0)
        out = operator(*joined)
        if results == 1:
            return out.unflatten(0, (size, -1)), 0
        return tuple(value.unflatten(0, (size, -1)) for value in out), (0,) * results

    operator.register_vmap(mapped)
