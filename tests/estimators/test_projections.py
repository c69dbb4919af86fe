"""sparsemax, entmax 1.5, and the two estimators that look at what would be chosen elsewhere."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import dcgraph as dc
from dcgraph.estimators import entmax15, sparsemax
from dcgraph.estimators._imle import balanced_step, critical_steps
from dcgraph.estimators._sparse import project_entmax15, project_sparsemax
from estimator_cases import entmax15_of, first_change, play, sparsemax_of

PROJECTIONS = {"sparsemax": project_sparsemax, "entmax15": project_entmax15}
scores = st.lists(st.floats(-6, 6), min_size=1, max_size=7)


@given(scores)
def test_sparsemax_is_the_nearest_point_of_the_simplex(row: list[float]) -> None:
    """Its conditions of Karush, Kuhn and Tucker: x - p is t on the support, at most t elsewhere."""
    x = torch.tensor(row, dtype=torch.float64)
    p = project_sparsemax(x)
    assert (p >= 0).all() and abs(p.sum() - 1) < 1e-12
    rest = x - p
    t = rest[p > 0].mean()
    assert (rest[p > 0] - t).abs().max() < 1e-12 and (rest <= t + 1e-12).all()
    torch.testing.assert_close(p, sparsemax_of(x))


@given(scores)
def test_entmax15_maximises_its_objective(row: list[float]) -> None:
    """<p, x> + 4/3 sum (p - p^1.5): x - 2 sqrt(p) is the same on the support, less elsewhere."""
    x = torch.tensor(row, dtype=torch.float64)
    p = project_entmax15(x)
    assert (p >= 0).all() and abs(p.sum() - 1) < 1e-9
    rest = x - 2 * p.sqrt()
    t = rest[p > 0].mean()
    assert (rest[p > 0] - t).abs().max() < 1e-6 and (rest <= t + 1e-6).all()
    torch.testing.assert_close(p, entmax15_of(x), atol=1e-7, rtol=0)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_projections_of_rows_and_ties(name: str) -> None:
    project = PROJECTIONS[name]
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(project(x)[1, 2], project(x[1, 2]))
    torch.testing.assert_close(project(torch.zeros(6)), torch.full((6,), 1 / 6))
    torch.testing.assert_close(project(x + 100.0), project(x))
    assert project(torch.tensor([5.0, 0.0, -5.0])).tolist() == [1.0, 0.0, 0.0]
    masked = project(torch.tensor([0.3, -torch.inf, 0.0]))
    torch.testing.assert_close(masked[[0, 2]], project(torch.tensor([0.3, 0.0])))


@pytest.mark.parametrize("name", PROJECTIONS)
def test_projections_pass_gradcheck(name: str) -> None:
    torch.manual_seed(0)
    function = {"sparsemax": sparsemax, "entmax15": entmax15}[name]
    theta = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    tau = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    beta = torch.full((6, 1), 0.4, dtype=torch.float64, requires_grad=True)
    noise = dc.gumbel([6, 5], dtype=torch.float64)

    def relaxed(theta: Tensor, tau: Tensor, beta: Tensor) -> Tensor:
        return function(theta, tau=tau, beta=beta, noise=noise)

    assert torch.autograd.gradcheck(relaxed, (theta, tau, beta))
    p = relaxed(theta, tau, beta)
    assert ((p > 0).sum(-1) < 5).any() and ((p > 0).sum(-1) > 1).any()


def test_entmax15_is_between_softmax_and_sparsemax() -> None:
    theta = torch.randn(500, 10)
    counts = [
        (f(theta, tau=1.0, beta=0.0) > 0).float().sum(-1).mean() for f in (sparsemax, entmax15)
    ]
    assert 1 < counts[0] < counts[1] < 10


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.integers(-3, 3)), min_size=2, max_size=6, unique_by=(
        lambda pair: pair[0],
    )),
)  # fmt: skip
def test_critical_steps_are_those_of_a_scan(pairs: list[tuple[float, int]]) -> None:
    a = torch.tensor([pair[0] for pair in pairs], dtype=torch.float64)
    g = torch.tensor([pair[1] for pair in pairs], dtype=torch.float64)
    hard = dc.one_hot(a.argmax(-1), len(a), torch.float64)
    found, expected = float(critical_steps(a, hard, g)), first_change(a, g)
    assert found == pytest.approx(expected, rel=1e-12)
    if expected < 1e6 and expected > 1e-6:
        before, after = (
            [(a + sign * expected * step * g).argmax() for sign in (1, -1)]
            for step in (0.999, 1.001)
        )
        assert all(one == a.argmax() for one in before)
        assert any(one != a.argmax() for one in after)


def test_critical_steps_skip_masked_categories() -> None:
    a = torch.tensor([[1.0, -torch.inf, 0.0], [1.0, -torch.inf, -torch.inf]])
    hard, g = dc.one_hot(torch.tensor([0, 0]), 3), torch.tensor([[0.0, 5.0, 2.0]]).expand(2, 3)
    assert critical_steps(a, hard, g).tolist() == [0.5, torch.inf]


@pytest.mark.parametrize("rows", [1, 2, 9, 500])
def test_adaptive_imle_gives_half_of_the_rows_a_gradient(rows: int) -> None:
    torch.manual_seed(0)
    theta, weights = torch.randn(rows, 6), 1e-4 * torch.randn(rows, 6)  # as of a mean over many
    _, gradient = play("adaptive_imle", theta, weights, tau=1e-6, beta=1.0)
    assert (gradient.abs().sum(-1) > 0).sum() == (rows + 1) // 2
    never = torch.cat([weights, torch.zeros(rows, 6)])  # which do not count
    _, gradient = play("adaptive_imle", theta.repeat(2, 1), never, tau=1e-6, beta=1.0)
    assert (gradient.abs().sum(-1) > 0).sum() == (rows + 1) // 2
    assert (gradient[rows:] == 0).all()


def test_adaptive_imle_takes_no_step_that_is_too_short() -> None:
    """Two categories that are all but tied do not make a gradient of millions."""
    theta = torch.tensor([[0.0, 1e-9, -5.0]], dtype=torch.float64)
    weights = torch.tensor([[1.0, 0.5, 0.0]]).double()
    _, gradient = play("adaptive_imle", theta, weights, tau=2.0, beta=0.0)
    assert gradient.abs().max() == pytest.approx(1 / (2 * 2.0 / 100))
    tau = torch.tensor([[2.0]]).double()
    assert balanced_step(torch.tensor([torch.inf]), torch.tensor(4.0), tau) == pytest.approx(0.005)


def test_imle_moves_to_the_better_choice_if_the_step_is_long_enough() -> None:
    theta = torch.tensor([[1.0, 0.0, 0.0]])
    weights = torch.tensor([[1.0, 0.0, 2.0]])  # the second category is the best
    for tau, expected in ((0.5, [0.0, 0.0, 0.0]), (2.0, [0.5, -0.5, 0.0])):
        _, gradient = play("imle", theta, weights, tau=tau, beta=0.0)
        assert gradient.tolist() == [expected]
