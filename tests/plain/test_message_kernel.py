"""The fused messages against torch, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dcgraph.tasks.listops.messages import Routes, messages_by_torch

kernel = pytest.importorskip("dcgraph.kernels.messages", reason="the kernels need Triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TF32 a value near 0 may fall on the other side of a ReLU, and a gradient is gone."""
    monkeypatch.setattr(kernel, "PRECISION", "ieee")


def arguments(models: int, batch: int, length: int, kinds: int, dim: int) -> list[Tensor]:
    torch.manual_seed(models + length)
    floats = [
        torch.randn(models, kinds, dim),
        torch.randn(models, batch, length, dim),
        torch.randn(models, dim, dim) / dim**0.5,
        torch.randn(models, dim),
        torch.randn(models, batch, length, length).softmax(-1),
    ]
    kind = torch.randint(-1, kinds, (models, batch, length))
    return [*(t.to(DEVICE).requires_grad_() for t in floats), kind.to(DEVICE)]


def by_torch(*given: Tensor, mask: Tensor | None = None) -> Tensor:
    """The definition, for every model."""

    out = []
    for m, (receiver, sender, weight, bias, edges, kinds) in enumerate(zip(*given, strict=True)):
        routes = Routes(edges, kinds, len(receiver))
        own = None if mask is None else mask[m]
        out.append(messages_by_torch(receiver, sender, weight, bias, routes, own))
    return torch.stack(out)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().norm() / expected.detach().norm())


def gradients(out: Tensor, given: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(5)
    weights = torch.randn(out.shape, device=DEVICE)
    return list(torch.autograd.grad((out * weights).sum(), given[:5]))


# A tile with room, a full one, more than one tile of 16; more kinds than occur; a single model.
@pytest.mark.parametrize("shape", [(2, 3, 7, 4, 10), (1, 2, 16, 14, 16), (1, 1, 50, 3, 60)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_kernel_equals_its_twin(shape: tuple[int, ...], dropout: float) -> None:
    given = arguments(*shape)
    seed = torch.tensor([11], device=DEVICE)
    found = kernel._Messages.apply(*given, seed, dropout)
    models, batch, length, kinds, dim = shape
    factor = kernel.drawn_factors(seed, models, batch, kinds, length, dim, dropout)
    receiver, sender, weight, *others = given
    expected = by_torch(receiver, sender, weight / (1 - dropout), *others, mask=factor > 0)
    assert relative_error(found, expected) < TOLERANCE
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        assert relative_error(one, other) < TOLERANCE


def test_dropout_has_its_law() -> None:
    seed = torch.tensor([3], device=DEVICE)
    factor = kernel.drawn_factors(seed, 2, 3, 5, 16, 16, 0.25)
    assert factor.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    share = float((factor == 0).float().mean())
    assert abs(share - 0.25) < 4 * (0.25 * 0.75 / factor.numel()) ** 0.5
    assert not torch.equal(factor[0], factor[1])
    kept = (factor > 0).double()
    for shift in (1, 2, 4, 8):  # units that share a draw are independent
        together = float((kept[..., shift:] * kept[..., :-shift]).mean())
        assert together == pytest.approx(0.75**2, abs=0.02)


def test_mapped_over_replicas_as_a_population_does() -> None:
    given = arguments(3, 2, 5, 4, 8)

    def one(*own: Tensor) -> Tensor:
        alone = [value.unsqueeze(0) for value in own]
        out: Tensor = kernel.messages(*alone).squeeze(0)
        return out

    mapped = torch.func.vmap(one, randomness="different")(*given)
    expected = by_torch(*given)
    assert relative_error(mapped, expected) < TOLERANCE
    for one_, other in zip(gradients(mapped, given), gradients(expected, given), strict=True):
        assert relative_error(one_, other) < TOLERANCE


def test_replicas_drop_different_units() -> None:
    given = [value[:1].expand(2, *value.shape[1:]) for value in arguments(1, 2, 5, 4, 8)]

    def one(*own: Tensor) -> Tensor:
        out: Tensor = kernel.messages(*(v.unsqueeze(0) for v in own), dropout=0.5).squeeze(0)
        return out

    first, second = torch.func.vmap(one, randomness="different")(*given)
    assert not torch.allclose(first, second)


@pytest.mark.skipif(DEVICE == "cpu", reason="there is no GPU")
def test_tf32_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "PRECISION", "tf32")
    given = arguments(2, 50, 19, 14, 60)
    found, expected = kernel.messages(*given), by_torch(*given)
    assert relative_error(found, expected) < 1e-3
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        assert relative_error(one, other) < 3e-2
