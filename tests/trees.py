"""All trees of a small graph by enumeration: the oracle of the tests of structures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

import dcgraph as dc
from dcgraph.structures import STRUCTURES

NAMES = list(STRUCTURES)


TREES = ["arborescence", "spanning_tree"]


def leads_to_root(parents: tuple[int, ...]) -> bool:
    def climb(node: int) -> int:
        for _ in parents:
            node = parents[node] if node else 0
        return node

    return not any(climb(node) for node in range(len(parents)))


def enumerate_parents(n: int) -> Iterator[tuple[int, ...]]:
    """All choices of one parent for each node but the root."""
    others = ([p for p in range(n) if p != c] for c in range(1, n))
    for chosen in itertools.product(*others):
        yield (-1, *chosen)


def enumerate_spanning_trees(n: int) -> Iterator[tuple[int, ...]]:
    """All sets of n - 1 edges that connect, given by the parents on the way to node 0."""
    for edges in itertools.combinations(itertools.combinations(range(n), 2), n - 1):
        parents = {0: -1}
        for _ in range(n):
            for i, j in edges:
                if i in parents and j not in parents:
                    parents[j] = i
                elif j in parents and i not in parents:
                    parents[i] = j
        if len(parents) == n:
            yield tuple(parents[node] for node in range(n))


class All(NamedTuple):
    """All structures of n nodes."""

    parents: Tensor  # [structures, n]
    read: Tensor  # [structures, n, n]: which scores make up the score of each
    edges: Tensor  # [structures, n, n]: which edges it has, both ways where undirected

    def scores(self, theta: Tensor) -> Tensor:
        """[..., structures], -inf where an edge is."""
        finite = theta.masked_fill(theta == -math.inf, -1e9).double()
        total = torch.einsum("...cp,tcp->...t", finite, self.read)
        return total.masked_fill(total < -1e8, -math.inf)

    def marginals(self, theta: Tensor) -> Tensor:
        return torch.einsum("...t,tcp->...cp", self.scores(theta).softmax(-1), self.edges)


@cache
def enumerate_all(name: str, n: int) -> All:
    if name == "spanning_tree":
        found = list(enumerate_spanning_trees(n))
    else:
        found = [p for p in enumerate_parents(n) if name == "one_parent" or leads_to_root(p)]
    parents = torch.tensor(found)
    directed = dc.one_hot(parents, n, torch.float64)
    if name != "spanning_tree":
        return All(parents, directed, directed)
    edges = directed + directed.mT
    return All(parents, edges.tril(), edges)


def without_edges(theta: Tensor, mask: Tensor) -> Tensor:
    return theta.masked_fill(~mask, -math.inf)


def random_mask(name: str, graphs: int, n: int) -> Tensor:
    """Masks with some edges missing, such that each graph has a structure."""
    every = enumerate_all(name, n)
    kept = every.read[torch.randint(len(every.read), (graphs,))] > 0
    return kept | (torch.rand(graphs, n, n) < 0.4)


def chosen_scores(name: str, theta: Tensor, parents: Tensor) -> Tensor:
    """The score of each chosen structure; -inf if it is none."""
    every = enumerate_all(name, theta.shape[-1])
    same = (parents.unsqueeze(-2) == every.parents).all(-1)
    return every.scores(theta).masked_fill(~same, -math.inf).amax(-1)
