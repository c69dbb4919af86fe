"""Random numbers as a function of their number: the same everywhere, in any order, in parallel.

The mixing function is that of SplitMix64 (Steele, Lea and Flood, 2014). It is arithmetic of 64 bits
and nothing else, so neither the machine nor the version of torch makes a difference.
"""

from __future__ import annotations

import torch
from jaxtyping import Int, Int64
from torch import Tensor


def _signed(bits: int) -> int:
    """The 64 bits as torch keeps them."""
    return bits - (1 << 64) if bits >> 63 else bits


_STEP = _signed(0x9E3779B97F4A7C15)
_FACTORS = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def mixed(numbers: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
    """64 bits for each number, as if drawn independently for each different number.

    >>> mixed(torch.tensor([0])).item() % 2**64 == 0xE220A8397B1DCDAF
    True
    """
    bits = numbers * _STEP
    bits += _STEP  # all of this wraps around, as it should
    for places, factor in zip((30, 27), _FACTORS, strict=True):
        bits ^= _shifted(bits, places)
        bits *= factor
    bits ^= _shifted(bits, 31)
    return bits


def combined(*columns: Int[Tensor, "..."]) -> Int64[Tensor, "..."]:
    """64 bits for each row of several numbers, as if drawn independently for each different row."""
    bits = torch.zeros_like(columns[0], dtype=torch.int64)
    for column in columns:
        bits = mixed(bits ^ column)
    return bits


def _shifted(bits: Tensor, places: int) -> Tensor:
    """To the right, with zeros from the left; torch alone would repeat the sign."""
    moved = bits >> places
    moved &= (1 << (64 - places)) - 1
    return moved


def below(limits: Int64[Tensor, " n"], bits: Int64[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """A number from 0 to each limit less 1, uniform up to one part in 2^32 / limit.

    >>> below(torch.tensor([1, 10]), mixed(torch.tensor([5, 5]))).tolist()
    [0, 3]
    """
    return (_shifted(bits, 32) * limits) >> 32
