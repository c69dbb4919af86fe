"""Random numbers of its own for every replica of a population, on the CPU.

A population draws the numbers of all its replicas at once, so that what one of them gets depends on
who else is there. With streams it does not: every replica draws from a generator of its own. Its
result is then a matter of its own seed, whoever trains beside it, and on whichever rank.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

Kind = Literal["uniform", "bits", "words"]
"""Float32 in [0, 1), or int64: of 62 bits that are not all 0, or of 64."""

BITS = 62

_DRAWS: dict[str, Callable[[Tensor, torch.Generator], object]] = {
    "uniform": lambda out, own: out.uniform_(generator=own),
    "bits": lambda out, own: out.random_(1, 1 << BITS, generator=own),
    "words": lambda out, own: out.random_(-(1 << 63), (1 << 63) - 1, generator=own),
}


class Streams:
    """A generator for each replica, seeded by a number of its own."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._all = torch.arange(len(self._generators))

    def state(self) -> UInt8[Tensor, "replicas bytes"]:
        """Where all of them are."""
        return torch.stack([generator.get_state() for generator in self._generators])

    def load_state(self, state: UInt8[Tensor, "replicas bytes"]) -> None:
        """Go on from there."""
        for generator, own in zip(self._generators, state, strict=True):
            generator.set_state(own.clone())

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function for vmap in which every replica draws from its own; see :attr:`replicas`."""

        def drawing(replica: Tensor, *arguments: Any) -> Any:
            with self._current(replica):
                return function(*arguments)

        return drawing

    @property
    def replicas(self) -> Int[Tensor, " replicas"]:
        """The first argument of such a function, mapped over its dimension."""
        return self._all

    @contextmanager
    def only(self, index: int) -> Iterator[None]:
        """Inside, that replica draws."""
        with self._current(self._all[index]):
            yield

    @contextmanager
    def aside(self, index: int) -> Iterator[None]:
        """The same, and it draws on afterwards as if nothing had been; so does torch."""
        generator = self._generators[index]
        before = generator.get_state()
        seed = int(torch.randint(1 << BITS, (), generator=generator))
        try:
            with torch.random.fork_rng(devices=[]), self.only(index):
                torch.default_generator.manual_seed(seed)
                yield
        finally:
            generator.set_state(before)

    @contextmanager
    def _current(self, replica: Tensor) -> Iterator[None]:
        before = _drawing.set((self, replica))
        try:
            yield
        finally:
            _drawing.reset(before)

    def draw(self, replica: Tensor, shape: list[int], kind: str) -> Tensor:
        """For one replica, or for all of them side by side."""
        dtype, draw = torch.float32 if kind == "uniform" else torch.int64, _DRAWS[kind]
        drawn = torch.empty((*replica.shape, *shape), dtype=dtype)
        if not replica.ndim:
            draw(drawn, self._generators[int(replica)])
            return drawn
        for row, own in zip(drawn.unbind(0), self._generators, strict=True):
            draw(row, own)
        return drawn


_drawing: ContextVar[tuple[Streams, Tensor] | None] = ContextVar("who draws", default=None)


def has_stream(device: torch.device | str | None = None) -> bool:
    """Whether somebody draws from a stream of its own; on a GPU nobody does."""
    if torch.compiler.is_compiling() or _drawing.get() is None:
        return False
    return device is None or torch.device(device).type == "cpu"


def draw(kind: Kind, shape: Sequence[int]) -> Tensor:
    """From the stream of the one who draws; there is one, see :func:`has_stream`."""
    current = _drawing.get()
    assert current is not None
    # A model may use vmap itself. What is drawn there has its dimensions; they draw apart, or not.
    place = torch.rand((), device="cpu")
    drawn: Tensor = _draw(current[1], place, list(shape), kind)
    return drawn


@torch.library.custom_op("dcgraph::of_stream", mutates_args=())
def _draw(replica: Tensor, place: Tensor, shape: list[int], kind: str) -> Tensor:
    current = _drawing.get()
    assert current is not None
    return current[0].draw(replica, shape, kind)


@_draw.register_vmap
def _(
    info: Any, in_dims: Any, replica: Tensor, place: Tensor, shape: list[int], kind: str
) -> tuple[Tensor, int]:
    if in_dims[1] is not None:
        place = place.select(in_dims[1], 0)
    if in_dims[0] is None:  # not the vmap of the population, but one inside of it
        shape = [info.batch_size, *shape]
    return _draw(replica, place, shape, kind), 0
