"""A round of messages in a graph network whose receivers are of few kinds, fused into one kernel.

What node i receives is, with the kind k(i) of i,

    out_i = sum_j A_ji relu(W drop(relu(r_k(i) + s_j)) + c)

with a table r of the kinds (14 tokens, say), a vector s_j of every sender, and the edges A. In
torch the inner part is a tensor of [batch, kinds, length, dim] that is written and read a dozen
times in a training step. Here it never leaves the chip: each program takes one example, and kinds
that do not occur in it are skipped. The backward kernel computes the inner part again.

The twin is ``tasks.listops.messages.messages_by_torch``, with the factors of :func:`drawn_factors`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .operators import differentiable

PRECISION = "tf32"
"""Of the products on the GPU; "ieee" is as exact as torch by default, and slower."""

_PARTS = 100  # of the batch in the backward kernel, each with a sum of its own, added up at the end


@triton.jit
def _kept(seed, tile, share, rows: tl.constexpr, width: tl.constexpr):
    """The dropout factors of a tile: 0, or 1 / (1 - share).

    Random numbers are what a kernel like this spends its time on, so a draw of 128 bits serves
    eight units.
    """
    eighth: tl.constexpr = width // 8
    place = tl.arange(0, rows)[:, None] * eighth + tl.arange(0, eighth)[None, :]
    first = (place + tile * (rows * eighth)).to(tl.uint32)
    none = tl.zeros_like(first)
    a, b, c, d = tl.philox(seed, first, none, none, none)
    high = tl.join(tl.join(a >> 16, b >> 16), tl.join(c >> 16, d >> 16))
    low = tl.join(tl.join(a & 0xFFFF, b & 0xFFFF), tl.join(c & 0xFFFF, d & 0xFFFF))
    drawn = tl.reshape(tl.join(high, low), [rows, width]).to(tl.float32)
    return tl.where(drawn >= share * 65536.0, 1.0 / (1.0 - share), 0.0)


@triton.jit
def _forward(
    receiver, sender, weight, bias, edges, kinds, out, seed, share,
    batch, length, kind_count, dim,
    rows: tl.constexpr, width: tl.constexpr, drops: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    example = tl.program_id(0).to(tl.int64)
    model = example // batch
    i = tl.arange(0, rows)
    d = tl.arange(0, width)
    tile = (i[:, None] < length) & (d[None, :] < dim)
    square = (d[:, None] < dim) & (d[None, :] < dim)
    sent = tl.load(sender + (example * length + i[:, None]) * dim + d[None, :], tile, 0.0)
    # As [in, out]: the product is hidden @ W^T.
    w = tl.load(weight + (model * dim + d[None, :]) * dim + d[:, None], square, 0.0)
    c = tl.load(bias + model * dim + d, d < dim, 0.0)
    kind = tl.load(kinds + example * length + i, i < length, -1)
    # [parent, child]: row i holds who sends to i.
    inside = (i[:, None] < length) & (i[None, :] < length)
    a = tl.load(edges + (example * length + i[None, :]) * length + i[:, None], inside, 0.0)
    key = tl.load(seed)
    received = tl.zeros([rows, width], tl.float32)
    for k in range(kind_count):
        if tl.sum((kind == k).to(tl.int32), 0) > 0:
            r = tl.load(receiver + (model * kind_count + k) * dim + d, d < dim, 0.0)
            hidden = tl.maximum(sent + r[None, :], 0.0)
            if drops:
                hidden *= _kept(key, example * kind_count + k, share, rows, width)
            message = tl.maximum(tl.dot(hidden, w, input_precision=precision) + c[None, :], 0.0)
            to_kind = tl.where((kind == k)[:, None], a, 0.0)
            received += tl.dot(to_kind, message, input_precision=precision)
    tl.store(out + (example * length + i[:, None]) * dim + d[None, :], received, tile)


@triton.jit
def _backward(
    receiver, sender, weight, bias, edges, kinds, gradient, seed, share,
    d_receiver, d_sender, d_weight, d_bias, d_edges,
    batch, length, kind_count, dim, chunk,
    rows: tl.constexpr, width: tl.constexpr, drops: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    i = tl.arange(0, rows)
    d = tl.arange(0, width)
    tile = (i[:, None] < length) & (d[None, :] < dim)
    square = (d[:, None] < dim) & (d[None, :] < dim)
    inside = (i[:, None] < length) & (i[None, :] < length)
    w = tl.load(weight + (model * dim + d[None, :]) * dim + d[:, None], square, 0.0)
    w_back = tl.load(weight + (model * dim + d[:, None]) * dim + d[None, :], square, 0.0)
    c = tl.load(bias + model * dim + d, d < dim, 0.0)
    key = tl.load(seed)
    dw = tl.zeros([width, width], tl.float32)
    dc = tl.zeros([width], tl.float32)
    for number in range(part * chunk, tl.minimum((part + 1) * chunk, batch)):
        example = model * batch + number
        at = (example * length + i[:, None]) * dim + d[None, :]
        at_edge = (example * length + i[None, :]) * length + i[:, None]
        sent = tl.load(sender + at, tile, 0.0)
        kind = tl.load(kinds + example * length + i, i < length, -1)
        a = tl.load(edges + at_edge, inside, 0.0)
        above = tl.load(gradient + at, tile, 0.0)
        ds = tl.zeros([rows, width], tl.float32)
        da = tl.zeros([rows, rows], tl.float32)
        for k in range(kind_count):
            if tl.sum((kind == k).to(tl.int32), 0) > 0:
                r = tl.load(receiver + (model * kind_count + k) * dim + d, d < dim, 0.0)
                raw = sent + r[None, :]
                factor = tl.where(raw > 0, 1.0, 0.0)
                if drops:
                    factor *= _kept(key, example * kind_count + k, share, rows, width)
                hidden = raw * factor
                message = tl.maximum(tl.dot(hidden, w, input_precision=precision) + c[None, :], 0.0)
                of_kind = (kind == k)[:, None]
                to_kind = tl.where(of_kind, a, 0.0)
                d_message = tl.dot(tl.trans(to_kind), above, input_precision=precision)
                d_message = tl.where(message > 0, d_message, 0.0)
                of_edges = tl.dot(above, tl.trans(message), input_precision=precision)
                da += tl.where(of_kind, of_edges, 0.0)
                dc += tl.sum(d_message, 0)
                dw += tl.dot(tl.trans(hidden), d_message, input_precision=precision)
                d_raw = tl.dot(d_message, w_back, input_precision=precision) * factor
                ds += d_raw
                target = d_receiver + (model * kind_count + k) * dim + d
                tl.atomic_add(target, tl.sum(d_raw, 0), d < dim)
        tl.store(d_sender + at, ds, tile)
        tl.store(d_edges + at_edge, da, inside)
    place = model * parts + part
    # Stored as the weight is, [out, in].
    tl.store(d_weight + (place * dim + d[None, :]) * dim + d[:, None], dw, square)
    tl.store(d_bias + place * dim + d, dc, d < dim)


@triton.jit
def _draw(out, seed, share, rows: tl.constexpr, width: tl.constexpr):
    tile = tl.program_id(0)
    kept = _kept(tl.load(seed), tile, share, rows, width)
    place = tl.arange(0, rows)[:, None] * width + tl.arange(0, width)[None, :]
    tl.store(out + tile * rows * width + place, kept)


def _blocks(length: int, dim: int) -> dict[str, int]:
    """Sizes of the tiles; products need at least 16."""
    rows = triton.next_power_of_2(max(16, length))
    return {"rows": rows, "width": triton.next_power_of_2(max(16, dim))}


def _options(length: int, dim: int, share: float) -> dict[str, Any]:
    blocks = _blocks(length, dim)
    warps = 8 if blocks["rows"] > 32 else 4  # enough registers for the tiles, or nearly
    return {**blocks, "drops": share > 0, "precision": PRECISION, "num_warps": warps}


@torch.library.custom_op("dcgraph::messages", mutates_args=())
def _messages(
    receiver: Tensor,
    sender: Tensor,
    weight: Tensor,
    bias: Tensor,
    edges: Tensor,
    kinds: Tensor,
    seed: Tensor,
    share: float,
) -> Tensor:
    receiver, sender, weight, bias, edges, kinds = (
        t.contiguous() for t in (receiver, sender, weight, bias, edges, kinds)
    )
    models, batch, length, dim = sender.shape
    out = torch.empty_like(sender)
    _forward[(models * batch,)](
        *(receiver, sender, weight, bias, edges, kinds, out, seed, share),
        *(batch, length, receiver.shape[1], dim),
        **_options(length, dim, share),
    )  # fmt: skip
    return out


@torch.library.custom_op("dcgraph::messages_backward", mutates_args=())
def _messages_backward(
    gradient: Tensor,
    receiver: Tensor,
    sender: Tensor,
    weight: Tensor,
    bias: Tensor,
    edges: Tensor,
    kinds: Tensor,
    seed: Tensor,
    share: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    gradient, receiver, sender, weight, bias, edges, kinds = (
        t.contiguous() for t in (gradient, receiver, sender, weight, bias, edges, kinds)
    )
    models, batch, length, dim = sender.shape
    parts = min(_PARTS, batch)
    d_receiver = torch.zeros_like(receiver)
    d_sender, d_edges = torch.empty_like(sender), torch.empty_like(edges)
    d_weight = weight.new_empty(models, parts, dim, dim)
    d_bias = bias.new_empty(models, parts, dim)
    _backward[(models, parts)](
        *(receiver, sender, weight, bias, edges, kinds, gradient, seed, share),
        *(d_receiver, d_sender, d_weight, d_bias, d_edges),
        *(batch, length, receiver.shape[1], dim, triton.cdiv(batch, parts)),
        **_options(length, dim, share),
    )  # fmt: skip
    return d_receiver, d_sender, d_weight.sum(1), d_bias.sum(1), d_edges


@_messages.register_fake
def _(*arguments: Any) -> Tensor:
    return torch.empty_like(arguments[1], memory_format=torch.contiguous_format)


@_messages_backward.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in arguments[1:6])


def _folded(info: Any, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """The mapped dimension joins the models: all tensors but the seed have them in front.

    One seed serves all replicas, because every model draws from places of its own.
    """
    *tensors, seed, share = arguments
    folded: list[Any] = []
    for value, dim in zip(tensors, in_dims, strict=False):
        first = (
            value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)
        )
        folded.append(first.reshape(-1, *first.shape[2:]))
    seed_dim = in_dims[len(tensors)]
    return [*folded, seed if seed_dim is None else seed.select(seed_dim, 0), share]


@_messages.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Tensor, int]:
    out = _messages(*_folded(info, in_dims, arguments))
    return out.unflatten(0, (info.batch_size, -1)), 0


@_messages_backward.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    gradients = _messages_backward(*_folded(info, in_dims, arguments))
    return tuple(g.unflatten(0, (info.batch_size, -1)) for g in gradients), (0,) * 5


class _Messages(torch.autograd.Function):
    """The derivative of the forward kernel is the backward kernel."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        return _messages(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:7])
        ctx.share = inputs[7]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return *_messages_backward(gradient, *ctx.saved_tensors, ctx.share), None, None, None


_messages.register_autograd(_Messages.backward, setup_context=_Messages.setup_context)


def messages(
    receiver: Tensor,
    sender: Tensor,
    weight: Tensor,
    bias: Tensor,
    edges: Tensor,
    kinds: Tensor,
    dropout: float = 0.0,
) -> Tensor:
    """What every node receives, for several models at once.

    There is a derivative in all float arguments, but no second one.

    Args:
        receiver: r, [models, kinds, dim].
        sender: s, [models, batch, length, dim]; length and dim are at most 64.
        weight, bias: W [models, dim, dim] and c [models, dim].
        edges: A, [models, batch, child, parent].
        kinds: the kind of each node as a receiver, [models, batch, length]; -1 receives nothing.
        dropout: share of the hidden units that are dropped.
    """
    seed = torch.randint(2**62, (1,), device=sender.device)
    run = differentiable(_Messages, _messages)
    out: Tensor = run(receiver, sender, weight, bias, edges, kinds, seed, dropout)
    return out


def drawn_factors(
    seed: Tensor, models: int, batch: int, kinds: int, length: int, dim: int, dropout: float
) -> Tensor:
    """The dropout factors that the kernels draw, [models, batch, kinds, length, dim]."""
    blocks = _blocks(length, dim)
    shape = models, batch, kinds, blocks["rows"], blocks["width"]
    out = torch.empty(shape, device=seed.device)
    _draw[(models * batch * kinds,)](out, seed, dropout, **blocks)
    return out[..., :length, :dim]
