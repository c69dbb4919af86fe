"""The kernel of Adam against its reference, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest
import torch

from dcgraph.population import _adam as adam
from dcgraph.population._adam import BETAS, EPSILON, Block

pytest.importorskip("dcgraph.kernels._population", reason="the kernels need Triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("count", [3, 1024, 2500])
def test_the_kernel_takes_the_steps_of_its_reference(count: int) -> None:
    torch.manual_seed(0)
    start, lr = torch.randn(3, count, device=DEVICE), torch.tensor([1e-3, 0.0, 3e-2], device=DEVICE)
    found, expected = start.clone(), start.clone()
    of_found, of_expected = (torch.zeros(2, 3, count, device=DEVICE) for _ in range(2))
    first = count // 3  # two parts of the columns
    for step in range(1, 6):
        gradient = torch.randn(3, count, device=DEVICE) * torch.logspace(-6, 2, count).to(DEVICE)
        gradient[1, 0] = torch.nan
        now = torch.tensor(step, device=DEVICE)
        for update, weights, moments in (
            (adam._by_kernels, found, of_found),
            (adam._all_rows, expected, of_expected),
        ):
            parts = (weights, gradient, *moments)
            blocks = []
            for where in (slice(0, first), slice(first, count)):
                w, g, m, v = (matrix[:, where] for matrix in parts)
                blocks.append(Block(w, g, m, v, now))
            update(blocks, lr, BETAS, EPSILON)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(found[1], start[1])
    torch.testing.assert_close(of_found[:, ::2], of_expected[:, ::2], rtol=1e-5, atol=1e-8)
