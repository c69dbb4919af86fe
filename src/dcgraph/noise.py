"""Gumbel noise with a fine tail, and how all random numbers of the library are drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, get_args

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ._arguments import Distribution, check_choice
from ._checks import Dial, broadcasts_into, check_dial, may_read, may_read_cpu, read
from ._streams import BITS as _BITS
from ._streams import draw as draw_from_stream
from ._streams import has_stream

__all__ = ["Distribution", "Noise", "gumbel"]

Noise = Float[Tensor, "..."] | Distribution
"""Noise of scale 1: a tensor to replay, or the distribution to draw it from."""

FEW = 1024
"""Up to so many numbers on the CPU are drawn in fewer operations, from 53 bits in place of 62."""

_LARGEST_EXPONENTIAL = 64.0  # beyond the largest that 53 bits give: -log(u) at u = 0, else infinite
# The largest number below 1 as a factor keeps u < 1; bits are never 0, which keeps u > 0.
_SCALES = {
    dtype: (1 - torch.finfo(dtype).eps / 2) * 2.0**-_BITS
    for dtype in (torch.float32, torch.float64)
}


def gumbel(
    shape: Sequence[int],
    *,
    beta: Dial = 1.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Float[Tensor, "..."]:
    r"""Gumbel(0, beta) noise: :math:`\epsilon = -\beta \log E` with :math:`E \sim` Exp(1).

    Always finite, between -4.2 beta and 43 beta in float32. The upper tail, which decides an
    argmax, is fine because E = -log(1 - u) is formed from 62 random bits that keep their relative
    precision near u = 0. (Up to 1,024 numbers on the CPU come from 53 bits, which end at 37 beta.)
    torch's own samplers on CUDA and in compiled code stop at E = 6e-8, that is at 16.6: among 10
    million equal categories the winner is then often a tie.

    Where torch.distributed runs, every rank has noise of its own, even if all were seeded alike;
    with a ``generator`` it is only what that one draws.

    >>> import torch, dcgraph as dc
    >>> dc.gumbel([2, 3], beta=0.0)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    check_dial("beta", beta)
    if isinstance(beta, Tensor) and not broadcasts_into(beta.shape, shape):
        raise ValueError(
            f"beta has shape {tuple(beta.shape)}, which does not broadcast to the shape "
            f"{tuple(shape)} of the noise; give it that shape, with 1 where it is shared."
        )
    if is_zero(beta):
        return torch.zeros(tuple(shape), dtype=dtype, device=device)
    compute_dtype = torch.promote_types(dtype, torch.float32)
    return (draw_gumbel(shape, generator, compute_dtype, device) * beta).to(dtype)


def is_zero(beta: Dial) -> bool:
    """Whether it is the number 0, not a tensor: only that is known without reading values."""
    return isinstance(beta, int | float) and beta == 0


def random_keys(
    count: int, device: torch.device, generator: torch.Generator | None = None
) -> Int[Tensor, " {count}"]:
    """Random int64 from that generator, or torch's global one of that device."""
    return _random_bits((count,), generator, device)


def draw_uniform(
    shape: Sequence[int], generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Float32 in [0, 1)."""
    if generator is None and has_stream(device):
        return draw_from_stream("uniform", shape)
    if _own_noise(generator):
        bits = _random_bits(shape, generator, device)
        return (bits >> _BITS - 24).to(torch.float32).mul_(2.0**-24)
    return torch.rand(tuple(shape), dtype=torch.float32, device=device, **_from(generator))


def draw_words(count: int, device: torch.device) -> Int[Tensor, " {count}"]:
    """Random int64 of all 64 bits."""
    if has_stream(device):
        return draw_from_stream("words", (count,))
    return torch.randint(-(1 << 63), (1 << 63) - 1, (count,), device=device)


def dropout(
    values: Float[Tensor, "*shape"], share: float, training: bool = True
) -> Float[Tensor, "*shape"]:
    """:func:`torch.nn.functional.dropout`, also of a replica that draws from its own stream."""
    if not (training and 0 < share < 1 and has_stream(values.device)):
        return F.dropout(values, share, training)
    kept = draw_from_stream("uniform", values.shape) >= share
    return torch.where(kept, values * (1 / (1 - share)), 0.0)


def draw_gumbel(
    shape: Sequence[int],
    generator: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> Tensor:
    """Gumbel(0, 1) in float32 or float64."""
    return draw_minus_gumbel(shape, generator, dtype, device).neg_()


def draw_minus_gumbel(
    shape: Sequence[int],
    generator: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> Tensor:
    """log E, for who has a factor to multiply with anyway."""
    plain = generator is not None or not (has_stream(device) or _own_noise(None))
    if plain and _are_few(shape, device):
        # In float64 -log(u) is fine enough near u = 1.
        uniform = torch.rand(tuple(shape), dtype=torch.float64, device=device, **_from(generator))
        return uniform.log_().neg_().clamp(max=_LARGEST_EXPONENTIAL).log_().to(dtype)
    bits, scale = _random_bits(shape, generator, device), -_SCALES[dtype]
    if torch.compiler.is_exporting():
        # Other runtimes may draw 24 bits and know no log1p: in float32, 1 - u would often be 1.
        smallest = bits.to(torch.float64).mul_(-_SCALES[torch.float64]).log1p_().neg_()
        return smallest.clamp_(min=2.0**-_BITS).log_().to(dtype)
    return bits.to(dtype).mul_(scale).log1p_().neg_().log_()


def _are_few(shape: Sequence[int], device: torch.device | str | None) -> bool:
    """Numbers for which fewer operations count more than faster ones; not those of many models."""
    on_cpu = device is None or torch.device(device).type == "cpu"
    return on_cpu and may_read_cpu() and math.prod(shape) <= FEW


def draw_gumbel_in(
    rows: Bool[Tensor, "*batch"],
    categories: int,
    generator: torch.Generator | None,
    dtype: torch.dtype,
) -> Float[Tensor, "*batch {categories}"]:
    """Noise for the rows that are True, and zeros elsewhere: padding draws nothing.

    Where no values can be read (compiled, captured and vmapped calls, CUDA) padding draws, too.
    """
    count = read(rows.sum()) if may_read(rows) else None
    if count is None:
        return draw_gumbel((*rows.shape, categories), generator, dtype, rows.device)
    noise = torch.zeros(*rows.shape, categories, dtype=dtype, device=rows.device)
    noise[rows] = draw_gumbel((int(count), categories), generator, dtype, rows.device)
    return noise


_alike: ContextVar[Any] = ContextVar("dcgraph draws alike in a group", default=None)


@contextmanager
def drawn_alike(group: Any) -> Iterator[None]:
    """Inside, all ranks of that process group draw what the first of them draws.

    Not in compiled code: call it where the compiler is disabled.
    """
    before = _alike.set(group)
    try:
        yield
    finally:
        _alike.reset(before)


def _group_alike() -> Any:
    return None if torch.compiler.is_compiling() else _alike.get()


def _own_noise(generator: torch.Generator | None) -> bool:
    """Whether numbers are more than what torch draws: bits of this rank, or of a first rank."""
    return _draws_apart(generator) or _group_alike() is not None


def _draws_apart(generator: torch.Generator | None) -> bool:
    """Several ranks, and no generator that says what to draw."""
    return generator is None and has_ranks() and dist.get_world_size() > 1


def has_ranks() -> bool:
    """Whether torch.distributed runs."""
    return dist.is_available() and dist.is_initialized()


def _random_bits(
    shape: Sequence[int], generator: torch.Generator | None, device: torch.device | str | None
) -> Tensor:
    """62 random bits each, as int64; not all of them are 0."""
    if generator is None and has_stream(device):
        return draw_from_stream("bits", shape)
    bits = torch.randint(1, 1 << _BITS, tuple(shape), device=device, **_from(generator))
    if _draws_apart(generator):
        bits = _of_rank(bits, dist.get_rank())
    if (group := _group_alike()) is not None:
        dist.broadcast(bits, group=group, group_src=0)
    return bits


def _of_rank(bits: Int[Tensor, "*shape"], rank: int) -> Int[Tensor, "*shape"]:
    """Other 62 bits for every rank except 0: the steps of SplitMix64 (Steele et al., 2014).

    Seeded alike, all ranks draw the same bits. Each then goes to another place of a sequence whose
    numbers have nothing to do with each other; nothing is kept, so that a run resumes from torch's
    random state as ever, and captured and compiled code does the same.
    """
    if rank == 0:
        return bits
    x = bits + _signed(rank * 0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ _shifted(x, shift)) * _signed(factor)
    return (x ^ _shifted(x, 31)) & (1 << _BITS) - 1 | 1


def _signed(value: int) -> int:
    """64 bits as torch has them."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _shifted(x: Tensor, shift: int) -> Tensor:
    """To the right, with zeros from the left."""
    return x >> shift & (1 << 64 - shift) - 1


def _from(generator: torch.Generator | None) -> dict[str, Any]:
    # torch.compile cannot pass generator=None on to a draw whose shape varies.
    return {} if generator is None else {"generator": generator}


def check_noise(noise: Noise | None, logits: Tensor) -> None:
    """None, the name of a distribution, or finite noise of the shape of the logits."""
    if isinstance(noise, Tensor):
        if noise.shape != logits.shape:
            raise ValueError(
                f"noise has shape {tuple(noise.shape)}, but the logits {tuple(logits.shape)}; "
                "noise to replay has the shape of the logits."
            )
        if may_read(noise) and read(noise.detach().isfinite().all()) == 0:
            raise ValueError("noise has infinite or NaN entries; replay what dcgraph.gumbel drew.")
    elif noise is not None:
        check_choice("noise", noise, get_args(Distribution))


def standard_noise(noise: Noise | None, theta: Tensor, generator: torch.Generator | None) -> Tensor:
    """Noise of scale 1 for theta: replayed or drawn."""
    if isinstance(noise, Tensor):
        return noise.to(theta.dtype)
    drawn = draw_gumbel(theta.shape, generator, theta.dtype, theta.device)
    return drawn.neg_() if noise == "reversed" else drawn


def reseed(rank: int) -> None:
    """Go on from torch's random state of the CPU with numbers that differ from rank to rank."""
    bits = torch.randint(1, 1 << _BITS, ())
    torch.manual_seed(int(_of_rank(bits, rank)))
