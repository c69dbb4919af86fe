"""The kernels against their reference implementations, in Triton's interpreter without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from dcgraph.experiments.tasks.paths.operators import complex_product, drop_by_torch, sum_by_torch

kernel = pytest.importorskip(
    "dcgraph.experiments.tasks.paths.kernels", reason="the kernels need Triton"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def fused(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    product: Tensor = kernel.ComplexProduct.apply(a, b, dtype)
    return product


@pytest.mark.parametrize("dtype", kernel.DTYPES)
def test_products_and_gradients_are_those_of_the_reference(dtype: torch.dtype) -> None:
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
    for own, of_reference in zip(of_found, of_expected, strict=True):
        assert own.dtype == of_reference.dtype
        torch.testing.assert_close(own, of_reference, rtol=tolerance, atol=tolerance)


def test_replicas_are_more_rows() -> None:
    a, b = torch.randn(5, 3, 8, device=DEVICE), torch.randn(3, 8, device=DEVICE)
    a.requires_grad_(), b.requires_grad_()
    apart = torch.stack([fused(own, b, torch.float32) for own in a])
    joined = vmap(lambda own: fused(own, b, torch.float32))(a)
    assert torch.equal(joined, apart)
    gradients = [torch.autograd.grad(v.square().sum(), (a, b)) for v in (joined, apart)]
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_sums_are_those_of_the_reference(count: int, dtype: torch.dtype, share: float) -> None:
    torch.manual_seed(0)
    terms = [torch.randn(2, 50, 81, device=DEVICE).to(dtype) for _ in range(count)]
    terms[-1] = terms[-1].mT.contiguous().mT
    keys = torch.tensor([[3], [4]], device=DEVICE)
    found = kernel.summed(terms, keys, share)
    expected = sum_by_torch(terms, keys, share)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    dropped = (found == 0).float().mean()
    assert found.dtype == torch.float32 and (dropped > 0.25) == (share > 0 and count == 1)


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


def test_rows_from_some_number_on_have_the_factors_of_the_whole_table() -> None:
    torch.manual_seed(0)
    keys, values = torch.tensor([3], device=DEVICE), torch.randn(1, 90, 20, device=DEVICE)
    whole, found = torch.empty_like(values), torch.empty_like(values)
    drop_by_torch(keys, 0.3, values, whole)
    for part in (slice(0, 37), slice(37, 90)):
        kernel.drop(keys, 0.3, values[:, part], found[:, part], first=part.start)
        summed = kernel.summed([values[:, part]], keys, 0.3, part.start)
        torch.testing.assert_close(summed, whole[:, part])
        by_torch = sum_by_torch([values[:, part]], keys, 0.3, part.start)
        torch.testing.assert_close(by_torch, whole[:, part])
    torch.testing.assert_close(found, whole)
