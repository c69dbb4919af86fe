r"""The marginals of directed trees, a graph for each program.

In torch the elimination of ``structures.arborescence`` is some twenty kernels for each node, and
thirty more backward. Here a graph stays in the registers of one program, from the first node to the
last and back; only the shares by way of each node are put down on the way.

The derivative needs no second algorithm. Marginals are the gradient of log Z, so that their
Jacobian is symmetric, and its product with the incoming gradient from the left is that from the
right: how the marginals change if the scores move along it. So the backward kernel is the forward
one with a derivative beside every number.

The twin is ``structures.arborescence.marginals_by_torch``.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .operators import differentiable, models_in_front

LARGEST = 64  # nodes
_NEVER = tl.constexpr(-1e30)


@triton.jit
def _put_down(shares, k, row, column, share):
    """Shares between the nodes before k, in a triangle of squares."""
    start = (k - 1) * k * (2 * k - 1) // 6
    tl.store(shares + start + row * k + column, share, (row < k) & (column < k))


@triton.jit
def _take_up(shares, k, row, column):
    start = (k - 1) * k * (2 * k - 1) // 6
    return tl.load(shares + start + row * k + column, (row < k) & (column < k), 0.0)


@triton.jit
def _marginals(
    weights, moves, shares, share_moves, ways, way_moves, out, nodes, size,
    moving: tl.constexpr, places: tl.constexpr,
):  # fmt: skip
    """mu of one graph; or, if ``moving``, how it changes if log w changes by ``moves``."""
    graph = tl.program_id(0).to(tl.int64)
    square = graph * nodes * nodes
    shares += graph * size
    share_moves += graph * size
    ways += square
    way_moves += square
    place = tl.arange(0, places)
    row, column = place[:, None], place[None, :]
    inside = (row < nodes) & (column < nodes)
    at = square + row * nodes + column
    w = tl.load(weights + at, inside, _NEVER)
    dw = tl.zeros([places, places], tl.float32)
    if moving:
        dw = tl.load(moves + at, inside, 0.0)
    for step in range(1, nodes):
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
        _put_down(shares, k, row, column, share)
        tl.store(ways + k * nodes + place, way, before)
        if moving:
            d_last = tl.where(before, tl.sum(tl.where(row == k, dw, 0.0), 0), 0.0)
            d_to_k = tl.sum(tl.where(column == k, dw, 0.0), 1)
            dq = tl.where(before, d_last - tl.sum(way * d_last, 0), 0.0)
            turn = d_to_k[:, None] + dq[None, :] - dw
            _put_down(share_moves, k, row, column, share * (1.0 - share) * turn)
            tl.store(way_moves + k * nodes + place, way * dq, before)
            dw += share * turn
    tl.debug_barrier()  # what is taken up may have been put down by other threads
    mu = tl.zeros([places, places], tl.float32)
    dmu = mu
    for k in range(1, nodes):
        before = place < k
        share = _take_up(shares, k, row, column)
        way = tl.load(ways + k * nodes + place, before, 0.0)
        rerouted = share * mu
        of_k = tl.sum(rerouted, 0)
        free = 1.0 - tl.sum(of_k, 0)
        if moving:
            d_rerouted = _take_up(share_moves, k, row, column) * mu + share * dmu
            d_of_k = tl.sum(d_rerouted, 0)
            d_way = tl.load(way_moves + k * nodes + place, before, 0.0)
            d_row = d_of_k + d_way * free - way * tl.sum(d_of_k, 0)
            dmu = tl.where(column == k, tl.sum(d_rerouted, 1)[:, None], dmu - d_rerouted)
            dmu = tl.where(row == k, d_row[None, :], dmu)
        mu = tl.where(column == k, tl.sum(rerouted, 1)[:, None], mu - rerouted)
        mu = tl.where(row == k, (of_k + way * free)[None, :], mu)
    tl.store(out + at, dmu if moving else mu, inside)


def _run(weights: Tensor, moves: Tensor | None) -> Tensor:
    graphs, nodes, _ = weights.shape
    weights, moving = weights.contiguous(), moves is not None
    out = torch.empty_like(weights)
    size = (nodes - 1) * nodes * (2 * nodes - 1) // 6
    copies = 2 if moving else 1
    shares, ways = weights.new_empty(copies, graphs, size), weights.new_empty(copies, *out.shape)
    if graphs:
        places = max(16, triton.next_power_of_2(nodes))
        _marginals[(graphs,)](
            *(weights, weights if moves is None else moves.contiguous()),
            *(shares[0], shares[-1], ways[0], ways[-1], out, nodes, size),
            moving=moving, places=places, num_warps=places * places // 256,
        )  # fmt: skip
    return out


@torch.library.custom_op("dcgraph::tree_marginals", mutates_args=())
def _of_scores(weights: Tensor) -> Tensor:
    return _run(weights, None)


@torch.library.custom_op("dcgraph::tree_marginals_backward", mutates_args=())
def _moved(gradient: Tensor, weights: Tensor) -> Tensor:
    return _run(weights, gradient)


@_of_scores.register_fake
@_moved.register_fake
def _(*arguments: Tensor) -> Tensor:
    return torch.empty_like(arguments[-1], memory_format=torch.contiguous_format)


models_in_front(_of_scores, results=1, seeded=False)
models_in_front(_moved, results=1, seeded=False)


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
        return _moved(gradient, *ctx.saved_tensors)


_of_scores.register_autograd(_Marginals.backward, setup_context=_Marginals.setup_context)


def marginals(weights: Tensor) -> Tensor:
    """mu [graphs, n, n] of log weights in float32, for n up to 64; it has no second derivative."""
    out: Tensor = differentiable(_Marginals, _of_scores)(weights)
    return out
