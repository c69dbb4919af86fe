"""The kernel of dropout against its reference, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest
import torch

from dcgraph.experiments.tasks.paths.dropout import drop_by_torch

kernel = pytest.importorskip(
    "dcgraph.experiments.tasks.paths.kernels", reason="the kernels need Triton"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("to", [torch.float32, torch.bfloat16])
def test_dropped_rows_are_those_of_the_reference(dtype: torch.dtype, to: torch.dtype) -> None:
    torch.manual_seed(0)
    keys = torch.randint(2**62, (2,), device=DEVICE)
    values = torch.randn(2, 90, 5, device=DEVICE).to(dtype)[:, 10:70]
    found, expected, copy = (values.new_zeros(2, 80, 5, dtype=to) for _ in range(3))
    sources = [(values, values), (found[:, :60], expected[:, :60])]  # at last in place
    for own, of_reference in sources:
        before = own.to(to, copy=True)
        kernel.drop(keys, 0.3, own, found[:, :60], copy[:, :60])
        torch.testing.assert_close(copy[:, :60], before, rtol=2e-2, atol=0)
        assert not copy[:, 60:].any()
        drop_by_torch(keys, 0.3, of_reference, expected[:, :60])
        assert torch.equal(found == 0, expected == 0) and (found[:, :60] == 0).any()
        torch.testing.assert_close(found, expected, rtol=0 if to == torch.float32 else 2e-2, atol=0)
