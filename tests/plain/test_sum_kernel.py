"""The kernel of sums against its torch twin, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest
import torch

from dcgraph.experiments.tasks.paths.sharing import _sum_by_torch

kernel = pytest.importorskip(
    "dcgraph.experiments.tasks.paths.kernels.sums", reason="the kernels need Triton"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_kernel_adds_as_its_twin(count: int, dtype: torch.dtype, share: float) -> None:
    torch.manual_seed(0)
    terms = [torch.randn(2, 50, 81, device=DEVICE).to(dtype) for _ in range(count)]
    terms[-1] = terms[-1].mT.contiguous().mT
    keys = torch.tensor([[3], [4]], device=DEVICE)
    found = kernel.summed(terms, keys, share)
    expected = _sum_by_torch(terms, keys, share)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    dropped = (found == 0).float().mean()
    assert found.dtype == torch.float32 and (dropped > 0.25) == (share > 0 and count == 1)
