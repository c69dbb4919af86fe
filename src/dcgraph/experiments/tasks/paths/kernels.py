"""Triton kernels of path queries: complex products, dropout of a table, sums of its gradients.

Vectors of complex numbers are [real parts, imaginary parts]. Factors of dropout are drawn inside
and never stored. The reference implementations are ``complex_product``, ``drop_by_torch`` and
``sum_by_torch`` in :mod:`.operators`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....kernels._operators import in_front

DTYPES = torch.float32, torch.bfloat16

_TILE = 2048
_ROWS = 16
_ROUNDS = tl.constexpr(7)


@triton.jit
def _load(vector, half, k):
    inside = k < half
    re = tl.load(vector + k, inside, 0.0).to(tl.float32)
    return re, tl.load(vector + half + k, inside, 0.0).to(tl.float32)


@triton.jit
def _store(vector, half, k, re, im):
    inside = k < half
    tl.store(vector + k, re.to(vector.dtype.element_ty), inside)
    tl.store(vector + half + k, im.to(vector.dtype.element_ty), inside)


@triton.jit
def _multiply(a, a_row, b, b_row, out, half, width: tl.constexpr):
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, width)
    a_re, a_im = _load(a + row * a_row, half, k)
    b_re, b_im = _load(b + row * b_row, half, k)
    _store(out + row * 2 * half, half, k, a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re)


@triton.jit
def _differentiate(of_product, g_row, a, a_row, b, b_row, d_a, d_b, half, width: tl.constexpr):
    """The gradient of a factor is that of the product times the other factor's conjugate."""
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, width)
    g_re, g_im = _load(of_product + row * g_row, half, k)
    a_re, a_im = _load(a + row * a_row, half, k)
    b_re, b_im = _load(b + row * b_row, half, k)
    _store(d_a + row * 2 * half, half, k, g_re * b_re + g_im * b_im, g_im * b_re - g_re * b_im)
    _store(d_b + row * 2 * half, half, k, g_re * a_re + g_im * a_im, g_im * a_re - g_re * a_im)


def _rows(value: Tensor) -> tuple[Tensor, int]:
    """The vectors as rows, and how far they are apart."""
    rows = value.reshape(-1, value.shape[-1])
    rows = rows if rows.stride(-1) == 1 else rows.contiguous()
    return rows, rows.stride(0)


def _run(kernel: Any, outs: tuple[Tensor, ...], *factors: Tensor) -> None:
    half = outs[0].shape[-1] // 2
    if outs[0].numel():
        arguments = [item for factor in factors for item in _rows(factor)]
        kernel[(outs[0].numel() // (2 * half),)](
            *arguments, *outs, half, width=triton.next_power_of_2(half), num_warps=4
        )


@torch.library.custom_op("dcgraph::complex_product", mutates_args=())
def _forward(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    out = torch.empty(a.shape, dtype=dtype, device=a.device)
    _run(_multiply, (out,), a, b)
    return out


@torch.library.custom_op("dcgraph::complex_product_backward", mutates_args=())
def _backward(of_product: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    d_a, d_b = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (a, b))
    _run(_differentiate, (d_a, d_b), of_product, a, b)
    return d_a, d_b


@_forward.register_vmap
def _(info: Any, in_dims: Any, a: Tensor, b: Tensor, dtype: torch.dtype) -> tuple[Tensor, int]:
    size = info.batch_size
    return _forward(in_front(a, in_dims[0], size), in_front(b, in_dims[1], size), dtype), 0


@_backward.register_vmap
def _(info: Any, in_dims: Any, *values: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    mapped = (in_front(v, dim, info.batch_size) for v, dim in zip(values, in_dims, strict=True))
    return _backward(*mapped), (0, 0)


class ComplexProduct(torch.autograd.Function):
    """Of vectors of one shape; the result has that dtype."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
        product: Tensor = _forward(a, b, dtype)
        return product

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *of_product: Any) -> tuple[Any, ...]:
        return *_backward(*of_product, *ctx.saved_tensors), None


@triton.jit
def draw(key, row, place):
    """Four words, for eight entries of a row each."""
    zero = tl.zeros_like(row + place).to(tl.uint32)
    return tl.philox(
        key, zero + row.to(tl.uint32), zero + place.to(tl.uint32), zero, zero + 1, _ROUNDS
    )


@triton.jit
def kept(word, half: tl.constexpr, threshold, factor):
    drawn = (word >> (16 * half)) & 0xFFFF
    return tl.where(drawn.to(tl.int32) >= threshold, factor, 0.0)


@triton.jit
def _drop_some(
    values, out, copy, word, half: tl.constexpr, column, real, dim, threshold, factor,
    copies: tl.constexpr,
):  # fmt: skip
    """The entries of a row that have the same half of a word."""
    inside = real & (column < dim)
    value = tl.load(values + column, inside, 0.0).to(tl.float32)
    result = kept(word, half, threshold, factor) * value
    if copies:
        tl.store(copy + column, value.to(copy.dtype.element_ty), inside)
    tl.store(out + column, result.to(out.dtype.element_ty), inside)


@triton.jit
def _drop(
    values, values_group, values_row, out, out_group, out_row, copy, keys,
    count, dim, each, threshold, factor, first,
    copies: tl.constexpr, rows: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Some rows multiplied with their dropout factors; a copy is laid out as these products are."""
    group = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1).to(tl.int64) * rows + tl.arange(0, rows)[:, None]
    k = tl.arange(0, width)[None, :]
    a, b, c, d = draw(tl.load(keys + group), first + place, k)
    values += group * values_group + place * values_row
    out += group * out_group + place * out_row
    copy += group * out_group + place * out_row
    real = (place < count) & (k < each)
    for half in tl.static_range(2):
        at = k + half * each
        _drop_some(values, out, copy, a, half, at, real, dim, threshold, factor, copies)
        at += 2 * each
        _drop_some(values, out, copy, b, half, at, real, dim, threshold, factor, copies)
        at += 2 * each
        _drop_some(values, out, copy, c, half, at, real, dim, threshold, factor, copies)
        at += 2 * each
        _drop_some(values, out, copy, d, half, at, real, dim, threshold, factor, copies)


def drop(
    keys: Tensor,
    share: float,
    tables: Tensor,
    out: Tensor,
    copy: Tensor | None = None,
    first: int = 0,
) -> Tensor:
    """Tables, or their gradients, times their dropout factors.

    ``copy``, of the strides of ``out``, gets the tables as they are.
    """
    if not out.numel():
        return out
    tables = tables if tables.stride(-1) == 1 else tables.contiguous()
    groups, count, dim = out.shape
    each = triton.cdiv(dim, 8)
    factor = factor_of(share, torch.promote_types(tables.dtype, out.dtype))
    _drop[groups, triton.cdiv(count, _ROWS)](
        *(tables, *tables.stride()[:2], out, *out.stride()[:2]),
        *(out if copy is None else copy, keys.contiguous()),
        *(count, dim, each, round(share * 65536), factor, first),
        copies=copy is not None, rows=_ROWS, width=triton.next_power_of_2(each),
    )  # fmt: skip
    return out


def factor_of(share: float, dtype: torch.dtype) -> float:
    """By which entries that are kept grow, rounded as their dtype does."""
    return torch.tensor(1 / (1 - share), dtype=dtype).item()


@triton.jit
def _sum(terms, out, count, tile: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    total = tl.zeros([tile], tl.float32)
    for k in tl.static_range(len(terms)):
        total += tl.load(terms[k] + at, at < count, 0.0).to(tl.float32)
    tl.store(out + at, total, at < count)


@triton.jit
def _sum_some(terms, out, start, word, half: tl.constexpr, column, real, dim, threshold, factor):
    """The entries of a row that have the same half of a word."""
    at, inside = start + column, real & (column < dim)
    last: tl.constexpr = len(terms) - 1
    total = tl.load(terms[last] + at, inside, 0.0).to(tl.float32)
    total *= kept(word, half, threshold, factor)
    for k in tl.static_range(last):
        total += tl.load(terms[k] + at, inside, 0.0).to(tl.float32)
    tl.store(out + at, total, inside)


@triton.jit
def _sum_dropped(
    terms, out, keys, count, dim, each, threshold, factor, first,
    rows: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1).to(tl.int64) * rows + tl.arange(0, rows)[:, None]
    place = tl.arange(0, width)[None, :]
    a, b, c, d = draw(tl.load(keys + group), first + row, place)
    start = (group * count + row) * dim
    real = (row < count) & (place < each)
    for half in tl.static_range(2):
        at = place + half * each
        _sum_some(terms, out, start, a, half, at, real, dim, threshold, factor)
        at += 2 * each
        _sum_some(terms, out, start, b, half, at, real, dim, threshold, factor)
        at += 2 * each
        _sum_some(terms, out, start, c, half, at, real, dim, threshold, factor)
        at += 2 * each
        _sum_some(terms, out, start, d, half, at, real, dim, threshold, factor)


def summed(terms: list[Tensor], keys: Tensor, share: float, first: int = 0) -> Tensor:
    """The sum in one pass over memory, in float32, of tensors [..., rows, dim] of one shape.

    The last is a gradient of dropout, and is multiplied by its factors. There is a key for each
    matrix of rows.
    """
    out = torch.empty(terms[0].shape, device=terms[0].device)
    given = tuple(term.contiguous() for term in terms)
    if not out.numel():
        return out
    if not share:
        _sum[(triton.cdiv(out.numel(), _TILE),)](given, out, out.numel(), tile=_TILE, num_warps=8)
        return out
    count, dim = out.shape[-2:]
    each = triton.cdiv(dim, 8)
    _sum_dropped[keys.numel(), triton.cdiv(count, _ROWS)](
        *(given, out, keys.contiguous(), count, dim, each, round(share * 65536)),
        *(factor_of(share, torch.float32), first), rows=_ROWS, width=triton.next_power_of_2(each),
    )  # fmt: skip
    return out
