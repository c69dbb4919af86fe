"""A population: R replicas of one model, trained and evaluated as one program."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from operator import index
from typing import Any, SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_map

from .._dialled import dialled

_ALIGNMENT = 4  # floats: matrix products are faster on 16-byte boundaries
_LARGE = 1 << 20  # entries of a parameter that is not worth a copy


class Population:
    """R models of the same structure; their parameters are the rows of one matrix ``weights``.

    With all parameters of a replica in one row, the optimizer, a moving average, the best weights
    so far and a checkpoint are each one tensor and one line. Model code is written for one model:
    :meth:`map` adds the replica axis.

    Args:
        build: makes a fresh model from torch's global random numbers.
        seeds: one per replica; replica r starts as ``build`` makes it after manual_seed(seeds[r]).
        device: where the replicas are; None is the CPU.

    >>> import torch, dcgraph as dc
    >>> population = dc.Population(lambda: dc.Discrete(4, 3), seeds=range(8))
    >>> u = torch.randn(5, 4)
    >>> population.map(lambda model, u: model(u), population.weights, u, in_dims=(None,)).shape
    torch.Size([8, 5, 4])
    >>> population
    Population(8 replicas of Discrete, 12 parameters each, cpu)
    """

    weights: Float[Tensor, "replicas parameters"]

    def __init__(
        self,
        build: Callable[[], nn.Module],
        seeds: Collection[SupportsIndex],
        device: torch.device | str | None = None,
    ) -> None:
        if isinstance(seeds, int):
            raise TypeError(f"seeds is an int; pass one seed per replica, such as range({seeds}).")
        if not len(seeds):  # an array has no truth value
            raise ValueError("seeds is empty, but a population has at least one replica.")
        device = torch.device("cpu" if device is None else device)
        rows = []
        constants: dict[str, Tensor] | None = None
        for seed in seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(index(seed))
                self.template = build()
            rows.append(_flatten(self.template))
            constants = _same_constants(self.template, constants)
        _check_statistics(self.template)
        self._call = _Call(self.template)
        self.template.to(device)
        self.weights = torch.stack(rows).to(device)
        self.replicas = len(seeds)
        self.device = device
        self._shapes = {name: p.shape for name, p in self.template.named_parameters()}
        self._sizes = [n for p in self.template.parameters() for n in _size_and_padding(p)]
        names = {name for module in dialled(self.template) for name in module.dial_names}
        self.dials = {name: torch.ones(self.replicas, device=device) for name in sorted(names)}
        self._dial_of = {
            f"{prefix}.{name}" if prefix else name: name
            for prefix, module in self.template.named_modules()
            for name in getattr(module, "dial_names", ())
        }

    @property
    def num_parameters(self) -> int:
        """The number of parameters of one replica."""
        return sum(shape.numel() for shape in self._shapes.values())

    def __repr__(self) -> str:
        replicas = f"{self.replicas} replica" + ("" if self.replicas == 1 else "s")
        model, size = type(self.template).__name__, f"{self.num_parameters:,} parameters each"
        return f"Population({replicas} of {model}, {size}, {self.device})"

    def set_dials(self, values: Sequence[dict[str, float]]) -> None:
        """Write the dials of each replica; in place, so that a captured step sees them."""
        if len(values) != self.replicas:
            raise ValueError(
                f"values are for {len(values)} replicas, but the population has {self.replicas}; "
                "pass a dict of dials for each, such as [dials.at(step)] * replicas."
            )
        for name, dial in self.dials.items():
            dial.copy_(torch.tensor([replica[name] for replica in values]))

    def map(
        self,
        function: Callable[..., Any],
        weights: Float[Tensor, "replicas parameters"] | dict[str, Tensor],
        *arguments: Any,
        in_dims: tuple[int | None, ...],
    ) -> Any:
        """``function(model, *arguments)`` for every replica; ``in_dims``: 0 or None for each.

        The weights may be in :meth:`slices`. Noise and dropout are drawn afresh for every replica.
        """
        slices = self.slices(weights) if isinstance(weights, Tensor) else weights

        def one(parameters: dict[str, Tensor], dials: dict[str, Tensor], *own: Any) -> Any:
            buffers = {f"model.{path}": dials[name] for path, name in self._dial_of.items()}
            return functional_call(self._call, {**parameters, **buffers}, (function, *own))

        if self.replicas > 1:
            mapped = vmap(one, in_dims=(0, 0, *in_dims), randomness="different")
            return mapped(slices, self.dials, *arguments)
        # The same without the price of vmap: half of a small step on the CPU.
        first = lambda tensor: tensor[0]  # noqa: E731
        single = [
            value if dim is None else tree_map(first, value)
            for value, dim in zip(arguments, in_dims, strict=True)
        ]
        own = tree_map(lambda tensor: tensor.squeeze(0), slices)  # a view, its gradient too
        result = one(own, tree_map(first, self.dials), *single)
        return tree_map(lambda tensor: tensor.unsqueeze(0), result)

    def replica(
        self, index: int, weights: Tensor | None = None, into: nn.Module | None = None
    ) -> nn.Module:
        """One replica as an ordinary model, its weights a copy; ``weights`` if not the current.

        ``into`` is a model taken out before, to be overwritten: that saves the copy.
        """
        model = copy.deepcopy(self.template) if into is None else into
        row = (self.weights if weights is None else weights)[index].detach()
        own = self.slices(row)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(own[f"model.{name}"])
            for module in dialled(model):
                for name in module.dial_names:
                    module.get_buffer(name).copy_(self.dials[name][index])
        return model

    def slices(self, rows: Float[Tensor, "*replicas parameters"]) -> dict[str, Tensor]:
        """Rows of weights as parameter slices: parameter by parameter, as views."""
        slices = rows.split(self._sizes, -1)[::2]  # every other one is padding
        shapes = self._shapes.items()
        return {
            f"model.{name}": columns.unflatten(-1, shape)
            for (name, shape), columns in zip(shapes, slices, strict=True)
        }

    def columns(self, slices: Sequence[Tensor]) -> Iterator[tuple[slice, Tensor]]:
        """Parameter slices in their order, such as gradients, as columns of ``weights``.

        A large one is handed back as it is, for a copy has its price. Small neighbours are joined,
        for each tensor handed back has one, too.
        """
        sizes, paddings = self._sizes[::2], self._sizes[1::2]
        starts = list(itertools.accumulate(self._sizes, initial=0))[::2]
        kinds = [place if size > _LARGE else -1 for place, size in enumerate(sizes)]
        for _, members in itertools.groupby(range(len(sizes)), kinds.__getitem__):
            first, *others = members
            parts = [slices[first].flatten(1)]
            for place in others:
                padding = parts[0].new_zeros(self.replicas, paddings[place - 1])
                parts += [padding, slices[place].flatten(1)]
            joined = torch.cat(parts, 1) if others else parts[0]
            yield slice(starts[first], starts[first] + joined.shape[1]), joined


class _Call(nn.Module):
    """A function of a model, as a module: functional_call replaces the weights of modules."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.model, *arguments)


def _size_and_padding(parameter: Tensor) -> tuple[int, int]:
    return parameter.numel(), -parameter.numel() % _ALIGNMENT


def _flatten(model: nn.Module) -> Tensor:
    parts = []
    for parameter in model.parameters():
        if parameter.dtype != torch.float32:
            raise TypeError(f"a parameter is {parameter.dtype}; populations train in float32.")
        parts += [parameter.detach().flatten(), torch.zeros(_size_and_padding(parameter)[1])]
    return torch.cat(parts) if parts else torch.zeros(0)  # a rule has no parameters


def _same_constants(model: nn.Module, before: dict[str, Tensor] | None) -> dict[str, Tensor]:
    """Buffers are constants of the structure: replicas share them, model files lack them."""
    buffers = dict(model.named_buffers())
    for name, buffer in (before or {}).items():
        if not torch.equal(buffers[name], buffer):
            raise ValueError(
                f"the buffer {name!r} differs from seed to seed; make it a parameter, or fill it "
                "from a generator of its own."
            )
    return buffers


def _check_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            raise ValueError(
                f"{name or type(module).__name__} keeps running statistics, which replicas cannot "
                "share; use track_running_stats=False, or LayerNorm."
            )
