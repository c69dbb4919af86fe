"""Tiles of logits that never leave the chip: what both passes of ``streaming`` have in common."""

from typing import Any

import torch
import triton
import triton.language as tl

from .gumbel import LOG2_E
from .perturbing import GROUP, as_bytes, log2_noise, strided

_PROGRAMS = 528  # of a launch, at least: 4 for each of the 132 multiprocessors of an H200
_PARTS = 256  # of the codebook, at most


@triton.jit
def rounded(x, precision: tl.constexpr):
    """To the nearest number that TF32 has; a product of its own accord cuts the digits off."""
    if precision == "tf32" and x.dtype == tl.float32:
        bits = x.to(tl.int32, bitcast=True)
        x = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return x


@triton.jit
def load_rows(source, row, rows, dim, width: tl.constexpr, precision: tl.constexpr):
    """Rows [.., width] of a matrix, beyond its edges 0."""
    d = tl.arange(0, width)[None, :]
    inside = (row[:, None] < rows) & (d < dim)
    value = tl.load(source + row[:, None].to(tl.int64) * dim + d, inside, 0.0)
    return rounded(value, precision)


@triton.jit
def add_product(a, b, to, precision: tl.constexpr):
    return tl.dot(rounded(a.to(b.dtype), precision), b, to, input_precision=precision)


@triton.jit
def perturbed(
    score, log2_e, scale, noise_scale, noise, noise_row, mask, mask_row, row, rows, column, n,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    """log2(e) a of a tile of logits, of any orientation; -inf where there is nothing to choose."""
    x = score * scale
    real = (column < n) & (row < rows)
    if noisy:
        if given:
            log2_e = tl.load(noise + row.to(tl.int64) * noise_row + column, real, 0.0) * -LOG2_E
        x += noise_scale * log2_e
    if masked:
        real = real & (tl.load(mask + row.to(tl.int64) * mask_row + column, real, 0) != 0)
    return tl.where(real, x, float("-inf"))


@triton.jit
def noise_of(key, draws, noisy: tl.constexpr, given: tl.constexpr):
    zero = tl.zeros_like(key + draws).to(tl.float32)
    e0, e1, e2, e3 = zero, zero, zero, zero
    if noisy and not given:
        e0, e1, e2, e3 = log2_noise(key, tl.zeros_like(key).to(tl.int32) + draws)
    return e0, e1, e2, e3


def tensors_of(p: Any) -> tuple[Any, ...]:
    return (
        *(p.query.contiguous(), p.codebook.contiguous()),
        *(p.tau.contiguous(), p.beta.contiguous(), p.keys.contiguous()),
        *strided(p.noise, p.tau),
        *strided(as_bytes(p.mask), p.tau),
    )


def options_of(p: Any) -> dict[str, Any]:
    """For the kernels whose programs have queries."""
    tf32 = getattr(torch.backends.cuda.matmul, "fp32_precision", "ieee") == "tf32"
    return {
        "noisy": p.noisy,
        "given": p.noise is not None,
        "masked": p.mask is not None,
        "height": 64,
        "width": max(16, triton.next_power_of_2(p.codebook.shape[-1])),
        "precision": "tf32" if tf32 else "tf32x3",  # the second is as good as float32
        "num_warps": 4,
        "num_stages": 2,
    }


def parts_of(n: int, others: int) -> tuple[int, int]:
    """In how many parts to cut the codebook, so that there is enough to do at the same time, and
    how many rows each of them has."""
    whole = triton.cdiv(n, GROUP.value)
    parts = min(whole, _PARTS, triton.cdiv(_PROGRAMS, max(1, others)))
    each = triton.cdiv(whole, parts)
    return triton.cdiv(whole, each), each * GROUP.value
