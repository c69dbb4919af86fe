"""The kernel of sums against its torch twin, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest
import torch

from dcgraph.tasks.paths.sharing import _sum_by_torch

kernel = pytest.importorskip("dcgraph.kernels.sums", reason="the kernels need Triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 3])
def test_the_kernel_adds_as_its_twin(count: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    terms = [torch.randn(50, 81, device=DEVICE).to(dtype) for _ in range(count)]
    terms[-1] = terms[-1].T.contiguous().T
    found = kernel.summed(terms)
    assert torch.equal(found, _sum_by_torch(terms)) and found.dtype == torch.float32
