r"""Undirected spanning trees.

The edge {i, j} with i < j has the score theta[..., j, i], and is allowed by mask[..., j, i]: what
stands above the diagonal is not read, and noise added to the scores is one number per edge.

.. math:: p(T) = \exp\Big(\sum_{\{i, j\} \in T} \theta_{ij}\Big) / Z

Pointing all edges of a spanning tree towards node 0 makes it an arborescence, and the other way
round; so Kirchhoff's theorem is that of directed trees with equal scores in both directions. Trees
are given as such: by the parent of each node on the way to node 0.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .._checks import check_mask
from ..noise import Noise
from . import arborescence
from ._active_set import STEPS, active_set
from ._graphs import FORBIDDEN, graph, only_allowed, parents

__all__ = ["argmax", "log_partition", "marginals", "sample", "sparsemap"]


def log_partition(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch"]:
    """log Z; -inf where there is no tree. Arguments as in :func:`arborescence.log_partition`.

    >>> import torch
    >>> round(log_partition(torch.zeros(4, 4)).exp().item())  # trees of 4 nodes: 4^(4-2)
    16
    """
    return arborescence.log_partition(*_both_ways(scores, mask), used)


def marginals(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch n n"]:
    """The probability of every edge, a symmetric matrix. Gradients pass through it.

    >>> import torch
    >>> marginals(torch.zeros(3, 3))
    tensor([[0.0000, 0.6667, 0.6667],
            [0.6667, 0.0000, 0.6667],
            [0.6667, 0.6667, 0.0000]])
    """
    towards_root = arborescence.marginals(*_both_ways(scores, mask), used)
    return towards_root + towards_root.mT


def sparsemap(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
    *,
    steps: int = STEPS,
) -> Float[Tensor, "*batch n n"]:
    """The nearest mixture of trees, a symmetric matrix; see :func:`arborescence.sparsemap`.

    The distance counts each edge once.

    >>> import torch
    >>> sparsemap(torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 1.4, 0.0]]))
    tensor([[0.0000, 0.3000, 1.0000],
            [0.3000, 0.0000, 0.7000],
            [1.0000, 0.7000, 0.0000]])
    """
    given = graph(*_both_ways(scores, mask), used)
    lower = only_allowed(active_set(given.theta, _prim, True, steps), given)
    return (lower + lower.mT).to(scores.dtype)


def argmax(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
) -> Int[Tensor, "*batch n"]:
    """The parents in the tree of the largest score, by Kruskal; -1 where there is none.

    Of several such trees it is one of them.

    >>> import torch
    >>> argmax(torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 3.0, 0.0]]))
    tensor([-1,  2,  0])
    """
    given = graph(*_both_ways(scores.detach(), mask), used)
    return parents(_towards_root(_kruskal(given.theta)), given)


def sample(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
    *,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "*batch n"]:
    """The parents in a tree drawn from p(T), exactly, see :func:`arborescence.sample`."""
    scores, mask = _both_ways(scores, mask)
    return arborescence.sample(scores, mask, used, noise=noise, generator=generator)


def _both_ways(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The lower triangle of both, mirrored."""
    lower = scores.tril(-1)
    if mask is not None:
        check_mask(mask, scores)
        mask = mask.expand(scores.shape).tril(-1)
        mask = mask | mask.mT
    return lower + lower.mT, mask


def _prim(theta: Float[Tensor, "*batch n n"]) -> Int[Tensor, "*batch n"]:
    """The same trees as parents, by fewer and larger operations: each node joins by its best edge.

    Not for :func:`argmax`, since a node without an allowed edge gets a parent here too.
    """
    node = torch.arange(theta.shape[-1], device=theta.device)
    joined = (node == 0).expand(theta.shape[:-1])
    best, parent = theta[..., 0], torch.zeros_like(joined, dtype=torch.long)
    for _ in range(theta.shape[-1] - 1):
        new = best.masked_fill(joined, -torch.inf).argmax(-1, keepdim=True)
        joined = joined | (node == new)
        to_new = theta.gather(-1, new.unsqueeze(-2).expand(*theta.shape[:-1], 1)).squeeze(-1)
        better = ~joined & (to_new > best)
        best, parent = torch.where(better, to_new, best), torch.where(better, new, parent)
    return parent


def _kruskal(theta: Float[Tensor, "*batch n n"]) -> Bool[Tensor, "*batch n n"]:
    """The edges of the largest trees, in both directions; all graphs of the batch at once.

    From the best edge to the worst, an edge is taken if it joins two components. What spares a node
    that is not used its case, its edge of score 0 to the root, stands below the diagonal.
    """
    n = theta.shape[-1]
    later, earlier = torch.tril_indices(n, n, -1, device=theta.device)
    scores = theta[..., later, earlier]
    if torch.compiler.is_exporting():  # ONNX knows no stable sort; any order of ties will do
        values, order = scores.sort(descending=True)
    else:
        values, order = scores.sort(stable=True, descending=True)
    i, j = earlier[order], later[order]
    joins = values > FORBIDDEN / 2
    label = torch.arange(n, device=theta.device).expand(theta.shape[:-1])
    taken = []
    for e in range(order.shape[-1]):
        of_i, of_j = label.gather(-1, i[..., e, None]), label.gather(-1, j[..., e, None])
        join = joins[..., e, None] & (of_i != of_j)
        taken.append(join)
        label = torch.where(join & (label == of_j), of_i, label)
    edges = torch.zeros_like(theta, dtype=torch.long).flatten(-2)
    if taken:
        edges = edges.scatter(-1, j * n + i, torch.cat(taken, -1).long())
    directed = edges.view(theta.shape) > 0
    return directed | directed.mT


def _towards_root(edges: Bool[Tensor, "*batch n n"]) -> Int[Tensor, "*batch n"]:
    """The neighbour of each node on the way to node 0, for trees."""
    n = edges.shape[-1]
    chosen = torch.zeros_like(edges[..., 0], dtype=torch.long)
    reached = (torch.arange(n, device=edges.device) == 0).expand(chosen.shape)
    for _ in range(n - 1):
        linked = edges & reached.unsqueeze(-2)
        new = linked.any(-1) & ~reached
        chosen = torch.where(new, linked.long().argmax(-1), chosen)
        reached = reached | new
    return chosen
