r"""One parent for each node, independently: the paper's simplification of arborescences.

.. math:: p(\pi) = \prod_{c > 0} \mathrm{softmax}(\theta_c)_{\pi_c}

Every arborescence is such a choice, but a choice can also have cycles, from which no way leads to
the root. Arguments and results as in :mod:`arborescence`.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..estimators._sparse import project_sparsemax
from ..noise import Noise, check_noise, standard_noise
from ._active_set import STEPS, check_steps
from ._graphs import FORBIDDEN, check_exists, graph, parents

__all__ = ["argmax", "log_partition", "marginals", "sample", "sparsemap"]

_CHOICE = "choice of parents"


def log_partition(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch"]:
    """log Z; -inf where a node has no allowed parent.

    >>> import torch
    >>> round(log_partition(torch.zeros(4, 4)).exp().item())  # 3 nodes with 3 choices each
    27
    """
    given = graph(scores, mask, used)
    rows = given.theta.logsumexp(-1).masked_fill(~given.has_parent, 0.0)
    total = rows.sum(-1)
    return total.masked_fill(total < FORBIDDEN / 2, -torch.inf).to(scores.dtype)


def marginals(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch n n"]:
    """The softmax of each row; rows of the root and of unused nodes are 0.

    >>> import torch
    >>> marginals(torch.zeros(3, 3))
    tensor([[0.0000, 0.0000, 0.0000],
            [0.5000, 0.0000, 0.5000],
            [0.5000, 0.5000, 0.0000]])
    """
    given = graph(scores, mask, used)
    check_exists((given.allowed.any(-1) | ~given.has_parent).all(-1, keepdim=True), _CHOICE)
    return given.theta.softmax(-1).masked_fill(~given.allowed, 0.0).to(scores.dtype)


def sparsemap(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
    *,
    steps: int = STEPS,
) -> Float[Tensor, "*batch n n"]:
    r"""The sparsemax of each row (Martins and Astudillo 2016), which is computed in closed form.

    .. math:: \mu_{cp} = \max(\theta_{cp} - t_c, 0) , \quad \sum_p \mu_{cp} = 1

    ``steps`` is there because :func:`arborescence.sparsemap` has it, and changes nothing.

    >>> import torch
    >>> sparsemap(torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.5], [2.0, 0.0, 0.0]]))
    tensor([[0.0000, 0.0000, 0.0000],
            [0.7500, 0.0000, 0.2500],
            [1.0000, 0.0000, 0.0000]])
    """
    check_steps(steps)
    given = graph(scores, mask, used)
    check_exists((given.allowed.any(-1) | ~given.has_parent).all(-1, keepdim=True), _CHOICE)
    return project_sparsemax(given.theta).masked_fill(~given.allowed, 0.0).to(scores.dtype)


def argmax(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
) -> Int[Tensor, "*batch n"]:
    """The best parent of each node; -1 where there is none.

    >>> import torch
    >>> argmax(torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 9.0], [2.0, 9.0, 0.0]]))  # a cycle
    tensor([-1,  2,  1])
    """
    given = graph(scores.detach(), mask, used)
    return parents(given.theta.argmax(-1), given, _CHOICE)


def sample(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
    *,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "*batch n"]:
    """A parent for each node, drawn by the Gumbel-max trick; -1 where there is none."""
    check_noise(noise, scores)
    given = graph(scores.detach(), mask, used)
    gumbel = standard_noise(noise, given.theta, generator)
    return parents((given.theta + gumbel).argmax(-1), given, _CHOICE)
