"""Products of complex numbers in vectors [real parts, imaginary parts], as operators of torch.

The twin of the kernels is ``tasks.paths.composing.complex_product``.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .....kernels._operators import in_front

DTYPES = torch.float32, torch.bfloat16


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
