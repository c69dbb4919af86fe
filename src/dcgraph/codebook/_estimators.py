r"""The gradient estimators of ``dcgraph.estimators``, over a codebook.

An estimator there makes a row z of the logits; here it makes z^T C of queries and codebook C, and
z is never there as a whole. Those with hard choices return a row of the codebook, and what comes
back to the logits is put together from the gradients of mixtures and of log-probabilities:

.. math::
    J(p) C v = \partial \langle v, p^\top C \rangle, \qquad
    (D - p) \langle D - p, C v \rangle = \langle v, C_D - p^\top C \rangle \, \partial \log p(D) .
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from .._checks import Dial
from .._philox import draw_gumbel_of
from ..estimators._draws import SAMPLES, as_tensor, check_gumbel, positive
from ..estimators._imle import balanced_step
from ..noise import Noise, random_keys
from ._events import Mixture
from ._functions import make_problem, rows_at, solve
from ._moved import Kind, critical_steps, mix_moved
from ._problem import Problem


class CodebookEstimator(Protocol):
    """queries [..., dim] and codebook [categories, dim] -> z^T C, see :func:`dcgraph.mix`."""

    def __call__(
        self,
        query: Tensor,
        codebook: Tensor,
        *,
        tau: Dial,
        beta: Dial,
        mask: Tensor | None,
        noise: Noise | None,
        generator: torch.Generator | None,
        group: dist.ProcessGroup | None = None,
    ) -> tuple[Tensor, Mixture]: ...


def gumbel_softmax(
    query: Tensor,
    codebook: Tensor,
    *,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
    group: dist.ProcessGroup | None = None,
    hard: bool = False,
) -> tuple[Tensor, Mixture]:
    """:func:`dcgraph.mix`."""
    call = "mix, hard" if hard else "mix"
    p, batch = make_problem(query, codebook, tau, beta, mask, noise, generator, group, call=call)
    value, lse, index, top = solve(p, mixes=True, chooses=hard)
    mixture = Mixture(replace(p, index=index) if hard else p, batch, lse.detach(), top.detach())
    return value.reshape(*batch, codebook.shape[-1]), mixture


def straight_through(
    query: Tensor,
    codebook: Tensor,
    *,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
    group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, Mixture]:
    """A row drawn from softmax(theta / beta), with the gradient of the mixture at softmax(theta /
    tau), which has no noise."""
    p, batch = make_problem(query, codebook, 1.0, beta, mask, noise, generator, group)
    with torch.no_grad():
        _, _, index, _ = solve(p, mixes=False, chooses=True)
    p, _ = make_problem(query, codebook, tau, 0.0, mask, None, None, group)
    p = replace(p, index=index)
    value, lse, _, top = solve(p, mixes=True, chooses=False)
    mixture = Mixture(p, batch, lse.detach(), top.detach())
    return value.reshape(*batch, codebook.shape[-1]), mixture


class _Combined(torch.autograd.Function):
    """The chosen row, with a weighted sum of the gradients of other things.

    Terms get their weights times v, the gradient that arrives; the log-probability gets its weight
    times <v, away>; and the row the rest of v, so that the codebook's own gradient is that of a
    row.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(row: Tensor, *others: Any) -> Tensor:
        return row.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, _, of_score, away, direct, weights, *terms = inputs
        ctx.save_for_backward(of_score, away, direct, weights)
        ctx.terms = len(terms)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        of_score, away, direct, weights = ctx.saved_tensors
        d_log_p = None
        if ctx.needs_input_grad[1]:
            d_log_p = of_score * (v.to(away.dtype) * away).sum(-1)
        terms = [(weights[k] * v).to(v.dtype) for k in range(ctx.terms)]
        return (direct * v).to(v.dtype), d_log_p, None, None, None, None, *terms


class _Choice:
    """A row drawn from softmax(theta / beta), and what its gradients are made of."""

    def __init__(
        self,
        query: Tensor,
        codebook: Tensor,
        beta: Dial,
        mask: Tensor | None,
        noise: Noise | None,
        generator: torch.Generator | None,
        group: dist.ProcessGroup | None,
    ) -> None:
        self.given = query, codebook, mask, group
        self.beta = beta
        self.generator = generator
        self.problem, self.batch = make_problem(
            query, codebook, 1.0, beta, mask, noise, generator, group
        )
        with torch.no_grad():
            _, _, self.index, self.top = solve(self.problem, mixes=False, chooses=True)
        self.row = rows_at(self.problem, self.index)
        self._terms: list[tuple[Tensor, Tensor]] = []
        self._direct = torch.ones_like(self.problem.beta)
        self._score: tuple[Tensor, Tensor, Tensor] | None = None

    def at(self, temperature: Dial) -> Problem:
        """The problem without noise at another temperature."""
        query, codebook, mask, group = self.given
        p, _ = make_problem(query, codebook, temperature, 0.0, mask, None, None, group)
        return p

    @property
    def scale(self) -> Dial:
        """beta, but never 0."""
        return positive(self.beta)

    def add_straight_through(self, p: Problem, weight: Tensor) -> Tensor:
        """Add J(softmax) v / temperature; returns the log-sum-exp, with its gradient."""
        value, lse, _, _ = solve(replace(p, index=self.index), mixes=True, chooses=False)
        self._terms.append((value, weight))
        self._direct = self._direct - weight  # that term brings a share of it along
        return lse

    def add_darn(self, p: Problem, lse: Tensor, weight: Tensor) -> None:
        r"""Add :math:`(D - p) \langle D - p, C v \rangle / temperature`."""
        with torch.no_grad():
            mean, *_ = solve(p, mixes=True, chooses=False)
            away = self.row.detach().to(p.compute_dtype) - mean.to(p.compute_dtype)
        log_p = _logit(p, self.row) / p.tau - lse
        self._score = log_p, weight, away

    def add_moved(
        self,
        p: Problem,
        kind: Kind,
        lead: Tensor,
        scale: Tensor,
        offset: Tensor,
        weight: Tensor,
    ) -> None:
        """Add the gradient of a mixture at moved logits, see :mod:`._moved`."""
        value = mix_moved(p, kind, self.index, lead, scale, offset)
        self._terms.append((value, weight))

    def finish(self, p: Problem) -> tuple[Tensor, Mixture]:
        """The row, and what an observer may see of it."""
        if self._score is None:
            nothing = torch.zeros_like(self.problem.beta)
            score = nothing, nothing, torch.zeros_like(self.row, dtype=p.compute_dtype)
        else:
            score = self._score
        weights = torch.stack([weight.unsqueeze(-1) for _, weight in self._terms])
        terms = [value for value, _ in self._terms]
        value: Tensor = _Combined.apply(  # type: ignore[no-untyped-call]
            self.row, *score, self._direct.unsqueeze(-1), weights, *terms
        )
        return self.shaped(value), self.mixture(p)

    def shaped(self, value: Tensor) -> Tensor:
        return value.reshape(*self.batch, value.shape[-1])

    def mixture(self, p: Problem) -> Mixture:
        return Mixture(replace(p, index=self.index), self.batch, torch.zeros_like(p.tau), self.top)


def _logit(p: Problem, row: Tensor) -> Tensor:
    """<q, row>, in float32 at least, with both gradients."""
    return (p.query.to(p.compute_dtype) * row.to(p.compute_dtype)).sum(-1)


def zgr(choice: _Choice, tau: Dial) -> tuple[Tensor, Mixture]:
    """:func:`dcgraph.estimators.zgr`."""
    p = choice.at(choice.scale)
    half = p.tau / (2 * choice.at(tau).tau)
    lse = choice.add_straight_through(p, half)
    choice.add_darn(p, lse, half)
    return choice.finish(p)


def reinmax(choice: _Choice, tau: Dial) -> tuple[Tensor, Mixture]:
    """:func:`dcgraph.estimators.reinmax`."""
    at_tau, at_beta = choice.at(tau), choice.at(choice.scale)
    one = torch.ones_like(at_tau.tau)
    lse = choice.add_straight_through(at_tau, one)
    choice.add_darn(at_tau, lse, one / 2)
    choice.add_straight_through(at_beta, -at_beta.tau / (2 * at_tau.tau))
    return choice.finish(at_tau)


def gapped_straight_through(choice: _Choice, tau: Dial) -> tuple[Tensor, Mixture]:
    """:func:`dcgraph.estimators.gapped_straight_through`."""
    p = choice.at(tau)
    with torch.no_grad():
        *_, top = solve(choice.at(1.0), mixes=False, chooses=True)
    cap = top - choice.problem.beta.abs()  # a gap of 1, in units of beta
    choice.add_moved(p, "capped", top, torch.ones_like(top), cap, torch.ones_like(top))
    return choice.finish(p)


def moved_by_noise(choice: _Choice, tau: Dial, name: str) -> tuple[Tensor, Mixture]:
    """Gumbel-Rao, and the two forms of ReinMax that use it."""
    p, at_beta = choice.at(tau), choice.at(choice.scale)
    scale, one = at_beta.tau, torch.ones_like(p.tau)
    half = scale / (2 * p.tau)
    if name == "gumbel_rao":
        with torch.no_grad():
            _, lse, _, _ = solve(at_beta, mixes=False, chooses=False)
    else:
        lse = choice.add_straight_through(at_beta, -half if name == "reinmax_rao" else half)
        if name == "reinmax_cv":
            choice.add_darn(at_beta, lse, half)
            lead, own = _with_own_noise(choice, at_beta, lse.detach())
            offset = -lse.detach() - _LOG_2
            # Entries are beta (log p_j - log 2) + beta G_j.
            moved = replace(own, tau=p.tau)
            choice.add_moved(moved, "noisy", lead, scale, offset, -one)
        lse = lse.detach()
    share = (2.0 if name == "reinmax_rao" else 1.0) / SAMPLES
    for _ in range(SAMPLES):
        keys = random_keys(scale.numel(), scale.device, choice.generator).view(scale.shape)
        lead = draw_gumbel_of(keys, choice.index.clamp(min=0)).to(scale.dtype)
        offset = -lse - (0.0 if name == "gumbel_rao" else _LOG_2)
        own = replace(p, keys=keys, beta=lead, noise=None, noisy=True)
        choice.add_moved(own, "conditional", lead * scale, scale, offset, share * one)
    return choice.finish(p)


_LOG_2 = 0.6931471805599453


def _with_own_noise(choice: _Choice, at_beta: Problem, lse: Tensor) -> tuple[Tensor, Problem]:
    """What the choice has at log((p + D) / 2) with the noise that made it, and its problem."""
    log_p = _logit(at_beta, choice.row).detach() / at_beta.tau - lse
    lead = (log_p.exp().log1p() - _LOG_2) * at_beta.tau
    p = choice.problem
    if p.noisy:
        at = choice.index.clamp(min=0)
        if p.noise is None:
            noise = draw_gumbel_of(p.keys, at).to(lead.dtype)
        else:
            noise = p.noise.gather(-1, at.unsqueeze(-1)).squeeze(-1)
        lead = lead + p.beta * noise
    return lead, p


def imle(choice: _Choice, tau: Dial, adapts: bool = False) -> tuple[Tensor, Mixture]:
    """:func:`dcgraph.estimators.imle`, and its adaptive form."""
    p = choice.problem
    value: Tensor = _Map.apply(  # type: ignore[no-untyped-call]
        p.query, p.codebook, choice.row, choice.index, choice.top, choice.at(tau).tau, p.beta,
        p.keys, p.noise, p.mask, p.noisy, adapts,
    )  # fmt: skip
    return choice.shaped(value), choice.mixture(p)


class _Map(torch.autograd.Function):
    """The chosen row; its gradient is the difference to what another query chooses."""

    generate_vmap_rule = True

    @staticmethod
    def forward(query: Tensor, codebook: Tensor, row: Tensor, *others: Any) -> Tensor:
        return row.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        query, codebook, _, *tensors, ctx.noisy, ctx.adapts = inputs
        ctx.save_for_backward(query, codebook, *tensors)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        query, codebook, index, top, step, beta, keys, noise, mask = ctx.saved_tensors
        one = torch.ones_like(beta)
        p = Problem(query, codebook, one, beta, keys, noise, mask, None, None, ctx.noisy)
        g = v.to(p.compute_dtype)
        plus, over = index, step
        if ctx.adapts and v.numel():
            critical, largest = critical_steps(p, index, top, g)
            step = balanced_step(critical, largest, step).expand(step.shape)
            plus, over = _chosen(p, g * step.unsqueeze(-1)), 2 * step
        minus, over = _chosen(p, -g * step.unsqueeze(-1)), over.unsqueeze(-1)
        d_query = (rows_at(p, plus) - rows_at(p, minus)).to(p.compute_dtype) / over
        share = query.to(p.compute_dtype) / over
        d_codebook = _scattered(codebook, [(plus, share), (minus, -share)])
        return d_query.to(query.dtype), d_codebook, v, *[None] * 9


def _chosen(p: Problem, move: Tensor) -> Tensor:
    """What the same noise chooses for another query."""
    query = p.query.to(p.compute_dtype) + move  # half precision would round the move away
    with torch.no_grad():
        _, _, index, _ = solve(replace(p, query=query), mixes=False, chooses=True)
    return index


def _scattered(codebook: Tensor, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """A gradient of the codebook: vectors added at the rows with these indices, none at -1."""
    groups, n, dim = codebook.shape
    index = torch.cat([own for own, _ in parts], 1)
    values = torch.cat([value for _, value in parts], 1)
    values = values.masked_fill(index.unsqueeze(-1) < 0, 0.0)
    base = torch.arange(groups, device=index.device).unsqueeze(-1) * n
    flat = (index.clamp(min=0) + base).flatten()
    zeros = torch.zeros(groups * n, dim, dtype=values.dtype, device=values.device)
    return zeros.index_add(0, flat, values.flatten(0, 1)).view(groups, n, dim).to(codebook.dtype)


def rotate(query: Tensor, row: Tensor) -> Tensor:
    r"""The row, to the bit, with a gradient that reaches the query by a rotation.

    The rotation trick (Fifty et al., 2025): the row is seen as the query, turned and scaled, with
    R the rotation that takes the direction of the query to that of the row:

    .. math::
        dq = \frac{|C_D|}{|q|} R^\top v, \qquad R = I - 2 r r^\top + 2 \hat c \hat q^\top, \qquad
        r = \frac{\hat q + \hat c}{|\hat q + \hat c|} .

    A query of zeros has no direction, and gets no gradient. The row has the gradient v itself;
    detach it for a codebook that learns by other means.

    >>> import torch
    >>> query = torch.tensor([2.0, 0.0], requires_grad=True)
    >>> row = rotate(query, torch.tensor([0.0, 1.0]))
    >>> (gradient,) = torch.autograd.grad(row[1], query)
    >>> row.detach(), gradient.round(decimals=4)  # towards the row is ahead, for the query
    (tensor([0., 1.]), tensor([0.5000, 0.0000]))
    """
    if query.shape != row.shape:
        raise ValueError(
            f"the query has shape {tuple(query.shape)}, but the row {tuple(row.shape)}; a rotation "
            "takes a vector to one of the same shape."
        )
    dtype = torch.promote_types(query.dtype, torch.float32)
    start, end = query.detach().to(dtype), row.detach().to(dtype)
    smallest = torch.finfo(dtype).tiny ** 0.5
    lengths = [value.norm(dim=-1, keepdim=True) for value in (start, end)]
    q, c = (v / n.clamp(min=smallest) for v, n in zip((start, end), lengths, strict=True))
    both = q + c
    r = both / both.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(dtype).eps)
    x = query.to(dtype)
    turned = x - 2 * r * (r * x).sum(-1, keepdim=True) + 2 * c * (q * x).sum(-1, keepdim=True)
    ratio = torch.where(lengths[0] > smallest, lengths[1] / lengths[0], 0.0)
    moved = turned * ratio
    value: Tensor = row + (moved - moved.detach()).to(row.dtype)
    return value


def rotation(choice: _Choice, tau: Dial) -> tuple[Tensor, Mixture]:
    """A row drawn from softmax(theta / beta), with the gradient of :func:`rotate`; no tau."""
    p = choice.problem
    return choice.shaped(rotate(p.query, choice.row)), choice.mixture(p)


def reinforce(choice: _Choice, tau: Dial) -> tuple[Tensor, Mixture]:
    """A row drawn from softmax(theta / beta), with no gradient in the query.

    That is a matter of :func:`log_probability`, which goes into the loss.
    """
    return choice.shaped(choice.row), choice.mixture(choice.problem)


def log_probability(
    query: Tensor, codebook: Tensor, choice: Tensor, beta: Dial, mask: Tensor | None, group: Any
) -> Tensor:
    """log softmax(query . codebook / beta) of the chosen rows, with its gradient."""
    scale = positive(beta)
    p, batch = make_problem(query, codebook, scale, 0.0, mask, None, None, group, call="logsumexp")
    index = choice.reshape(p.tau.shape)
    _, lse, _, _ = solve(p, mixes=False, chooses=False)
    log_p = _logit(p, rows_at(p, index)) / p.tau - lse
    log_p = log_p.masked_fill(index < 0, 0.0).reshape(batch)  # of a row with nothing to choose
    # Where beta is 0 there is nothing to learn: the gradient is 0, as in estimators._loss.
    learns = as_tensor(beta, log_p) > 0
    learns = learns.squeeze(-1) if learns.ndim else learns
    return torch.where(learns, log_p, log_p.detach())


def _hard(
    query: Tensor,
    codebook: Tensor,
    *,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
    group: dist.ProcessGroup | None = None,
    name: str,
) -> tuple[Tensor, Mixture]:
    """An estimator with hard choices, by its rule."""
    check_gumbel(name, noise)
    choice = _Choice(query, codebook, beta, mask, noise, generator, group)
    return _RULES[name](choice, tau)


_RULES: dict[str, Callable[[_Choice, Dial], tuple[Tensor, Mixture]]] = {
    "gumbel_rao": partial(moved_by_noise, name="gumbel_rao"),
    "gapped_straight_through": gapped_straight_through,
    "zgr": zgr,
    "reinmax": reinmax,
    "reinmax_rao": partial(moved_by_noise, name="reinmax_rao"),
    "reinmax_cv": partial(moved_by_noise, name="reinmax_cv"),
    "imle": imle,
    "adaptive_imle": partial(imle, adapts=True),
    "rotation": rotation,
    "reinforce": reinforce,
}

CODEBOOK_ESTIMATORS: dict[str, CodebookEstimator] = {
    "gumbel_softmax": gumbel_softmax,
    "straight_through_gumbel_softmax": partial(gumbel_softmax, hard=True),
    "straight_through": straight_through,
    **{name: partial(_hard, name=name) for name in _RULES},
}

SHARDED_ESTIMATORS = (
    *("gumbel_softmax", "straight_through_gumbel_softmax", "straight_through"),
    *("zgr", "reinmax", "rotation", "reinforce"),
)
"""Those that can do it where the rows of the codebook are divided over ranks."""
