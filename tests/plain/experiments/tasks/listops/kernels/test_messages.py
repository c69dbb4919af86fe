"""The fused messages against torch, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dcgraph.experiments.tasks.listops.model.messages import Routes, messages_by_torch

kernel = pytest.importorskip(
    "dcgraph.experiments.tasks.listops.kernels.messages", reason="the kernels need Triton"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TF32 a value near 0 may fall on the other side of a ReLU, and a gradient is gone."""
    monkeypatch.setattr(kernel, "PRECISION", "ieee")


def arguments(
    models: int, batch: int, length: int, kinds: int, dim: int, receivers: int | None = None
) -> list[Tensor]:
    """For receivers of some kinds, as many as senders; or without kinds, a number of them."""
    torch.manual_seed(models + length)
    count = receivers or length
    rows = (batch, receivers) if receivers else (1, kinds)
    floats = [
        torch.randn(models, *rows, dim),
        torch.randn(models, batch, length, dim),
        torch.randn(models, dim, dim) / dim**0.5,
        torch.randn(models, dim),
        torch.randn(models, batch, length, count).softmax(-1),
    ]
    if receivers:
        kind = present = torch.arange(count).expand(models, batch, count)
    else:
        kind = torch.randint(-1, kinds, (models, batch, length))
        present = torch.stack(
            [Routes(e, k, kinds).present for e, k in zip(floats[4], kind, strict=True)]
        )
    return [
        *(t.to(DEVICE).requires_grad_() for t in floats),
        *(t.int().to(DEVICE) for t in (kind, present)),
    ]


def by_torch(*given: Tensor, mask: Tensor | None = None) -> Tensor:
    """The definition, for every model."""
    out = []
    for m, own in enumerate(zip(*given, strict=True)):
        receiver, sender, weight, bias, edges, kinds, _ = own
        if len(receiver) == 1:
            receiver, routes = receiver[0], Routes(edges, kinds, receiver.shape[1])
        else:
            routes = Routes(edges)
        kept = None if mask is None else mask[m]
        out.append(messages_by_torch(receiver, sender, weight, bias, routes, kept))
    return torch.stack(out)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().norm() / expected.detach().norm())


def gradients(out: Tensor, given: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(5)
    weights = torch.randn(out.shape, device=DEVICE)
    return list(torch.autograd.grad((out * weights).sum(), given[:5]))


# A tile with room, a full one, one as long as a tile; more kinds than occur; a single model;
# receivers without kinds, as many as senders or one.
@pytest.mark.parametrize(
    "shape",
    [
        (2, 3, 7, 4, 10),
        (1, 2, 16, 14, 16),
        (1, 2, 50, 3, 60),
        (2, 2, 17, 17, 8, 17),
        (2, 3, 5, 1, 8, 1),
    ],
)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_kernel_equals_its_reference(shape: tuple[int, ...], dropout: float) -> None:
    given = arguments(*shape)
    seed = torch.tensor([11], device=DEVICE)
    found = kernel._Messages.apply(*given, seed, dropout)
    receiver, sender, weight, *others, present = given
    sizes = sender.shape[2], others[1].shape[-1], sender.shape[3]
    mask = kernel.drawn_factors(seed, present, *sizes, dropout) > 0
    scaled = weight / (1 - dropout)
    expected = by_torch(receiver, sender, scaled, *others, present, mask=mask)
    assert relative_error(found, expected) < TOLERANCE
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        assert relative_error(one, other) < TOLERANCE


def test_dropout_has_its_distribution() -> None:
    seed = torch.tensor([3], device=DEVICE)
    present = torch.arange(5, device=DEVICE).expand(2, 3, 5)
    factor = kernel.drawn_factors(seed, present, 16, 16, 16, 0.25)
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
@pytest.mark.parametrize(("precision", "error"), [("tf32", 2e-3), ("bf16", 1e-2)])
def test_fewer_digits_are_close(
    monkeypatch: pytest.MonkeyPatch, precision: str, error: float
) -> None:
    monkeypatch.setattr(kernel, "PRECISION", precision)
    given = arguments(2, 50, 19, 14, 60)
    found, expected = kernel.messages(*given), by_torch(*given)
    assert relative_error(found, expected) < error
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        # Where a value near 0 falls on the other side of a ReLU, a gradient is gone.
        assert relative_error(one, other) < 20 * error
