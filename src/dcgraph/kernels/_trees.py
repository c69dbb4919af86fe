r"""The marginals of directed trees, a graph for each program.

In torch the elimination of ``structures.arborescence`` is some twenty kernels for each node, and
thirty more backward. Here a graph stays in the registers of one program while some of its nodes are
eliminated, or brought back; only the shares by way of each node are put down in between. Small
graphs are the fastest, so that the last 32 and the last 16 nodes have programs of their own size.

The derivative needs no second algorithm. Marginals are the gradient of log Z, so that their
Jacobian is symmetric, and its product with the incoming gradient from the left is that from the
right: how the marginals change along it. So the backward pass is the forward
one with a derivative beside every number.

The reference implementation is ``structures.arborescence.marginals_by_torch``.
"""

import itertools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ._operators import differentiable, models_in_front

_LEVELS = 32, 16, 1  # nodes that are left when the next, smaller programs take over
_NEVER = tl.constexpr(-1e30)


@triton.jit
def _square(k, row, column):
    """The place of what belongs to node k and two nodes before it, and whether it exists."""
    start = (k - 1) * k * (2 * k - 1) // 6
    return start + row * k + column, (row < k) & (column < k)


@triton.jit
def _eliminate(
    weights, tangents, shares, share_tangents, ways, way_tangents, left, left_tangents,
    nodes, fewer, size, largest, with_tangents: tl.constexpr, places: tl.constexpr,
):  # fmt: skip
    """Take nodes away from a graph until there are ``fewer``; w of those is what is ``left``.

    If ``with_tangents``, everything has a derivative, along a tangent of log w.
    """
    graph = tl.program_id(0).to(tl.int64)
    shares += graph * size
    share_tangents += graph * size
    ways += graph * largest * largest
    way_tangents += graph * largest * largest
    place = tl.arange(0, places)
    row, column = place[:, None], place[None, :]
    inside = (row < nodes) & (column < nodes)
    at = (graph * nodes + row) * nodes + column
    w = tl.load(weights + at, inside, _NEVER)
    dw = tl.zeros([places, places], tl.float32)
    if with_tangents:
        dw = tl.load(tangents + at, inside, 0.0)
    for step in range(1, nodes - fewer + 1):
        k = nodes - step
        before = place < k
        last = tl.where(before, tl.sum(tl.where(row == k, w, 0.0), 0), _NEVER)
        to_k = tl.sum(tl.where(column == k, w, 0.0), 1)
        top = tl.max(last, 0)
        q = tl.where(before, last - top - tl.log(tl.sum(tl.exp(last - top), 0)), _NEVER)
        way = tl.exp(q)
        by_way = to_k[:, None] + q[None, :]
        smaller = tl.exp(-tl.abs(w - by_way))  # of the two, if the larger one is 1
        share = tl.where(by_way > w, 1.0, smaller) / (1.0 + smaller)
        w = tl.maximum(w, by_way) + tl.log(1.0 + smaller)
        there, exists = _square(k, row, column)
        tl.store(shares + there, share, exists)
        tl.store(ways + k * largest + place, way, before)
        if with_tangents:
            d_last = tl.where(before, tl.sum(tl.where(row == k, dw, 0.0), 0), 0.0)
            d_to_k = tl.sum(tl.where(column == k, dw, 0.0), 1)
            dq = tl.where(before, d_last - tl.sum(way * d_last, 0), 0.0)
            turn = d_to_k[:, None] + dq[None, :] - dw
            tl.store(share_tangents + there, share * (1.0 - share) * turn, exists)
            tl.store(way_tangents + k * largest + place, way * dq, before)
            dw += share * turn
    at = (graph * fewer + row) * fewer + column
    inside = (row < fewer) & (column < fewer)
    tl.store(left + at, w, inside)
    if with_tangents:
        tl.store(left_tangents + at, dw, inside)


@triton.jit
def _bring_back(
    mu_left, mu_left_tangents, shares, share_tangents, ways, way_tangents, out, out_tangents,
    nodes, fewer, size, largest, with_tangents: tl.constexpr, places: tl.constexpr,
):  # fmt: skip
    """The marginals of a graph, from those of the ``fewer`` nodes that were left of it."""
    graph = tl.program_id(0).to(tl.int64)
    shares += graph * size
    share_tangents += graph * size
    ways += graph * largest * largest
    way_tangents += graph * largest * largest
    place = tl.arange(0, places)
    row, column = place[:, None], place[None, :]
    inside = (row < fewer) & (column < fewer)
    at = (graph * fewer + row) * fewer + column
    mu = tl.load(mu_left + at, inside, 0.0)
    dmu = tl.zeros([places, places], tl.float32)
    if with_tangents:
        dmu = tl.load(mu_left_tangents + at, inside, 0.0)
    for k in range(fewer, nodes):
        before = place < k
        there, exists = _square(k, row, column)
        share = tl.load(shares + there, exists, 0.0)
        way = tl.load(ways + k * largest + place, before, 0.0)
        rerouted = share * mu
        of_k = tl.sum(rerouted, 0)
        free = 1.0 - tl.sum(of_k, 0)
        if with_tangents:
            d_rerouted = tl.load(share_tangents + there, exists, 0.0) * mu + share * dmu
            d_of_k = tl.sum(d_rerouted, 0)
            d_way = tl.load(way_tangents + k * largest + place, before, 0.0)
            d_row = d_of_k + d_way * free - way * tl.sum(d_of_k, 0)
            dmu = tl.where(column == k, tl.sum(d_rerouted, 1)[:, None], dmu - d_rerouted)
            dmu = tl.where(row == k, d_row[None, :], dmu)
        mu = tl.where(column == k, tl.sum(rerouted, 1)[:, None], mu - rerouted)
        mu = tl.where(row == k, (of_k + way * free)[None, :], mu)
    inside = (row < nodes) & (column < nodes)
    at = (graph * nodes + row) * nodes + column
    tl.store(out + at, mu, inside)
    if with_tangents:
        tl.store(out_tangents + at, dmu, inside)


def _run(weights: Tensor, tangents: Tensor | None) -> Tensor:
    """mu, or how it changes if log w changes by ``tangents``."""
    graphs, largest, _ = weights.shape
    with_tangents = tangents is not None
    # Each number and, if there is one, its derivative.
    now = [weights.contiguous()]
    if tangents is not None:
        now.append(tangents.contiguous())

    def room(*shape: int) -> list[Tensor]:
        return [weights.new_empty(graphs, *shape) for _ in now]

    size = (largest - 1) * largest * (2 * largest - 1) // 6
    shares, ways = room(size), room(largest, largest)
    levels = [largest, *(level for level in _LEVELS if level < largest)]
    downwards = list(itertools.pairwise(levels))

    def launch(kernel: Any, given: list[Tensor], made: list[Tensor], nodes: int, left: int) -> None:
        places = max(16, triton.next_power_of_2(nodes))
        pairs = ((pair[0], pair[-1]) for pair in (given, shares, ways, made))
        kernel[(graphs,)](
            *itertools.chain(*pairs), nodes, left, size, largest,
            with_tangents=with_tangents, places=places, num_warps=places * places // 256,
        )  # fmt: skip

    for nodes, left in downwards if graphs else ():
        given, now = now, room(left, left)
        launch(_eliminate, given, now, nodes, left)
    now = [torch.zeros_like(tensor) for tensor in now]  # a single root has no edges
    for nodes, left in reversed(downwards) if graphs else ():
        given, now = now, room(nodes, nodes)
        launch(_bring_back, given, now, nodes, left)
    return now[-1]


@torch.library.custom_op("dcgraph::tree_marginals", mutates_args=())
def _of_scores(weights: Tensor) -> Tensor:
    return _run(weights, None)


@torch.library.custom_op("dcgraph::tree_marginals_backward", mutates_args=())
def _jvp(gradient: Tensor, weights: Tensor) -> Tensor:
    return _run(weights, gradient)


@_of_scores.register_fake
@_jvp.register_fake
def _(*arguments: Tensor) -> Tensor:
    return torch.empty_like(arguments[-1], memory_format=torch.contiguous_format)


models_in_front(_of_scores, results=1, seeded=False)
models_in_front(_jvp, results=1, seeded=False)


class _Marginals(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        return _of_scores(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _jvp(gradient, *ctx.saved_tensors)


_of_scores.register_autograd(_Marginals.backward, setup_context=_Marginals.setup_context)


def marginals(weights: Tensor) -> Tensor:
    """mu [graphs, n, n] of log weights in float32, for n up to 64; it has no second derivative."""
    out: Tensor = differentiable(_Marginals, _of_scores)(weights)
    return out
