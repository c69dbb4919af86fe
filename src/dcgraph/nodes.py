"""The discrete nodes of a computation graph: Categorical and Discrete."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ._arguments import (
    Codebook,
    Decode,
    Distribution,
    Gate,
    Residual,
    Similarity,
    check_choice,
)
from ._checks import Dial, check_padding
from ._dialled import Dialled
from ._observe import Event, is_observed, notify
from .codebook import by_distance, choose
from .codebook._estimators import CODEBOOK_ESTIMATORS, SHARDED_ESTIMATORS, log_probability
from .codebook._events import CodebookEvent
from .distributed._shards import Shard, eager, own_rows, shard_rows
from .distributions import OneHotCategorical
from .estimators import (
    LOSS_ESTIMATORS,
    VECTOR_ESTIMATORS,
    ControlVariate,
    check_estimator,
    get_estimator,
)
from .estimators._draws import check_gumbel
from .estimators._loss import Player, Sampling, call_of
from .functional import one_hot, sample
from .noise import Noise, draw_gumbel_in, drawn_alike, is_zero
from .residual import DropRes

__all__ = [
    "LARGE",
    "Categorical",
    "Codebook",
    "Decode",
    "Discrete",
    "Residual",
    "Similarity",
    "named_nodes",
]

LARGE = 4096
"""From so many categories on, a node whose logits are products with its codebook leaves them to
:func:`dcgraph.mix`. Below, the matrix of all logits is small and everything can be looked at."""


class Categorical(Dialled):
    r"""A categorical choice: logits [..., K] in, (relaxed or hard) one-hot rows [..., K] out.

    In training mode :math:`z = \mathrm{softmax}((\theta + \beta G)/\tau)`, or what ``estimator``
    makes of it. In eval mode exact one-hot rows: the argmax of theta, or with ``decode="sample"``
    a draw of softmax(theta), whatever beta was used in training.

    Args:
        estimator: a name in ``dcgraph.estimators``. Those in ``LOSS_ESTIMATORS`` need the loss, see
            :func:`dcgraph.surrogate`.
        categories: how many there are; needed only by estimator="relax", which learns a weight for
            each.
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
        categories: int | None = None,
        decode: Decode = "argmax",
        noise: Distribution = "gumbel",
    ) -> None:
        super().__init__()
        check_choice("noise", noise, get_args(Distribution))
        check_choice("decode", decode, get_args(Decode))
        check_estimator(estimator)
        check_gumbel(estimator, noise)
        self.estimator = estimator
        self.decode = decode
        self.noise: Distribution = noise
        self.control: ControlVariate | None = None
        if self.needs_loss and LOSS_ESTIMATORS[estimator].learns:
            if categories is None:
                raise ValueError(
                    f"estimator={estimator!r} learns a weight for each category; say how many "
                    "there are: categories=..."
                )
            self.control = ControlVariate(categories)
        self._player: Player | None = None  # decides while dcgraph.surrogate calls the model

    @property
    def needs_loss(self) -> bool:
        """Whether it is trained by :func:`dcgraph.surrogate`."""
        return self.estimator in LOSS_ESTIMATORS

    def forward(
        self,
        logits: Float[Tensor, "*batch categories"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        rows: Bool[Tensor, "*batch"] | None = None,
        noise: Noise | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch categories"]:
        """z.

        Args:
            logits: theta, unnormalised log-probabilities.
            mask: True where a category may be chosen, broadcast against the logits.
            rows: False for rows that are padding. They draw nothing, count nowhere, and come out
                as zeros.
            noise: Gumbel noise of scale 1 to replay, of the shape of the logits.
            generator: where to draw from; None is torch's global generator.
        """
        theta, mask = _without_padding(logits, mask, rows)
        relaxed, index = self.decide(theta, mask=mask, rows=rows, noise=noise, generator=generator)
        if is_observed():
            notify(Event(self, logits, theta, relaxed, index, mask, rows))
        if relaxed is None:
            assert index is not None
            return one_hot(index, logits.shape[-1], logits.dtype)
        return relaxed if rows is None else torch.where(rows.unsqueeze(-1), relaxed, 0.0)

    if TYPE_CHECKING:
        __call__ = forward

    def decide(
        self,
        logits: Float[Tensor, "*batch categories"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        rows: Bool[Tensor, "*batch"] | None = None,
        noise: Noise | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "*batch categories"] | None, Int[Tensor, "*batch"] | None]:
        """Relaxed rows in training mode, or indices in eval mode; the other one is None.

        Padding has any relaxed row, and the index -1.
        """
        noise = self.noise if noise is None else noise
        if self.training:
            self.note_training()
            tau, beta = self.dial("tau"), self.dial("beta")
            check_gumbel(self.estimator, noise)
            noise = _noise_in(rows, noise, beta, logits, generator)
            if self.needs_loss:
                call = call_of(logits, tau, beta, mask, noise, generator, self.control)
                return call.decided_by(self.player() or Sampling()).to(logits.dtype), None
            relax = get_estimator(self.estimator)
            z = relax(logits, tau=tau, beta=beta, mask=mask, noise=noise, generator=generator)
            return z, None
        check_choice("decode", self.decode, get_args(Decode))
        if self.decode == "argmax":
            index = sample(logits, beta=0.0, mask=mask)
        else:
            noise = _noise_in(rows, noise, 1.0, logits, generator)
            index = sample(logits, mask=mask, noise=noise, generator=generator)
        return None, index if rows is None else index.masked_fill(~rows, -1)

    def player(self) -> Player | None:
        """Who decides in the place of a node that needs the loss; None where no gradient is asked
        for."""
        if self._player is None and torch.is_grad_enabled() and not is_observed():
            raise ValueError(
                f"estimator={self.estimator!r} needs the loss, and learns nothing without it; "
                "compute it as dcgraph.surrogate(model, lambda: loss_of_each_example)."
            )
        return self._player

    def distribution(
        self,
        logits: Float[Tensor, "*batch categories"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        rows: Bool[Tensor, "*batch"] | None = None,
    ) -> OneHotCategorical:
        """p(z; theta) = softmax(theta), the distribution that the node draws from at test."""
        return OneHotCategorical(logits, mask, rows)

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
    of millions of rows. What comes out has the same distribution. So it is with every estimator
    whose choices are hard; sparse mixtures, and those that need the loss except "reinforce", make
    the matrix in both modes.

    Args:
        dim: width of the input u.
        categories: number K of categories.
        g: a module from u [..., dim] to logits [..., K]. Without it the logits compare u with the
            codebook rows ("tied", "given", see ``similarity``) or are a linear layer ("separate").
        codebook: "tied" uses one matrix for logits and output, as the paper's MNIST model;
            "separate" has a matrix only for the output; "given" has none and is handed one at each
            call. The default is "tied", or "separate" if ``g`` is given.
        similarity: how u and the rows are compared: by their "product"
            :math:`\langle u, c_k \rangle`, as in the paper, or by "distance",
            :math:`\langle u, c_k \rangle - |c_k|^2 / 2`. That is :math:`-|u - c_k|^2 / 2` up to a
            term that all categories share, so that the argmax is the nearest row, and a row that
            lies between two others can be chosen too (:func:`dcgraph.codebook.by_distance`).
        width: width of the output, ``dim`` if not said.
        init_std: the codebook starts as N(0, init_std^2). With a tied codebook the logits grow
            with it and with ``dim``, and tau must fit: :meth:`dcgraph.Dials.recommended` looks.
        residual: "drop" (the paper's DropRes), "replace", "weighted", "always" (see
            :func:`dcgraph.drop_residual`) or "none".
        gate: what shares one draw of the DropRes gate, see :func:`dcgraph.drop_residual`.
        estimator, decode, noise: see :class:`Categorical`.
        prunable: whether categories can be taken away for good, see
            :func:`dcgraph.prune_categories`. ``kept`` says which are left.
        shard: the ranks of torch.distributed over which the rows of the codebook are divided. The
            parameter is a DTensor of which this rank has its own rows, and a codebook given at a
            call has only those. All ranks call the node with the same input; they make the same
            draws. See :func:`dcgraph.distributed.shard_rows`.

    >>> import torch, dcgraph as dc
    >>> node = dc.Discrete(dim=4, categories=3).eval()
    >>> v = node(torch.randn(2, 4))
    >>> all(any(torch.equal(row, code) for code in node.codebook) for row in v)
    True
    """

    kept: Tensor | None  # False for a category that is never chosen any more
    codebook: nn.Parameter  # None for codebook="given", whose rows come with each call

    def __init__(
        self,
        dim: int,
        categories: int,
        *,
        g: nn.Module | None = None,
        codebook: Codebook | None = None,
        similarity: Similarity = "product",
        width: int | None = None,
        init_std: int | float = 1.0,
        residual: Residual = "drop",
        gate: Gate = "call",
        estimator: str = "gumbel_softmax",
        decode: Decode = "argmax",
        noise: Distribution = "gumbel",
        prunable: bool = False,
        shard: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        for argument, size in (("dim", dim), ("categories", categories), ("width", width)):
            if size is not None and size < 1:
                raise ValueError(f"{argument}={size}, but a size is at least 1.")
        if not 0 < init_std < math.inf:
            raise ValueError(
                f"init_std={init_std}, but rows that are all alike never part; use > 0."
            )
        check_choice("residual", residual, get_args(Residual))
        check_choice("similarity", similarity, get_args(Similarity))
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
        self.similarity: Similarity = similarity
        if similarity == "distance" and (g is not None or codebook == "separate"):
            raise ValueError(
                'similarity="distance" compares the input with the rows of the codebook; leave out '
                'g=, and use codebook="tied" or "given".'
            )
        if similarity == "distance" and estimator in VECTOR_ESTIMATORS:
            raise ValueError(
                f'estimator={estimator!r} takes products only; leave out similarity="distance".'
            )
        if shard is not None and (g is not None or codebook == "separate"):
            raise ValueError(
                "shard= divides the rows of a codebook that also makes the logits; leave out g=, "
                'and use codebook="tied" or "given".'
            )
        check_estimator(estimator)
        if shard is not None and estimator not in SHARDED_ESTIMATORS:
            raise ValueError(
                f"estimator={estimator!r} cannot divide its codebook over ranks; use one of "
                f"{', '.join(SHARDED_ESTIMATORS)}."
            )
        self.g = nn.Linear(dim, categories) if g is None and codebook == "separate" else g
        self.shard: Shard | None = None
        self._own_rows = categories
        if shard is not None:
            own = shard_rows(categories, shard)
            self.shard, self._own_rows = Shard(shard, own.start, categories), len(own)
        if codebook == "given":
            self.register_parameter("codebook", None)
        elif shard is not None:
            from .distributed._parameter import sharded_parameter

            self.codebook = sharded_parameter(categories, self.width, init_std, shard)
        else:
            self.codebook = nn.Parameter(torch.empty(categories, self.width))
            nn.init.normal_(self.codebook, std=init_std)
        if prunable and shard is not None:
            raise ValueError(
                "prunable=True, but no rank sees all of a divided codebook; leave it out."
            )
        self.register_buffer("kept", torch.ones(categories, dtype=torch.bool) if prunable else None)
        self.categorical = Categorical(
            estimator=estimator, categories=categories, decode=decode, noise=noise
        )
        if estimator in VECTOR_ESTIMATORS and self.g is not None:
            raise ValueError(
                f"estimator={estimator!r} sends gradients from a row to the vector that chose it, "
                'so the logits must be products of the two; use codebook="tied" or "given".'
            )
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
        """theta = g(u); also the classifier of a model whose answers are the node's categories.

        Pruned categories have -inf.
        """
        if self.shard is not None:
            raise ValueError(
                "no rank has all logits of a codebook that is divided over ranks; for a loss use "
                "dcgraph.codebook.cross_entropy(u, node.codebook.to_local(), target, group=group)."
            )
        self._check_width(u)
        theta = self._logits(u, self._rows(codebook) if self.g is None else None)
        return theta if self.kept is None else theta.masked_fill(~self.kept, -math.inf)

    def _logits(self, u: Tensor, rows: Tensor | None) -> Tensor:
        if self.g is None:
            assert rows is not None
            return F.linear(u, rows) if self.similarity == "product" else _nearness(u, rows)
        theta: Tensor = self.g(u)
        if theta.shape != (*u.shape[:-1], self.categories):
            raise ValueError(
                f"g made logits of shape {tuple(theta.shape)} from an input of shape "
                f"{tuple(u.shape)}; the node needs {(*u.shape[:-1], self.categories)}."
            )
        return theta

    def distribution(
        self,
        u: Float[Tensor, "*batch dim"],
        codebook: Float[Tensor, "categories width"] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        rows: Bool[Tensor, "*batch"] | None = None,
    ) -> OneHotCategorical:
        """p(z; g(u)), the distribution over the categories: for a KL term, or an entropy bonus.

        It computes all logits, also where the node itself does without them.
        """
        theta = self.logits(_blank(u, rows), codebook)
        return OneHotCategorical(theta, self._of_kept(mask), rows)

    def _of_kept(self, mask: Tensor | None) -> Tensor | None:
        """Where a category may be chosen, without those that are pruned."""
        if self.kept is None:
            return mask
        return self.kept if mask is None else mask & self.kept

    def forward(
        self,
        u: Float[Tensor, "*batch dim"],
        residual: Float[Tensor, "*batch width"] | None = None,
        codebook: Float[Tensor, "categories width"] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        rows: Bool[Tensor, "*batch"] | None = None,
        fill: Float[Tensor, "*batch width"] | Literal["input", "zero"] = "input",
        noise: Noise | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch width"]:
        """v = f(u).

        Args:
            u: the input.
            residual: what DropRes takes instead of u, of the output's shape.
            codebook: rows to use in this call instead of the node's own.
            mask: True where a category may be chosen, broadcast against the logits.
            rows: False for vectors that are padding. They draw nothing, count nowhere, and come
                out as ``fill`` says, whatever is in them.
            fill: what padding comes out as: "input" lets u pass, "zero" gives zeros, and a tensor
                of the output's shape gives its own, such as the state before this step.
            noise: Gumbel noise of scale 1 to replay, of the shape of the logits.
            generator: where noise and gate are drawn from; None is torch's global generator.
        """
        self._check_width(u)
        mask = self._of_kept(mask)
        given, u = u, _blank(u, rows)
        codes = self._rows(codebook)
        if self.is_large and self.similarity == "distance":
            longer = by_distance(u, codes)
            v = self._from_large(*longer, mask, rows, noise, generator)[..., :-1].to(u.dtype)
        elif self.is_large:
            v = self._from_large(u, codes, mask, rows, noise, generator)
        else:
            theta, mask = _without_padding(self._logits(u, codes), mask, rows)
            z, index = self.categorical.decide(
                theta, mask=mask, rows=rows, noise=noise, generator=generator
            )
            if is_observed():
                notify(Event(self, u, theta, z, index, mask, rows))
            v = _rows_at(index, codes) if z is None else z @ codes.to(z.dtype)
        if self.dropres is not None and self.training:
            bypass = u if residual is None else _blank(residual, rows)
            combine = self.dropres.combine if self.shard is None else self._combine_alike
            v = combine(v, bypass.to(v.dtype), rows, generator)
        return v if rows is None else _filled(v, rows, fill, given)

    if TYPE_CHECKING:
        __call__ = forward

    @property
    def is_large(self) -> bool:
        """Whether it works without a matrix of logits, by ``dcgraph.codebook``."""
        estimator = self.categorical.estimator
        if self.shard is not None or estimator in VECTOR_ESTIMATORS:
            return True
        if self.g is not None or self.categories < LARGE:
            return False
        return estimator in CODEBOOK_ESTIMATORS

    @eager
    def _combine_alike(
        self,
        v: Tensor,
        bypass: Tensor,
        rows: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """DropRes with one gate for all ranks of the group, which go on with the same v."""
        assert self.dropres is not None and self.shard is not None
        with drawn_alike(self.shard.group):
            return self.dropres.combine(v, bypass, rows, generator)

    def _from_large(
        self,
        u: Tensor,
        codes: Tensor,
        mask: Tensor | None,
        rows: Tensor | None,
        noise: Noise | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        choice = self.categorical
        mask = _open_mask(mask, rows)
        noise = choice.noise if noise is None else noise
        group = None if self.shard is None else self.shard.group
        if self.training:
            choice.note_training()
            v, mixture = CODEBOOK_ESTIMATORS[choice.estimator](
                *(u, codes), tau=choice.tau, beta=choice.beta,
                mask=mask, noise=noise, generator=generator, group=group,
            )  # fmt: skip
            if choice.needs_loss and isinstance(player := choice.player(), Sampling):
                index = mixture.chosen()
                player.add(log_probability(u, codes, index, choice.beta, mask, group))
            if is_observed():
                notify(replace(self._event(u, codes, mask, rows), mixture=mixture))
            return v
        check_choice("decode", choice.decode, get_args(Decode))
        beta = 0.0 if choice.decode == "argmax" else 1.0
        index, v = choose(
            u, codes, beta=beta, mask=mask, noise=noise, generator=generator, group=group
        )
        if rows is not None:
            index = index.masked_fill(~rows, -1)
        if is_observed():
            notify(replace(self._event(u, codes, mask, rows), index=index))
        return v

    def _event(
        self, u: Tensor, codes: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> CodebookEvent:
        return CodebookEvent(self, u, mask=mask, rows=rows, codebook=codes, shard=self.shard)

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
        what = "(categories, width)"
        if self.shard is not None:
            rows, what = own_rows(rows), "(own rows, width)"
        if rows.shape != (self._own_rows, self.width):
            raise ValueError(
                f"codebook has shape {tuple(rows.shape)}, but the node was built for "
                f"{what} = {(self._own_rows, self.width)}."
            )
        return rows

    def extra_repr(self) -> str:
        width = "" if self.width == self.dim else f", width={self.width}"
        first = "" if self.shard is None else f", rows from {self.shard.first}"
        similarity = "" if self.similarity == "product" else f", similarity={self.similarity!r}"
        return f"{self.dim}, {self.categories}, codebook={self.source!r}{similarity}{width}{first}"


def _rows_at(index: Tensor | None, rows: Tensor) -> Tensor:
    assert index is not None
    return F.embedding(index.clamp(min=0), rows).masked_fill(index.unsqueeze(-1) < 0, 0.0)


def _nearness(u: Tensor, rows: Tensor) -> Tensor:
    """-|u - c|^2 / 2 for all rows c, without the term |u|^2 / 2 that all have; rounded once."""
    dtype = torch.promote_types(torch.promote_types(u.dtype, rows.dtype), torch.float32)
    with torch.autocast(u.device.type, enabled=False):
        rows = rows.to(dtype)
        return F.linear(u.to(dtype), rows, -rows.square().sum(-1) / 2).to(u.dtype)


def _blank(vectors: Tensor, rows: Tensor | None) -> Tensor:
    """Zeros in place of padding: whatever is in it, NaN too, reaches nothing."""
    if rows is None:
        return vectors
    check_padding(rows, vectors.shape[:-1])
    return torch.where(rows.unsqueeze(-1), vectors, 0.0)


def _open_mask(mask: Tensor | None, rows: Tensor | None) -> Tensor | None:
    """Padding may choose anything: an empty row would be an error."""
    return mask if mask is None or rows is None else mask | ~rows.unsqueeze(-1)


def _without_padding(
    logits: Tensor, mask: Tensor | None, rows: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    return _blank(logits, rows), _open_mask(mask, rows)


def _noise_in(
    rows: Tensor | None,
    noise: Noise | None,
    beta: Dial,
    logits: Tensor,
    generator: torch.Generator | None,
) -> Noise | None:
    """Noise that is drawn only for rows that are no padding; as it is, if there is none."""
    if rows is None or isinstance(noise, Tensor) or is_zero(beta):
        return noise
    dtype = torch.promote_types(logits.dtype, torch.float32)
    drawn = draw_gumbel_in(rows, logits.shape[-1], generator, dtype)
    return drawn.neg_() if noise == "reversed" else drawn


def _filled(v: Tensor, rows: Tensor, fill: Tensor | str, u: Tensor) -> Tensor:
    if isinstance(fill, str):
        check_choice("fill", fill, ("input", "zero"))
        if fill == "zero":
            return torch.where(rows.unsqueeze(-1), v, 0.0)
        fill = u
    if not isinstance(fill, Tensor):
        raise TypeError(
            f'fill={fill!r} is a {type(fill).__name__}; pass "input", "zero" or a tensor of the '
            f"output's shape {tuple(v.shape)}."
        )
    if fill.shape != v.shape:
        raise ValueError(
            f"padding cannot come out as a fill of shape {tuple(fill.shape)}, for the output has "
            f'shape {tuple(v.shape)}; pass a tensor of that shape, or fill="zero".'
        )
    return torch.where(rows.unsqueeze(-1), v, fill.to(v.dtype))


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
