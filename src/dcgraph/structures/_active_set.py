r"""SparseMAP (Niculae et al. 2018), by the active-set method.

.. math::
    \mu^* = \arg\min_{\mu \in \mathrm{conv}\{a_T\}} \tfrac{1}{2} \|\mu - \theta\|^2 ,
    \qquad a_T \in \{0, 1\}^{n \times n} \text{ the edges of tree } T

The point is a mixture :math:`\mu = \sum_T w_T a_T` of few trees, the active set S. It is found
as in Nocedal and Wright (section 16.5), which for a polytope is Wolfe's algorithm (1976). It starts
with the best tree. A step changes the weights to the best ones of any sign, by :math:`\delta` with

.. math::
    \begin{pmatrix} G & 1 \\ 1^\top & 0 \end{pmatrix}
    \begin{pmatrix} \delta \\ \nu \end{pmatrix} =
    \begin{pmatrix} A^\top (\theta - \mu) \\ 0 \end{pmatrix} ,

where the columns of A are the active trees, and :math:`G = A^\top A` counts the edges that two of
them share. If a weight would become negative, the step ends where the first one is 0, and that tree
is dropped. If none does, the tree of the largest score under :math:`\theta - \mu` joins S, with
weight 0. Once it is no better than the mixture, that is the solution: the gap
:math:`\max_T (\theta - \mu)^\top (a_T - \mu)` bounds :math:`\tfrac{1}{2} \|\mu - \mu^*\|^2`. The
trees of S stay affinely independent, so that there are at most one more than dimensions.

Around theta S does not change, and mu moves by :math:`A \delta` of this system with
:math:`d\theta` in place of :math:`\theta - \mu`. So the Jacobian J is the orthogonal projection
onto the differences of active trees. It is symmetric: the backward pass solves the system for
:math:`A^\top g`. Where S changes, mu has a kink, and J is that of the S that was found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..distributed._shards import eager

Best = Callable[[Tensor], Tensor]
"""From scores [graphs, n, n] to the parents [graphs, n] in the best trees."""

STEPS = 1000
"""Far more than scores like logits need: about as many as the solution has trees."""

_GAP = 1e-9
"""A gap that is as good as 0, of scores whose rounding errors are smaller."""

_NEGATIVE = -1e-12
"""Weights from here to 0 are 0 with a rounding error."""

_SLOTS = 8
"""So many places for trees are added at once."""


class Mixtures(NamedTuple):
    """Trees and weights; where a weight is 0, there is no tree."""

    cells: Int[Tensor, "*graphs trees edges"]  # of each edge, child * n + parent
    weights: Float[Tensor, "*graphs trees"]
    shared: Float[Tensor, "*graphs trees trees"]  # 1 + the number of edges in both of two trees


def check_steps(steps: int) -> None:
    if steps < 1:
        raise ValueError(f"steps={steps}, but the first step finds the best tree; pass 1 or more.")


@eager
def active_set(
    theta: Float[Tensor, "*graphs n n"], best: Best, undirected: bool, steps: int
) -> Float[Tensor, "*graphs n n"]:
    """mu* of scores in which padding and masks are hidden already, computed in float64.

    Undirected scores are a symmetric matrix; the edges then stand in the lower triangle, once each.
    """
    check_steps(steps)
    if theta.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "sparsemap reads on the GPU whether it is done, so a CUDA graph cannot capture it; "
            "run this step without capturing, or use marginals."
        )
    mu, *_ = _SparseMAP.apply(theta.double(), best, undirected, steps)  # type: ignore[no-untyped-call]
    return cast(Tensor, mu).to(theta.dtype)


class _SparseMAP(torch.autograd.Function):
    @staticmethod
    def forward(theta: Tensor, best: Best, undirected: bool, steps: int) -> tuple[Any, ...]:
        n = theta.shape[-1]
        found = mixtures(theta.reshape(-1, n, n), best, undirected, steps)
        found = Mixtures(*(part.reshape(*theta.shape[:-2], *part.shape[1:]) for part in found))
        return _sum(found.cells, found.weights, n), *found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None, None, None]:
        cells, weights, shared = ctx.saved_tensors
        delta = _change(_of_trees(gradient, cells), shared, weights > 0)
        return _sum(cells, delta, gradient.shape[-1]), None, None, None

    @staticmethod
    def vmap(_: Any, in_dims: tuple[Any, ...], theta: Tensor, *others: Any) -> tuple[Any, Any]:
        in_front = theta.movedim(in_dims[0], 0)
        result = _SparseMAP.apply(in_front, *others)  # type: ignore[no-untyped-call]
        return result, (0,) * len(result)


class _State(NamedTuple):
    """The active sets of the graphs that are not solved yet; a slot that is not active is free."""

    graph: Int[Tensor, " graphs"]  # which one of the batch it is
    theta: Float[Tensor, "graphs n n"]
    enough: Float[Tensor, " graphs"]  # a gap that is as good as 0: anything if there is no tree
    cells: Int[Tensor, "graphs slots edges"]
    scores: Float[Tensor, "graphs slots"]  # of the trees, under theta - mu
    shared: Float[Tensor, "graphs slots slots"]
    active: Bool[Tensor, "graphs slots"]
    weights: Float[Tensor, "graphs slots"]

    def of(self, graphs: Tensor) -> _State:
        return _State(*(part[graphs] for part in self))


def mixtures(
    theta: Float[Tensor, "graphs n n"], best: Best, undirected: bool, steps: int
) -> Mixtures:
    """The solutions of all graphs. A step is one of every graph that is not solved yet."""
    n = theta.shape[-1]
    state = _start(theta, best, undirected)
    finished = []
    for _ in range(steps):
        if not len(state.graph):
            break
        state, whole = _move(state)
        mu = _sum(state.cells, state.weights, n)
        residual = state.theta - (mu + mu.mT if undirected else mu)
        cells = _cells(best(residual), undirected)
        score = _of_trees(residual, cells)
        gap = score.squeeze(-1) - (residual * mu).sum((-2, -1))
        done = whole & ~(gap > state.enough)
        joins = (whole & ~done).nonzero().squeeze(-1)
        state = _join(state, joins, cells[joins])
        # Scores with a NaN are done, too, but in vain: their weights are NaN.
        weights = state.weights + 0 * gap.unsqueeze(-1)
        state = state._replace(scores=_of_trees(residual, state.cells), weights=weights)
        finished.append(state.of(done))
        state = state.of(~done)
    finished.append(state)
    return _collect(finished)


def _start(theta: Tensor, best: Best, undirected: bool) -> _State:
    """With the best tree."""
    cells = _cells(best(theta), undirected)
    size = theta.flatten(-2).gather(-1, cells.squeeze(-2)).abs().sum(-1)
    one = torch.ones_like(size).unsqueeze(-1)
    return _State(
        graph=torch.arange(len(theta), device=theta.device),
        theta=theta,
        enough=_GAP + 8 * torch.finfo(theta.dtype).eps * size,
        cells=cells,
        scores=torch.zeros_like(one),
        shared=(one * cells.shape[-1] + 1).unsqueeze(-1),
        active=one > 0,
        weights=one,
    )


def _move(state: _State) -> tuple[_State, Bool[Tensor, " graphs"]]:
    """To the best weights, or up to the first one that becomes 0; and which got the whole way."""
    change = _change(state.scores, state.shared, state.active)
    blocks = state.active & (state.weights + change < _NEGATIVE)
    share = torch.where(blocks, -state.weights / change, 1.0)
    way = share.amin(-1, keepdim=True)
    active = state.active & ~(blocks & (share <= way))
    weights = (state.weights + way * change).clamp(min=0.0).masked_fill(~active, 0.0)
    weights = weights / weights.sum(-1, keepdim=True)
    return state._replace(active=active, weights=weights), ~blocks.any(-1)


def _join(state: _State, graphs: Tensor, cells: Tensor) -> _State:
    """With one more tree, of weight 0 for now, in each of some graphs."""
    if state.active[graphs].all(-1).any():
        state = _with_free(state, _SLOTS)
    slot = (~state.active[graphs]).long().argmax(-1)
    at = (graphs, slot)
    state = state._replace(cells=state.cells.index_put(at, cells.squeeze(-2)))
    tree = _sum(cells, torch.ones_like(state.weights[graphs, :1]), state.theta.shape[-1])
    shared = _of_trees(tree, state.cells[graphs]) + 1
    return state._replace(
        shared=state.shared.index_put(at, shared).mT.index_put(at, shared),
        active=state.active.index_put(at, torch.ones_like(slot, dtype=torch.bool)),
    )


def _with_free(state: _State, slots: int) -> _State:
    more = (0, slots)
    return state._replace(
        cells=F.pad(state.cells, (0, 0, *more)),
        scores=F.pad(state.scores, more),
        shared=F.pad(state.shared, (*more, *more)),
        active=F.pad(state.active, more),
        weights=F.pad(state.weights, more),
    )


def _collect(parts: list[_State]) -> Mixtures:
    """In the order of the batch."""
    slots = max(part.weights.shape[-1] for part in parts)
    even = [_with_free(part, slots - part.weights.shape[-1]) for part in parts]
    order = torch.cat([part.graph for part in even]).argsort()
    return Mixtures(
        cells=torch.cat([part.cells for part in even])[order],
        weights=torch.cat([part.weights for part in even])[order],
        shared=torch.cat([part.shared for part in even])[order],
    )


def _change(
    scores: Float[Tensor, "*graphs slots"],
    shared: Float[Tensor, "*graphs slots slots"],
    active: Bool[Tensor, "*graphs slots"],
) -> Float[Tensor, "*graphs slots"]:
    """delta of the system above, 0 for what is not active.

    1 more in every entry of G changes nothing but nu, and makes it positive definite, because trees
    that are affinely independent become linearly independent with one more coordinate of 1.
    """
    both = active.unsqueeze(-1) & active.unsqueeze(-2)
    eye = torch.eye(active.shape[-1], dtype=shared.dtype, device=shared.device)
    factor, _ = torch.linalg.cholesky_ex(torch.where(both, shared, eye))
    right = torch.stack([scores, torch.ones_like(scores)], -1).masked_fill(~active[..., None], 0.0)
    free, ones = torch.cholesky_solve(right, factor).unbind(-1)
    return free - ones * free.sum(-1, keepdim=True) / ones.sum(-1, keepdim=True)


def _cells(parents: Int[Tensor, "graphs n"], undirected: bool) -> Int[Tensor, "graphs 1 edges"]:
    """Which edges of the matrix a tree has; each only once where undirected."""
    n = parents.shape[-1]
    child, parent = torch.arange(1, n, device=parents.device), parents[..., 1:]
    if undirected:
        child, parent = torch.maximum(child, parent), torch.minimum(child, parent)
    return (child * n + parent).unsqueeze(-2)


def _of_trees(
    values: Float[Tensor, "*graphs n n"], cells: Int[Tensor, "*graphs trees edges"]
) -> Float[Tensor, "*graphs trees"]:
    """A^T values: the sum over the edges of each tree."""
    flat = values.flatten(-2).gather(-1, cells.flatten(-2))
    return flat.view(cells.shape).sum(-1)


def _sum(
    cells: Int[Tensor, "*graphs trees edges"], weights: Float[Tensor, "*graphs trees"], n: int
) -> Float[Tensor, "*graphs {n} {n}"]:
    """A weights: the edges of the trees, each as often as its tree."""
    each = weights.unsqueeze(-1).expand(cells.shape).flatten(-2)
    flat = weights.new_zeros(*weights.shape[:-1], n * n)
    return flat.scatter_add(-1, cells.flatten(-2), each).view(*weights.shape[:-1], n, n)
