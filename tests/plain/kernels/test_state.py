"""Kernels that count a step, and their references; in Triton's interpreter without a GPU."""

from __future__ import annotations

import pytest
import torch

from dcgraph.population._state import _advance_by_torch, _totals_by_torch, initial_state

kernel = pytest.importorskip("dcgraph.kernels._population", reason="the kernels need Triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_the_kernel_does_what_its_reference_does() -> None:
    found, expected = initial_state(3, DEVICE), initial_state(3, DEVICE)
    lr, flat = torch.tensor([1e-3, 2e-3, 0.5]).to(DEVICE), torch.tensor([0.0, 4.0, 10.0]).to(DEVICE)
    nan, inf = torch.nan, torch.inf
    losses = [[1.0, 2.0, 3.0], [1.0, nan, 3.0], [1.0, 2.0, 3.0], [4.0, 2.0, 3.0]]
    totals = [[0.0, -1.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.0, 0.0, -inf]]
    for loss, total in torch.tensor([losses, totals]).to(DEVICE).unbind(1):
        rates = kernel.advance_(loss, total, lr, flat, *vars(found).values(), 10)
        torch.testing.assert_close(
            rates, _advance_by_torch(expected, loss, total, lr, flat, 10), rtol=1e-6, atol=0
        )
        for name, tensor in vars(found).items():
            assert torch.equal(tensor, getattr(expected, name)), name
    assert found.stopped_at.tolist() == [-1, 1, 3] and found.step == 4


def test_sums_of_gradients_are_those_of_the_reference_and_show_what_is_not_finite() -> None:
    torch.manual_seed(0)
    gradients = [torch.randn(5, count, device=DEVICE) for count in (40_000, 16_384, 3)]
    expected = _totals_by_torch(gradients)
    torch.testing.assert_close(kernel.totals(gradients), expected, rtol=0, atol=1e-2)
    for row, value in enumerate((torch.nan, torch.inf, -torch.inf)):
        gradients[0][row, 30_000] = value
    gradients[2][3, 2] = torch.nan
    assert kernel.totals(gradients).isfinite().tolist() == [False] * 4 + [True]
