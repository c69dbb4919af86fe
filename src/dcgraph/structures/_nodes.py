"""The node that chooses a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .._arguments import Distribution, check_choice
from .._checks import check_dial
from .._observe import Event, is_observed, notify
from ..functional import one_hot
from ..nodes import Categorical, Decode
from ..noise import Noise, check_noise, standard_noise
from . import arborescence, one_parent, spanning_tree
from ._active_set import STEPS
from ._graphs import graph


@runtime_checkable  # for the run-time checks of the tests
class Structure(Protocol):
    """A distribution over trees; see :mod:`arborescence` for the arguments."""

    def log_partition(
        self, scores: Tensor, mask: Tensor | None = None, used: Tensor | None = None
    ) -> Tensor: ...

    def marginals(
        self, scores: Tensor, mask: Tensor | None = None, used: Tensor | None = None
    ) -> Tensor: ...

    def sparsemap(
        self,
        scores: Tensor,
        mask: Tensor | None = None,
        used: Tensor | None = None,
        *,
        steps: int = STEPS,
    ) -> Tensor: ...

    def argmax(
        self, scores: Tensor, mask: Tensor | None = None, used: Tensor | None = None
    ) -> Tensor: ...

    def sample(
        self,
        scores: Tensor,
        mask: Tensor | None = None,
        used: Tensor | None = None,
        *,
        noise: Noise | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor: ...


STRUCTURES: dict[str, Structure] = {
    "one_parent": one_parent,
    "arborescence": arborescence,
    "spanning_tree": spanning_tree,
}


RELAXATIONS = ("marginals", "sparsemap")
"""The estimators of a :class:`TreeEdges`: functions of its structure."""

_ESTIMATOR = "estimator of TreeEdges"


class TreeEdges(Categorical):
    r"""A choice of a tree: scores [..., child, parent] in, (relaxed or hard) edges out.

    In training mode the marginals of all edges under the perturbed scores,
    :math:`\mu((\theta + \beta G)/\tau)`, the stochastic softmax trick of Paulus et al. (2020); or
    with ``estimator="sparsemap"`` the nearest mixture of trees to the same scores (Niculae et al.
    2018), in which most edges are exactly 0. See :func:`arborescence.sparsemap` for what it costs.
    In eval mode the edges of one tree, 0 or 1: the tree of the largest score, or with
    ``decode="sample"`` an exact draw of p(T; theta), whatever beta was used in training.

    A row of directed edges belongs to a child and has one parent, none for the root, node 0, and
    for nodes that are not used. Edges of a spanning tree are symmetric, relaxed and hard.

    Args:
        structure: a name in ``dcgraph.structures.STRUCTURES``.
        estimator: "marginals" or "sparsemap". The estimators of :class:`dcgraph.Categorical` are
            for one row, and a node that chooses a tree takes none of them.
        decode, noise: see :class:`dcgraph.Categorical`.

    >>> import torch
    >>> theta = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 9.0], [2.0, 9.0, 0.0]])
    >>> TreeEdges("arborescence").eval()(theta)
    tensor([[0., 0., 0.],
            [0., 0., 1.],
            [1., 0., 0.]])
    """

    def __init__(
        self,
        structure: str,
        *,
        estimator: str = "marginals",
        decode: Decode = "argmax",
        noise: Distribution = "gumbel",
    ) -> None:
        super().__init__(decode=decode, noise=noise)
        check_choice("structure", structure, STRUCTURES)
        check_choice(_ESTIMATOR, estimator, RELAXATIONS)
        self.structure = structure
        self.estimator = estimator

    def forward(
        self,
        logits: Float[Tensor, "*batch n n"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        rows: Bool[Tensor, "..."] | None = None,
        noise: Noise | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch n n"]:
        """Edges.

        Args:
            logits: the scores theta.
            mask: True where an edge may be chosen, broadcast against the scores.
            rows: True for the nodes of the tree, [..., n]; the others are padding.
            noise: Gumbel noise of scale 1 to replay, of the shape of the scores.
            generator: where to draw from; None is torch's global generator.
        """
        relaxed, index = self.decide(logits, mask=mask, rows=rows, noise=noise, generator=generator)
        if is_observed():
            given = graph(logits, mask, rows)
            # A row without choice shows all of its scores: an empty one would be an error.
            shown = given.allowed | ~given.has_parent.unsqueeze(-1)
            valid = None if rows is None else rows.expand(logits.shape[:-1])
            notify(Event(self, logits, logits, relaxed, index, shown, valid))
        if relaxed is not None:
            return relaxed
        assert index is not None
        edges = one_hot(index, logits.shape[-1], logits.dtype)
        return edges + edges.mT if self.structure == "spanning_tree" else edges

    def decide(
        self,
        logits: Float[Tensor, "*batch n n"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        rows: Bool[Tensor, "..."] | None = None,
        noise: Noise | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "*batch n n"] | None, Int[Tensor, "*batch n"] | None]:
        """Relaxed edges in training mode, parents (-1: none) in eval mode; the other is None."""
        structure = STRUCTURES[self.structure]
        noise = self.noise if noise is None else noise
        if self.training:
            self.note_training()
            check_choice(_ESTIMATOR, self.estimator, RELAXATIONS)
            check_dial("tau", self.tau)
            check_dial("beta", self.beta)
            check_noise(noise, logits)
            theta = logits.to(torch.promote_types(logits.dtype, torch.float32))
            gumbel = standard_noise(noise, theta, generator)
            perturbed = torch.addcmul(theta, gumbel, self.beta.to(theta.dtype)) / self.tau
            sparse = self.estimator == "sparsemap"
            relax = structure.sparsemap if sparse else structure.marginals
            return relax(perturbed, mask, rows).to(logits.dtype), None
        check_choice("decode", self.decode, ("argmax", "sample"))
        if self.decode == "argmax":
            return None, structure.argmax(logits, mask, rows)
        return None, structure.sample(logits, mask, rows, noise=noise, generator=generator)

    if TYPE_CHECKING:
        __call__ = forward

    def extra_repr(self) -> str:
        noise = "" if self.noise == "gumbel" else f", noise={self.noise!r}"
        return f"{self.structure!r}, estimator={self.estimator!r}, decode={self.decode!r}{noise}"
