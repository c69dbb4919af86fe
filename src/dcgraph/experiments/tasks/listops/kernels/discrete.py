r"""A :class:`dcgraph.Discrete` node with a small MLP, fused into one kernel.

For every vector u, with Gumbel noise G drawn inside,

    theta = W2 relu(W1 u + b),   z = softmax((theta + beta G) / tau),   v = p C^T z + q u

where C is the codebook, and p and q say how much of the choice and of the residual is wanted. In
torch this is about 15 kernels forward and 30 backward, each over a tensor too small for a GPU. The
backward kernel computes theta and z again; each of its programs has sums of its own for the
gradients of the weights, added up at the end.

The reference is :class:`dcgraph.Discrete` itself, with the noise of :func:`drawn_noise`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .....kernels._noise import LN_2, log2_exponential
from .....kernels._operators import differentiable, models_in_front
from .layout import apart, by_model, load, load_transposed

PRECISION = "tf32"
"""Of the products on the GPU; "ieee" is as exact as torch by default, and slower."""

_ROWS, _WARPS = 64, 4
_PROGRAMS = 264  # of the backward kernel
_LARGEST = 64  # width and number of categories


@triton.jit
def _gumbel_of_bits(own, other):
    """Gumbel(0, 1) noise from two words of random bits, of which the second may be used again."""
    return log2_exponential(own, other) * -LN_2


@triton.jit
def _noise(seed, row, rows: tl.constexpr, places: tl.constexpr):
    """Gumbel noise [rows, places]; a draw of 128 bits serves four."""
    quarter: tl.constexpr = places // 4
    counter = (row[:, None] * quarter + tl.arange(0, quarter)[None, :]).to(tl.uint32)
    none = tl.zeros_like(counter)
    a, b, c, d = tl.philox(seed, counter, none, none, none)
    first = tl.join(_gumbel_of_bits(a, b), _gumbel_of_bits(b, c))
    second = tl.join(_gumbel_of_bits(c, d), _gumbel_of_bits(d, a))
    return tl.reshape(tl.join(first, second), [rows, places])


@triton.jit
def _choice(
    u, w1, bias, w2, tau, beta, seed, row, k,
    count: tl.constexpr, places: tl.constexpr, rows: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The hidden layer of the MLP, and z."""
    hidden = tl.maximum(tl.dot(u, w1, input_precision=precision) + bias[None, :], 0.0)
    theta = tl.dot(hidden, w2, input_precision=precision)
    y = tl.where(k[None, :] < count, (theta + beta * _noise(seed, row, rows, places)) / tau, -1e30)
    e = tl.exp(y - tl.max(y, 1)[:, None])
    return hidden, e / tl.sum(e, 1)[:, None]


@triton.jit
def _forward(
    u, w1, w1_stride, bias, bias_stride, w2, w2_stride, codebook, codebook_stride,
    tau, beta, p, p_model, p_row, q, q_model, q_row, out, seed, vectors,
    dim: tl.constexpr, width: tl.constexpr, count: tl.constexpr, places: tl.constexpr,
    rows: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    d = tl.arange(0, width)
    k = tl.arange(0, places)
    u += model * vectors * dim
    x = load(u, row, d, vectors, dim)
    first = load_transposed(w1 + model * w1_stride, d, d, dim, dim)  # as [in, out]
    b = tl.load(bias + model * bias_stride + d, d < dim, 0.0)
    second = tl.trans(load(w2 + model * w2_stride, k, d, count, dim))
    _, z = _choice(
        x, first, b, second, tl.load(tau + model), tl.load(beta + model), tl.load(seed),
        model * vectors + row, k, count, places, rows, precision,
    )  # fmt: skip
    codes = load(codebook + model * codebook_stride, k, d, count, dim)
    chosen = tl.dot(z, codes, input_precision=precision)
    inside = row < vectors
    of_choice = tl.load(p + model * p_model + row * p_row, inside, 0.0)
    of_residual = tl.load(q + model * q_model + row * q_row, inside, 0.0)
    v = of_choice[:, None] * chosen + of_residual[:, None] * x
    at = model * vectors * dim + row[:, None] * dim + d[None, :]
    tl.store(out + at, v, inside[:, None] & (d[None, :] < dim))


@triton.jit
def _backward(
    gradient, u, w1, w1_stride, bias, bias_stride, w2, w2_stride, codebook, codebook_stride,
    tau, beta, p, p_model, p_row, q, q_model, q_row, d_u, d_weights, seed, vectors, chunk,
    dim: tl.constexpr, width: tl.constexpr, count: tl.constexpr, places: tl.constexpr,
    rows: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    part = tl.program_id(0)
    d = tl.arange(0, width)
    k = tl.arange(0, places)
    square = (d[:, None] < dim) & (d[None, :] < dim)
    of_model = model * vectors * dim
    t = tl.load(tau + model)
    scale = tl.load(beta + model)
    key = tl.load(seed)
    b = tl.load(bias + model * bias_stride + d, d < dim, 0.0)
    dw1 = tl.zeros([width, width], tl.float32)
    db = tl.zeros([width], tl.float32)
    dw2 = tl.zeros([places, width], tl.float32)
    dc = tl.zeros([places, width], tl.float32)
    for start in range(part * chunk, tl.minimum((part + 1) * chunk, vectors), rows):
        row = start + tl.arange(0, rows)
        x = load(u + of_model, row, d, vectors, dim)
        above = load(gradient + of_model, row, d, vectors, dim)
        inside = row < vectors
        of_choice = tl.load(p + model * p_model + row * p_row, inside, 0.0)[:, None] * above
        of_residual = tl.load(q + model * q_model + row * q_row, inside, 0.0)[:, None] * above
        first = load_transposed(w1 + model * w1_stride, d, d, dim, dim)
        second = load(w2 + model * w2_stride, k, d, count, dim)
        hidden, z = _choice(
            x, first, b, tl.trans(second), t, scale, key, model * vectors + row, k,
            count, places, rows, precision,
        )  # fmt: skip
        codes = load(codebook + model * codebook_stride, k, d, count, dim)
        dz = tl.dot(of_choice, tl.trans(codes), input_precision=precision)
        dc = tl.dot(tl.trans(z), of_choice, dc, input_precision=precision)
        d_theta = z * (dz - tl.sum(z * dz, 1)[:, None]) / t
        dw2 = tl.dot(tl.trans(d_theta), hidden, dw2, input_precision=precision)
        d_hidden = tl.dot(d_theta, second, input_precision=precision)
        d_hidden = tl.where(hidden > 0, d_hidden, 0.0)
        db += tl.sum(d_hidden, 0)
        dw1 = tl.dot(tl.trans(d_hidden), x, dw1, input_precision=precision)
        back = load(w1 + model * w1_stride, d, d, dim, dim)
        through = tl.dot(d_hidden, back, input_precision=precision)
        at = of_model + row[:, None] * dim + d[None, :]
        tl.store(d_u + at, of_residual + through, inside[:, None] & (d[None, :] < dim))
    # One after the other, as the weights are.
    d_weights += (model * tl.num_programs(0) + part) * (dim * (dim + 1 + 2 * count))
    tl.store(d_weights + d[:, None] * dim + d[None, :], dw1, square)
    tl.store(d_weights + dim * dim + d, db, d < dim)
    codes = d_weights + (dim + 1) * dim + k[:, None] * dim + d[None, :]
    inside_codes = (k[:, None] < count) & (d[None, :] < dim)
    tl.store(codes, dw2, inside_codes)
    tl.store(codes + count * dim, dc, inside_codes)


@triton.jit
def _draw(out, seed, vectors, places: tl.constexpr, rows: tl.constexpr):
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    place = row[:, None] * places + tl.arange(0, places)[None, :]
    noise = _noise(tl.load(seed), row.to(tl.int64), rows, places)
    tl.store(out + place, noise, row[:, None] < vectors)


def fits(dim: int, categories: int) -> bool:
    """Whether a node is small enough."""
    return max(dim, categories) <= _LARGEST


def _options(u: Tensor, w2: Tensor) -> dict[str, Any]:
    dim, count = u.shape[-1], w2.shape[1]
    width, places = (triton.next_power_of_2(max(16, n)) for n in (dim, count))
    sizes = {"dim": dim, "width": width, "count": count, "places": places, "rows": _ROWS}
    return {**sizes, "precision": PRECISION, "num_warps": _WARPS, "num_stages": 1}


def _inputs(
    u: Tensor,
    w1: Tensor,
    bias: Tensor,
    w2: Tensor,
    codebook: Tensor,
    tau: Tensor,
    beta: Tensor,
    p: Tensor,
    q: Tensor,
) -> tuple[Any, ...]:
    """As the kernels want them: weights of models may lie far apart, and are not copied."""
    weights = (*by_model(w1), *by_model(bias), *by_model(w2), *by_model(codebook))
    dials = tau.contiguous(), beta.contiguous(), p, *p.stride(), q, *q.stride()
    return (u.contiguous(), *weights, *dials)


@torch.library.custom_op("dcgraph::discrete", mutates_args=())
def _discrete(
    u: Tensor,
    w1: Tensor,
    bias: Tensor,
    w2: Tensor,
    codebook: Tensor,
    tau: Tensor,
    beta: Tensor,
    p: Tensor,
    q: Tensor,
    seed: Tensor,
) -> Tensor:
    models, vectors, _ = u.shape
    out = torch.empty_like(u, memory_format=torch.contiguous_format)
    _forward[(triton.cdiv(vectors, _ROWS), models)](
        *_inputs(u, w1, bias, w2, codebook, tau, beta, p, q), out, seed, vectors, **_options(u, w2)
    )
    return out


@torch.library.custom_op("dcgraph::discrete_backward", mutates_args=())
def _discrete_backward(
    gradient: Tensor,
    u: Tensor,
    w1: Tensor,
    bias: Tensor,
    w2: Tensor,
    codebook: Tensor,
    tau: Tensor,
    beta: Tensor,
    p: Tensor,
    q: Tensor,
    seed: Tensor,
) -> tuple[Tensor, Tensor]:
    """Gradients of u, and of the weights and the codebook in one."""
    models, vectors, _ = u.shape
    tiles = triton.cdiv(vectors, _ROWS)
    chunk = triton.cdiv(tiles, min(tiles, max(1, _PROGRAMS // models))) * _ROWS
    parts = triton.cdiv(vectors, chunk)
    d_u = torch.empty_like(u, memory_format=torch.contiguous_format)
    d_weights = u.new_empty(models, parts, _joined_size(w1, bias, w2, codebook))
    _backward[(parts, models)](
        gradient.contiguous(), *_inputs(u, w1, bias, w2, codebook, tau, beta, p, q),
        *(d_u, d_weights, seed, vectors, chunk),
        **_options(u, w2),
    )  # fmt: skip
    return d_u, d_weights.sum(1)


def _joined_size(*weights: Tensor) -> int:
    return sum(weight[0].numel() for weight in weights)


@_discrete.register_fake
def _(*arguments: Any) -> Tensor:
    return torch.empty_like(arguments[0], memory_format=torch.contiguous_format)


@_discrete_backward.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    u, weights = arguments[1], arguments[2:6]
    d_u = torch.empty_like(u, memory_format=torch.contiguous_format)
    return d_u, u.new_empty(len(u), _joined_size(*weights))


models_in_front(_discrete, results=1)
models_in_front(_discrete_backward, results=2)


class _Discrete(torch.autograd.Function):
    """The derivative of the forward kernel is the backward kernel."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        return _discrete(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        weights = ctx.saved_tensors[1:5]
        d_u, d_weights = _discrete_backward(gradient, *ctx.saved_tensors)
        each = apart(d_weights, *(weight.shape[1:] for weight in weights))
        return d_u, *each, None, None, None, None, None


_discrete.register_autograd(_Discrete.backward, setup_context=_Discrete.setup_context)


def discrete(
    u: Tensor,
    w1: Tensor,
    bias: Tensor,
    w2: Tensor,
    codebook: Tensor,
    tau: Tensor,
    beta: Tensor,
    p: Tensor,
    q: Tensor,
) -> Tensor:
    """v of several models at once, [models, vectors, dim].

    There is a derivative in the first five, but no second one.

    Args:
        u: [models, vectors, dim].
        w1, bias, w2: of the MLP, [models, dim, dim], [models, dim] and [models, categories, dim].
        codebook: C, [models, categories, dim].
        tau, beta: one for each model.
        p, q: how much of the choice and of the residual, [models, vectors].
    """
    seed = torch.randint(2**62, (1,), device=u.device)
    run = differentiable(_Discrete, _discrete)
    v: Tensor = run(u, w1, bias, w2, codebook, tau, beta, p, q, seed)
    return v


def drawn_noise(seed: Tensor, models: int, vectors: int, categories: int) -> Tensor:
    """The Gumbel noise that the kernels draw, [models, vectors, categories]."""
    places = triton.next_power_of_2(max(16, categories))
    out = torch.empty(models, vectors, places, device=seed.device)
    count = models * vectors
    _draw[(triton.cdiv(count, _ROWS),)](out, seed, count, places=places, rows=_ROWS)
    return out[..., :categories]
