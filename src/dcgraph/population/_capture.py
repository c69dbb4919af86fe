"""A training step as a CUDA graph."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

WARM_UP = 3
"""Calls before a capture: libraries and optimizers allocate what they need in the first ones."""


class CapturedStep:
    """A function whose calls are replayed from a CUDA graph, one for all arguments of some shapes.

    The first calls run as they are, on a stream of their own, as a capture will. Nothing has to be
    put back after that: each of them was what the caller asked for.
    """

    def __init__(self, step: Callable[..., Any], device: torch.device) -> None:
        self._step, self._device = step, device
        self._calls: dict[Hashable, int] = {}
        self._graphs: dict[Hashable, _Recording] = {}

    def __call__(self, *arguments: Any) -> Any:
        leaves, structure = tree_flatten(arguments)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        key = str(structure), *map(_kind, leaves)
        if key in self._graphs:
            return self._graphs[key].replay(tensors)
        if self._calls.get(key, 0) < WARM_UP:
            self._calls[key] = self._calls.get(key, 0) + 1
            return self._run_beside(arguments)
        static = [
            leaf.to(self._device, copy=True) if isinstance(leaf, Tensor) else leaf
            for leaf in leaves
        ]
        graph, result = torch.cuda.CUDAGraph(), None
        pool = next((other.graph.pool() for other in self._graphs.values()), None)
        with recording(graph, pool):
            result = self._step(*tree_unflatten(static, structure))
        inputs = [leaf for leaf in static if isinstance(leaf, Tensor)]
        self._graphs[key] = _Recording(graph, inputs, result)
        return self._graphs[key].replay(tensors)

    def _run_beside(self, arguments: tuple[Any, ...]) -> Any:
        own = torch.cuda.current_stream(self._device)
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(own)
        with torch.cuda.stream(stream):
            moved = tree_map(
                lambda leaf: leaf.to(self._device) if isinstance(leaf, Tensor) else leaf, arguments
            )
            result = self._step(*moved)
        own.wait_stream(stream)
        return result


class _Recording:
    """A graph, and the tensors that it reads from and writes to."""

    def __init__(self, graph: torch.cuda.CUDAGraph, inputs: list[Tensor], result: Any) -> None:
        self.graph, self._inputs, self._result = graph, inputs, result

    def replay(self, inputs: list[Tensor]) -> Any:
        with torch.no_grad():
            for static, new in zip(self._inputs, inputs, strict=True):
                static.copy_(new, non_blocking=True)
        self.graph.replay()
        return tree_map(
            lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, self._result
        )


def _kind(leaf: Any) -> Hashable:
    if isinstance(leaf, Tensor):
        return leaf.shape, leaf.dtype
    if not isinstance(leaf, Hashable):
        raise TypeError(
            f"a captured step was given a {type(leaf).__name__}; pass tensors, numbers and names."
        )
    return leaf


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, pool: Any = None) -> Iterator[None]:
    """Capture what happens inside.

    Graphs that run one after the other can work in the same memory: ``pool`` is that of another.
    Nothing may be freed meanwhile: an older graph that the garbage collector finds would be, and
    the capture fails.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool):
            yield
    except RuntimeError as error:
        error.add_note(
            "dcgraph: a captured step must not read values of tensors (item(), print, branches), "
            "nor move tensors from the CPU; and torch's optimizers need capturable=True."
        )
        raise
    finally:
        if collects:
            gc.enable()
