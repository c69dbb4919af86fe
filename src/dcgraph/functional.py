"""Noise, relaxation and sampling of categorical choices, as pure functions.

Everything here is computed in float32 (or float64 for float64 logits), whatever the dtype of the
logits or of autocast, and handed back in the dtype of the logits. Notation as in the paper: logits
theta, temperature tau, noise scale beta, relaxed one-hot z, share of dropped residuals alpha.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import Parameter

from . import kernels
from ._checks import (
    Dial,
    check_dial,
    check_logits,
    check_mask,
    check_one_per_row,
    check_rows,
    check_scale,
    explain_rows,
    may_have_nan,
    may_read,
    may_read_cpu,
    say_overflow,
    try_to_read,
)
from ._streams import has_stream
from .noise import (
    FEW,
    Noise,
    check_noise,
    draw_minus_gumbel,
    has_ranks,
    is_zero,
    random_keys,
    standard_noise,
)

__all__ = ["argmax", "entropy", "gumbel_softmax", "one_hot", "sample", "straight_through"]


def gumbel_softmax(
    logits: Float[Tensor, "*shape"],
    tau: Dial = 1.0,
    *,
    beta: Dial = 1.0,
    hard: bool = False,
    dim: int = -1,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*shape"]:
    r"""A relaxed one-hot choice: :math:`z = \mathrm{softmax}((\theta + \beta G) / \tau)`.

    ``logits`` are unnormalised log-probabilities, not probabilities. As the paper shows, a larger
    beta makes z more discrete *and* spreads the choices more evenly over the categories, while a
    smaller tau only makes it more discrete. ``beta=0.0`` is exactly softmax(logits / tau) and
    draws nothing.

    Args:
        logits: theta. An entry of -inf is never chosen.
        tau: temperature > 0, a number or a tensor with one value per row (size 1 along ``dim``).
        beta: scale of the noise >= 0, likewise.
        hard: return the one-hot argmax of theta + beta G, with the gradient of z.
        dim: the dimension of the categories.
        mask: True where a category may be chosen; the others get exactly 0 and no gradient.
        noise: a tensor G of scale 1 to replay, or the distribution to draw it from: "gumbel", or
            "reversed" for -G, which the code released with the paper drew.
        generator: where to draw from; None is torch's global generator.

    >>> import torch, dcgraph as dc
    >>> theta = torch.tensor([2.0, 0.0, 1.0])
    >>> dc.gumbel_softmax(theta, tau=2.0, beta=0.0)
    tensor([0.5065, 0.1863, 0.3072])
    >>> dc.gumbel_softmax(theta, noise=torch.tensor([0.0, 3.0, 0.0]), hard=True)
    tensor([0., 1., 0.])
    """
    if not hard and dim == -1 and mask is None and generator is None and _is_own(noise):
        soft = _relax_few(logits, tau, beta)
        if soft is not None:
            return soft
    theta = _checked_theta(logits, mask, dim, tau, beta, noise)
    if not hard and _has_kernel(theta, tau, beta, noise, generator, dim):
        return _relax_by_kernel(theta, tau, beta, noise).to(logits.dtype)
    if not hard and not isinstance(tau, Tensor) and not isinstance(beta, Tensor) and beta != 0:
        # theta / tau + (beta / tau) G: one operation less to record, and to go back through.
        shift = _scaled_noise(theta, beta / tau, noise, generator)
        soft, _ = _softmax(theta, torch.add(shift, theta, alpha=1 / tau), dim)
        return soft if theta is logits else soft.to(logits.dtype)
    perturbed = _perturb(theta, beta, noise, generator)
    soft, empty = _softmax(theta, _divide(perturbed, tau), dim)
    if hard:
        index = _argmax(perturbed, empty, dim)
        one = one_hot(index, logits.shape[dim], soft.dtype).movedim(-1, dim)
        soft = straight_through(one, soft)
    return soft.to(logits.dtype)


def sample(
    logits: Float[Tensor, "..."],
    *,
    beta: Dial = 1.0,
    dim: int = -1,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "..."]:
    r"""Indices drawn from softmax(logits / beta) by the Gumbel-max trick.

    :math:`i = \arg\max_j [\theta_j + \epsilon_j]` with :math:`\epsilon_j \sim` Gumbel(0, beta).
    Arguments as in :func:`gumbel_softmax`. Where values are not checked (compiled, captured or
    vmapped calls, and CUDA outside of :func:`dcgraph.debug`) a row without any category gives -1.

    >>> import torch, dcgraph as dc
    >>> dc.sample(torch.tensor([[0.0, 9.0, 9.0]]), mask=torch.tensor([True, True, False]), beta=0.1)
    tensor([1])
    """
    theta = _checked_theta(logits, mask, dim, 1.0, beta, noise)
    empty = None if check_rows(theta, dim) else _empty_rows(theta, dim)
    return _argmax(_perturb(theta, beta, noise, generator), empty, dim)


def argmax(
    logits: Float[Tensor, "..."], *, dim: int = -1, mask: Bool[Tensor, "..."] | None = None
) -> Int[Tensor, "..."]:
    """The most probable category of each row, never a masked one: :func:`sample` without noise.

    >>> import torch, dcgraph as dc
    >>> dc.argmax(torch.tensor([[1.0, 3.0, 2.0]]))
    tensor([1])
    """
    return sample(logits, beta=0.0, dim=dim, mask=mask)


def one_hot(
    index: Int[Tensor, "..."], categories: int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "... {categories}"]:
    """One-hot rows of a floating dtype; a negative index, as of an empty row, gives zeros.

    >>> import torch, dcgraph as dc
    >>> dc.one_hot(torch.tensor([2, -1]), 3)
    tensor([[0., 0., 1.],
            [0., 0., 0.]])
    """
    zeros = torch.zeros(*index.shape, categories, dtype=dtype, device=index.device)
    position = index.unsqueeze(-1)
    return zeros.scatter(-1, position.clamp(min=0), (position >= 0).to(dtype))


def straight_through(
    hard: Float[Tensor, "*shape"], soft: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """The value of ``hard``, to the bit, with the gradient of ``soft``.

    (The usual ``hard - soft.detach() + soft`` is off by a rounding error in half precision.)

    >>> import torch, dcgraph as dc
    >>> soft = torch.tensor([0.3, 0.7], requires_grad=True)
    >>> dc.straight_through(torch.tensor([0.0, 1.0]), soft).detach()
    tensor([0., 1.])
    """
    return hard.detach() + (soft - soft.detach())


def entropy(
    logits: Float[Tensor, "..."], *, dim: int = -1, mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "..."]:
    r"""Entropy in nats, :math:`-\sum_i p_i \log p_i` of p = softmax(logits), safe under masks.

    >>> import torch, dcgraph as dc
    >>> round(dc.entropy(torch.tensor([0.0, 0.0, -torch.inf])).item(), 4)
    0.6931
    """
    theta = _checked_theta(logits, mask, dim, 1.0, 0.0, None)
    empty = None if check_rows(theta, dim) else _empty_rows(theta, dim)
    if empty is not None:
        theta = theta.masked_fill(empty, 0.0)
    log_p = torch.log_softmax(theta, dim)
    terms = log_p.exp() * log_p.masked_fill(log_p == -math.inf, 0.0)
    result = -terms.sum(dim)
    if empty is not None:
        result = result.masked_fill(empty.squeeze(dim), 0.0)
    return result.to(logits.dtype)


_ORDINARY = 1e6
"""For tau and beta / tau: below it nothing but the logits can overflow."""


def _is_own(noise: Noise | None) -> bool:
    """Whether it is Gumbel noise that is drawn here."""
    return noise is None or (isinstance(noise, str) and noise == "gumbel")


def _relax_few(logits: Tensor, tau: Dial, beta: Dial) -> Tensor | None:
    """A handful of numbers on the CPU, where the time is that of starting operations; or None.

    It is the formula below with the same draws and the same check, in as few operations as can be.
    Whatever is out of the ordinary is left to the code below, which also knows the errors.
    """
    if not (
        isinstance(tau, float)
        and isinstance(beta, float)
        and 0 < beta < _ORDINARY * tau < _ORDINARY**2
        and type(logits) in (Tensor, Parameter)
        and logits.dtype is torch.float32
        and logits.ndim
        and 0 < logits.numel() <= FEW
        and logits.is_cpu
        and may_read_cpu()
        and not has_ranks()
        and not has_stream()
    ):
        return None
    # log E, of which the noise is the negative; in float64 -log(u) is fine enough near u = 1.
    noise = torch.empty_like(logits, dtype=torch.float64).uniform_().log_().neg_().log_().float()
    soft = torch.add(logits * _inverse(tau), noise, alpha=-beta / tau).softmax(-1)
    return None if may_have_nan(soft) else soft


@lru_cache(maxsize=64)
def _inverse(tau: float) -> Tensor:
    """As a tensor: a number is made one in every product, which takes longer than the product."""
    with torch.inference_mode(False):
        return torch.tensor(1 / tau, dtype=torch.float32, device="cpu")


def _checked_theta(
    logits: Tensor, mask: Tensor | None, dim: int, tau: Dial, beta: Dial, noise: Noise | None
) -> Tensor:
    """The logits in at least float32 with -inf where masked; their values are not checked yet."""
    check_logits(logits, dim)
    smallest_tau, _ = check_dial("tau", tau)
    _, largest_beta = check_dial("beta", beta)
    check_one_per_row("tau", tau, "logits", logits, dim)
    check_one_per_row("beta", beta, "logits", logits, dim)
    check_noise(noise, logits)
    theta = logits
    if logits.dtype != torch.float32:
        theta = logits.to(torch.promote_types(logits.dtype, torch.float32))
    check_scale(largest_beta / smallest_tau, theta.dtype)
    if mask is None:
        return theta
    check_mask(mask, theta)
    return theta.masked_fill(~mask, -math.inf)


def _softmax(theta: Tensor, scaled: Tensor, dim: int) -> tuple[Tensor, Tensor | None]:
    """Rows of weights, and which rows of theta are empty; None where that was checked.

    One look at the weights is enough for the check: NaN, +inf, overflow and a row without any
    category make them NaN.
    """
    if may_read(theta):
        soft = torch.softmax(scaled, dim)
        total = try_to_read(soft.detach().sum())
        if total is not None:
            if not math.isfinite(total):
                explain_rows(theta, dim)
                say_overflow()
            return soft, None
    empty = _empty_rows(theta, dim)
    soft = torch.softmax(scaled.masked_fill(empty, 0.0), dim)
    return soft.masked_fill(empty, 0.0), empty


def _empty_rows(theta: Tensor, dim: int) -> Tensor:
    return (theta == -math.inf).all(dim, keepdim=True)


def _perturb(
    theta: Tensor, beta: Dial, noise: Noise | None, generator: torch.Generator | None
) -> Tensor:
    """theta + beta G."""
    if is_zero(beta):
        return theta
    standard = standard_noise(noise, theta, generator)
    if isinstance(beta, Tensor):
        return torch.addcmul(theta, standard, beta.to(theta.dtype))
    return theta + standard * beta


def _scaled_noise(
    theta: Tensor, factor: float, noise: Noise | None, generator: torch.Generator | None
) -> Tensor:
    """Noise of scale 1, replayed or drawn, times a factor."""
    if isinstance(noise, Tensor):
        return noise.to(theta.dtype) * factor
    drawn = draw_minus_gumbel(theta.shape, generator, theta.dtype, theta.device)
    return drawn.mul_(factor if noise == "reversed" else -factor)


def _divide(perturbed: Tensor, tau: Dial) -> Tensor:
    if isinstance(tau, Tensor) and tau.requires_grad:
        # The gradient of tau would be 0 * inf at -inf.
        excluded = perturbed == -math.inf
        return (perturbed.masked_fill(excluded, 0.0) / tau).masked_fill(excluded, -math.inf)
    return perturbed / tau


def _argmax(perturbed: Tensor, empty: Tensor | None, dim: int) -> Tensor:
    index = perturbed.argmax(dim)
    return index if empty is None else index.masked_fill(empty.squeeze(dim), -1)


_KERNEL_CATEGORIES = 4096
"""From this row length on, the kernel on CUDA beats what torch.compile makes of the formula."""


def _has_kernel(
    theta: Tensor,
    tau: Dial,
    beta: Dial,
    noise: Noise | None,
    generator: torch.Generator | None,
    dim: int,
) -> bool:
    """Whether ``kernels._relaxation`` can do it: float32 rows on CUDA, own noise, fixed dials."""
    return (
        theta.is_cuda
        and theta.dtype == torch.float32
        and dim % theta.ndim == theta.ndim - 1
        and theta.shape[-1] >= _KERNEL_CATEGORIES
        and not (isinstance(noise, Tensor) or is_zero(beta) or generator is not None)
        and not any(isinstance(dial, Tensor) and dial.requires_grad for dial in (tau, beta))
        and kernels.available()
    )


def _relax_by_kernel(theta: Tensor, tau: Dial, beta: Dial, noise: Noise | None) -> Tensor:
    from .kernels._relaxation import relax  # imports Triton

    def per_row(dial: Dial) -> Tensor:
        if isinstance(dial, Tensor):
            value = dial.to(theta)
        else:  # filled on the device: a copy from the host would break a capture
            value = torch.full((), dial, dtype=theta.dtype, device=theta.device)
        return value.expand(*theta.shape[:-1], 1).reshape(-1)

    rows = theta.reshape(-1, theta.shape[-1])
    signed = -beta if noise == "reversed" else beta
    z = relax(rows, per_row(tau), per_row(signed), random_keys(1, theta.device))
    return z.view(theta.shape)
