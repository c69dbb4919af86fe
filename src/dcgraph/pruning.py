"""Pruning: categories that are hardly used are taken away."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from .inspect import trace
from .nodes import Discrete, named_nodes
from .population import Population

__all__ = ["prune_categories"]


def prune_categories(
    model: nn.Module, closure: Callable[[nn.Module], object], *, share: float = 0.01
) -> list[dict[str, int]]:
    """Take away the categories that hardly any choice falls on.

    A codebook with more rows than are needed lets categories part that would merge otherwise. Some
    are left over: they are chosen now and then, too rarely for what comes behind to learn them.
    Pruned halfway through training, their inputs take a category next to them, and the rest of the
    training is for those that stay. A pruned category is never chosen again, in training and in
    eval mode; ``node.kept`` has it, which ``state_dict`` remembers.

    Args:
        model: a model, whose nodes with ``prunable=True`` are pruned. Of a
            :class:`dcgraph.Population` each replica is pruned by its own choices.
        closure: calls the model that it is given, on typical inputs, and many of them. It runs in
            eval mode without gradients.
        share: of all choices of a node in the closure. A category with less is pruned; the most
            frequent one always stays.

    Returns:
        How many categories each node has left, for each replica; one for a model.

    >>> import torch, dcgraph as dc
    >>> node = dc.Discrete(2, 3, prunable=True)
    >>> with torch.no_grad():
    ...     _ = node.codebook.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0]])
    >>> dc.prune_categories(node, lambda node: node(x), share=0.1)
    [{'Discrete': 2}]
    >>> node.kept
    tensor([ True,  True, False])
    """
    if not 0 < share < 1:
        raise ValueError(f"share={share}, but a share of the choices lies in (0, 1).")
    if not isinstance(model, Population):
        modes = {module: module.training for module in model.modules()}
        try:
            return [_pruned(model.eval(), closure, share)]
        finally:
            for module, mode in modes.items():
                module.training = mode
    left, stacked = [], dict(named_nodes(model.stacked))
    for index in range(model.replicas):
        replica = model.replica(index).eval()
        left.append(_pruned(replica, closure, share))
        for name, own in named_nodes(replica):
            of_all = stacked[name]
            if isinstance(own, Discrete) and own.kept is not None:
                assert isinstance(of_all, Discrete) and of_all.kept is not None
                of_all.kept[index] = own.kept
    return left


@torch.no_grad()
def _pruned(
    model: nn.Module, closure: Callable[[nn.Module], object], share: float
) -> dict[str, int]:
    nodes = {
        name: node
        for name, node in named_nodes(model)
        if isinstance(node, Discrete) and node.kept is not None
    }
    if not nodes:
        raise ValueError(
            f"{type(model).__name__} has no node to prune; build it with "
            "dcgraph.Discrete(..., prunable=True)."
        )
    with trace(model) as steps:
        closure(model)
    left = {}
    for name, node in nodes.items():
        chosen = [step.index.flatten() for step in steps if step.node == name]
        if not chosen:
            raise ValueError(f"the closure did not call the node {name!r}; call the whole model.")
        assert node.kept is not None
        index = torch.cat(chosen)
        node.kept &= _frequent(index[index >= 0], node.categories, share)
        left[name] = int(node.kept.sum())
    return left


def _frequent(index: Tensor, categories: int, share: float) -> Bool[Tensor, "{categories}"]:
    """The categories that have their share of the choices, and the most frequent one."""
    counts = torch.bincount(index, minlength=categories)
    return (counts >= share * len(index)) | (counts == counts.max())
