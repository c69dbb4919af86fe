"""Noise, relaxation and sampling of categorical choices, as pure functions.

Everything here is computed in float32 (or float64 for float64 logits), whatever the dtype of the
logits or of autocast, and handed back in the dtype of the logits. Notation as in the paper: logits
theta, temperature tau, noise scale beta, relaxed one-hot z, share of dropped residuals alpha.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .checks import (
    Dial,
    check_broadcasts,
    check_choice,
    check_dial,
    check_logits,
    check_rows,
)

Noise = Float[Tensor, "..."] | Literal["gumbel", "reversed"]
"""Noise of scale 1: a tensor to replay, or the law to draw it from."""

Gate = Literal["call", "example", "vector", "element"]
"""How much shares one draw of the DropRes gate."""

_NOISES = ("gumbel", "reversed")
_BITS = 62


def gumbel(
    shape: Sequence[int],
    *,
    beta: Dial = 1.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Float[Tensor, "..."]:
    r"""Gumbel(0, beta) noise: :math:`\epsilon = -\beta \log E` with :math:`E \sim` Exp(1).

    Always finite: between -2.9 beta and 43 beta. The upper tail, which decides an argmax, keeps
    the full relative precision of the dtype because E = -log(1 - u) is formed from 62 random bits
    that are fine near u = 0. (torch's own samplers on CUDA and in compiled code stop at
    E = 6e-8, that is at 16.6: among 10 million equal categories the winner is then often a tie.)

    >>> import dcgraph as dc
    >>> dc.gumbel([2, 3], beta=0.0)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    check_dial("beta", beta)
    if _is_zero(beta):
        return torch.zeros(tuple(shape), dtype=dtype, device=device)
    noise = _standard_gumbel(shape, generator, dtype, device)
    return noise if isinstance(beta, int | float) and beta == 1 else noise * beta


def _standard_gumbel(
    shape: Sequence[int],
    generator: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> Tensor:
    bits = torch.randint(1 << _BITS, tuple(shape), generator=generator, device=device)
    # The largest float below 1 as a factor keeps u < 1, the half step keeps u > 0.
    scale = (1 - torch.finfo(dtype).eps / 2) * 2.0**-_BITS
    minus_exponential = bits.to(dtype).add_(0.5).mul_(-scale).log1p_()
    return minus_exponential.neg_().log_().neg_()


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
    smaller tau makes it more discrete alone. ``beta=0.0`` is exactly softmax(logits / tau) and
    draws nothing.

    Args:
        logits: theta. An entry of -inf is never chosen.
        tau: temperature > 0, a number or a tensor with one value per row (size 1 along ``dim``).
        beta: scale of the noise >= 0, likewise.
        hard: return the one-hot argmax of theta + beta G, with the gradient of z.
        dim: the dimension of the categories.
        mask: True where a category may be chosen; the others get exactly 0 and no gradient.
        noise: a tensor G of scale 1 to replay, or the law to draw it from: "gumbel", or
            "reversed" for -G, which the code released with the paper drew.
        generator: where to draw from; None is torch's global generator.

    >>> import dcgraph as dc
    >>> theta = torch.tensor([2.0, 0.0, 1.0])
    >>> dc.gumbel_softmax(theta, tau=2.0, beta=0.0)
    tensor([0.5065, 0.1863, 0.3072])
    >>> dc.gumbel_softmax(theta, noise=torch.tensor([0.0, 3.0, 0.0]), hard=True)
    tensor([0., 1., 0.])
    """
    check_logits(logits, dim)
    for name, dial in (("tau", tau), ("beta", beta)):
        check_dial(name, dial)
        check_broadcasts(name, dial, logits, dim)
    theta, checked = _checked_theta(logits, mask, dim, tau)
    if not hard and _has_kernel(theta, tau, beta, noise, generator, dim):
        return _relax_by_kernel(theta, tau, beta, noise).to(logits.dtype)
    perturbed = _perturb(theta, beta, noise, generator)
    empty = None if checked else _empty_rows(theta, dim)
    scaled = perturbed / tau
    if empty is not None:
        scaled = scaled.masked_fill(empty, 0.0)
    soft = torch.softmax(scaled, dim)
    if empty is not None:
        soft = soft.masked_fill(empty, 0.0)
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
    Arguments as in :func:`gumbel_softmax`. In a compiled, captured or vmapped call, where no error
    can be raised, a row without any category gives -1.

    >>> import dcgraph as dc
    >>> dc.sample(torch.tensor([[0.0, 9.0, 9.0]]), mask=torch.tensor([True, True, False]), beta=0.1)
    tensor([1])
    """
    check_logits(logits, dim)
    check_dial("beta", beta)
    check_broadcasts("beta", beta, logits, dim)
    theta, checked = _checked_theta(logits, mask, dim)
    perturbed = _perturb(theta, beta, noise, generator)
    return _argmax(perturbed, None if checked else _empty_rows(theta, dim), dim)


def argmax(
    logits: Float[Tensor, "..."], *, dim: int = -1, mask: Bool[Tensor, "..."] | None = None
) -> Int[Tensor, "..."]:
    """The most probable category of each row, never a masked one: :func:`sample` without noise.

    >>> import dcgraph as dc
    >>> dc.argmax(torch.tensor([[1.0, 3.0, 2.0]]))
    tensor([1])
    """
    return sample(logits, beta=0.0, dim=dim, mask=mask)


def one_hot(
    index: Int[Tensor, "..."], categories: int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "... {categories}"]:
    """One-hot rows of a floating dtype; the index -1 gives a row of zeros.

    >>> import dcgraph as dc
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

    >>> import dcgraph as dc
    >>> soft = torch.tensor([0.3, 0.7], requires_grad=True)
    >>> dc.straight_through(torch.tensor([0.0, 1.0]), soft).detach()
    tensor([0., 1.])
    """
    return hard + (soft - soft.detach())


def entropy(
    logits: Float[Tensor, "..."], *, dim: int = -1, mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "..."]:
    r"""Entropy in nats, :math:`-\sum_i p_i \log p_i` of p = softmax(logits), safe under masks.

    >>> import dcgraph as dc
    >>> round(dc.entropy(torch.tensor([0.0, 0.0, -torch.inf])).item(), 4)
    0.6931
    """
    check_logits(logits, dim)
    theta, checked = _checked_theta(logits, mask, dim)
    empty = None if checked else _empty_rows(theta, dim)
    if empty is not None:
        theta = theta.masked_fill(empty, 0.0)
    log_p = torch.log_softmax(theta, dim)
    terms = log_p.exp() * log_p.masked_fill(log_p == -math.inf, 0.0)
    result = -terms.sum(dim)
    if empty is not None:
        result = result.masked_fill(empty.squeeze(dim), 0.0)
    return result.to(logits.dtype)


def drop_residual(
    value: Float[Tensor, "*shape"],
    residual: Float[Tensor, "*shape"],
    alpha: Dial,
    *,
    gate: Gate = "call",
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*shape"]:
    r"""DropRes: the residual is added with probability 1 - alpha, else dropped.

    :math:`v = h(z) + b u` with :math:`b \sim` Bernoulli(1 - alpha), so that in expectation
    :math:`\partial v / \partial u` keeps (1 - alpha) I beside what passes through the choice.

    Args:
        value: h(z), the output of the discrete step, [..., width].
        residual: u, what bypasses it.
        alpha: share of dropped residuals in [0, 1], a number or a tensor with one value per vector.
        gate: what shares one draw b: the whole "call" (as the authors' code), one "example" (the
            first dimension), one "vector" (all but the last), or one "element".
        generator: where to draw from; None is torch's global generator.

    >>> import dcgraph as dc
    >>> value, residual = torch.zeros(2), torch.ones(2)
    >>> dc.drop_residual(value, residual, alpha=0.0), dc.drop_residual(value, residual, alpha=1.0)
    (tensor([1., 1.]), tensor([0., 0.]))
    """
    check_dial("alpha", alpha)
    check_choice("gate", gate, get_args(Gate))
    check_broadcasts("alpha", alpha, value, -1)
    if residual.shape != value.shape:
        raise ValueError(
            f"residual has shape {tuple(residual.shape)} and the output of the discrete step "
            f"{tuple(value.shape)}; pass a residual= of the output's shape."
        )
    if isinstance(alpha, int | float) and alpha in (0, 1):
        return value + residual if alpha == 0 else value
    draws = torch.rand(_gate_shape(value, gate), generator=generator, device=value.device)
    return value + torch.where(draws >= alpha, residual, 0.0)


def _gate_shape(value: Tensor, gate: Gate) -> tuple[int, ...]:
    shape = tuple(value.shape)
    ones = (1,) * value.ndim
    own = {"call": 0, "example": min(1, value.ndim - 1), "vector": value.ndim - 1}
    drawn = own.get(gate, value.ndim)
    return shape[:drawn] + ones[drawn:]


def _is_zero(beta: Dial) -> bool:
    return isinstance(beta, int | float) and beta == 0


def _checked_theta(
    logits: Tensor, mask: Tensor | None, dim: int, tau: Dial = 1.0
) -> tuple[Tensor, bool]:
    """The logits in at least float32 with -inf where masked, and whether their rows were checked.

    Checked rows have a category left; others may be empty.
    """
    theta = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if mask is not None:
        theta = theta.masked_fill(~_checked_mask(mask, theta), -math.inf)
    return theta, check_rows(theta, dim, tau)


def _empty_rows(theta: Tensor, dim: int) -> Tensor:
    return (theta == -math.inf).all(dim, keepdim=True)


def _perturb(
    theta: Tensor, beta: Dial, noise: Noise | None, generator: torch.Generator | None
) -> Tensor:
    """theta + beta G."""
    if _is_zero(beta):
        return theta
    standard = _checked_noise(noise, theta, generator)
    if isinstance(beta, Tensor):
        return torch.addcmul(theta, standard, beta.to(theta.dtype))
    return torch.add(theta, standard, alpha=beta)


def _checked_mask(mask: Tensor, logits: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask has dtype {mask.dtype}; pass a bool tensor, True where a category may be chosen."
        )
    if mask.ndim > logits.ndim or any(
        have not in (1, want)
        for have, want in zip(reversed(mask.shape), reversed(logits.shape), strict=False)
    ):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, which does not broadcast to the shape "
            f"{tuple(logits.shape)} of the logits."
        )
    return mask


def _checked_noise(noise: Noise | None, theta: Tensor, generator: torch.Generator | None) -> Tensor:
    if isinstance(noise, Tensor):
        if noise.shape != theta.shape:
            raise ValueError(
                f"noise has shape {tuple(noise.shape)}, but the logits {tuple(theta.shape)}; "
                "noise to replay has the shape of the logits."
            )
        return noise.to(theta.dtype)
    check_choice("noise", noise or "gumbel", _NOISES)
    drawn = _standard_gumbel(theta.shape, generator, theta.dtype, theta.device)
    return drawn.neg_() if noise == "reversed" else drawn


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
    """Whether ``kernels.relaxation`` can do it: float32 rows on CUDA, own noise, fixed dials."""
    return (
        theta.is_cuda
        and theta.dtype == torch.float32
        and dim % theta.ndim == theta.ndim - 1
        and theta.shape[-1] >= _KERNEL_CATEGORIES
        and not (isinstance(noise, Tensor) or _is_zero(beta) or generator is not None)
        and not any(isinstance(dial, Tensor) and dial.requires_grad for dial in (tau, beta))
        and _kernels_load()
    )


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _kernels_load() -> bool:
    try:
        from .kernels import relaxation  # noqa: F401
    except ImportError:  # no Triton on this machine
        return False
    return True


def _relax_by_kernel(theta: Tensor, tau: Dial, beta: Dial, noise: Noise | None) -> Tensor:
    from .kernels.relaxation import relax

    def per_row(dial: Dial) -> Tensor:
        if isinstance(dial, Tensor):
            value = dial.to(theta)
        else:  # filled on the device: a copy from the host would break a capture
            value = torch.full((), dial, dtype=theta.dtype, device=theta.device)
        return value.expand(*theta.shape[:-1], 1).reshape(-1)

    check_choice("noise", str(noise or "gumbel"), _NOISES)
    rows = theta.reshape(-1, theta.shape[-1])
    seed = torch.randint(1 << _BITS, (1,), device=theta.device)
    signed = -beta if noise == "reversed" else beta
    return relax(rows, per_row(tau), per_row(signed), seed, rows.shape[0]).view(theta.shape)
