"""The discrete nodes of a computation graph: Categorical and Discrete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ._arguments import Codebook, Decode, Distribution, Gate, Residual, check_choice
from ._dialled import Dialled
from ._observe import Event, is_observed, notify
from .codebook import choose
from .codebook._estimators import CODEBOOK_ESTIMATORS, CodebookEvent
from .estimators import get_estimator
from .functional import one_hot, sample
from .noise import Noise
from .residual import DropRes

__all__ = ["LARGE", "Categorical", "Codebook", "Decode", "Discrete", "Residual", "named_nodes"]

LARGE = 4096
"""From so many categories on, a node whose logits are products with its codebook leaves them to
:func:`dcgraph.mix`. Below, the matrix of all logits is small and everything can be looked at."""


class Categorical(Dialled):
    r"""A categorical choice: logits [..., K] in, (relaxed or hard) one-hot rows [..., K] out.

    In training mode :math:`z = \mathrm{softmax}((\theta + \beta G)/\tau)`, or what ``estimator``
    makes of it. In eval mode exact one-hot rows: the argmax of theta, or with ``decode="sample"``
    a draw of softmax(theta), whatever beta was used in training.

    Args:
        estimator: a name in ``dcgraph.estimators.ESTIMATORS``.
        decode: "argmax" or "sample", the choice in eval mode; may be set later.
        noise: "gumbel", or "reversed" for the noise of the code released with the paper; that one
            also changes what decode="sample" draws.

    >>> import torch, dcgraph as dc
    >>> dc.Categorical().eval()(torch.tensor([[0.1, 2.0, 0.3]]))
    tensor([[0., 1., 0.]])
    """

    dial_names = ("tau", "beta")
    tau: Tensor
    beta: Tensor

    def __init__(
        self,
        *,
        estimator: str = "gumbel_softmax",
        decode: Decode = "argmax",
        noise: Distribution = "gumbel",
    ) -> None:
        super().__init__()
        check_choice("noise", noise, get_args(Distribution))
        check_choice("decode", decode, get_args(Decode))
        get_estimator(estimator)
        self.estimator = estimator
        self.decode = decode
        self.noise: Distribution = noise

    def forward(
        self,
        logits: Float[Tensor, "*batch categories"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        noise: Noise | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch categories"]:
        relaxed, index = self.decide(logits, mask=mask, noise=noise, generator=generator)
        if is_observed():
            notify(Event(self, logits, logits, relaxed, index, mask))
        if relaxed is not None:
            return relaxed
        assert index is not None
        return one_hot(index, logits.shape[-1], logits.dtype)

    def decide(
        self,
        logits: Float[Tensor, "*batch categories"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        noise: Noise | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "*batch categories"] | None, Int[Tensor, "*batch"] | None]:
        """Relaxed rows in training mode, or indices in eval mode; the other one is None."""
        noise = self.noise if noise is None else noise
        if self.training:
            relax = get_estimator(self.estimator)
            z = relax(
                logits, tau=self.tau, beta=self.beta, mask=mask, noise=noise, generator=generator
            )
            return z, None
        check_choice("decode", self.decode, get_args(Decode))
        if self.decode == "argmax":
            return None, sample(logits, beta=0.0, mask=mask)
        return None, sample(logits, mask=mask, noise=noise, generator=generator)

    def extra_repr(self) -> str:
        noise = "" if self.noise == "gumbel" else f", noise={self.noise!r}"
        return f"estimator={self.estimator!r}, decode={self.decode!r}{noise}"


class Discrete(nn.Module):
    r"""The paper's discrete-continuous component f: a vector in, a codebook row (or a mixture) out.

    .. math::
        \theta = g(u), \qquad z \sim p(z; \theta), \qquad v = h(z) = z^\top W', \qquad
        v \leftarrow v + b\,u, \; b \sim \mathrm{Bernoulli}(1 - \alpha)

    In training mode z is relaxed and the residual is added with probability 1 - alpha; in eval mode
    v is exactly one row of the codebook. Until :class:`dcgraph.Dials` is attached, tau, beta and
    alpha are 1: plain Gumbel-softmax.

    From 4,096 categories on, a node without g makes no matrix of all logits: it is then
    :func:`dcgraph.mix` in training and :func:`dcgraph.codebook.choose` in eval mode, for codebooks
    of millions of rows. What comes out has the same distribution.

    Args:
        dim: width of the input u.
        categories: number K of categories.
        g: a module from u [..., dim] to logits [..., K]. Without it the logits are products of u
            with the codebook rows ("tied", "given") or a linear layer ("separate").
        codebook: "tied" uses one matrix for logits and output, as the paper's MNIST model;
            "separate" has a matrix only for the output; "given" has none and is handed one at each
            call. The default is "tied", or "separate" if ``g`` is given.
        width: width of the output, ``dim`` if not said.
        residual: "drop" (the paper's DropRes), "always", "weighted" (see :class:`DropRes`) or
            "none".
        gate: what shares one draw of the DropRes gate, see :func:`dcgraph.drop_residual`.
        estimator, decode, noise: see :class:`Categorical`.

    >>> import torch, dcgraph as dc
    >>> node = dc.Discrete(dim=4, categories=3).eval()
    >>> v = node(torch.randn(2, 4))
    >>> all(any(torch.equal(row, code) for code in node.codebook) for row in v)
    True
    """

    codebook: nn.Parameter  # None for codebook="given", whose rows come with each call

    def __init__(
        self,
        dim: int,
        categories: int,
        *,
        g: nn.Module | None = None,
        codebook: Codebook | None = None,
        width: int | None = None,
        residual: Residual = "drop",
        gate: Gate = "call",
        estimator: str = "gumbel_softmax",
        decode: Decode = "argmax",
        noise: Distribution = "gumbel",
    ) -> None:
        super().__init__()
        for argument, size in (("dim", dim), ("categories", categories), ("width", width)):
            if size is not None and size < 1:
                raise ValueError(f"{argument}={size}, but a size is at least 1.")
        check_choice("residual", residual, get_args(Residual))
        check_choice("gate", gate, get_args(Gate))
        if isinstance(codebook, Tensor):
            raise TypeError(
                'hand a tensor in at the call: codebook="given", then node(u, codebook=C).'
            )
        codebook = codebook or ("tied" if g is None else "separate")
        check_choice("codebook", codebook, get_args(Codebook))
        self.source = codebook
        if codebook == "tied" and g is not None:
            raise ValueError('codebook="tied" makes the logits itself; leave out g, or codebook.')
        if g is None and codebook != "separate" and width not in (None, dim):
            raise ValueError(
                f"width={width} differs from dim={dim}, but products with a {codebook} codebook "
                'need them equal; pass g=, or codebook="separate".'
            )
        self.dim, self.categories, self.width = dim, categories, width or dim
        self.g = nn.Linear(dim, categories) if g is None and codebook == "separate" else g
        if codebook == "given":
            self.register_parameter("codebook", None)
        else:
            self.codebook = nn.Parameter(torch.empty(categories, self.width))
            nn.init.normal_(self.codebook)
        self.categorical = Categorical(estimator=estimator, decode=decode, noise=noise)
        self.dropres = None if residual == "none" else DropRes(residual, gate)

    @property
    def tau(self) -> Tensor:
        return self.categorical.tau

    @property
    def beta(self) -> Tensor:
        return self.categorical.beta

    @property
    def alpha(self) -> Tensor | None:
        return None if self.dropres is None else self.dropres.alpha

    def logits(
        self,
        u: Float[Tensor, "*batch dim"],
        codebook: Float[Tensor, "categories width"] | None = None,
    ) -> Float[Tensor, "*batch categories"]:
        """theta = g(u); also the classifier of a model whose answers are the node's categories."""
        self._check_width(u)
        if self.g is None:
            return F.linear(u, self._rows(codebook))
        theta: Tensor = self.g(u)
        if theta.shape != (*u.shape[:-1], self.categories):
            raise ValueError(
                f"g made logits of shape {tuple(theta.shape)} from an input of shape "
                f"{tuple(u.shape)}; the node needs {(*u.shape[:-1], self.categories)}."
            )
        return theta

    def forward(
        self,
        u: Float[Tensor, "*batch dim"],
        residual: Float[Tensor, "*batch width"] | None = None,
        codebook: Float[Tensor, "categories width"] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        noise: Noise | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch width"]:
        """v = f(u).

        Args:
            u: the input.
            residual: what DropRes adds instead of u, of the output's shape.
            codebook: rows to use in this call instead of the node's own.
            mask: True where a category may be chosen, broadcast against the logits.
            noise: Gumbel noise of scale 1 to replay, of the shape of the logits.
            generator: where noise and gate are drawn from; None is torch's global generator.
        """
        rows = self._rows(codebook)
        if self.is_large:
            v = self._from_large(u, rows, mask, noise, generator)
        else:
            theta = self.logits(u, codebook)
            z, index = self.categorical.decide(theta, mask=mask, noise=noise, generator=generator)
            if is_observed():
                notify(Event(self, u, theta, z, index, mask))
            v = _rows_at(index, rows) if z is None else z @ rows.to(z.dtype)
        if self.dropres is None or not self.training:
            return v
        bypass = u if residual is None else residual
        mixed: Tensor = self.dropres(v, bypass.to(v.dtype), generator=generator)
        return mixed

    @property
    def is_large(self) -> bool:
        """Whether :func:`dcgraph.mix` does the work, so that there is no matrix of logits."""
        known = self.categorical.estimator in CODEBOOK_ESTIMATORS
        return self.g is None and self.categories >= LARGE and known

    def _from_large(
        self,
        u: Tensor,
        rows: Tensor,
        mask: Tensor | None,
        noise: Noise | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        self._check_width(u)
        choice = self.categorical
        noise = choice.noise if noise is None else noise
        if self.training:
            v, mixture = CODEBOOK_ESTIMATORS[choice.estimator](
                *(u, rows), tau=choice.tau, beta=choice.beta,
                mask=mask, noise=noise, generator=generator,
            )  # fmt: skip
            if is_observed():
                notify(CodebookEvent(self, u, mask=mask, codebook=rows, mixture=mixture))
            return v
        check_choice("decode", choice.decode, get_args(Decode))
        beta = 0.0 if choice.decode == "argmax" else 1.0
        index, v = choose(u, rows, beta=beta, mask=mask, noise=noise, generator=generator)
        if is_observed():
            notify(CodebookEvent(self, u, index=index, mask=mask, codebook=rows))
        return v

    def _check_width(self, u: Tensor) -> None:
        if u.shape[-1] != self.dim:
            raise ValueError(
                f"the input has width {u.shape[-1]}, but the node was built with dim={self.dim}."
            )

    def _rows(self, codebook: Tensor | None) -> Tensor:
        if codebook is None and self.source == "given":
            raise ValueError(
                'the node has codebook="given", but none was given; call it as node(u, codebook=C).'
            )
        rows = self.codebook if codebook is None else codebook
        if rows.shape != (self.categories, self.width):
            raise ValueError(
                f"codebook has shape {tuple(rows.shape)}, but the node was built for "
                f"(categories, width) = {(self.categories, self.width)}."
            )
        return rows

    def extra_repr(self) -> str:
        width = "" if self.width == self.dim else f", width={self.width}"
        return f"{self.dim}, {self.categories}, codebook={self.source!r}{width}"


def _rows_at(index: Tensor | None, rows: Tensor) -> Tensor:
    assert index is not None
    return F.embedding(index.clamp(min=0), rows).masked_fill(index.unsqueeze(-1) < 0, 0.0)


_COMPILED = "_orig_mod"  # what torch.compile calls the module inside of the one it returns


def named_nodes(model: nn.Module) -> Iterator[tuple[str, Categorical | Discrete]]:
    """The discrete nodes of a model with their names; the parts of a Discrete are not listed.

    The names are the same whether the model, or a part of it, is compiled or not.

    >>> import torch, dcgraph as dc
    >>> model = torch.nn.Sequential(dc.Discrete(4, 3), dc.Categorical())
    >>> [name for name, node in dc.named_nodes(model)]
    ['0', '1']
    """
    inner = {id(m.categorical) for m in model.modules() if isinstance(m, Discrete)}
    for name, module in model.named_modules():
        if isinstance(module, Discrete) or (
            isinstance(module, Categorical) and id(module) not in inner
        ):
            parts = [part for part in name.split(".") if part != _COMPILED]
            yield ".".join(parts) or type(module).__name__, module
