"""Residual vector quantisation: what is chosen, what flows back, and a quick run."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dcgraph as dc
from vector_quantised import HARD, ROWS, STAGES, VQ, WAYS, Quantised, in_use, run, table


def nearest_rows(u: Tensor, codebooks: Tensor) -> Tensor:
    """By all distances, stage after stage: [stages, batch, dim]."""
    chosen: list[Tensor] = []
    for codebook in codebooks:
        chosen.append(codebook[torch.cdist(u, codebook).argmin(-1)])
        u = u - chosen[-1]
    return torch.stack(chosen)


def test_every_way_has_a_row_with_what_it_reached() -> None:
    found = run(quick=True)
    names = [name for name, way in WAYS.items() if VQ or "package" not in way[0]]
    assert list(found["rows"]) == names
    for name, row in found["rows"].items():
        assert all(len(values) == found["seeds"] for values in row.values()), name
        assert row["test"][0] > 0 and len(row["used"][0]) == STAGES
        assert all(1 <= used <= ROWS for used in row["used"][0])
    assert len(table(found).splitlines()) == 2 + len(names)


@pytest.mark.parametrize("node", [{}, HARD], ids=["nearest", "node"])
def test_in_eval_mode_each_stage_takes_the_nearest_row(node: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, x = Quantised(**node).eval(), torch.rand(9, 64)
    with torch.no_grad():
        model.codebooks.mul_(0.2)
        rows = nearest_rows(model.encode(x), model.codebooks)
        expected = (model.decode(rows.sum(0)) - x).square().sum(-1).mean()
        torch.testing.assert_close(model(x), expected)


def test_the_gradient_passes_as_if_nothing_was_chosen() -> None:
    torch.manual_seed(0)
    model: Any = Quantised()
    x = torch.rand(9, 64)
    u = model.encode(x).detach().requires_grad_()
    weights = torch.randn(16)
    model.encode, model.decode = nn.Identity(), _Times(weights)
    model.eval()  # where nothing is added to the loss
    (gradient,) = torch.autograd.grad(model(u), u)
    rows = nearest_rows(u.detach(), model.codebooks).sum(0)
    # Of the error |w * rows - u|^2 in rows, which stand for u; and in u itself, the image here.
    expected = 2 * (weights * rows - u.detach()) * (weights - 1) / len(u)
    torch.testing.assert_close(gradient, expected)


class _Times(nn.Module):
    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, x: Tensor) -> Tensor:
        return self.weights * x


def test_unused_rows_become_data_and_the_others_stay() -> None:
    def build() -> nn.Module:
        model = Quantised()
        nn.init.constant_(model.codebooks[:, 5:], 50.0)  # far away
        return model

    population, x = dc.Population(build, seeds=range(3)), torch.rand(200, 64)
    codebooks = population.stacked.get_parameter("codebooks")
    before = codebooks.detach().clone()
    with torch.no_grad():
        few = population.map(in_use, x)
        population.map(partial(in_use, revive=True), x)
        many = population.map(in_use, x)
    assert few.shape == (3, STAGES) and (few <= 5).all() and (many > 10).all()
    after = codebooks.detach()
    for r in range(3):
        model: Any = population.replica(r)
        left = model.encode(x).detach()
        index = torch.cdist(left, before[r, 0]).argmin(-1)
        used = index.unique()
        assert torch.equal(after[r, 0, used], before[r, 0, used])
        others = [row for row in range(ROWS) if row not in used]
        distance = torch.cdist(after[r, 0, others], left).amin(1)
        torch.testing.assert_close(distance, torch.zeros(len(others)), atol=1e-3, rtol=0)


@pytest.mark.skipif(VQ is None, reason="vector-quantize-pytorch is not installed")
def test_that_package_in_a_population_of_one_is_that_package() -> None:
    """Its codebooks follow averages, which it writes in place into buffers."""
    batches = torch.rand(5, 32, 64)

    def losses(together: bool) -> list[float]:
        torch.manual_seed(0)
        build = partial(Quantised, package={"kmeans_init": True, "threshold_ema_dead_code": 2})
        model = dc.Population(build, seeds=[0]) if together else build()
        dc.Dials.constant(model)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        torch.manual_seed(1)
        found = []
        for batch in batches:
            loss = model(batch).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return found

    assert losses(together=True) == losses(together=False)
