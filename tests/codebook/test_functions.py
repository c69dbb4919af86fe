"""Choices over a codebook: all implementations against the definition, noise, masks.

The kernels have a file of their own in tests/plain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dcgraph as dc
from codebooks import IMPLEMENTATIONS, by, inputs, several_blocks
from dcgraph._checks import unchecked
from dcgraph.codebook._functions import make_problem, using
from dcgraph.codebook._problem import Implementation, fastest
from large_logits import LARGE, errors_by_row, large_logits
from statistics_of_fit import chi_square_p


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().norm() / expected.detach().norm())


def agree(
    call: Callable[..., Tensor], *arguments: Tensor, tolerance: float = 1e-12, **options: Any
) -> None:
    """Block by block as by the definition, from the same seed: values and gradients."""
    found, expected = (
        by(implementation, _seeded, call, *arguments, **options)
        for implementation in ("blockwise", "dense")
    )
    assert relative_error(found, expected) < tolerance
    weights = torch.randn_like(found)
    tensors = [t for t in (*arguments, *options.values()) if isinstance(t, Tensor)]
    learned = [t for t in tensors if t.requires_grad]
    pairs = zip(
        torch.autograd.grad((found * weights).sum(), learned),
        torch.autograd.grad((expected * weights).sum(), learned),
        strict=True,
    )
    for of_found, of_expected in pairs:
        assert relative_error(of_found, of_expected) < tolerance


def _seeded(call: Callable[..., Tensor], *arguments: Tensor, **options: Any) -> Tensor:
    torch.manual_seed(3)
    return call(*arguments, **options)


@several_blocks
def test_mix_is_gumbel_softmax_of_products_times_codebook() -> None:
    query, codebook = inputs()
    noise = dc.gumbel([5, 1003], dtype=torch.float64)
    z = dc.gumbel_softmax(query @ codebook.T, 2.0, beta=0.5, noise=noise)
    for implementation in (*IMPLEMENTATIONS, None):
        v = by(implementation, dc.mix, query, codebook, 2.0, beta=0.5, noise=noise)
        torch.testing.assert_close(v, z @ codebook)
        index, row = by(implementation, dc.codebook.choose, query, codebook, beta=0.5, noise=noise)
        assert torch.equal(index, z.argmax(-1)) and torch.equal(row, codebook[index])


@several_blocks
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("learned", [False, True], ids=["fixed dials", "learned dials"])
def test_blocks_agree_with_the_definition(learned: bool, hard: bool) -> None:
    query, codebook = inputs(2)
    tau = (torch.rand(2, 5, 1, dtype=torch.float64) + 0.5).requires_grad_(learned)
    beta = torch.rand(2, 1, 1, dtype=torch.float64).requires_grad_(learned)
    mask = torch.rand(2, 5, 1003) > 0.3
    agree(dc.mix, query, codebook, tau=tau, beta=beta, hard=hard, mask=mask)


@several_blocks
@pytest.mark.parametrize("gap", [4.0, 8.0, 12.0])
@pytest.mark.parametrize("hard", [False, True])
def test_gradients_where_one_category_has_nearly_all_the_weight(hard: bool, gap: float) -> None:
    gradients = []
    for dtype, implementation in zip((torch.float64, torch.float32), IMPLEMENTATIONS, strict=True):
        query, codebook = (t.to(dtype).requires_grad_() for t in large_logits(500.0, gap))
        v = by(implementation, dc.mix, query, codebook, beta=0.0, hard=hard)
        of_query, of_codebook = torch.autograd.grad((v * codebook[0]).sum(), (query, codebook))
        gradients.append((of_query, of_codebook[list(LARGE)]))
    for expected, found in zip(*gradients, strict=True):
        assert max(errors_by_row(found, expected)) < 1e-4


@several_blocks
def test_blocks_agree_in_float32() -> None:
    query, codebook = inputs(rows=8, n=20_001, dim=16, dtype=torch.float32)
    agree(dc.mix, query, codebook, tau=2.0, beta=1.0, tolerance=1e-5)
    target = torch.randint(20_001, (8,))
    agree(dc.codebook.cross_entropy, query, codebook, target, tau=2.0, tolerance=1e-5)


@several_blocks
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    query, codebook = (t.detach().to(dtype).requires_grad_() for t in inputs(rows=8, n=5001))
    agree(dc.mix, query, codebook, tau=2.0, beta=1.0, tolerance=1e-2)
    with torch.autocast("cpu", dtype):
        v = by("blockwise", dc.mix, query.detach().float(), codebook.detach().float())
    assert v.dtype == dtype


@several_blocks
def test_cross_entropy_is_that_of_torch() -> None:
    query, codebook = inputs()
    target = torch.randint(1003, (5,))
    expected = F.cross_entropy(query @ codebook.T / 2.0, target, reduction="none")
    torch.testing.assert_close(dc.codebook.cross_entropy(query, codebook, target, 2.0), expected)
    torch.testing.assert_close(
        dc.codebook.logsumexp(query, codebook), (query @ codebook.T).logsumexp(-1)
    )
    agree(dc.codebook.cross_entropy, query, codebook, target, tau=2.0)
    agree(dc.codebook.logsumexp, query, codebook, mask=torch.rand(5, 1003) > 0.5)


@several_blocks
def test_a_masked_target_costs_infinity() -> None:
    query, codebook = inputs()
    mask = torch.arange(1003) != 7
    for implementation in IMPLEMENTATIONS:
        loss = by(
            implementation,
            dc.codebook.cross_entropy,
            query,
            codebook,
            torch.full((5,), 7),
            mask=mask,
        )
        assert (loss == torch.inf).all()


def test_the_definition_has_the_gradients_it_should() -> None:
    query, codebook = inputs(rows=2, n=7, dim=3)
    tau = torch.tensor([[1.3], [0.7]], dtype=torch.float64, requires_grad=True)
    beta = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    noise, target = dc.gumbel([2, 7], dtype=torch.float64), torch.tensor([3, 0])
    for implementation in IMPLEMENTATIONS:
        assert torch.autograd.gradcheck(
            lambda q, c, t, b, i=implementation: by(i, dc.mix, q, c, t, beta=b, noise=noise),
            (query, codebook, tau, beta),
        )
        assert torch.autograd.gradcheck(
            lambda q, c, t, i=implementation: by(i, dc.codebook.cross_entropy, q, c, target, t),
            (query, codebook, tau),
        )
    assert torch.autograd.gradgradcheck(
        lambda q, c: by("dense", dc.mix, q, c, noise=noise), (query, codebook)
    )


def test_there_is_no_second_derivative_without_the_matrix() -> None:
    query, codebook = inputs()
    v = by("blockwise", dc.mix, query, codebook)
    (first,) = torch.autograd.grad(v.square().sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        first.sum().backward()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_choices_follow_softmax_of_theta_over_beta(implementation: Implementation) -> None:
    torch.manual_seed(0)
    theta = torch.full((300,), -9.0)
    theta[::50] = torch.tensor([1.0, -0.5, 0.3, 2.0, 0.0, 1.5])
    query, codebook = torch.ones(20_000, 1), theta.unsqueeze(-1)  # the products are theta
    probabilities = (theta / 2.0).softmax(-1)
    some = torch.cat([probabilities[::50], 1 - probabilities[::50].sum().unsqueeze(0)])

    def counts(index: Tensor) -> Tensor:
        every = index.bincount(minlength=300)
        return torch.cat([every[::50], every.sum().unsqueeze(0) - every[::50].sum()])

    index, row = by(implementation, dc.codebook.choose, query, codebook, beta=2.0)
    assert chi_square_p(counts(index), some) > 1e-4
    assert torch.equal(row, codebook[index])
    identity = torch.eye(300)  # the mixture is z itself, and its argmax is distributed likewise
    z = by(implementation, dc.mix, theta.expand(5000, -1), identity, 3.0, beta=2.0)
    assert chi_square_p(counts(z.argmax(-1)), some) > 1e-4
    torch.testing.assert_close(z.sum(-1), torch.ones(5000))


def test_relaxed_rows_are_distributed_as_gumbel_softmax() -> None:
    torch.manual_seed(1)
    theta = torch.tensor([1.0, 0.0, -1.0]).expand(20_000, -1)
    ours = by("blockwise", dc.mix, theta, torch.eye(3), 2.0, beta=1.5)
    theirs = dc.gumbel_softmax(theta, 2.0, beta=1.5)
    bins = torch.linspace(0, 1, 21)[1:-1]
    for category in range(3):
        seen, expected = (
            torch.bucketize(z[:, category].contiguous(), bins).bincount(minlength=20).double()
            for z in (ours, theirs)
        )
        # Two samples of the same size: the difference has variance of their sum.
        used = seen + expected > 0
        statistic = ((seen - expected) ** 2 / (seen + expected))[used].sum()
        freedom = torch.tensor((int(used.sum()) - 1) / 2, dtype=torch.float64)
        assert torch.special.gammaincc(freedom, statistic / 2) > 1e-4


def test_no_ties_among_a_million_equal_categories() -> None:
    torch.manual_seed(0)
    index, _ = by("blockwise", dc.codebook.choose, torch.zeros(4, 1), torch.zeros(1_000_000, 1))
    assert len(index.unique()) == 4
    assert (index > 1000).all()


@several_blocks
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_masked_categories_never_come_out_and_get_no_gradient(
    implementation: Implementation,
) -> None:
    torch.manual_seed(0)
    query, codebook = inputs(rows=40, n=600)
    mask = torch.arange(600) % 3 == 1
    index, _ = by(implementation, dc.codebook.choose, query, codebook, beta=9.0, mask=mask)
    assert mask[index].all()
    v = by(implementation, dc.mix, query, codebook, beta=9.0, mask=mask)
    (gradient,) = torch.autograd.grad(v.square().sum(), codebook)
    assert (gradient[~mask] == 0).all() and (gradient[mask] != 0).any()


@several_blocks
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_an_empty_row_is_an_error_or_zeros(implementation: Implementation) -> None:
    query, codebook = inputs()
    mask = torch.ones(5, 1003, dtype=torch.bool)
    mask[2] = False
    with pytest.raises(ValueError, match="no category left"):
        by(implementation, dc.mix, query, codebook, mask=mask)
    with unchecked():
        v = by(implementation, dc.mix, query, codebook, mask=mask)
        index, row = by(implementation, dc.codebook.choose, query, codebook, mask=mask)
    assert (v[2] == 0).all() and (row[2] == 0).all() and index[2] == -1 and (index[:2] >= 0).all()
    gradients = torch.autograd.grad(v.square().sum(), (query, codebook))
    assert all(g.isfinite().all() for g in gradients) and (gradients[0][2] == 0).all()


@several_blocks
def test_nan_is_an_error() -> None:
    query, codebook = (t.detach() for t in inputs())
    query[1] = torch.nan
    for implementation in IMPLEMENTATIONS:
        with pytest.raises(ValueError, match="NaN"):
            by(implementation, dc.mix, query, codebook)


@several_blocks
def test_reversed_noise() -> None:
    query, codebook = inputs()
    noise = dc.gumbel([5, 1003], dtype=torch.float64)
    drawn = {name: _seeded(dc.mix, query, codebook, noise=name) for name in ("gumbel", "reversed")}
    assert not torch.equal(drawn["gumbel"], drawn["reversed"])
    for implementation in IMPLEMENTATIONS:
        v = by(implementation, _seeded, dc.mix, query, codebook, noise="reversed")
        torch.testing.assert_close(v, drawn["reversed"])
    assert not torch.equal(dc.mix(query, codebook, noise=-noise), drawn["gumbel"])


def test_without_noise_nothing_is_drawn() -> None:
    query, codebook = inputs()
    before = torch.get_rng_state()
    dc.mix(query, codebook, beta=0.0)
    dc.codebook.cross_entropy(query, codebook, torch.zeros(5, dtype=torch.int64))
    assert torch.equal(before, torch.get_rng_state())


@several_blocks
def test_groups_have_codebooks_of_their_own() -> None:
    query, codebook = inputs(2, 3)
    noise = dc.gumbel([2, 3, 5, 1003], dtype=torch.float64)
    for implementation in IMPLEMENTATIONS:
        together = by(implementation, dc.mix, query, codebook, 1.5, noise=noise)
        for i in range(2):
            for j in range(3):
                alone = by(
                    implementation, dc.mix, query[i, j], codebook[i, j], 1.5, noise=noise[i, j]
                )
                torch.testing.assert_close(together[i, j], alone)
    more = query.detach().unsqueeze(2).expand(2, 3, 4, 5, 6)  # further dimensions are rows
    assert dc.mix(more, codebook).shape == (2, 3, 4, 5, 6)


def test_large_ones_go_without_the_matrix() -> None:
    small, large = (
        make_problem(*inputs(rows=5, n=n, dim=1), 1.0, 1.0, None, None, None)[0]
        for n in (100, 300_000)
    )
    assert fastest(small) == "dense" and fastest(large) == "blockwise"
    assert set(get_args(Implementation)) == {*IMPLEMENTATIONS, "streaming"}


@several_blocks
def test_by_distance_the_nearest_row_is_chosen_and_weights_fall_with_the_square() -> None:
    query, codebook = inputs(2)
    scale = torch.rand(2, 1003, 1, dtype=torch.float64) * 2  # or lengths would not matter
    codebook = (codebook * scale).detach().requires_grad_()
    distance = torch.cdist(query, codebook)
    longer = dc.codebook.by_distance(query, codebook)
    noise = dc.gumbel([2, 5, 1003], dtype=torch.float64)
    z = dc.gumbel_softmax(-distance.square() / 2, 0.7, beta=0.3, noise=noise)
    for implementation in (*IMPLEMENTATIONS, None):
        index, row = by(implementation, dc.codebook.choose, *longer, beta=0.0)
        assert torch.equal(index, distance.argmin(-1))
        assert not torch.equal(index, (query @ codebook.mT).argmax(-1))
        torch.testing.assert_close(row[..., :-1], torch.stack(list(map(_rows, codebook, index))))
        v = by(implementation, dc.mix, *longer, 0.7, beta=0.3, noise=noise)[..., :-1]
        torch.testing.assert_close(v, z @ codebook)
        found, expected = (
            torch.autograd.grad(value.square().sum(), (query, codebook), retain_graph=True)
            for value in (v, z @ codebook)
        )
        torch.testing.assert_close(found, expected)


def _rows(codebook: Tensor, index: Tensor) -> Tensor:
    return codebook[index]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_by_distance_finds_the_nearest_in_any_precision(dtype: torch.dtype) -> None:
    """Far from the origin squared lengths are large, and what tells rows apart is small."""
    torch.manual_seed(0)
    codebook = (20 + torch.randn(50, 8)).to(dtype)
    query = (codebook.float() + 0.1 * torch.randn(50, 8)).to(dtype)
    longer = dc.codebook.by_distance(query, codebook)
    assert longer[0].dtype == longer[1].dtype == torch.float32
    index, _ = dc.codebook.choose(*longer, beta=0.0)
    expected = torch.cdist(query.double(), codebook.double()).argmin(-1)
    assert torch.equal(index, expected)


def test_a_node_chooses_by_distance() -> None:
    torch.manual_seed(0)
    node = dc.Discrete(4, 7, codebook="given", residual="none").eval()
    u, codebook = torch.randn(9, 3), torch.randn(7, 3)
    query, codes = dc.codebook.by_distance(u, codebook)
    v = node(query, codebook=codes)[..., :-1]
    assert torch.equal(v, codebook[torch.cdist(u, codebook).argmin(-1)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("way", ["dense", "blockwise"])
def test_logits_in_half_precision_are_not_rounded(way: str, dtype: torch.dtype) -> None:
    """Logits of size 60 in bfloat16 are multiples of 0.25: errors of per cents in the mixture."""
    generator = torch.Generator().manual_seed(0)
    query, codebook, of_value = (
        torch.randn(size, generator=generator).to(dtype) for size in ((8, 64), (300, 64), (8, 64))
    )
    query = 3 * query
    noise = dc.gumbel((8, 300), generator=generator)

    def found(*given: Tensor) -> list[Tensor]:
        leaves = [leaf.detach().requires_grad_() for leaf in given[:2]]
        with using(way):  # type: ignore[arg-type]
            value = dc.mix(leaves[0], leaves[1], 2.0, noise=noise.to(given[2].dtype))
        return [value, *torch.autograd.grad(value, leaves, given[3])]

    half = found(query, codebook, noise.float(), of_value)
    exact = found(query.double(), codebook.double(), noise.double(), of_value.double())
    rounding = torch.finfo(dtype).eps
    for one, true in zip(half, exact, strict=True):
        assert one.dtype == dtype
        error = (one.detach().double() - true.detach()).abs().max()
        assert float(error / true.detach().abs().max()) < 2 * rounding


def test_the_dense_way_keeps_half_precision_in_half_the_memory() -> None:
    codebook = torch.randn(300, 64).bfloat16().requires_grad_()
    query = torch.randn(2, 64).bfloat16().requires_grad_()
    kept: list[torch.dtype] = []

    def keep(tensor: Tensor) -> Tensor:
        if 300 in tensor.shape and 64 in tensor.shape:
            kept.append(tensor.dtype)
        return tensor

    with using("dense"), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        dc.mix(query, codebook)
    assert kept and set(kept) == {torch.bfloat16}
