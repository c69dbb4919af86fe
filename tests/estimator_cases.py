"""What the tests know of every registered estimator. A new one needs a case here.

The gradients are written from the formulas of the docstrings, with matrices, in float64, and use
nothing of the estimators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product

import torch
from torch import Tensor, nn

import dcgraph as dc
from dcgraph._checks import Dial
from dcgraph.estimators import ESTIMATORS, LOSS_ESTIMATORS
from dcgraph.noise import Noise


@dataclass(frozen=True)
class Draw:
    """One choice of one row: the logits, what chose, and the gradient g that arrives at it."""

    theta: Tensor
    hard: Tensor
    noise: Tensor
    g: Tensor
    tau: float
    beta: float

    @property
    def p(self) -> Tensor:
        return (self.theta / self.beta).softmax(-1)

    @property
    def perturbed(self) -> Tensor:
        return self.theta + self.beta * self.noise


Estimate = tuple[Tensor, Tensor]
"""A gradient and its standard error, 0 where the formula is exact."""


def jacobian(p: Tensor) -> Tensor:
    """diag(p) - p p^T, of one row or of many."""
    return torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)


def _exact(gradient: Tensor) -> Estimate:
    return gradient, torch.zeros_like(gradient)


def _gumbel_softmax(d: Draw) -> Estimate:
    return _exact(jacobian((d.perturbed / d.tau).softmax(-1)) @ d.g / d.tau)


def _straight_through(d: Draw) -> Estimate:
    return _exact(jacobian((d.theta / d.tau).softmax(-1)) @ d.g / d.tau)


def _gapped(d: Draw) -> Estimate:
    top = d.theta.max()
    moved = torch.minimum(d.theta, top - 1.0 * d.beta)
    moved[d.hard.argmax()] = top
    return _exact(jacobian((moved / d.tau).softmax(-1)) @ d.g / d.tau)


def _zgr(d: Draw) -> Estimate:
    away = d.hard - d.p
    return _exact((jacobian(d.p) + torch.outer(away, away)) @ d.g / (2 * d.tau))


def _reinmax_at(d: Draw, p: Tensor) -> Tensor:
    return (2 * jacobian((p + d.hard) / 2) - jacobian(d.p) / 2) @ d.g / d.tau


def _reinmax(d: Draw) -> Estimate:
    return _exact(_reinmax_at(d, (d.theta / d.tau).softmax(-1)))


def _by_rejection(log_p: Tensor, d: Draw, draws: int = 60_000) -> Estimate:
    """The mean Jacobian of the relaxation, over noise that happens to choose D."""
    seeded = torch.Generator().manual_seed(1)
    noise = -torch.rand(draws, len(log_p), generator=seeded, dtype=torch.float64).log()
    perturbed = log_p - noise.log()
    kept = perturbed[perturbed.argmax(-1) == d.hard.argmax()]
    assert len(kept) > 2000, "too few to compare with"
    each = jacobian((kept * d.beta / d.tau).softmax(-1)) @ d.g / d.tau
    return each.mean(0), each.std(0) / len(kept) ** 0.5


def _gumbel_rao(d: Draw) -> Estimate:
    return _by_rejection(d.p.log(), d)


def _midway(d: Draw) -> Tensor:
    return ((d.p + d.hard) / 2).log()


def _reinmax_rao(d: Draw) -> Estimate:
    mean, error = _by_rejection(_midway(d), d)
    return 2 * mean - jacobian(d.p) @ d.g / (2 * d.tau), 2 * error


def _reinmax_cv(d: Draw) -> Estimate:
    mean, error = _by_rejection(_midway(d), d)
    once = jacobian(((_midway(d) + d.noise) * d.beta / d.tau).softmax(-1)) @ d.g / d.tau
    return _reinmax_at(d, d.p) + mean - once, error


def _chosen(scores: Tensor) -> Tensor:
    """One-hot, by looking at one after the other."""
    best = max(range(len(scores)), key=lambda j: float(scores[j]))
    return torch.eye(len(scores), dtype=scores.dtype)[best]


def _imle(d: Draw) -> Estimate:
    return _exact((_chosen(d.perturbed) - _chosen(d.perturbed - d.tau * d.g)) / d.tau)


def first_change(perturbed: Tensor, g: Tensor) -> float:
    """The step along g or against it at which another category comes to lead, by a scan."""
    a, slope = perturbed.tolist(), g.tolist()
    i = max(range(len(a)), key=a.__getitem__)
    steps = [
        (a[i] - a[j]) / abs(slope[j] - slope[i])
        for j in range(len(a))
        if j != i and slope[j] != slope[i]
    ]
    return min(steps, default=float("inf"))


def _adaptive_imle(d: Draw) -> Estimate:
    """Of a batch of one row."""
    shortest = d.tau / 100 / float(d.g.abs().max())
    length = max(1.001 * first_change(d.perturbed, d.g), shortest)
    up, down = (_chosen(d.perturbed + sign * length * d.g) for sign in (1, -1))
    return _exact((up - down) / (2 * length))


def bisected(scores: Tensor, share: Callable[[Tensor], Tensor]) -> Tensor:
    """share(x - t) with t such that it adds up to 1."""
    low, high = scores.min() - 2, scores.max()
    for _ in range(200):
        middle = (low + high) / 2
        if share(scores - middle).sum() > 1:
            low = middle
        else:
            high = middle
    return share(scores - (low + high) / 2)


def sparsemax_of(scores: Tensor) -> Tensor:
    return bisected(scores, lambda x: x.clamp(min=0))


def entmax15_of(scores: Tensor) -> Tensor:
    return bisected(scores / 2, lambda x: x.clamp(min=0).square())


def _projected(d: Draw, weights: Tensor) -> Estimate:
    """diag(w) - w w^T / sum(w), where w is the share's derivative."""
    j = torch.diag(weights) - torch.outer(weights, weights) / weights.sum()
    return _exact(j @ d.g / d.tau)


def _sparsemax(d: Draw) -> Estimate:
    return _projected(d, (sparsemax_of(d.perturbed / d.tau) > 1e-9).double())


def _entmax15(d: Draw) -> Estimate:
    p = entmax15_of(d.perturbed / d.tau)
    return _projected(d, p.sqrt() * (p > 1e-9))


@dataclass(frozen=True)
class Case:
    """What an estimator does, beside its gradient for each choice."""

    gradient: Callable[[Draw], Estimate] | None = None  # None where it needs the loss
    value: Callable[[Draw], Tensor] | None = None  # None where it is the choice, a one-hot row
    draws_more: bool = False  # not only what chooses, so that replayed noise leaves some open
    takes_reversed: bool = True
    unbiased: bool = False  # in chains of any depth, for any loss
    quadratic: bool = False  # no bias for a quadratic loss of one choice, where tau = beta
    only_choice: bool = False  # the gradient depends on the choice, not on the noise that made it
    needs_noise: bool = False  # nothing comes back where beta is 0 and one category leads

    @property
    def hard(self) -> bool:
        return self.value is None


_SCORE = Case(draws_more=True, takes_reversed=False, needs_noise=True, unbiased=True)


CASES: dict[str, Case] = {
    "gumbel_softmax": Case(_gumbel_softmax, lambda d: (d.perturbed / d.tau).softmax(-1)),
    "straight_through_gumbel_softmax": Case(_gumbel_softmax),
    "straight_through": Case(_straight_through, only_choice=True),
    "gumbel_rao": Case(_gumbel_rao, draws_more=True, takes_reversed=False),
    "gapped_straight_through": Case(_gapped, only_choice=True),
    "zgr": Case(_zgr, takes_reversed=False, quadratic=True, only_choice=True, needs_noise=True),
    "reinmax": Case(_reinmax, takes_reversed=False, quadratic=True, only_choice=True),
    "reinmax_rao": Case(_reinmax_rao, draws_more=True, takes_reversed=False),
    "reinmax_cv": Case(_reinmax_cv, draws_more=True, takes_reversed=False, needs_noise=True),
    "imle": Case(_imle),
    "adaptive_imle": Case(_adaptive_imle),
    "sparsemax": Case(_sparsemax, lambda d: sparsemax_of(d.perturbed / d.tau)),
    "entmax15": Case(_entmax15, lambda d: entmax15_of(d.perturbed / d.tau)),
    "reinforce": _SCORE,
    "rebar": _SCORE,
    "relax": _SCORE,
    "topk_sparsemax": Case(takes_reversed=False),  # exact for probabilities of its own
    "enumeration": Case(takes_reversed=False, unbiased=True, needs_noise=True),
}
"""Of ``ESTIMATORS`` and ``LOSS_ESTIMATORS``; those of codebooks have tests of their own."""

FUNCTIONS = sorted(ESTIMATORS)
WITH_LOSS = sorted(LOSS_ESTIMATORS)


def dialled(node: nn.Module, tau: Dial = 1.0, beta: Dial = 1.0, alpha: float = 1.0) -> None:
    """Dials of a node, also one value for every row."""
    dc.Dials.constant(node, tau=1.0, beta=1.0, alpha=alpha)
    for module in node.modules():
        if isinstance(module, dc.Categorical):
            module.tau, module.beta = torch.as_tensor(tau), torch.as_tensor(beta)


def play(
    name: str,
    logits: Tensor,
    weights: Tensor | None = None,
    *,
    tau: Dial = 1.0,
    beta: Dial = 1.0,
    mask: Tensor | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """z, and the gradient at the logits of the loss <z, weights>; of any estimator.

    Of one that needs the loss, z is that of the first time that the network runs.
    """
    logits = logits.detach().requires_grad_()
    weights = torch.ones_like(logits) if weights is None else weights
    seen: list[Tensor] = []
    if name in ESTIMATORS:
        z = ESTIMATORS[name](
            logits, tau=tau, beta=beta, mask=mask, noise=noise, generator=generator
        )
        seen.append(z)
        loss = (z * weights).sum()
    else:
        node = dc.Categorical(estimator=name, categories=logits.shape[-1])
        dialled(node, tau, beta)

        def closure() -> Tensor:
            z = node(logits, mask=mask, noise=noise, generator=generator)
            seen.append(z)
            return (z * weights).flatten(1).sum(1)

        loss = dc.surrogate(node, closure).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    return seen[0].detach(), gradient


def z_score(each: Tensor, expected: Tensor, error: Tensor | float = 0.0) -> float:
    """The largest of all entries: how many standard errors the mean over the first dimension is
    away from what is expected, which may have an error of its own."""
    each, expected = each.double(), expected.double()
    own = each.std(0) / len(each) ** 0.5
    total = (own.square() + torch.as_tensor(error).square()).sqrt().clamp(min=1e-9)
    return float(((each.mean(0) - expected) / total).abs().max())


class Markov(nn.Module):
    """A chain of choices: each row of logits is what a matrix says for the choice before."""

    def __init__(self, estimator: str, length: int, categories: int) -> None:
        super().__init__()
        self.nodes = nn.ModuleList(
            dc.Categorical(estimator=estimator, categories=categories) for _ in range(length)
        )

    def forward(self, start: Tensor, steps: Tensor) -> list[Tensor]:
        """start [examples, K] and steps [examples, length - 1, K, K] -> z of every node."""
        chosen: list[Tensor] = []
        theta = start
        for position, node in enumerate(self.nodes):
            if position:
                theta = (chosen[-1].unsqueeze(-1) * steps[:, position - 1]).sum(-2)
            chosen.append(node(theta))
        return chosen


def small_loss(chosen: list[Tensor]) -> Tensor:
    """Not linear in any choice, nor a sum of terms of each: [..., K] each -> [...]."""
    k = chosen[0].shape[-1]
    values = torch.linspace(-1.0, 1.5, k, dtype=chosen[0].dtype)
    inner = sum(((i + 1.0) * (z @ values.roll(i)) for i, z in enumerate(chosen)), torch.zeros(()))
    return (1.3 * inner).sin() + (chosen[0] * chosen[-1]).sum(-1).square() + 0.5 * inner.square()


def exact_expectation(
    start: Tensor, steps: Tensor, probabilities: Callable[[Tensor], Tensor]
) -> Tensor:
    """E of :func:`small_loss` over all paths through [K] and [length - 1, K, K], one by one."""
    k, length = len(start), len(steps) + 1
    eye = torch.eye(k, dtype=start.dtype)
    total = torch.zeros((), dtype=start.dtype)
    for path in product(range(k), repeat=length):
        weight = probabilities(start)[path[0]]
        for step, (before, after) in enumerate(pairwise(path)):
            weight = weight * probabilities(steps[step, before])[after]
        total = total + weight * small_loss([eye[i] for i in path])
    return total
