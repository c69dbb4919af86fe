"""Mixing over a codebook: all ways against the definition, the law of the noise, memory, errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dcgraph as dc
from dcgraph.mixing import blockwise


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(blockwise._ENTRIES, "cpu", 3000)


def inputs(*groups: int, rows: int = 5, n: int = 1003, dim: int = 6) -> tuple[Tensor, Tensor]:
    torch.manual_seed(n)
    query = torch.randn(*groups, rows, dim, dtype=torch.float64, requires_grad=True)
    codebook = torch.randn(*groups, n, dim, dtype=torch.float64, requires_grad=True)
    return query, codebook


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().norm() / expected.detach().norm())


def agree(
    call: Callable[..., Tensor], *arguments: Tensor, tolerance: float = 1e-12, **options: object
) -> None:
    """Block by block as by the definition: values and gradients."""
    torch.manual_seed(0)
    expected = call(*arguments, way="plain", **options)
    torch.manual_seed(0)
    found = call(*arguments, way="blockwise", **options)
    assert relative_error(found, expected) < tolerance
    weights = torch.randn_like(found)
    learned = [t for t in (*arguments, *options.values()) if isinstance(t, Tensor)]
    learned = [t for t in learned if t.requires_grad]
    pairs = zip(
        torch.autograd.grad((found * weights).sum(), learned),
        torch.autograd.grad((expected * weights).sum(), learned),
        strict=True,
    )
    for of_found, of_expected in pairs:
        assert relative_error(of_found, of_expected) < tolerance


def test_mix_is_gumbel_softmax_of_products_times_codebook() -> None:
    query, codebook = inputs()
    noise = dc.gumbel([5, 1003], dtype=torch.float64)
    z = dc.gumbel_softmax(query @ codebook.T, 2.0, beta=0.5, noise=noise)
    for way in ("plain", "blockwise", None):
        v = dc.mix(query, codebook, 2.0, beta=0.5, noise=noise, way=way)
        torch.testing.assert_close(v, z @ codebook)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_blocks_agree_with_the_definition(hard: bool, dropout: float) -> None:
    query, codebook = inputs(2)
    agree(dc.mix, query, codebook, tau=1.5, beta=0.5, hard=hard, dropout=dropout)


def test_cross_entropy_is_that_of_torch() -> None:
    query, codebook = inputs()
    target = torch.randint(1003, (5,))
    expected = F.cross_entropy(query @ codebook.T / 2.0, target, reduction="none")
    torch.testing.assert_close(dc.cross_entropy(query, codebook, target, 2.0), expected)
    agree(dc.cross_entropy, query, codebook, target, tau=2.0)
    agree(dc.log_sum_exp, query, codebook, dropout=0.5)
