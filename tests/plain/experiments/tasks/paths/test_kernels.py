"""The kernels of complex products against their twin, in Triton's interpreter without a GPU."""

from __future__ import annotations

import pytest
import torch
from dcgraph.experiments.tasks.paths.composing import complex_product
from torch import Tensor
from torch.func import vmap

kernel = pytest.importorskip(
    "dcgraph.experiments.tasks.paths.kernels", reason="the kernels need Triton"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def fused(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    product: Tensor = kernel.ComplexProduct.apply(a, b, dtype)
    return product


@pytest.mark.parametrize("dtype", kernel.DTYPES)
def test_products_and_gradients_are_those_of_the_twin(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a = torch.randn(6, 10, device=DEVICE).to(dtype).requires_grad_()
    b = torch.randn(6, 3, 10, device=DEVICE).requires_grad_()
    weights = torch.randn(10, 6, device=DEVICE).T.to(dtype)
    factors = a.cpu(), b[:, 1].cpu()
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2  # the interpreter cuts bfloat16 off
    found, expected = fused(a, b[:, 1], dtype), complex_product(*factors, dtype)
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu(), expected, rtol=tolerance, atol=tolerance)
    of_found = torch.autograd.grad((found * weights).sum(), (a, b))
    of_expected = torch.autograd.grad((expected * weights.cpu()).sum(), (a, b))
    for own, of_twin in zip(of_found, of_expected, strict=True):
        assert own.dtype == of_twin.dtype
        torch.testing.assert_close(own, of_twin, rtol=tolerance, atol=tolerance)


def test_replicas_are_more_rows() -> None:
    a, b = torch.randn(5, 3, 8, device=DEVICE), torch.randn(3, 8, device=DEVICE)
    a.requires_grad_(), b.requires_grad_()
    apart = torch.stack([fused(own, b, torch.float32) for own in a])
    joined = vmap(lambda own: fused(own, b, torch.float32))(a)
    assert torch.equal(joined, apart)
    gradients = [torch.autograd.grad(v.square().sum(), (a, b)) for v in (joined, apart)]
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other)
