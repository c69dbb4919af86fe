r"""Estimators that need the loss: score functions, and sums over all or a few categories.

The others send the gradient of the loss back through a choice. These do without it: they ask what
the loss *is* after other choices. So they call the network several times, which
:func:`dcgraph.surrogate` does: each of these functions is given ``run``, which calls it once with a
:class:`Player` that decides in the place of the nodes, and returns the loss of every example.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from .._checks import Dial, check_rows, may_read, read
from ..functional import gumbel_softmax, one_hot, sample
from ..noise import Noise, draw_gumbel, is_zero, standard_noise
from ._draws import as_tensor, masked, positive
from ._sparse import project_sparsemax

__all__ = ["ControlVariate", "enumeration", "rebar", "reinforce", "relax", "topk_sparsemax"]


@dataclass(frozen=True)
class Call:
    """One call of a node that needs the loss."""

    theta: Float[Tensor, "*batch categories"]  # in at least float32, -inf where masked, no row all
    tau: Dial
    beta: Dial
    noise: Noise | None
    generator: torch.Generator | None
    control: ControlVariate | None
    empty: Bool[Tensor, "*batch 1"] | None  # rows with no category, None where that was checked

    def decided_by(self, player: Player) -> Float[Tensor, "*batch categories"]:
        """z, zeros in a row that has no category."""
        z = player.choose(self)
        return z if self.empty is None else z.masked_fill(self.empty, 0.0)

    @property
    def scale(self) -> Dial:
        return positive(self.beta)

    def log_p(self) -> Tensor:
        """Of softmax(theta / beta). At beta = 0 there is nothing to learn: the gradient is 0."""
        log_p = (self.theta / self.scale).log_softmax(-1)
        if not isinstance(self.beta, Tensor) and self.beta > 0:
            return log_p
        return torch.where(as_tensor(self.beta, log_p) > 0, log_p, log_p.detach())


@runtime_checkable  # for the run-time checks of the tests
class Player(Protocol):
    """Decides, call by call, what the nodes choose while the network runs once."""

    def choose(self, call: Call) -> Float[Tensor, "*batch categories"]: ...


Run = Callable[[Player], Float[Tensor, " examples"]]
"""Calls the network once; the loss of every example."""


class ControlVariate(nn.Module):
    """What RELAX learns of a node: a guess of the loss from its relaxed choice.

    Args:
        categories: of the node.
        hidden: units of its one hidden layer.
    """

    def __init__(self, categories: int, hidden: int = 32) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(categories, hidden), nn.Linear(hidden, 1)
        nn.init.zeros_(self.outer.weight)  # the start is REBAR
        nn.init.zeros_(self.outer.bias)
        self.eta = nn.Parameter(torch.ones(1))

    def forward(
        self, z: Float[Tensor, "*batch categories"], *, frozen: bool
    ) -> Float[Tensor, "*batch"]:
        """The guess; ``frozen`` keeps its parameters out of the gradient."""

        def through(layer: nn.Linear, x: Tensor) -> Tensor:
            weight, bias = layer.weight, layer.bias
            return F.linear(x, *(w.detach() if frozen else w for w in (weight, bias)))

        hidden = through(self.inner, z.to(self.inner.weight.dtype)).tanh()
        return through(self.outer, hidden).squeeze(-1)


def reinforce(run: Run, *, samples: int = 4) -> Float[Tensor, " examples"]:
    r"""The score function with a leave-one-out baseline (Williams, 1992; Kool et al., 2019).

    The network runs ``samples`` times with choices :math:`D_s \sim \mathrm{softmax}(\theta/\beta)`:

    .. math::
        \frac{1}{S} \sum_s \Big(f_s - \frac{1}{S - 1} \sum_{r \neq s} f_r\Big)
        \nabla \log p(D_s), \qquad p(D) = \prod_t p(D_t) .

    It is unbiased, whatever the network does with the choices. Noise that is replayed, by
    ``noise=`` of a node, makes all draws alike, and nothing is learned.
    """
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 2:
        raise ValueError(
            f"samples={samples}, but a baseline that leaves one out needs at least 2; pass a whole "
            "number >= 2."
        )
    losses, scores = [], []
    for _ in range(samples):
        player = Sampling()
        loss = run(player)
        losses.append(loss)
        scores.append(player.score(loss))
    f = torch.stack(losses)
    others = (f.sum(0) - f) / (samples - 1)
    surprise = (f - others).detach()
    return f.mean(0) + _without_value((surprise * torch.stack(scores)).mean(0))


def rebar(run: Run, *, eta: int | float = 1.0) -> Float[Tensor, " examples"]:
    r"""REBAR (Tucker et al., 2017): the score function, less what a relaxation explains.

    The network runs three times: with choices D = H(G) that noise G makes, relaxed with the same
    noise, and relaxed with noise :math:`\tilde G` that makes the same choices. With the loss f of
    the first and the losses c of the others,

    .. math::
        [f - \eta\, c(\tilde G)] \nabla \log p(D) + \eta \nabla c(G) - \eta \nabla c(\tilde G) .

    tau is the temperature of the relaxation. Unbiased for every tau and eta, in chains too: the
    control variate is the whole network, relaxed.
    """
    return _with_relaxations(run, eta, learns=False)


def relax(run: Run) -> Float[Tensor, " examples"]:
    r"""RELAX (Grathwohl et al., 2018): REBAR with a control variate that is learned.

    To the relaxed loss, times an eta that is learned, comes a small network of every node's relaxed
    choice, :class:`ControlVariate`, whose parameters are among the node's. They are fitted to the
    loss by least squares, not by a second derivative to the variance as in the paper, so that
    populations and compiled models can learn them. The estimate is unbiased whatever they are.
    """
    return _with_relaxations(run, 1.0, learns=True)


def _with_relaxations(run: Run, eta: int | float, *, learns: bool) -> Tensor:
    first = Sampling(explains=True)
    f = run(first)
    score = first.score(f)
    with_same = _Relaxed(first.noises)
    with_other = _Relaxed(first.others)
    same, other = run(with_same), run(with_other)
    if not learns:
        term = (f - eta * other).detach() * score + eta * (same - other)
        return f + _without_value(term)
    c_same, c_other = (
        player.guess(c, frozen=True) for player, c in ((with_same, same), (with_other, other))
    )
    term = (f - c_other).detach() * score + c_same - c_other
    fit = (f.detach() - with_other.guess(other.detach(), frozen=False)).square()
    return f + _without_value(term + fit)


def enumeration(run: Run, *, limit: int = 4096) -> Float[Tensor, " examples"]:
    r"""The exact expected loss: the sum over all choices, :math:`\sum_D p(D) f(D)`.

    The network runs as often as there are combinations, K to the number of choices, and not more
    than ``limit`` times: for small chains, as the truth to compare with.
    """
    return _summed(run, None, limit)


def topk_sparsemax(run: Run, *, support: int = 2, limit: int = 4096) -> Float[Tensor, " examples"]:
    r"""The sum over few choices, which have all the weight (Correia et al., 2020).

    Where p is the sparsemax of the ``support`` largest theta / tau, the sum
    :math:`\sum_D p(D) f(D)` has as many terms for every choice, and nothing is left to chance: no
    bias for this p, and no variance. beta is not used. A chain of n choices runs the network
    support^n times, at most ``limit`` times.
    """
    if isinstance(support, bool) or not isinstance(support, int) or support < 1:
        raise ValueError(f"support={support}, but a sum has terms; pass a whole number >= 1.")
    return _summed(run, support, limit)


def _summed(run: Run, support: int | None, limit: int) -> Tensor:
    path: list[int] = []
    total: Tensor | None = None
    while True:
        player = _Forced(path, support)
        loss = run(player)
        runs = math.prod(player.sizes)
        if runs > limit:
            raise ValueError(
                f"the sum over {len(player.sizes)} choices needs {runs:,} runs of the network, and "
                f"limit={limit:,}; use an estimator that draws, such as 'reinforce', or a smaller "
                "support."
            )
        term = player.weight(loss) * loss
        total = term if total is None else total + term
        path = player.path[: player.counts + 1]
        while path and path[-1] + 1 == player.sizes[len(path) - 1]:
            path.pop()
        if not path:
            return total
        path[-1] += 1


def _without_value(term: Tensor) -> Tensor:
    """0, with the gradient of the term."""
    return term - term.detach()


def _per_example(values: Tensor, loss: Tensor) -> Tensor:
    """Of one value per choice the sum in each example, which is the first dimension."""
    if loss.ndim != 1:
        raise ValueError(
            f"the loss has shape {tuple(loss.shape)}, but one number for each example is needed; "
            'let the closure return it so, as with reduction="none"; with a population, inside of '
            "its map."
        )
    if values.ndim == 0 or values.shape[0] != loss.shape[0]:
        raise ValueError(
            f"a node made choices of shape {tuple(values.shape)}, but there are {loss.shape[0]} "
            "examples; its first dimension has to be that of the examples."
        )
    return values.flatten(1).sum(1) if values.ndim > 1 else values


@dataclass
class Sampling:
    """Hard choices, and their log-probabilities."""

    explains: bool = False  # whether noises and others are wanted
    scores: list[Tensor] = field(default_factory=list)
    noises: list[Tensor | None] = field(default_factory=list)  # G
    others: list[Tensor | None] = field(default_factory=list)  # noise that makes the same choices

    def choose(self, call: Call) -> Tensor:
        theta, beta = call.theta, call.beta
        noise = call.noise
        if self.explains:
            noise = None if is_zero(beta) else standard_noise(noise, theta, call.generator)
        index = sample(theta, beta=beta, noise=noise, generator=call.generator)
        hard = one_hot(index, theta.shape[-1], theta.dtype)
        log_p = call.log_p()
        self.scores.append((log_p.masked_fill(hard == 0, 0.0)).sum(-1))
        if self.explains:
            assert noise is None or isinstance(noise, Tensor)
            self.noises.append(noise)
            self.others.append(None if noise is None else _other_noise(call, hard))
        return hard

    def add(self, log_p: Float[Tensor, "*batch"]) -> None:
        """The log-probability of a choice that a node made by itself."""
        self.scores.append(log_p)

    def score(self, loss: Tensor) -> Tensor:
        """log p(D) of every example."""
        parts = [_per_example(one, loss) for one in self.scores]
        return torch.stack(parts).sum(0) if parts else torch.zeros_like(loss)


def _other_noise(call: Call, hard: Tensor) -> Tensor:
    r"""Noise :math:`\tilde G` on the condition that D is chosen, differentiable in theta.

    With eta = theta / beta and L its log-sum-exp, fresh Gumbel noise :math:`F` gives

    .. math::
        \tilde G_D = F_D + L - \eta_D, \qquad
        \tilde G_j = -\log(e^{-F_j} + e^{\eta_j - F_D - L}) .
    """
    theta = call.theta
    fresh = draw_gumbel(theta.shape, call.generator, theta.dtype, theta.device)
    log_p = (theta / call.scale).log_softmax(-1)  # eta - L
    top = (fresh * hard).sum(-1, keepdim=True)
    chosen = top - log_p.masked_fill(hard == 0, 0.0)
    return torch.where(hard > 0, chosen, -torch.logaddexp(-fresh, log_p - top))


@dataclass
class _Relaxed:
    """Relaxed choices with given noise."""

    noises: list[Tensor | None]
    calls: int = 0
    chosen: list[tuple[ControlVariate, Tensor]] = field(default_factory=list)

    def choose(self, call: Call) -> Tensor:
        if self.calls == len(self.noises):
            raise ValueError(
                "the relaxed network calls its nodes more often than the one with hard choices; "
                "such a model needs estimator='reinforce'."
            )
        noise = self.noises[self.calls]
        self.calls += 1
        beta = 0.0 if noise is None else call.beta
        z = gumbel_softmax(call.theta, call.tau, beta=beta, noise=noise)
        if call.control is not None:
            self.chosen.append((call.control, z))
        return z

    def guess(self, loss: Tensor, *, frozen: bool) -> Tensor:
        """The control variate: eta times the relaxed loss, and what the nodes' networks say."""
        if not self.chosen:
            return loss
        eta = torch.cat([control.eta for control, _ in self.chosen]).mean()
        total = (eta.detach() if frozen else eta) * loss
        for control, z in self.chosen:
            own = control(z if frozen else z.detach(), frozen=frozen)
            total = total + _per_example(own, loss)
        return total


class _Forced:
    """Choices that are prescribed, the first category from where nothing is.

    All examples of a batch choose alike, except those in which the choice has no weight. A call
    that makes several choices for each example goes through the combinations of these.
    """

    def __init__(self, path: list[int], support: int | None) -> None:
        self.path = list(path)
        self.support = support
        self.sizes: list[int] = []
        self.weights: list[Tensor] = []
        self.counts = -1  # the number of the last choice that matters: after it all weights are 0
        self._is_nothing = False

    def choose(self, call: Call) -> Tensor:
        theta = call.theta
        inner = theta.shape[1:-1]
        options, order, p = theta.shape[-1], None, None
        if self.support is None:
            p = call.log_p().exp()
        else:
            options = min(self.support, options)
            top, order = (theta / call.tau).topk(options, -1)
            p = project_sparsemax(top).masked_fill(top == -math.inf, 0.0)
        count = math.prod(inner)
        begin = len(self.sizes)
        self.sizes += [options] * count
        self.path += [0] * (len(self.sizes) - len(self.path))
        own = torch.zeros(count, dtype=torch.long, device=theta.device)
        for place, option in enumerate(self.path[begin : begin + count]):
            own[place].fill_(option)  # a copy from the host would break a capture
        at = own.view(inner).expand(theta.shape[:-1]).unsqueeze(-1)
        weight = p.gather(-1, at).squeeze(-1)
        self.weights.append(weight)
        self._look(weight, begin, count)
        # What has no weight may be masked. Its loss does not count, but must not be infinite.
        at = torch.where(weight.unsqueeze(-1) > 0, at, p.argmax(-1, keepdim=True))
        index = at if order is None else order.gather(-1, at)
        return one_hot(index.squeeze(-1), theta.shape[-1], theta.dtype)

    def _look(self, weight: Tensor, begin: int, count: int) -> None:
        """Where a choice has no weight in any example, later ones need not be gone through."""
        if self._is_nothing or not weight.numel() or not weight.ndim:
            return  # without examples there is nothing to see
        flat = weight.detach().reshape(weight.shape[0], -1)
        for place in range(count):
            self.counts = begin + place
            if may_read(flat) and read(flat[:, place].amax()) == 0:
                self._is_nothing = True
                return

    def weight(self, loss: Tensor) -> Tensor:
        """p(D) of every example."""
        product = torch.ones_like(loss)
        for one in self.weights:
            _per_example(one, loss)  # its shape
            product = product * (one.flatten(1).prod(1) if one.ndim > 1 else one)
        return product


@dataclass(frozen=True)
class LossEstimator:
    """An estimator that needs the loss."""

    estimate: Callable[..., Float[Tensor, " examples"]]
    options: tuple[str, ...] = ()  # those of dcgraph.surrogate that it takes
    learns: bool = False  # whether nodes have a control variate


LOSS_ESTIMATORS: dict[str, LossEstimator] = {
    "reinforce": LossEstimator(reinforce, ("samples",)),
    "rebar": LossEstimator(rebar, ("eta",)),
    "relax": LossEstimator(relax, learns=True),
    "topk_sparsemax": LossEstimator(topk_sparsemax, ("support", "limit")),
    "enumeration": LossEstimator(enumeration, ("limit",)),
}


def call_of(
    logits: Tensor,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
    control: ControlVariate | None,
) -> Call:
    """The call of a node, with all arguments checked as others check them."""
    theta = masked(logits, tau, beta, mask, noise)
    empty = None
    if not check_rows(theta, -1):
        empty = (theta == -math.inf).all(-1, keepdim=True)
        theta = theta.masked_fill(empty, 0.0)
    return Call(theta, tau, beta, noise, generator, control, empty)
