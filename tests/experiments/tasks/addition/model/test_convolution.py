"""The convolution of the addition task against torch's own, alone and mapped over replicas."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, vmap

from dcgraph.experiments.tasks.addition.model import convolution
from dcgraph.experiments.tasks.addition.model.convolution import ConvPoolReLU

CASES = [  # channels, filters, size, height, width
    (1, 6, 5, 28, 28),
    (6, 16, 5, 12, 12),
    (2, 3, 4, 9, 7),
    (3, 2, 3, 4, 10),
    (2, 2, 1, 2, 4),
]


def torchs(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """What torch makes of images [C, H, W, N]."""
    batch_first = F.relu(F.max_pool2d(F.conv2d(x.permute(3, 0, 1, 2), weight, bias), 2))
    return batch_first.permute(1, 2, 3, 0)


def ours(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    filters, channels, size, _ = weight.shape
    result: Tensor = functional_call(
        model(channels, filters, size), {"weight": weight, "bias": bias}, (x,)
    )
    return result


@functools.cache  # so that a mapped call builds none: vmap forbids the random initial weights
def model(channels: int, filters: int, size: int) -> ConvPoolReLU:
    return ConvPoolReLU(channels, filters, size)


def inputs(case: Sequence[int], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    channels, filters, size, height, width = case
    shapes = [(channels, height, width, 3), (filters, channels, size, size), (filters,)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_torch(case: Sequence[int]) -> None:
    torch.manual_seed(0)
    leaves = inputs(case)
    out, expected = ours(*leaves), torchs(*leaves)
    torch.testing.assert_close(out, expected)
    direction = torch.randn_like(out)
    gradients = torch.autograd.grad(out, leaves, direction)
    expected_gradients = torch.autograd.grad(expected, leaves, direction)
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-4)


def test_gradients_are_those_of_finite_differences() -> None:
    torch.manual_seed(0)
    leaves = inputs((2, 3, 3, 6, 4), torch.float64)
    assert torch.autograd.gradcheck(ours, leaves, check_undefined_grad=False)


def test_of_equal_scores_the_first_takes_the_gradient() -> None:
    x = torch.ones(1, 4, 4, 2, requires_grad=True)
    weight, bias = torch.ones(1, 1, 1, 1), torch.zeros(1)
    (gradient,) = torch.autograd.grad(ours(x, weight, bias).sum(), x)
    (expected,) = torch.autograd.grad(torchs(x, weight, bias).sum(), x)
    assert torch.equal(gradient, expected)


def mapped_and_looped(shared_images: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Output and gradients of three replicas, mapped and one by one."""
    case, dim = (2, 3, 3, 6, 8), None if shared_images else 0
    replicas = [inputs(case) for _ in range(3)]
    if shared_images:
        replicas = [[replicas[0][0], *own] for _, *own in replicas]
    x, weight, bias = (torch.stack(parts) for parts in zip(*replicas, strict=True))
    x = x[0] if shared_images else x
    leaves = [part.detach().requires_grad_() for part in (x, weight, bias)]
    model(2, 3, 3)
    mapped = vmap(ours, in_dims=(dim, 0, 0))(*leaves)
    looped = torch.stack([ours(*own) for own in replicas])
    gradients = list(torch.autograd.grad(mapped.square().sum(), leaves))
    each = [torch.autograd.grad(looped.square().sum(), own, retain_graph=True) for own in replicas]
    expected = [torch.stack(parts) for parts in zip(*each, strict=True)]
    expected[0] = expected[0][0] if shared_images else expected[0]
    return [mapped, *gradients], [looped, *expected]


@pytest.mark.parametrize("shared_images", [False, True])
def test_mapping_over_replicas_is_a_loop_over_replicas(shared_images: bool) -> None:
    torch.manual_seed(0)
    mapped, looped = mapped_and_looped(shared_images)
    for got, expected in zip(mapped, looped, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_a_replica_of_nan_leaves_the_others_as_they_are() -> None:
    torch.manual_seed(0)
    model(2, 3, 3)
    leaves = [torch.stack([part, part]).detach() for part in inputs((2, 3, 3, 6, 8))]

    def second(weight: Tensor) -> list[Tensor]:
        own = [part.clone().requires_grad_() for part in (leaves[0], weight, leaves[2])]
        out = vmap(ours)(*own)
        return [part[1] for part in (out, *torch.autograd.grad(out.sum(), own))]

    broken = leaves[1].clone()
    broken[0] = torch.nan
    for got, expected in zip(second(broken), second(leaves[1]), strict=True):
        assert torch.equal(got, expected)


def test_an_odd_number_of_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="images of 7x6 and windows of 3x3 leave an odd"):
        ConvPoolReLU(1, 2, 3)(torch.zeros(1, 7, 6, 1))


def test_images_that_need_no_gradient_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the gradient of the images was computed")

    monkeypatch.setattr(convolution, "_add_windows", fail)
    x, *own = inputs((2, 3, 3, 6, 8))
    ours(x.detach(), *own).sum().backward()
    assert x.grad is None
    assert all(part.grad is not None for part in own)
    with pytest.raises(AssertionError, match="was computed"):
        ours(x, *own).sum().backward()
