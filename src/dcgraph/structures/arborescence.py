r"""Directed trees with root 0: every other node has one parent, and all lead to the root.

.. math:: p(T) = \exp\Big(\sum_{(c, p) \in T} \theta_{cp}\Big) / Z

The partition function Z is a determinant (Tutte's matrix-tree theorem; Koo et al. 2007), but its
elimination subtracts numbers that are almost equal as soon as some nodes prefer each other to the
root by e^16 (float32) or e^36 (float64). Here nodes are eliminated as Grassmann, Taksar and Heyman
(1985) do it for Markov chains, without any subtraction, and so in logarithms. With the nodes up to
k left, let :math:`q_{kp} = w_{kp} / s_k, s_k = \sum_{p<k} w_{kp}`; then without k

.. math:: w'_{cp} = w_{cp} + w_{ck} q_{kp}, \qquad Z = \prod_k s_k .

All of it is plain tensor code of n steps: it maps, compiles and can be captured. Marginals on a GPU
have a kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .. import kernels
from .._checks import read, try_to_read
from ..noise import Noise, check_noise, standard_noise
from ._active_set import STEPS, active_set
from ._graphs import FORBIDDEN, Graph, graph, only_allowed, parents

__all__ = ["argmax", "log_partition", "marginals", "sample", "sparsemap"]


def log_partition(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch"]:
    r"""log Z, the log of the sum over all trees; -inf where there is none.

    Args:
        scores: theta[..., child, parent].
        mask: True where an edge may be chosen, broadcast against the scores.
        used: True for the nodes of the tree, [..., n]; the others are padding.

    >>> import torch
    >>> round(log_partition(torch.zeros(4, 4)).exp().item())  # trees of 4 nodes: 4^(4-2)
    16
    """
    given = graph(scores, mask, used)
    shift, w = _shifted(given)
    total = shift.sum(-1)
    for k in range(scores.shape[-1] - 1, 0, -1):
        total = total + w[..., k, :k].logsumexp(-1)
        _, direct, by_way = _paths(w)
        w = torch.logaddexp(direct, by_way)
    return total.masked_fill(total < FORBIDDEN / 2, -torch.inf).to(scores.dtype)


def marginals(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch n n"]:
    r"""The probability of every edge, :math:`\mu_{cp} = \partial \log Z / \partial \theta_{cp}`.

    Rows of used nodes but the root sum to 1, other rows are 0. This is the reverse of the
    elimination: with the marginals :math:`\mu'` of the graph without k, an edge (c, p) of it goes
    by way of k with the share :math:`r_{cp} = w_{ck} q_{kp} / w'_{cp}`, and so

    .. math::
        \mu_{cp} = (1 - r_{cp}) \mu'_{cp}, \quad \mu_{ck} = \sum_p r_{cp} \mu'_{cp}, \quad
        \mu_{kp} = \sum_c r_{cp} \mu'_{cp} + q_{kp} \Big(1 - \sum_c \mu_{ck}\Big) .

    Gradients pass through it. Arguments as in :func:`log_partition`.

    >>> import torch
    >>> marginals(torch.zeros(3, 3))
    tensor([[0.0000, 0.0000, 0.0000],
            [0.6667, 0.0000, 0.3333],
            [0.6667, 0.3333, 0.0000]])
    """
    given = graph(scores, mask, used)
    _, w = _shifted(given)
    mu = _by_kernel(w) if _has_kernel(w) else marginals_by_torch(w)
    return only_allowed(mu, given).clamp(min=0.0).to(scores.dtype)


def sparsemap(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
    *,
    steps: int = STEPS,
) -> Float[Tensor, "*batch n n"]:
    r"""SparseMAP (Niculae et al. 2018): the nearest mixture of trees to the scores.

    .. math::
        \mu^* = \arg\min_{\mu \in \mathrm{conv}\{a_T\}} \tfrac{1}{2} \|\mu - \theta\|^2 ,
        \qquad a_T \in \{0, 1\}^{n \times n} \text{ the edges of tree } T

    As the marginals it is a mixture of trees, but of few, so that most edges are exactly 0. The
    smaller the differences of the scores are, the more trees it has; where they are large, it is
    the best tree.

    Gradients pass through it: the Jacobian is the orthogonal projection onto the differences of the
    trees in the mixture. Where a tree is far better than the others, the mixture is that tree and
    the gradient is 0. Scores with ties, as all 0, can be mixed from fewer trees than scores near
    them, and have a gradient in fewer directions; with noise that does not happen.

    It is computed in float64 by the active-set method, for all graphs of a batch at once. A step
    takes one tree in or out, and costs one best tree and one linear system of as many unknowns as
    there are trees. It reads after each step whether it is done, also on a GPU; so it cannot be
    captured in a CUDA graph, and compiled code leaves it to Python.

    Args:
        scores, mask, used: as in :func:`log_partition`.
        steps: at most so many. With fewer than it needs, it is a mixture that is not the nearest.

    >>> import torch
    >>> sparsemap(torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 1.5], [1.5, 1.2, 0.0]]))
    tensor([[0.0000, 0.0000, 0.0000],
            [0.3000, 0.0000, 0.7000],
            [0.7000, 0.3000, 0.0000]])
    """
    given = graph(scores, mask, used)
    _, theta = _shifted(given)
    mu = active_set(theta, best_tree, False, steps)
    return only_allowed(mu, given).to(scores.dtype)


def argmax(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
) -> Int[Tensor, "*batch n"]:
    """The parents in the tree of the largest score, by Chu-Liu-Edmonds; -1 where there is none.

    Of several such trees it is one of them. Arguments as in :func:`log_partition`.

    >>> import torch
    >>> theta = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 9.0], [2.0, 9.0, 0.0]])
    >>> argmax(theta)  # 1 and 2 prefer each other, and 2 loses less by leaving
    tensor([-1,  2,  0])
    """
    given = graph(scores.detach(), mask, used)
    return parents(_chu_liu_edmonds(given.theta.double()), given)


def sample(
    scores: Float[Tensor, "*batch n n"],
    mask: Bool[Tensor, "..."] | None = None,
    used: Bool[Tensor, "..."] | None = None,
    *,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "*batch n"]:
    r"""The parents in a tree drawn from p(T), exactly; -1 where there is none.

    This is the elimination backwards, as :func:`marginals`: a tree of the graph without k is drawn
    first, then k is brought back. Each edge (c, p) of that tree goes by way of k with probability
    :math:`r_{cp}`, so that c becomes a child of k; and the parent of k is drawn from
    :math:`q_{kp}` among the nodes that still lead to the root, not to k.

    Why it is exact: let A be the children of k, and :math:`Q_0` the sum of q over the nodes that
    lead to the root. Full trees with these children and these other edges weigh
    :math:`s_k Q_0 \prod_A w_{ck}` in all. In the trees without k each c in A has a parent of its
    own, drawn from q, and these may not close a circle; by Cayley's formula they weigh
    :math:`Q_0 (\sum_p q_{kp})^{|A| - 1} \prod_A w_{ck}`, where the sum is 1. It is the same.

    Args:
        scores, mask, used: as in :func:`log_partition`.
        noise: Gumbel noise of scale 1 to replay, of the shape of the scores, or its distribution.
        generator: where to draw from; None is torch's global generator.
    """
    check_noise(noise, scores)
    given = graph(scores.detach(), mask, used)
    _, theta = _shifted(given)
    gumbel = standard_noise(noise, theta, generator)
    node = torch.arange(theta.shape[-1], device=theta.device)
    chosen = torch.zeros_like(theta[..., :1, 0], dtype=torch.long)  # by the nodes so far
    for q, odds in reversed(_eliminated(theta)):
        k = q.shape[-1]
        own_odds = odds.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
        by_k = (_logistic(gumbel[..., :k, k]) < own_odds) & (node[:k] > 0)
        end = torch.where(by_k, node[:k], chosen)  # the way up ends at k's children and at the root
        for _ in range(k.bit_length()):
            end = end.gather(-1, end)
        parent = (q + gumbel[..., k, :k]).masked_fill(end > 0, -torch.inf).argmax(-1, keepdim=True)
        chosen = torch.cat([chosen.masked_fill(by_k, k), parent], -1)
    return parents(chosen, given)


def _logistic(gumbel: Tensor) -> Tensor:
    """Logistic noise log(u / (1 - u)) with the u of Gumbel noise -log(-log u)."""
    e = torch.exp(-gumbel)
    return -e - torch.log(-torch.expm1(-e))


def marginals_by_torch(w: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """The marginals of log weights, in which padding and masks are hidden already."""
    mu = torch.zeros_like(w[..., :1, :1])  # of the root only; the diagonal stays 0 below
    for q, odds in reversed(_eliminated(w)):
        rerouted = torch.sigmoid(odds) * mu
        of_k = rerouted.sum(-2)
        row = of_k + q.exp() * (1 - of_k.sum(-1, keepdim=True))
        upper = torch.cat([mu - rerouted, rerouted.sum(-1, keepdim=True)], -1)
        mu = torch.cat([upper, F.pad(row, (0, 1)).unsqueeze(-2)], -2)
    return mu


def _has_kernel(w: Tensor) -> bool:
    """Whether a graph fits into the registers of a GPU."""
    on_gpu = w.is_cuda and w.dtype == torch.float32
    return on_gpu and w.shape[-1] <= 64 and kernels.available()


def _by_kernel(w: Tensor) -> Tensor:
    from ..kernels._trees import marginals as fused  # imports Triton

    return fused(w.reshape(-1, *w.shape[-2:])).view(w.shape)


def _shifted(of: Graph) -> tuple[Tensor, Tensor]:
    """The largest score of each child, and the scores relative to it, where rounding is least."""
    shift = of.theta.detach().amax(-1).masked_fill(~of.has_parent, 0.0)
    # A child without any edge has FORBIDDEN as its largest, which must stay what it is.
    shift = shift.masked_fill(shift < FORBIDDEN / 2, 0.0)
    return shift, of.theta - shift.unsqueeze(-1)


def _eliminated(w: Float[Tensor, "*batch n n"]) -> list[tuple[Tensor, Tensor]]:
    """For every node k from the last to node 1: log q, and log r / (1 - r) of the edges before."""
    steps = []
    for _ in range(w.shape[-1] - 1):
        q, direct, by_way = _paths(w)
        steps.append((q, by_way - direct))
        w = torch.logaddexp(direct, by_way)
    return steps


def _paths(w: Float[Tensor, "*batch n n"]) -> tuple[Tensor, Tensor, Tensor]:
    """For the last node k: log q, and the logs of w_cp and of w_ck q_kp between the others."""
    k = w.shape[-1] - 1
    others, last = w.split([k, 1], -2)  # not by index: the gradient of a split is one copy
    direct, column = others.split([k, 1], -1)
    q = last[..., :k].log_softmax(-1)
    # Contiguous, because torch's logaddexp on the CPU is ten times slower on parts of a tensor.
    return q.squeeze(-2), direct.contiguous(), column + q


def best_tree(w: Float[Tensor, "*batch n n"]) -> Int[Tensor, "*batch n"]:
    """Parents in the tree of the largest score, for a loop that reads values anyway."""
    return _chu_liu_edmonds(w, try_to_read)


def _chu_liu_edmonds(
    w: Float[Tensor, "*batch n n"], read: Callable[[Tensor], float | None] = read
) -> Int[Tensor, "*batch n"]:
    """All graphs of the batch at once: at most n - 1 rounds of contraction, then back.

    In a round every component but the root's takes the best edge that enters it, and components
    that take each other in a cycle become one. Scores count from the edge taken so far: entering
    elsewhere costs what is given up.
    """
    n = w.shape[-1]
    node = torch.arange(n, device=w.device)
    label = node.expand(w.shape[:-1])  # the component of each node, named after one of its nodes
    rounds = []
    for _ in range(n - 1):
        inside = label.unsqueeze(-1) == label.unsqueeze(-2)
        gain, parent = w.masked_fill(inside, -torch.inf).max(-1)
        member = node.unsqueeze(-1) == label.unsqueeze(-2)  # [component, node]
        best, child = gain.unsqueeze(-2).masked_fill(~member, -torch.inf).max(-1)
        parent = parent.gather(-1, child)
        w = w - best.gather(-1, label).unsqueeze(-1)
        above = label.gather(-1, parent).masked_fill(node == 0, 0).gather(-1, label)
        merged = _merge_cycles(label, above)
        rounds.append((label, merged, child, parent))
        if read((merged != label).any()) == 0:
            break
        label = merged
    taken_child = taken_parent = torch.zeros_like(node).expand(w.shape[:-1])
    for label, merged, child, parent in reversed(rounds):
        # The edge into a merged component replaces that of the one component it enters.
        outer_child, outer_parent = taken_child.gather(-1, merged), taken_parent.gather(-1, merged)
        entered = label.gather(-1, outer_child) == node
        taken_child = torch.where(entered, outer_child, child)
        taken_parent = torch.where(entered, outer_parent, parent)
    return taken_parent


def _merge_cycles(
    label: Int[Tensor, "*batch n"], above: Int[Tensor, "*batch n"]
) -> Int[Tensor, "*batch n"]:
    """New labels: the components on a cycle of ``above`` get the smallest label of the cycle."""
    lowest, jump = label, above
    for _ in range(label.shape[-1].bit_length()):
        lowest = torch.minimum(lowest, lowest.gather(-1, jump))
        jump = jump.gather(-1, jump)
    # After at least n steps one is on a cycle, and somebody is on every place of it.
    on_cycle = torch.zeros_like(label).scatter(-1, jump, torch.ones_like(label)) > 0
    return torch.where(on_cycle, lowest, label).gather(-1, label)
