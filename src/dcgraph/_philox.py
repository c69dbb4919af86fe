r"""Gumbel noise as a function of a key and a column: drawn anywhere, any number of times.

Where a matrix of noise is too large to keep, the backward pass must draw the same noise again, and
block by block. So here an entry is not the next one of a stream but a function, Philox 4x32 with 7
rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), of the key of its row
and of its column. The kernels in ``kernels._noise`` compute the same function.

A draw has four words. To hand them out without moving numbers between threads, columns come in
groups of 128: word w of draw r belongs to column 32 w + r of the group.
"""

from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from . import kernels

ROUNDS = 7
QUARTER = 32
"""Columns of a group that take the same word of their draws; a group has four quarters."""
GROUP = 4 * QUARTER

_LOW = 0xFFFFFFFF
_FACTORS = 0xD2511F53, 0xCD9E8D57
_BUMPS = 0x9E3779B9, 0xBB67AE85
_AT_ONCE = 1 << 16  # draws


def philox(
    keys: Int[Tensor, "..."], counter: tuple[Tensor | int, Tensor | int, Tensor | int, Tensor | int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words of 32 bits, as int64 of which the higher half means nothing."""
    a, b, c, d = counter
    k0, k1 = keys & _LOW, keys >> 32 & _LOW
    for _ in range(ROUNDS):
        p, q = a * _FACTORS[0], c * _FACTORS[1]
        a = _mixed(q, b, k0)
        c = _mixed(p, d, k1)
        b, d = q, p
        k0, k1 = k0 + _BUMPS[0] & _LOW, k1 + _BUMPS[1] & _LOW
    return a, b, c, d  # type: ignore[return-value]  # tensors after two rounds


def _mixed(product: Tensor | int, word: Tensor | int, key: Tensor) -> Tensor:
    """The high half of the product, with a word and the key, in 32 bits."""
    if isinstance(product, Tensor) and product.ndim >= key.ndim and isinstance(word, Tensor):
        high = product >> 32
        if high.shape == torch.broadcast_shapes(high.shape, word.shape, key.shape):
            return high.bitwise_xor_(word).bitwise_xor_(key).bitwise_and_(_LOW)
    return ((product >> 32) ^ word ^ key) & _LOW


def draw_gumbel_at(
    keys: Int[Tensor, "*rows"], first: int, count: int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*rows {count}"]:
    """Gumbel(0, 1) noise of the columns from ``first`` on, a row for each key.

    >>> import torch
    >>> keys = torch.tensor([7, 8])  # neighbours will do: Philox is made to scatter them
    >>> whole = draw_gumbel_at(keys, 0, 1000)
    >>> torch.equal(whole[:, 300:], draw_gumbel_at(keys, 300, 700))
    True
    """
    noise: Tensor = _draw(keys, first, count, dtype)
    return noise


@torch.library.custom_op("dcgraph::gumbel_at", mutates_args=())
def _draw(keys: Tensor, first: int, count: int, dtype: torch.dtype) -> Tensor:
    out = keys.new_empty(*keys.shape, count, dtype=dtype)
    if keys.is_cuda and dtype == torch.float32 and kernels.available():
        from .kernels._noise import draw  # imports Triton

        draw(keys, out, first)
        return out
    _fill(out.view(-1, count), keys.reshape(-1, 1), first)
    return out


def _fill(out: Tensor, keys: Tensor, first: int) -> None:
    """Draw a matrix part by part: the hundred operations of a draw stay in a cache."""
    groups = range(first // GROUP, -(-(first + out.shape[1]) // GROUP))
    wide = min(len(groups), _AT_ONCE // QUARTER)
    tall = max(1, _AT_ONCE // (wide * QUARTER))
    for row in range(0, len(out), tall):
        some = slice(row, row + tall)
        for group in range(groups.start, groups.stop, wide):
            part = range(group, min(group + wide, groups.stop))
            _fill_part(out[some], keys[some], first, part)


def _fill_part(out: Tensor, keys: Tensor, first: int, groups: range) -> None:
    draws = torch.arange(groups.start * QUARTER, groups.stop * QUARTER, device=keys.device)
    a, b, c, d = philox(keys, (draws, 0, 0, 0))
    begin, end = groups.start * GROUP - first, groups.stop * GROUP - first
    inside = begin >= 0 and end <= out.shape[1]
    target = out[:, begin:end] if inside else out.new_empty(len(out), end - begin)
    quarters = target.unflatten(1, (len(groups), 4, QUARTER))
    for word, (own, other) in enumerate(((a, b), (b, c), (c, d), (d, a))):
        noise = gumbel_of_bits(own, other, out.dtype)
        quarters[:, :, word].copy_(noise.view(-1, len(groups), QUARTER))
    if not inside:
        left, right = max(begin, 0), min(end, out.shape[1])
        out[:, left:right] = target[:, left - begin : right - begin]


@_draw.register_fake
def _(keys: Tensor, first: int, count: int, dtype: torch.dtype) -> Tensor:
    return keys.new_empty(*keys.shape, count, dtype=dtype)


@_draw.register_vmap
def _(info: Any, in_dims: Any, keys: Tensor, *others: Any) -> tuple[Tensor, int]:
    return _draw(keys.movedim(in_dims[0], 0), *others), 0


def gumbel_of_bits(
    own: Shaped[Tensor, "*shape"], other: Shaped[Tensor, "*shape"], dtype: torch.dtype
) -> Float[Tensor, "*shape"]:
    """-log E of an exponential E = -log(1 - u), with u in (0, 1) from 23 + 23 random bits.

    ``own`` gives the first bits of u and ``other`` those below, so that u is fine near 0, where the
    large values come from. Each word also refines its neighbour, below 2^-23 of u: every draw has
    the exact distribution, and two neighbours share nothing that could be seen.
    """
    bits = (own & 0x7FFFFF).bitwise_left_shift_(23).bitwise_or_(other >> 9 & 0x7FFFFF | 1)
    # The largest float below 1 as a factor keeps u < 1.
    scale = (1 - torch.finfo(dtype).eps / 2) * 2.0**-46
    minus_exponential = bits.to(dtype).mul_(-scale).log1p_()
    return minus_exponential.neg_().log_().neg_()


def draw_gumbel_of(
    keys: Int[Tensor, "*rows"], columns: Int[Tensor, "*rows"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*rows"]:
    """The noise of a single column in each row."""
    group, inside = columns // GROUP, columns % GROUP
    words = torch.stack(philox(keys, (group * QUARTER + inside % QUARTER, 0, 0, 0)))
    which = (inside // QUARTER).unsqueeze(0)
    own, other = words.gather(0, which), words.gather(0, (which + 1) % 4)
    return gumbel_of_bits(own, other, dtype).squeeze(0)
