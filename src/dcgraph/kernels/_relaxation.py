"""z = softmax((theta + beta G) / tau) over long rows, the noise drawn inside the kernel.

What a compiled ``gumbel_softmax`` pays for on a GPU is drawing the noise, which the compiler does
once for every pass over a row. Here each row is one program. Forward: the perturbed row is formed
once and parked in the output, the maximum and the sum of exponentials are kept on the way, and a
second loop reads the row back (mostly from the L2 cache) and normalises it. Backward: the first
part of z stays in registers between the two loops.

The reference implementation is ``functional.gumbel_softmax`` with the noise of :func:`drawn_noise`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ._noise import LN_2, LOG2_E, log2_exponentials
from ._operators import differentiable

_FORWARD_TILE, _FORWARD_WARPS = 4096, 8
_BACKWARD_TILE, _BACKWARD_WARPS = 8192, 16
_HELD_TILES = tl.constexpr(5)  # 5 x 8192 floats over 512 threads: 80 of 128 registers

_LOWEST = tl.constexpr(-1e30)  # instead of -inf, whose difference with itself is NaN


@triton.jit
def _noise_words(seed, stream, columns):
    # Philox with the counter (column, stream): 4 words for columns c, c + Q, c + 2Q, c + 3Q.
    zero = tl.zeros_like(columns)
    low, high = (stream & 0xFFFFFFFF).to(tl.uint32), (stream >> 32).to(tl.uint32)
    return tl.philox(seed, columns.to(tl.uint32), zero + low, zero + high, zero)


@triton.jit
def _log2_noise(seed, stream, columns):
    """-log2(e) G of four columns."""
    a, b, c, d = _noise_words(seed, stream, columns)
    return log2_exponentials(a, b, c, d)


@triton.jit
def _load(source, columns, k: tl.constexpr, masked: tl.constexpr):
    if masked:
        return tl.load(source + columns, columns < k, float("-inf"))
    return tl.load(source + columns)


@triton.jit
def _store(target, columns, value, k: tl.constexpr, masked: tl.constexpr):
    if masked:
        tl.store(target + columns, value, columns < k)
    else:
        tl.store(target + columns, value)


@triton.jit
def _perturb_tile(
    theta, z, start, seed, stream, scale, noise_scale, top, total,
    k: tl.constexpr, quarter: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    """Park log2(e) (theta + beta G) / tau of one tile in z; update maximum and sum of each lane."""
    c0 = start + tl.arange(0, quarter)
    c1, c2, c3 = c0 + quarter, c0 + 2 * quarter, c0 + 3 * quarter
    e0, e1, e2, e3 = _log2_noise(seed, stream, c0)
    x0 = _load(theta, c0, k, masked) * scale + noise_scale * e0
    x1 = _load(theta, c1, k, masked) * scale + noise_scale * e1
    x2 = _load(theta, c2, k, masked) * scale + noise_scale * e2
    x3 = _load(theta, c3, k, masked) * scale + noise_scale * e3
    _store(z, c0, x0, k, masked)
    _store(z, c1, x1, k, masked)
    _store(z, c2, x2, k, masked)
    _store(z, c3, x3, k, masked)
    higher = tl.maximum(top, tl.maximum(tl.maximum(x0, x1), tl.maximum(x2, x3)))
    new = (tl.exp2(x0 - higher) + tl.exp2(x1 - higher)) + (
        tl.exp2(x2 - higher) + tl.exp2(x3 - higher)
    )
    return higher, total * tl.exp2(top - higher) + new


@triton.jit
def _normalise_tile(
    z, start, top, factor, k: tl.constexpr, tile: tl.constexpr, masked: tl.constexpr
):
    columns = start + tl.arange(0, tile)
    x = _load(z, columns, k, masked)
    _store(z, columns, tl.exp2(x - top) * factor, k, masked)


@triton.jit
def _forward(
    theta, z, tau, tau_stride, beta, beta_stride, seed, streams,
    k: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    quarter: tl.constexpr = tile // 4
    whole: tl.constexpr = k // tile * tile
    scale = 1.0 / tl.load(tau + row * tau_stride) * LOG2_E
    noise_scale = tl.load(beta + row * beta_stride) * scale * -LN_2
    key = tl.load(seed)
    stream = tl.load(streams + row)
    theta += row.to(tl.int64) * k
    z += row.to(tl.int64) * k
    tops = tl.full([quarter], _LOWEST, tl.float32)
    totals = tl.zeros([quarter], tl.float32)
    for start in range(0, whole, tile):
        tops, totals = _perturb_tile(
            theta, z, start, key, stream, scale, noise_scale, tops, totals, k, quarter, False
        )
    if whole < k:
        tops, totals = _perturb_tile(
            theta, z, whole, key, stream, scale, noise_scale, tops, totals, k, quarter, True
        )
    top = tl.max(tops, 0)
    total = tl.sum(totals * tl.exp2(tops - top), 0)
    factor = 1.0 / tl.where(total == 0, 1.0, total)  # a row without any category becomes zeros
    tl.debug_barrier()  # the row is read back by other threads than wrote it
    for start in range(0, whole, tile):
        _normalise_tile(z, start, top, factor, k, tile, False)
    if whole < k:
        _normalise_tile(z, whole, top, factor, k, tile, True)


@triton.jit
def _backward(gradient, z, out, tau, tau_stride, k: tl.constexpr, tile: tl.constexpr):
    """dL/dtheta = z (dL/dz - <dL/dz, z>) / tau."""
    row = tl.program_id(0)
    tiles: tl.constexpr = (k + tile - 1) // tile
    held: tl.constexpr = tiles if tiles < _HELD_TILES else _HELD_TILES
    over_tau = 1.0 / tl.load(tau + row * tau_stride)
    gradient += row.to(tl.int64) * k
    z += row.to(tl.int64) * k
    out += row.to(tl.int64) * k
    products = tl.zeros([tile], tl.float32)
    kept = ()
    for i in tl.static_range(held):
        columns = i * tile + tl.arange(0, tile)
        part = tl.load(z + columns, columns < k, 0.0)
        products += part * tl.load(gradient + columns, columns < k, 0.0)
        kept = kept + (part,)  # noqa: RUF005, Triton has no unpacking
    for start in range(held * tile, k, tile):
        columns = start + tl.arange(0, tile)
        part = tl.load(z + columns, columns < k, 0.0)
        products += part * tl.load(gradient + columns, columns < k, 0.0)
    inner = tl.sum(products, 0)
    for i in tl.static_range(held):
        columns = i * tile + tl.arange(0, tile)
        g = tl.load(gradient + columns, columns < k, 0.0)
        tl.store(out + columns, kept[i] * (g - inner) * over_tau, columns < k)
    for start in range(held * tile, k, tile):
        columns = start + tl.arange(0, tile)
        part = tl.load(z + columns, columns < k, 0.0)
        g = tl.load(gradient + columns, columns < k, 0.0)
        tl.store(out + columns, part * (g - inner) * over_tau, columns < k)


@triton.jit
def _draw(noise, seed, k: tl.constexpr, tile: tl.constexpr):
    row = tl.program_id(0)
    quarter: tl.constexpr = tile // 4
    noise += row.to(tl.int64) * k
    for start in range(0, k, tile):
        columns = start + tl.arange(0, quarter)
        e0, e1, e2, e3 = _log2_noise(tl.load(seed), row.to(tl.int64), columns)
        _store(noise, columns, e0 * -LN_2, k, True)
        _store(noise, columns + quarter, e1 * -LN_2, k, True)
        _store(noise, columns + 2 * quarter, e2 * -LN_2, k, True)
        _store(noise, columns + 3 * quarter, e3 * -LN_2, k, True)


@torch.library.custom_op("dcgraph::relax", mutates_args=())
def _relax_forward(
    theta: Tensor, tau: Tensor, beta: Tensor, seed: Tensor, streams: Tensor
) -> Tensor:
    theta = theta.contiguous()
    z = torch.empty_like(theta)
    rows, k = theta.shape
    if rows:
        _forward[(rows,)](
            *(theta, z, tau, tau.stride(0), beta, beta.stride(0), seed, streams.contiguous()),
            k=k, tile=_tile(k, _FORWARD_TILE), num_warps=_FORWARD_WARPS,
        )  # fmt: skip
    return z


@torch.library.custom_op("dcgraph::relax_backward", mutates_args=())
def _relax_backward(gradient: Tensor, z: Tensor, tau: Tensor) -> Tensor:
    gradient, z = gradient.contiguous(), z.contiguous()
    out = torch.empty_like(z)
    rows, k = z.shape
    if rows:
        _backward[(rows,)](
            *(gradient, z, out, tau, tau.stride(0)),
            k=k, tile=_tile(k, _BACKWARD_TILE), num_warps=_BACKWARD_WARPS,
        )  # fmt: skip
    return out


def drawn_noise(seed: Tensor, rows: int, k: int) -> Tensor:
    """The Gumbel noise that :func:`relax` draws for logits [rows, k], to replay it elsewhere."""
    noise = torch.empty(rows, k, device=seed.device)
    _draw[(rows,)](noise, seed, k=k, tile=_tile(k, _FORWARD_TILE), num_warps=_FORWARD_WARPS)
    return noise


def _tile(k: int, largest: int) -> int:
    return min(largest, triton.next_power_of_2(max(k, 16)))


@_relax_forward.register_fake
def _(theta: Tensor, tau: Tensor, beta: Tensor, seed: Tensor, streams: Tensor) -> Tensor:
    return torch.empty_like(theta, memory_format=torch.contiguous_format)


@_relax_backward.register_fake
def _(gradient: Tensor, z: Tensor, tau: Tensor) -> Tensor:
    return torch.empty_like(z, memory_format=torch.contiguous_format)


def _stacked(value: Tensor, dim: int | None, size: int) -> Tensor:
    """[..., size, ...] or [...] as [size * rows, ...]: the mapped dimension joins the rows."""
    first = value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
    return first.reshape(-1, *first.shape[2:])


@_relax_forward.register_vmap
def _(
    info: Any,
    in_dims: tuple[int | None, ...],
    theta: Tensor,
    tau: Tensor,
    beta: Tensor,
    seed: Tensor,
    streams: Tensor,
) -> tuple[Tensor, int]:
    size = info.batch_size
    theta, tau, beta, streams = (
        _stacked(value, dim, size)
        for value, dim in zip((theta, tau, beta, streams), (*in_dims[:3], in_dims[4]), strict=True)
    )
    if in_dims[3] is not None:  # randomness="different": one seed, but streams for every replica
        seed = seed.select(in_dims[3], 0)
        replica = torch.arange(size, device=streams.device)
        streams = streams * size + replica.repeat_interleave(len(streams) // size)
    return _relax_forward(theta, tau, beta, seed, streams).unflatten(0, (size, -1)), 0


@_relax_backward.register_vmap
def _(
    info: Any, in_dims: tuple[int | None, ...], gradient: Tensor, z: Tensor, tau: Tensor
) -> tuple[Tensor, int]:
    size = info.batch_size
    stacked = [_stacked(v, d, size) for v, d in zip((gradient, z, tau), in_dims, strict=True)]
    return _relax_backward(*stacked).unflatten(0, (size, -1)), 0


class _Relax(torch.autograd.Function):
    """The derivative of the forward kernel is the backward kernel."""

    generate_vmap_rule = True

    @staticmethod
    def forward(theta: Tensor, tau: Tensor, beta: Tensor, seed: Tensor, streams: Tensor) -> Tensor:
        return _relax_forward(theta, tau, beta, seed, streams)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            raise RuntimeError(
                "the kernel for long rows has no gradient for tau and beta; inside vmap, pass "
                "noise=dcgraph.gumbel(logits.shape) to learn them."
            )
        ctx.save_for_backward(output, inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        z, tau = ctx.saved_tensors
        return differentiable(_RelaxBackward, _relax_backward)(gradient, z, tau), *[None] * 4


class _RelaxBackward(torch.autograd.Function):
    """The derivative of the backward kernel, in plain torch: second derivatives are rare."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, z: Tensor, tau: Tensor) -> Tensor:
        return _relax_backward(gradient, z, tau)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        g, z, tau = ctx.saved_tensors
        scaled = gradient / tau.unsqueeze(-1)
        inner, mean = (g * z).sum(-1, keepdim=True), (scaled * z).sum(-1, keepdim=True)
        return z * (scaled - mean), scaled * (g - inner) - g * mean, None


for _function, _operator in ((_Relax, _relax_forward), (_RelaxBackward, _relax_backward)):
    _operator.register_autograd(_function.backward, setup_context=_function.setup_context)


def relax(theta: Tensor, tau: Tensor, beta: Tensor, seed: Tensor) -> Tensor:
    """Relaxed rows of float32 logits [rows, k], with tau and beta [rows] and an int64 seed [1].

    Every row has a stream of noise of its own; under vmap replicas share streams or not, as its
    ``randomness`` says. There is no derivative in tau and beta and none in forward mode.
    """
    streams = torch.arange(theta.shape[0], device=theta.device)
    return differentiable(_Relax, _relax_forward)(theta, tau, beta, seed, streams)
