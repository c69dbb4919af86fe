"""A population: R replicas of one model, trained and evaluated as one program."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from operator import index as as_index
from typing import Any, SupportsIndex, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map

from .._checks import unchecked
from .._dialled import Dialled
from .._observe import runs_apart, unobserved
from .._streams import Streams
from ..distributed._shards import rank_in
from ._capture import CapturedStep
from ._recurrent import Loop
from ._share import Share, gathered

F = TypeVar("F", bound=Callable[..., Any])

InDims = int | None | tuple[int | None, ...]
"""Which dimension of each argument counts the replicas; None where they all get the same."""


class Population(nn.Module):
    r"""R models of the same structure as one program: model code is written for one of them.

    A population is a module whose parameters are those of the R models, stacked: [R, ...]. So any
    optimizer of torch that treats each number by itself (Adam, SGD, ...) trains it as R optimizers
    would train R models, and ``state_dict``, ``to`` and ``eval`` are as ever. :class:`Adam` of this
    package has a learning rate for every replica. :class:`dcgraph.Dials` attached to a population
    may have a list of values, one for every replica.

    Buffers are each replica's own if they are saved with the model, or differ from seed to seed.
    Constants (``persistent=False``, the same for all seeds) are shared.

    Args:
        build: makes a fresh model from torch's global random numbers.
        seeds: one per replica; replica r starts as ``build`` makes it after manual_seed(seeds[r]).
        device: where the replicas are; None is the CPU.
        own_noise: whether every replica draws its noise from numbers of its own seed, so that its
            results do not depend on who is in the population. On the CPU only, and what a model
            draws by torch's own functions is not among it. Not for torch.utils.checkpoint, whose
            second forward pass would have other noise. The default is the group's.
        group: ranks of torch.distributed to divide the replicas over, such as
            ``torch.distributed.group.WORLD``. Each then builds and trains its part, without a word
            to the others; with ``own_noise``, which is the default here, as one process would.
            ``share`` says which replicas they are; see :meth:`gather`, too.

    >>> import torch, dcgraph as dc
    >>> population = dc.Population(lambda: dc.Discrete(4, 3), seeds=range(8))
    >>> population
    Population(8 replicas of Discrete, 12 parameters each, cpu)
    >>> dials = dc.Dials.constant(population, tau=[1, 1, 2, 2, 4, 4, 8, 8], beta=1.0)
    >>> population(torch.randn(5, 4)).shape
    torch.Size([8, 5, 4])

    A training step, with a loss that is written for one model:

    >>> def loss(model, u, target):
    ...     return torch.nn.functional.cross_entropy(model.logits(model(u)), target)
    >>> optimizer = torch.optim.Adam(population.parameters(), lr=0.01)
    >>> losses = population.map(loss, torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1]))
    >>> losses.shape, losses.sum().backward(), optimizer.step()
    (torch.Size([8]), None, None)
    >>> best = population.replica(int(losses.argmin()))  # an ordinary model
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        seeds: Collection[SupportsIndex],
        device: torch.device | str | None = None,
        *,
        own_noise: bool | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        if isinstance(seeds, int):
            raise TypeError(f"seeds is an int; pass one seed per replica, such as range({seeds}).")
        if not len(seeds):  # an array has no truth value
            raise ValueError("seeds is empty, but a population has at least one replica.")
        # The default group is not held: one that outlives torch's own end of it ends the process.
        self._group = None if group is dist.group.WORLD else group
        self.share = share_of(len(seeds), group)
        own = self.share.of([as_index(seed) for seed in seeds])
        models = []
        for seed in own:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                models.append(build())
        _check(models)
        self.replicas = len(models)
        self._stack(models)
        # In a tuple, so that the same parameters are not listed twice.
        self._call = (_Call(self.stacked),)
        self.to(torch.device("cpu" if device is None else device))
        self._streams: Streams | None = None
        if self.device.type == "cpu" and (group is not None if own_noise is None else own_noise):
            self._streams = Streams([seed_of_noise(seed) for seed in own])

    def _stack(self, models: list[nn.Module]) -> None:
        """One of the models becomes all of them: [R, ...] in the place of its own tensors."""
        parameters = [dict(model.named_parameters()) for model in models]
        buffers = [dict(model.named_buffers()) for model in models]
        self.stacked = models[0]
        saved = self.stacked.state_dict()
        dials = {
            f"{path}.{name}" if path else name
            for path, module in self.stacked.named_modules()
            if isinstance(module, Dialled)
            for name in module.dial_names
        }
        new: dict[int, Tensor] = {}
        for name, parameter in parameters[0].items():
            rows = torch.stack([own[name].detach() for own in parameters])
            new[id(parameter)] = nn.Parameter(rows, parameter.requires_grad)
        self._own_buffers = [
            name
            for name, buffer in buffers[0].items()
            if name in saved
            or name in dials
            or not all(torch.equal(own[name], buffer) for own in buffers[1:])
        ]
        for name in self._own_buffers:
            new[id(buffers[0][name])] = torch.stack([own[name] for own in buffers])
        _exchange(self.stacked, new)

    @property
    def device(self) -> torch.device:
        """Where the replicas are."""
        tensors = (*self.parameters(), *self.buffers())
        return tensors[0].device if tensors else torch.device("cpu")

    @property
    def num_parameters(self) -> int:
        """The number of parameters of one replica."""
        return sum(parameter[0].numel() for parameter in self.parameters())

    def __repr__(self) -> str:
        replicas = f"{self.replicas} replica" + ("" if self.replicas == 1 else "s")
        model, size = type(self.stacked).__name__, f"{self.num_parameters:,} parameters each"
        return f"{type(self).__name__}({replicas} of {model}, {size}, {self.device})"

    def forward(self, *arguments: Any, in_dims: InDims = None, **named: Any) -> Any:
        """What every replica makes of the same arguments, [R, ...]; see :meth:`map`."""
        return self.map(lambda model, *own: model(*own, **named), *arguments, in_dims=in_dims)

    def map(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        in_dims: InDims = None,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> Any:
        """``function(model, *arguments)`` for every replica; the results are stacked, [R, ...].

        Every replica gets the same arguments, unless ``in_dims`` says otherwise: 0 where an
        argument has a first dimension that counts the replicas, as each its own batch, for all
        arguments or for each of them. Noise and dropout are drawn afresh for every replica.

        It is :func:`torch.func.vmap`. So the model must not branch on values of tensors or choose
        shapes by them, and values are not checked: see :func:`dcgraph.debug`, and try
        :meth:`replica`. A probe or trace sees single replicas only.

        Args:
            function: what to do with one model.
            arguments: tensors, or lists and dicts of tensors.
            in_dims: 0, None, or one of them for each argument.
            parameters: to use instead of the population's own, stacked and by the same names.
        """
        own = parameters if parameters is not None else dict(self.stacked.named_parameters())
        buffers = dict(self.stacked.named_buffers())
        state = {f"model.{name}": tensor for name, tensor in own.items()}
        state |= {f"model.{name}": buffers[name] for name in self._own_buffers}
        if not isinstance(in_dims, tuple):
            in_dims = (in_dims,) * len(arguments)
        if len(in_dims) != len(arguments):
            raise ValueError(
                f"in_dims={in_dims} is for {len(in_dims)} arguments, but there are "
                f"{len(arguments)}; give 0 or None for each, or one for all."
            )
        if torch.compiler.is_compiling():
            return self._mapped(function, state, arguments, in_dims)
        if runs_apart():
            return self._one_by_one(function, state, arguments, in_dims)
        with unobserved(), _hinting():
            return self._mapped(function, state, arguments, in_dims)

    def _mapped(
        self,
        function: Callable[..., Any],
        state: dict[str, Tensor],
        arguments: tuple[Any, ...],
        in_dims: tuple[int | None, ...],
    ) -> Any:
        (call,) = self._call

        def one(state: dict[str, Tensor], *own: Any) -> Any:
            return functional_call(call, state, (function, *own))

        streams = self._streams
        if self.replicas > 1:
            mapped = vmap(one, (0, *in_dims), randomness="different")
            if torch.compiler.is_compiling():
                return mapped(state, *arguments)
            with unchecked():  # under vmap no value can be read, and to try takes its time
                if streams is None:
                    return mapped(state, *arguments)
                drawing = vmap(streams.of(one), (0, 0, *in_dims), randomness="different")
                return drawing(streams.replicas, state, *arguments)
        # The same without the price of vmap: half of a small step on the CPU.
        # A view, its gradient too.
        squeezed = {name: tensor.squeeze(0) for name, tensor in state.items()}
        own = _of_replica(0, arguments, in_dims)
        with nullcontext() if streams is None else streams.only(0):
            result = one(squeezed, *own)
        return tree_map(lambda tensor: tensor.unsqueeze(0), result)

    def _one_by_one(
        self,
        function: Callable[..., Any],
        state: dict[str, Tensor],
        arguments: tuple[Any, ...],
        in_dims: tuple[int | None, ...],
    ) -> Any:
        """The same replica after replica: so what each of them does can be observed."""
        (call,) = self._call
        results = []
        for index in range(self.replicas):
            own = {name: tensor[index] for name, tensor in state.items()}
            called = function, *_of_replica(index, arguments, in_dims)
            with nullcontext() if self._streams is None else self._streams.only(index):
                results.append(functional_call(call, own, called))
        return tree_map(lambda *parts: torch.stack(parts), *results)

    def replica(
        self,
        index: int,
        *,
        parameters: Mapping[str, Tensor] | None = None,
        into: nn.Module | None = None,
    ) -> nn.Module:
        """One replica as an ordinary model: a copy.

        Args:
            index: which one.
            parameters: to use instead of the population's own, stacked and by the same names.
            into: a model taken out before, to be overwritten: that saves the time of a new one.
        """
        if not -self.replicas <= index < self.replicas:
            raise IndexError(
                f"index={index}, but the population has replicas 0 to {self.replicas - 1}."
            )
        stacked = dict(self.stacked.named_parameters())
        rows = {name: (parameters or stacked)[name][index].detach() for name in stacked}
        buffers = {name: self.stacked.get_buffer(name)[index] for name in self._own_buffers}
        if into is None:
            copied: dict[int, Any] = {
                id(p): nn.Parameter(rows[name].clone(), p.requires_grad)
                for name, p in stacked.items()
            }
            copied |= {id(self.stacked.get_buffer(n)): b.clone() for n, b in buffers.items()}
            return copy.deepcopy(self.stacked, copied)
        with torch.no_grad():
            for name, parameter in into.named_parameters():
                parameter.copy_(rows[name])
            for name, buffer in buffers.items():
                into.get_buffer(name).copy_(buffer)
        return into

    def gather(self, value: Float[Tensor, "replicas *rest"]) -> Float[Tensor, "all *rest"]:
        """A value of every replica of this rank, such as a loss, of the replicas of all ranks.

        All ranks of the group call it, and get the same. Without a group it is the value.
        """
        if len(value) != self.replicas:
            raise ValueError(
                f"the value has a first dimension of {len(value)}, but this rank trains "
                f"{self.replicas} replicas; gather what map returned."
            )
        return gathered(value, self.share, self._group)

    def capture(self, step: F) -> F:
        """The same training step as a CUDA graph, which is started as one; on the CPU ``step``.

        A small model's step is mostly waiting for the CPU to start its operations. Its first three
        calls with arguments of some shapes run as they are, the fourth is captured, and from then
        on it is replayed: every call is one training step. What it returns is copied.

        ``step`` does the forward and backward pass and the optimizer's step, and reads no value on
        the way. ``dials.step()`` and a scheduler of the learning rate stay outside, after it; for
        the scheduler, the rate must be a tensor, as :class:`Adam` of this package has it. torch's
        own optimizers need ``capturable=True``.

        Args:
            step: a function of the batch. Tensors are moved to the device of the population.
        """
        if self.device.type != "cuda":
            return step
        return CapturedStep(step, self.device)  # type: ignore[return-value]


def _of_replica(
    index: int, arguments: tuple[Any, ...], in_dims: tuple[int | None, ...]
) -> list[Any]:
    return [
        value if dim is None else tree_map(lambda t, d=dim: t.select(d, index), value)
        for value, dim in zip(arguments, in_dims, strict=True)
    ]


class _Call(nn.Module):
    """A function of a model, as a module: functional_call replaces the weights of modules."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.model, *arguments)


def _exchange(model: nn.Module, new: dict[int, Tensor]) -> None:
    """Other tensors in the place of parameters and buffers, by id, wherever they are shared."""
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                setattr(module, name, new[id(parameter)])
        for name, buffer in module._buffers.items():
            if buffer is not None and id(buffer) in new:
                module._buffers[name] = new[id(buffer)]


def share_of(replicas: int, group: dist.ProcessGroup | None) -> Share:
    """The part of this rank."""
    if group is None:
        return Share(replicas)
    return Share(replicas, rank_in(group), dist.get_world_size(group))


def seed_of_noise(seed: int) -> int:
    """Other numbers than those of the initial weights, which come from the seed itself."""
    return int.from_bytes(hashlib.sha256(f"noise {seed}".encode()).digest()[:8], "big") >> 1


_RECURRENT = (nn.RNN, nn.LSTM, nn.GRU)


def _check(models: list[nn.Module]) -> None:
    """What cannot be stacked, or would be shared without a word."""
    first = models[0]
    if not isinstance(first, nn.Module):
        raise TypeError(f"build made a {type(first).__name__}; it must make a torch.nn.Module.")
    for name, parameter in first.named_parameters():
        if is_lazy(parameter):
            raise ValueError(
                f"the parameter {name!r} has no shape yet; let build run a batch through the model."
            )
        if parameter.dtype != torch.float32:
            raise TypeError(
                f"the parameter {name!r} is {parameter.dtype}, but populations train in float32; "
                "for half precision use torch.autocast around the step."
            )
    for name, module in first.named_modules():
        if isinstance(module, _RECURRENT) and not isinstance(module, Loop):
            kind = type(module).__name__
            raise TypeError(
                f"{name or 'the model'} is a torch.nn.{kind}, which cannot run as a population; "
                f"use dcgraph.population.{kind}, with the same arguments and parameters."
            )
    shapes = _shapes(first)
    for seed, model in enumerate(models[1:], 1):
        if _shapes(model) != shapes:
            raise ValueError(
                f"the model of seeds[{seed}] has other parameters or buffers than that of seeds[0];"
                " replicas have one structure."
            )
        for (path, one), other in zip(first.named_modules(), model.modules(), strict=True):
            for name, value in vars(one).items():
                same = getattr(other, name, None)
                where = f"{path}.{name}" if path else name
                if isinstance(one, Dialled) and isinstance(value, str) and value != same:
                    raise ValueError(
                        f"{where} is {value!r} for seeds[0] and {same!r} for seeds[{seed}]; all "
                        "replicas would run as the first, so build a population for each."
                    )
                if isinstance(value, Tensor) and not (
                    isinstance(same, Tensor)
                    and value.shape == same.shape
                    and torch.equal(value, same)
                ):
                    raise ValueError(
                        f"the attribute {where!r} is a tensor that differs from seed to seed; make "
                        f"it a buffer: self.register_buffer({name!r}, ...)."
                    )


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    tensors = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.shape for name, tensor in tensors}


_SHARED = (
    "if this writes to a tensor that all replicas share: a buffer that is saved with the model "
    "(persistent=True) is each replica's own."
)
_HINTS = {
    "Batching rule not implemented": "torch.func.vmap has no rule for this operation; replace it by"
    " others (a recurrent cell by products and activations, such as in dcgraph.population.LSTM).",
    "data-dependent control flow": "a model of a population cannot branch on the values of tensors;"
    " use torch.where.",
    ".item()": "a model of a population cannot read the values of tensors; keep them as tensors.",
    "dynamic shape": "a model of a population cannot choose shapes by the values of tensors; use "
    "masks and torch.where.",
    "must only return Tensors": "what is mapped returns tensors, which are stacked; return one "
    "also where a function only writes into the model.",
    "inplace arithmetic": _SHARED,
    "match the broadcast shape": _SHARED,
}


@contextmanager
def _hinting() -> Iterator[None]:
    """What vmap refuses, with the remedy."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        for text, hint in _HINTS.items():
            if text in str(error):
                error.add_note(f"dcgraph.Population: {hint}")
                break
        raise
