"""The loss in a form whose gradient is that of any estimator."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from ._arguments import closest
from .estimators import LOSS_ESTIMATORS
from .estimators._loss import Player
from .nodes import Categorical

__all__ = ["surrogate"]


def surrogate(
    model: nn.Module,
    closure: Callable[[], Float[Tensor, " examples"]],
    **options: int | float,
) -> Float[Tensor, " examples"]:
    r"""The loss of every example, with the gradient of whatever estimator the nodes have.

    Most estimators send the gradient of the loss back through a choice; for them this is
    ``closure()``. Those of ``dcgraph.estimators.LOSS_ESTIMATORS`` need the loss of several choices:
    for them the closure is called several times, and the result has their gradient. Its value is a
    loss of hard choices (of REINFORCE the mean of all draws), or the sum that is computed. So the
    same two lines train with every estimator:

    .. code-block:: python

        loss = dc.surrogate(model, lambda: F.cross_entropy(model(x), y, reduction="none"))
        loss.mean().backward()

    Args:
        model: the nodes in it that need the loss have one estimator, and are in training mode.
        closure: calls the model and returns one loss for each example, not their mean. It may be
            called several times, and has to see the same examples each time: draw them outside. In
            the calls of the nodes the first dimension is that of the examples.
        options: of the estimator: ``samples`` (reinforce, 4), ``eta`` (rebar, 1.0), ``support``
            (topk_sparsemax, 2), ``limit`` (enumeration and topk_sparsemax, 4096).

    >>> import torch, dcgraph as dc
    >>> node, theta = dc.Categorical(estimator="enumeration"), torch.zeros(1, 2, requires_grad=True)
    >>> dials = dc.Dials.constant(node)
    >>> costs = torch.tensor([1.0, 3.0])
    >>> loss = dc.surrogate(node, lambda: node(theta) @ costs)
    >>> loss.mean().backward()
    >>> loss.detach(), theta.grad  # (1 + 3) / 2, and the gradient of that expectation
    (tensor([2.]), tensor([[-0.5000,  0.5000]]))
    """
    nodes = [
        module
        for module in model.modules()
        if isinstance(module, Categorical) and module.needs_loss and module.training
    ]
    names = sorted({node.estimator for node in nodes})
    if not nodes:
        return closure()
    if len(names) > 1:
        raise ValueError(
            f"the nodes have several estimators that need the loss: {', '.join(names)}; use one, "
            "beside any that do not."
        )
    if any(node._player is not None for node in nodes):
        raise RuntimeError(
            "dcgraph.surrogate already runs for these nodes, around this call or in another "
            "thread; call it once for a loss, and give each thread a model of its own."
        )
    estimator = LOSS_ESTIMATORS[names[0]]
    for name in options:
        if name not in estimator.options:
            there_are = closest(name, estimator.options) if estimator.options else "it has none."
            raise TypeError(f"estimator={names[0]!r} has no option {name!r}; {there_are}")

    def run(player: Player) -> Tensor:
        for node in nodes:
            node._player = player
        try:
            return closure()
        finally:
            for node in nodes:
                node._player = None

    return estimator.estimate(run, **options)
