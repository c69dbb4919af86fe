"""What all structures share: scores of edges [..., child, parent], masks, padding, checks.

Node 0 is the root of every graph. ``mask`` says which edges may be chosen, ``used`` which nodes
are there: a node beyond the end of its sequence has no parent and no children. No node is its own
parent, and the root has none.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .._checks import broadcasts_into, check_mask, may_read, read

FORBIDDEN = -1e30
"""The score of an edge that is not allowed: finite, so that no difference of two is NaN."""


class Graph(NamedTuple):
    """Scores in at least float32, ready for sums over trees.

    A node that is not used hangs on the root by an edge of score 0. So each tree of the used nodes
    is one tree of all nodes, with the same score, and no function needs a case for padding.
    """

    theta: Float[Tensor, "*batch n n"]
    allowed: Bool[Tensor, "*batch n n"]
    has_parent: Bool[Tensor, "*batch n"]


def graph(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None,
    used: Bool[Tensor, "..."] | None,
) -> Graph:
    if scores.shape[-1] == 0:
        raise ValueError("scores have no nodes; a graph has at least its root, node 0.")
    theta = scores.to(torch.promote_types(scores.dtype, torch.float32))
    node = torch.arange(scores.shape[-1], device=scores.device)
    allowed = (node.unsqueeze(-1) != node) & (node > 0).unsqueeze(-1) & (theta != -math.inf)
    if mask is not None:
        check_mask(mask, theta)
        allowed = allowed & mask
    has_parent = (node > 0).expand(scores.shape[:-1])
    if used is not None:
        _check_used(used, scores)
        allowed = allowed & used.unsqueeze(-1) & used.unsqueeze(-2)
        has_parent = has_parent & used
    theta = theta.masked_fill(~allowed, FORBIDDEN)
    spare = ~has_parent.unsqueeze(-1) & (node == 0)
    theta = theta.masked_fill(spare, 0.0)
    if may_read(theta) and not math.isfinite(read(theta.detach().amax(-1).sum()) or 0.0):
        raise ValueError("scores are NaN or +inf; use finite scores, and mask= against an edge.")
    return Graph(theta, allowed, has_parent)


def parents(
    chosen: Int[Tensor, "*batch n"], of: Graph, structure: str = "tree"
) -> Int[Tensor, "*batch n"]:
    """The parent of each node, -1 where it has none; -1 for all where there is no structure."""
    allowed = of.allowed.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    exists = (allowed | ~of.has_parent).all(-1, keepdim=True)
    check_exists(exists, structure)
    return chosen.masked_fill(~(of.has_parent & exists), -1)


def check_exists(exists: Bool[Tensor, "*batch 1"], structure: str = "tree") -> None:
    if may_read(exists) and read(exists.all()) == 0:
        first = tuple((~exists.squeeze(-1)).nonzero()[0].tolist())
        which = "the graph" if not first else f"graph {first[0] if len(first) == 1 else first}"
        raise ValueError(
            f"{which} has no {structure}: some node has no allowed way to node 0; "
            "allow more edges in mask=, or leave the node out with used=."
        )


def only_allowed(mu: Float[Tensor, "*batch n n"], of: Graph) -> Float[Tensor, "*batch n n"]:
    """Without the edges that stand for padding; nothing where there is no tree."""
    # Only there does a used node hang on a forbidden edge.
    wrong = (mu > 0) & ~of.allowed & of.has_parent.unsqueeze(-1)
    exists = ~wrong.flatten(-2).any(-1, keepdim=True)
    check_exists(exists)
    return mu.masked_fill(~(of.allowed & exists.unsqueeze(-1)), 0.0)


def _check_used(used: Tensor, scores: Tensor) -> None:
    if not isinstance(used, Tensor) or used.dtype != torch.bool:
        kind = used.dtype if isinstance(used, Tensor) else type(used).__name__
        raise TypeError(
            f"used (rows= of a node) is of type {kind}; pass a bool tensor, True for a node of the "
            "tree."
        )
    if not broadcasts_into(used.shape, scores.shape[:-1]) or used.shape[-1] != scores.shape[-1]:
        raise ValueError(
            f"used has shape {tuple(used.shape)}, but the scores {tuple(scores.shape)}; "
            f"give it the shape {tuple(scores.shape[:-1])}, with 1 where a batch shares it."
        )
