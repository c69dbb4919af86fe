"""The discrete VAE: its bounds by enumeration, and a quick run."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.distributions import kl_divergence

import dcgraph as dc
import discrete_vae
from discrete_vae import GUMBEL, VAE, WAYS, elbo, mixture, plain, run, table


def test_every_way_has_a_row_with_what_it_reached() -> None:
    found = run(quick=True)
    rows = found["rows"]
    assert [name for name in rows if "no network" not in name] == list(WAYS)
    for name in WAYS:
        row = rows[name]
        assert all(len(values) == found["seeds"] for values in row.values()), name
        assert len(row["used"][0]) == 8 and all(1 <= used <= 16 for used in row["used"][0])
        assert row["tighter"][0] > row["test"][0] - 0.1, "a bound from more samples is tighter"
    lines = table(found).splitlines()
    assert len(lines) == 2 + len(rows) and max(line.count("|") for line in lines) == 7


def test_the_bounds_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two choices among three categories, log p(x) is a sum over nine."""
    for name, value in (("GROUPS", 2), ("CATEGORIES", 3), ("CODES", 6)):
        monkeypatch.setattr(discrete_vae, name, value)
    torch.manual_seed(0)
    model, x = VAE(GUMBEL).eval(), (torch.rand(40, 64) > 0.5).float()
    with torch.no_grad():
        for parameter in model.decode.parameters():
            parameter.mul_(2)  # or the code would hardly matter
        pairs = itertools.product(range(3), repeat=2)
        codes = dc.one_hot(torch.tensor(list(pairs)), 3)  # [9, 2, 3]
        pixels = torch.distributions.Bernoulli(logits=model.decode(codes.flatten(-2)))
        likelihood = pixels.log_prob(x.unsqueeze(1)).sum(-1)  # [40, 9]
        log_p = (likelihood.logsumexp(1) - torch.tensor(9.0).log()).mean()
        q = model.node.distribution(model.encode(x).unflatten(-1, (2, 3)))
        weight = q.log_prob(codes.unsqueeze(1)).sum(-1).T.exp()  # [40, 9]
        expected = (weight * likelihood).sum(1) - kl_divergence(q, q.uniform()).sum(-1)
        bound = elbo(model, x.expand(2000, -1, -1))
        torch.testing.assert_close(bound, expected.mean(), atol=0.03, rtol=0)
        assert bound < log_p - 0.1
        found = discrete_vae.tested([model], x, x)
        assert bound < found["tighter"][0] < log_p + 0.02


def test_the_objective_in_plain_torch_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = VAE(GUMBEL), (torch.rand(5, 64) > 0.5).float()
    dc.Dials.constant(model, tau=0.5)

    def relaxed(logits: torch.Tensor, tau: float) -> torch.Tensor:
        return dc.gumbel_softmax(logits, tau)

    monkeypatch.setattr(torch.nn.functional, "gumbel_softmax", relaxed)
    values = []
    for objective in (plain, elbo):
        torch.manual_seed(1)
        values.append(objective(model, x))
    torch.testing.assert_close(*values)


def test_a_mixture_of_one_is_the_share_of_black_at_each_pixel() -> None:
    torch.manual_seed(0)
    x = (torch.rand(50, 64) > 0.3).float()
    p = (x.sum(0) + 0.5) / 51
    expected = torch.distributions.Bernoulli(p).log_prob(x).sum(-1).mean()
    found = mixture(1, x, x, x)
    assert found["validation"] == found["test"] == [pytest.approx(expected.item(), abs=1e-4)]
    assert mixture(10, x, x)["validation"] > found["validation"]
