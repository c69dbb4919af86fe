"""The distribution of a choice against torch's own, and by enumeration."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, kl_divergence
from torch.distributions import OneHotCategorical as TorchOneHot

import dcgraph as dc
from statistics_of_fit import chi_square_p

MASK = torch.tensor([True, False, True, True])
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def pair(dtype: torch.dtype = torch.float64) -> tuple[dc.OneHotCategorical, TorchOneHot]:
    """Ours and torch's, [5, 3] rows of 4 categories."""
    logits = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    return dc.OneHotCategorical(logits), TorchOneHot(logits=logits.double())


def test_it_is_the_distribution_of_torch() -> None:
    ours, theirs = pair()
    assert (ours.batch_shape, ours.event_shape) == (theirs.batch_shape, theirs.event_shape)
    values = theirs.sample((7,))
    torch.testing.assert_close(ours.log_prob(values), theirs.log_prob(values))
    index = values.argmax(-1)
    torch.testing.assert_close(ours.log_prob(index), theirs.log_prob(values))
    torch.testing.assert_close(ours.log_prob(torch.tensor(2)), ours.log_probs[..., 2])
    for name in ("probs", "mean", "variance", "mode"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), msg=name)
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    torch.testing.assert_close(ours.enumerate_support(), theirs.enumerate_support())
    assert ours.enumerate_support(expand=False).shape == (4, 1, 1, 4)
    wider = ours.expand((2, 5, 3))
    torch.testing.assert_close(wider.entropy()[1], theirs.entropy())
    event = Independent(ours, 1)
    torch.testing.assert_close(event.log_prob(values), Independent(theirs, 1).log_prob(values))


@pytest.mark.parametrize("dtype", DTYPES)
def test_entropy_and_divergence_by_enumeration(dtype: torch.dtype) -> None:
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    others = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
    p, q = dc.OneHotCategorical(logits, MASK), dc.OneHotCategorical(others)
    each = p.log_prob(p.enumerate_support())[MASK].double()  # [3, 6]
    of_q = q.log_prob(q.enumerate_support())[MASK].double()
    close = partial(
        torch.testing.assert_close, atol=4 * torch.finfo(dtype).eps, rtol=4 * torch.finfo(dtype).eps
    )
    found = [p.entropy(), kl_divergence(p, q), kl_divergence(p, p.uniform())]
    expected = [
        -(each.exp() * each).sum(0),
        (each.exp() * (each - of_q)).sum(0),
        math.log(3) + (each.exp() * each).sum(0),
    ]
    for value, known in zip(found, expected, strict=True):
        assert value.dtype == dtype
        close(value.double(), known)
    close(each.exp().sum(0), torch.ones(6).double())
    assert (p.log_prob(torch.tensor(1)) == -math.inf).all() and (p.probs[:, 1] == 0).all()
    torch.testing.assert_close(p.uniform().probs, (MASK.double() / 3).to(dtype).expand(6, 4))
    assert (kl_divergence(q, p) == math.inf).all(), "p never chooses what q may"
    prior = TorchOneHot(logits=torch.zeros(4).double())
    close(kl_divergence(q, prior), kl_divergence(q, q.uniform()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_finite_at_the_edges(dtype: torch.dtype) -> None:
    """One category, masked ones, logits of -inf and of any size."""
    theta = torch.tensor(
        [[0.0, 1.0, -torch.inf, 3.0], [6e4, -6e4, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]], dtype=dtype
    ).requires_grad_()
    single = torch.tensor([[3.0], [-2.0]], dtype=dtype, requires_grad=True)
    p, one = dc.OneHotCategorical(theta, MASK), dc.OneHotCategorical(single)
    for distribution in (p, one):
        for value in (
            distribution.entropy(),
            kl_divergence(distribution, distribution.uniform()),
            distribution.log_prob(distribution.mode),
            distribution.rsample(tau=0.5).square().sum(-1),
        ):
            (gradient,) = torch.autograd.grad(value.sum(), distribution.logits, retain_graph=True)
            assert value.isfinite().all() and gradient.isfinite().all()
    assert (one.entropy() == 0).all() and (one.log_prob(torch.tensor(0)) == 0).all()
    assert (one.sample() == 1).all()
    p.entropy().sum().backward()
    assert theta.grad is not None and (theta.grad[:, 1] == 0).all(), "none for what is masked"


def test_samples_follow_it() -> None:
    torch.manual_seed(0)
    theta = torch.tensor([[0.3, 9.0, -1.0, 1.0], [2.0, 0.0, 0.0, -2.0]])
    q = dc.OneHotCategorical(theta, MASK)
    draws = q.sample((50_000,))
    assert draws.shape == (50_000, 2, 4) and draws.dtype == torch.float32
    for row in range(2):
        assert chi_square_p(draws[:, row, MASK].sum(0), q.probs[row, MASK]) > 1e-4
        assert draws[:, row, 1].sum() == 0
    generator = torch.Generator().manual_seed(3)
    first = q.sample_index((3,), generator=generator)
    assert first.shape == (3, 2)
    assert torch.equal(q.sample((3,), generator=generator.manual_seed(3)).argmax(-1), first)


def test_relaxed_samples_are_those_of_the_function() -> None:
    theta, noise = torch.randn(5, 4), dc.gumbel((3, 5, 4))
    theta[0, 1] = -torch.inf
    q = dc.OneHotCategorical(theta)
    for hard in (False, True):
        z = q.rsample((3,), tau=2.0, beta=0.5, hard=hard, noise=noise)
        expected = dc.gumbel_softmax(theta.expand(3, 5, 4), 2.0, beta=0.5, hard=hard, noise=noise)
        assert torch.equal(z, expected)


def test_the_distribution_of_a_node() -> None:
    node, u = dc.Discrete(6, 4), torch.randn(5, 6)
    q = node.distribution(u, mask=MASK)
    torch.testing.assert_close(q.logits[:, MASK], node.logits(u)[:, MASK])
    assert (q.probs[:, 1] == 0).all()
    kl_divergence(q, q.uniform()).sum().backward()
    assert node.codebook.grad is not None
    given = dc.Discrete(6, 4, codebook="given")
    rows = torch.randn(4, 6)
    torch.testing.assert_close(given.distribution(u, rows).logits, u @ rows.T)
    theta = torch.randn(5, 4)
    torch.testing.assert_close(
        dc.Categorical().distribution(theta).probs, Categorical(logits=theta).probs
    )


def test_wrong_values_are_refused() -> None:
    ours, _ = pair()
    for value in (torch.full((5, 3, 4), 0.5).double(), torch.zeros(4).double()):
        with pytest.raises(ValueError, match="relaxed row, or another one is not within the supp"):
            ours.log_prob(value)
    for index in (torch.tensor(4), torch.tensor(-1)):
        with pytest.raises(ValueError, match="indices from 0 to 3"):
            ours.log_prob(index)
    with pytest.raises(ValueError, match="row 1 has no category left"):
        dc.OneHotCategorical(torch.zeros(2, 3), torch.tensor([[True] * 3, [False] * 3]))
    unchecked = dc.OneHotCategorical(torch.zeros(2, 3), validate_args=False)
    assert unchecked.log_prob(torch.full((2, 3), 0.5)).isfinite().all()


@pytest.mark.parametrize("validate_args", [True, False])
def test_wrong_shapes_are_refused_always(validate_args: bool) -> None:
    q = dc.OneHotCategorical(torch.zeros(2, 3), validate_args=validate_args)
    for value in (torch.eye(4)[:2], torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"one-hot vectors \[..., 3\] of a floating dtype"):
            q.log_prob(value)
    for value in (torch.zeros(5, dtype=torch.long), torch.eye(3)):
        with pytest.raises(ValueError, match=r"do not broadcast with the batch shape \(2,\)"):
            q.log_prob(value)
    assert q.log_prob(torch.zeros(5, 1, dtype=torch.int32)).shape == (5, 2)
    with pytest.raises(ValueError, match="3 and 1 categories"):
        kl_divergence(q, dc.OneHotCategorical(torch.zeros(2, 1)))


def test_divergence_from_what_is_hardly_ever_chosen() -> None:
    """exp(-200) is 0 in float32: with log q = -inf it was 0 times infinity."""
    p = dc.OneHotCategorical(torch.tensor([[0.0, -200.0, 0.0]], requires_grad=True))
    within = dc.OneHotCategorical(torch.zeros(1, 3), torch.tensor([True, False, True]))
    assert kl_divergence(p, within) == math.inf and kl_divergence(within, p) == 0
    assert kl_divergence(within, within.uniform()) == 0


def test_divergence_between_torchs_and_this_both_ways_and_of_many_choices() -> None:
    ours, _ = pair()
    flat = ours.uniform()
    for p, q in ((ours, flat), (flat, ours)):
        known = kl_divergence(TorchOneHot(logits=p.logits), TorchOneHot(logits=q.logits))
        torch.testing.assert_close(kl_divergence(p, q), known)
        torch.testing.assert_close(kl_divergence(TorchOneHot(logits=p.logits), q), known)
        torch.testing.assert_close(kl_divergence(p, TorchOneHot(logits=q.logits)), known)
        events = Independent(p, 1), Independent(q, 1)
        torch.testing.assert_close(kl_divergence(*events), known.sum(-1))
    one_prior = dc.OneHotCategorical(torch.randn(4).double())  # broadcast to all rows
    assert kl_divergence(ours, one_prior).shape == (5, 3)
    single = dc.OneHotCategorical(torch.randn(7, 1))
    assert (kl_divergence(single, single.uniform()) == 0).all()
    nothing = dc.OneHotCategorical(torch.zeros(0, 3))
    assert kl_divergence(nothing, nothing.uniform()).shape == (0,)


def test_it_maps_and_an_empty_row_then_chooses_nothing() -> None:
    theta = torch.randn(2, 3, 4)
    theta[0, 1] = -torch.inf

    def values(theta: Tensor) -> tuple[Tensor, ...]:
        q = dc.OneHotCategorical(theta)
        sample = q.sample()
        log_p = q.log_prob(sample), q.log_prob(sample.argmax(-1))  # values cannot be checked here
        return q.entropy(), kl_divergence(q, q.uniform()), sample, *log_p

    entropy, divergence, sample, log_p, same = torch.func.vmap(values, randomness="different")(
        theta
    )
    torch.testing.assert_close(log_p, same)
    torch.testing.assert_close(
        log_p[1], Categorical(logits=theta[1]).log_prob(sample[1].argmax(-1))
    )
    assert entropy[0, 1] == 0 and divergence[0, 1] == 0 and sample[0, 1].sum() == 0
    torch.testing.assert_close(entropy[1], Categorical(logits=theta[1]).entropy())
    assert repr(dc.OneHotCategorical(theta[1])) == "OneHotCategorical(4 categories, [3])"


def test_padding_chooses_nothing_whatever_is_in_it() -> None:
    torch.manual_seed(0)
    node = dc.Discrete(6, 4)
    valid = torch.tensor([[True, True, False], [True, False, False]])
    u = torch.randn(2, 3, 6)
    u[~valid] = torch.tensor([torch.nan, torch.inf, 0.0, 1.0, 2.0, 3.0])
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    mask[..., 1], mask[~valid] = False, False  # padding may be masked altogether
    u.requires_grad_()
    q, own = node.distribution(u, mask=mask, rows=valid), node.distribution(u[valid], mask=MASK)

    prior = dc.OneHotCategorical(torch.randn(4))

    def drawn(of: dc.OneHotCategorical, method: str, **named: float) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        found: Tensor = getattr(of, method)(generator=generator, **named)
        return found

    for found, expected in (
        (q.entropy(), own.entropy()),
        (kl_divergence(q, q.uniform()), kl_divergence(own, own.uniform())),
        (kl_divergence(q, prior), kl_divergence(own, prior)),
        (kl_divergence(q.uniform(), q), kl_divergence(own.uniform(), own)),
        (q.log_prob(torch.tensor(0)), own.log_prob(torch.tensor(0))),
        (q.probs, own.probs),
        (q.variance, own.variance),
        (q.mode, own.mode),
        (drawn(q, "sample"), drawn(own, "sample")),
        (drawn(q, "rsample", tau=0.5), drawn(own, "rsample", tau=0.5)),
        (drawn(q, "rsample", beta=0.0), drawn(own, "rsample", beta=0.0)),
    ):
        torch.testing.assert_close(found[valid], expected, msg="as if there were no padding")
        assert (found[~valid] == 0).all()
    index = q.sample_index((5,))
    assert (index[:, ~valid] == -1).all() and (index[:, valid] >= 0).all()
    expected = q.log_prob(q.sample((5,)) * 0 + dc.one_hot(index, 4))
    torch.testing.assert_close(q.log_prob(index), expected)
    assert q.log_prob(index).isfinite().all() and (q.log_prob(index)[:, ~valid] == 0).all()
    with pytest.raises(ValueError, match="not within the support"):
        q.log_prob(torch.full((2, 3), 4))
    wider = q.expand((7, 2, 3))
    torch.testing.assert_close(wider.entropy()[3], q.entropy())
    assert Independent(q, 1).entropy().shape == (2,)
    (q.entropy().sum() + kl_divergence(q, q.uniform()).sum()).backward()
    assert u.grad is not None and (u.grad[~valid] == 0).all() and u.grad[valid].isfinite().all()


def test_masked_probabilities_in_half_precision_and_how_it_prints() -> None:
    theta = torch.tensor([[2.0, 0.0, 1.0]], dtype=torch.bfloat16)
    q = dc.OneHotCategorical(theta, torch.tensor([True, True, False]))
    assert q.log_probs.dtype == q.mean.dtype == q.variance.dtype == torch.bfloat16
    assert q.log_probs[0, 2] == -torch.inf and torch.equal(q.mean, q.probs)
    p = torch.tensor([2.0, 0.0]).softmax(0)
    assert torch.allclose(q.variance[0, :2].float(), p * (1 - p), atol=1e-3)
    assert torch.equal(q.mode, torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.bfloat16))
    assert repr(q) == "OneHotCategorical(3 categories, [1])"
