"""The fused node against Discrete, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.experiments.tasks.listops.model import latent_tree

kernel = pytest.importorskip(
    "dcgraph.experiments.tasks.listops.kernels.discrete", reason="the kernels need Triton"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "PRECISION", "ieee")


def arguments(models: int, vectors: int, dim: int, categories: int) -> list[Tensor]:
    torch.manual_seed(models + vectors)
    floats = [
        torch.randn(models, vectors, dim),
        torch.randn(models, dim, dim) / dim**0.5,
        torch.randn(models, dim),
        torch.randn(models, categories, dim) / dim**0.5,
        torch.randn(models, categories, dim),
    ]
    dials = [0.5 + torch.rand(models), 2 * torch.rand(models)]
    shares = [torch.rand(models, vectors), torch.randint(2, (models, vectors)).float()]
    return [
        *(t.to(DEVICE).requires_grad_() for t in floats),
        *(t.to(DEVICE) for t in (*dials, *shares)),
    ]


def by_nodes(*given: Tensor, noise: Tensor) -> Tensor:
    """A node for each model."""
    out = []
    for own, g in zip(zip(*given, strict=True), noise, strict=True):
        u, w1, bias, w2, codebook, tau, beta, p, q = own

        class Logits(nn.Module):
            def forward(self, u: Tensor, own: tuple[Tensor, ...] = (w1, bias, w2)) -> Tensor:
                return torch.relu(u @ own[0].T + own[1]) @ own[2].T

        node = dc.Discrete(u.shape[-1], len(w2), g=Logits(), codebook="given", residual="none")
        node.categorical.tau.copy_(tau)
        node.categorical.beta.copy_(beta)
        out.append(
            p.unsqueeze(-1) * node.to(DEVICE)(u, codebook=codebook, noise=g) + q.unsqueeze(-1) * u
        )
    return torch.stack(out)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().norm() / expected.detach().norm())


def gradients(out: Tensor, given: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(5)
    weights = torch.randn(out.shape, device=DEVICE)
    return list(torch.autograd.grad((out * weights).sum(), given[:5]))


# A tile with room, several tiles and parts; widths that are no powers of 2.
@pytest.mark.parametrize("shape", [(2, 5, 6, 3), (3, 150, 60, 10), (1, 64, 16, 17)])
def test_kernel_equals_the_node(shape: tuple[int, int, int, int]) -> None:
    given = arguments(*shape)
    seed = torch.tensor([11], device=DEVICE)
    found = kernel._Discrete.apply(*given, seed)
    noise = kernel.drawn_noise(seed, shape[0], shape[1], shape[3])
    expected = by_nodes(*given, noise=noise)
    assert relative_error(found, expected) < TOLERANCE
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        assert relative_error(one, other) < TOLERANCE


def test_noise_has_its_distribution() -> None:
    noise = kernel.drawn_noise(torch.tensor([3], device=DEVICE), 2, 500, 10).double().cpu()
    uniform = torch.exp(-torch.exp(-noise)).flatten().sort().values
    count = len(uniform)
    distance = (uniform - (torch.arange(count) + 0.5) / count).abs().max()
    assert float(distance) < 1.95 / count**0.5  # Kolmogorov and Smirnov, p = 0.001
    assert not torch.equal(noise[0], noise[1])
    for shift in (1, 2, 4):  # those that share a draw are independent
        pairs = torch.stack([noise[..., shift:].flatten(), noise[..., :-shift].flatten()])
        assert abs(float(torch.corrcoef(pairs)[0, 1])) < 0.05


def test_mapped_over_replicas_as_a_population_does() -> None:
    given = arguments(3, 20, 8, 4)
    given[6] = torch.zeros_like(given[6])  # without noise

    def one(*own: Tensor) -> Tensor:
        out: Tensor = kernel.discrete(*(value.unsqueeze(0) for value in own)).squeeze(0)
        return out

    mapped = torch.func.vmap(one, randomness="different")(*given)
    expected = by_nodes(*given, noise=torch.zeros(3, 20, 4, device=DEVICE))
    assert relative_error(mapped, expected) < TOLERANCE
    for one_, other in zip(gradients(mapped, given), gradients(expected, given), strict=True):
        assert relative_error(one_, other) < TOLERANCE


@pytest.mark.parametrize("residual", ["drop", "always", "weighted", "none"])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_states_become_digits_as_by_the_node(
    monkeypatch: pytest.MonkeyPatch,
    residual: Literal["drop", "always", "weighted", "none"],
    alpha: float,
) -> None:
    torch.manual_seed(0)
    g, x, codebook = latent_tree.classifier(6), torch.randn(2, 4, 6), torch.randn(10, 6)
    node = dc.Discrete(6, 10, g=g, codebook="given", residual=residual, gate="vector").to(DEVICE)
    dc.Dials(tau=0.7, beta=0.0, alpha=alpha).attach(node)
    x, codebook = x.to(DEVICE), codebook.to(DEVICE)
    monkeypatch.setattr(latent_tree, "_has_kernel", lambda node, x: True)
    torch.manual_seed(3)
    fused = latent_tree.as_digits(node, x, codebook)
    monkeypatch.setattr(latent_tree, "_has_kernel", lambda node, x: False)
    if residual != "drop":
        assert relative_error(fused, latent_tree.as_digits(node, x, codebook)) < TOLERANCE
        return
    bare = latent_tree.as_digits(_without_residual(node), x, codebook)
    for one, v, u in zip(fused.flatten(0, 1), bare.flatten(0, 1), x.flatten(0, 1), strict=True):
        kept, dropped = relative_error(one, v + u), relative_error(one, v)
        assert min(kept, dropped) < TOLERANCE
        assert alpha != 1.0 or dropped < TOLERANCE
        assert alpha != 0.0 or kept < TOLERANCE


def _without_residual(node: dc.Discrete) -> dc.Discrete:
    bare = dc.Discrete(node.dim, node.categories, g=node.g, codebook="given", residual="none")
    dc.Dials(tau=float(node.tau), beta=0.0).attach(bare)
    return bare
