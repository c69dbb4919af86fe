"""A round of messages in a graph network, fused into one kernel.

What receiver i gets is

    out_i = sum_j A_ji relu(W drop(relu(r_k(i) + s_j)) + c)

with a table r of the kinds of receivers (14 tokens, say), a vector s_j of every sender, and the
edges A; or, where all receivers differ, a table for each example. In torch the inner part is a
tensor of [batch, kinds, length, dim] that is written and read a dozen times in a training step.
Here it never leaves the chip: each program takes one example, with the messages to all kinds that
occur in it, a tile of them at a time. The backward kernel computes the inner
part again; its gradients of W and c are one for each example, added up at the end.

The reference is ``tasks.listops.model.messages.messages_by_torch``, with the factors of
:func:`drawn_factors`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .....kernels._operators import differentiable, models_in_front
from .layout import apart, by_model, load, load_transposed

PRECISION = "bf16"
"""Of what goes into the products, whose sums are float32: "bf16", "tf32", or "ieee", which is as
exact as torch by default. Numbers of 16 bits move twice as fast, and can be turned on the way."""

_TILE, _WARPS = 32, 4


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
def _dot(a, b, precision: tl.constexpr):
    if precision == "bf16":
        product = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
    else:
        product = tl.dot(a, b, input_precision=precision)
    return product


@triton.jit
def _count(present, kind_count, places: tl.constexpr):
    """How many kinds occur."""
    place = tl.arange(0, places)
    return tl.sum((tl.load(present + place, place < kind_count, -1) >= 0).to(tl.int32), 0)


@triton.jit
def _receivers(receiver, k, d, dim):
    """Of each row of a tile the one that it is sent to, 0 for k < 0."""
    inside = (k[:, None] >= 0) & (d[None, :] < dim)
    return tl.load(receiver + k[:, None] * dim + d[None, :], inside, 0.0)


@triton.jit
def _forward(
    receiver, sender, weight, weight_stride, bias, bias_stride, edges, kinds, present, out,
    seed, share, batch, length, receivers, kind_count,
    dim: tl.constexpr, width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    groups: tl.constexpr, places: tl.constexpr, own_table: tl.constexpr, drops: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    example = tl.program_id(0).to(tl.int64)
    model = example // batch
    receiver += (example if own_table else model) * (kind_count * dim)
    present += example * kind_count
    # A row of a tile is a message: to the kind number `group` of the tile, from the sender j.
    row = tl.arange(0, groups * rows)
    group, j = row // rows, row % rows
    i = tl.arange(0, columns)
    d = tl.arange(0, width)
    # As [in, out]: the product is hidden @ W^T.
    w = load_transposed(weight + model * weight_stride, d, d, dim, dim)
    c = tl.load(bias + model * bias_stride + d, d < dim, 0.0)
    sent = load(sender + example * (length * dim), j, d, length, dim)
    kind = tl.load(kinds + example * receivers + i, i < receivers, -1)
    a = load_transposed(edges + example * (length * receivers), i, j, length, receivers)
    key = tl.load(seed)
    count = _count(present, kind_count, places)
    received = tl.zeros([columns, width], tl.float32)
    for first in range(0, count, groups):
        # -2 is the kind of no receiver.
        k = tl.load(present + first + group, first + group < count, -2)
        hidden = tl.maximum(sent + _receivers(receiver, k, d, dim), 0.0)
        if drops:
            hidden *= _kept(key, example * kind_count + first, share, groups * rows, width)
        message = tl.maximum(_dot(hidden, w, precision) + c[None, :], 0.0)
        to_kind = tl.where(kind[:, None] == k[None, :], a, 0.0)
        received += _dot(to_kind, message, precision)
    inside = (i[:, None] < receivers) & (d[None, :] < dim)
    tl.store(out + example * (receivers * dim) + i[:, None] * dim + d[None, :], received, inside)


@triton.jit
def _backward(
    receiver, sender, weight, weight_stride, bias, bias_stride, edges, kinds, present, gradient,
    seed, share, d_receiver, d_sender, d_layer, d_edges,
    batch, length, receivers, kind_count,
    dim: tl.constexpr, width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    groups: tl.constexpr, places: tl.constexpr, own_table: tl.constexpr, drops: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    example = tl.program_id(0).to(tl.int64)
    model = example // batch
    table = (example if own_table else model) * (kind_count * dim)
    present += example * kind_count
    row = tl.arange(0, groups * rows)
    group, j = row // rows, row % rows
    g = tl.arange(0, groups)
    i = tl.arange(0, columns)
    d = tl.arange(0, width)
    w = load_transposed(weight + model * weight_stride, d, d, dim, dim)
    w_back = load(weight + model * weight_stride, d, d, dim, dim)
    c = tl.load(bias + model * bias_stride + d, d < dim, 0.0)
    kind = tl.load(kinds + example * receivers + i, i < receivers, -1)
    a = load_transposed(edges + example * (length * receivers), i, j, length, receivers)
    above = load(gradient + example * (receivers * dim), i, d, receivers, dim)
    sent = load(sender + example * (length * dim), j, d, length, dim)
    key = tl.load(seed)
    count = _count(present, kind_count, places)
    dw = tl.zeros([width, width], tl.float32)
    dc = tl.zeros([width], tl.float32)
    d_sent = tl.zeros([groups * rows, width], tl.float32)
    da = tl.zeros([columns, groups * rows], tl.float32)
    for first in range(0, count, groups):
        k = tl.load(present + first + group, first + group < count, -2)
        raw = sent + _receivers(receiver + table, k, d, dim)
        factor = tl.where(raw > 0, 1.0, 0.0)
        if drops:
            factor *= _kept(key, example * kind_count + first, share, groups * rows, width)
        hidden = raw * factor
        message = tl.maximum(_dot(hidden, w, precision) + c[None, :], 0.0)
        of_kind = kind[:, None] == k[None, :]
        da += tl.where(of_kind, _dot(above, tl.trans(message), precision), 0.0)
        to_kind = tl.where(of_kind, a, 0.0)
        d_message = _dot(tl.trans(to_kind), above, precision)
        d_message = tl.where(message > 0, d_message, 0.0)
        dc += tl.sum(d_message, 0)
        dw += _dot(tl.trans(hidden), d_message, precision)
        d_raw = _dot(d_message, w_back, precision) * factor
        d_sent += d_raw
        of_group = tl.load(present + first + g, first + g < count, -1)
        tl.atomic_add(
            d_receiver + table + of_group[:, None] * dim + d[None, :],
            tl.sum(tl.reshape(d_raw, [groups, rows, width]), 1),
            (of_group[:, None] >= 0) & (d[None, :] < dim),
        )
    # The groups are added up, of senders and of edges.
    j = tl.arange(0, rows)
    inside = (j[:, None] < length) & (d[None, :] < dim)
    tl.store(
        d_sender + example * (length * dim) + j[:, None] * dim + d[None, :],
        tl.sum(tl.reshape(d_sent, [groups, rows, width]), 0), inside,
    )  # fmt: skip
    inside = (i[:, None] < receivers) & (j[None, :] < length)
    tl.store(
        d_edges + example * (length * receivers) + j[None, :] * receivers + i[:, None],
        tl.sum(tl.reshape(da, [columns, groups, rows]), 1), inside,
    )  # fmt: skip
    # Stored as the weight is, [out, in], and after it the bias.
    d_layer += example * (dim * dim + dim)
    square = (d[:, None] < dim) & (d[None, :] < dim)
    tl.store(d_layer + d[None, :] * dim + d[:, None], dw, square)
    tl.store(d_layer + dim * dim + d, dc, d < dim)


@triton.jit
def _draw(out, seed, share, rows: tl.constexpr, width: tl.constexpr):
    tile = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    kept = _kept(tl.load(seed), tile, share, rows, width)
    place = tl.arange(0, rows)[:, None] * width + tl.arange(0, width)[None, :]
    tl.store(out + tile * rows * width + place, kept)


def _blocks(length: int, receivers: int, dim: int) -> dict[str, int]:
    """Sizes of the tiles; products need at least 16. Short sequences share a tile."""
    rows, columns, width = (triton.next_power_of_2(max(16, n)) for n in (length, receivers, dim))
    return {"rows": rows, "columns": columns, "groups": max(1, _TILE // rows), "width": width}


def _options(receiver: Tensor, sender: Tensor, edges: Tensor, share: float) -> dict[str, Any]:
    _, batch, length, dim = sender.shape
    own_table = receiver.shape[1] == batch
    if not own_table and receiver.shape[1] != 1:
        raise ValueError(f"{receiver.shape[1]} tables of receivers for {batch} examples.")
    places = triton.next_power_of_2(receiver.shape[2])
    given = {"places": places, "own_table": own_table, "drops": share > 0, "precision": PRECISION}
    blocks = _blocks(length, edges.shape[-1], dim)
    return {**blocks, **given, "dim": dim, "num_warps": _WARPS, "num_stages": 1}


def _inputs(
    receiver: Tensor,
    sender: Tensor,
    weight: Tensor,
    bias: Tensor,
    edges: Tensor,
    kinds: Tensor,
    present: Tensor,
) -> tuple[Any, ...]:
    """As the kernels want them: weights of models may lie far apart, and are not copied."""
    return (
        *(receiver.contiguous(), sender.contiguous(), *by_model(weight), *by_model(bias)),
        *(edges.contiguous(), kinds.contiguous(), present.contiguous()),
    )


@torch.library.custom_op("dcgraph::messages", mutates_args=())
def _messages(
    receiver: Tensor,
    sender: Tensor,
    weight: Tensor,
    bias: Tensor,
    edges: Tensor,
    kinds: Tensor,
    present: Tensor,
    seed: Tensor,
    share: float,
) -> Tensor:
    models, batch, length, dim = sender.shape
    receivers = edges.shape[-1]
    out = sender.new_empty(models, batch, receivers, dim)
    _forward[(models * batch,)](
        *_inputs(receiver, sender, weight, bias, edges, kinds, present),
        *(out, seed, share, batch, length, receivers, receiver.shape[2]),
        **_options(receiver, sender, edges, share),
    )
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
    present: Tensor,
    seed: Tensor,
    share: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of receiver, sender, weight and bias in one, and edges."""
    models, batch, length, dim = sender.shape
    d_receiver = torch.zeros_like(receiver, memory_format=torch.contiguous_format)
    d_sender, d_edges = (
        torch.empty_like(t, memory_format=torch.contiguous_format) for t in (sender, edges)
    )
    d_layer = weight.new_empty(models, batch, dim * dim + dim)
    _backward[(models * batch,)](
        *_inputs(receiver, sender, weight, bias, edges, kinds, present),
        *(gradient.contiguous(), seed, share, d_receiver, d_sender, d_layer, d_edges),
        *(batch, length, edges.shape[-1], receiver.shape[2]),
        **_options(receiver, sender, edges, share),
    )
    return d_receiver, d_sender, d_layer.sum(1), d_edges


@_messages.register_fake
def _(*arguments: Any) -> Tensor:
    sender, edges = arguments[1], arguments[4]
    return sender.new_empty(*sender.shape[:2], edges.shape[-1], sender.shape[-1])


@_messages_backward.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    receiver, sender, weight, _, edges = arguments[1:6]
    dim = weight.shape[-1]
    like = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in (receiver, sender)]
    return *like, weight.new_empty(len(weight), dim * dim + dim), torch.empty_like(edges)


models_in_front(_messages, results=1)
models_in_front(_messages_backward, results=4)


class _Messages(torch.autograd.Function):
    """The derivative of the forward kernel is the backward kernel."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        return _messages(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:8])
        ctx.share = inputs[8]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        weight, bias = ctx.saved_tensors[2:4]
        d_receiver, d_sender, d_layer, d_edges = _messages_backward(
            gradient, *ctx.saved_tensors, ctx.share
        )
        d_weight, d_bias = apart(d_layer, weight.shape[1:], bias.shape[1:])
        return d_receiver, d_sender, d_weight, d_bias, d_edges, None, None, None, None


_messages.register_autograd(_Messages.backward, setup_context=_Messages.setup_context)


def messages(
    receiver: Tensor,
    sender: Tensor,
    weight: Tensor,
    bias: Tensor,
    edges: Tensor,
    kinds: Tensor,
    present: Tensor,
    dropout: float = 0.0,
) -> Tensor:
    """What every receiver is sent, [models, batch, receivers, dim], for several models at once.

    There is a derivative in all float arguments, but no second one.

    Args:
        receiver: r, [models, tables, kinds, dim]: a table for all examples, or for each.
        sender: s, [models, batch, length, dim]; length and dim are at most 64.
        weight, bias: W [models, dim, dim] and c [models, dim].
        edges: A, [models, batch, child, receiver].
        kinds: of the receivers, int32 [models, batch, receivers]; -1 receives nothing.
        present: the kinds that occur in an example, then -1; int32 [models, batch, kinds].
        dropout: share of the hidden units that are dropped.
    """
    seed = torch.randint(2**62, (1,), device=sender.device)
    run = differentiable(_Messages, _messages)
    out: Tensor = run(receiver, sender, weight, bias, edges, kinds, present, seed, dropout)
    return out


def drawn_factors(
    seed: Tensor, present: Tensor, length: int, receivers: int, dim: int, dropout: float
) -> Tensor:
    """The dropout factors that the kernels draw, [models, batch, kinds, length, dim]; those of a
    kind that does not occur in an example have no meaning."""
    blocks = _blocks(length, receivers, dim)
    models, batch, kinds = present.shape
    rows, groups, width = blocks["rows"], blocks["groups"], blocks["width"]
    tiles = torch.empty(models * batch, kinds, groups, rows, width, device=seed.device)
    _draw[(models * batch, kinds)](tiles, seed, dropout, rows=groups * rows, width=width)
    # A tile starts at a kind and has room for `groups` of them.
    place = torch.arange(kinds, device=seed.device)
    drawn = tiles[:, place // groups * groups, place % groups]
    drawn = drawn.view(models, batch, kinds, rows, width)
    kind = torch.where(present < 0, kinds, present).long()[..., None, None]
    by_kind = drawn.new_zeros(models, batch, kinds + 1, rows, width)
    return by_kind.scatter_(2, kind.expand_as(drawn), drawn)[:, :, :kinds, :length, :dim]
