"""The operators over a codebook: replicas, Jacobians, second passes, and shapes known before."""

from __future__ import annotations

from functools import partial
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.func import grad, jacrev, vmap

import dcgraph as dc
from codebooks import IMPLEMENTATIONS, by, inputs, several_blocks
from dcgraph.codebook import _blocks as blocks
from dcgraph.codebook import _blockwise as blockwise
from dcgraph.codebook import _operators as operators
from dcgraph.codebook._functions import make_problem
from dcgraph.codebook._problem import Implementation


@several_blocks
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("hard", [False, True])
def test_replicas_with_dials_of_their_own(
    implementation: Implementation, shared: bool, hard: bool
) -> None:
    query, codebook = (t.detach() for t in inputs(3))
    codes = codebook[0] if shared else codebook
    tau, beta = torch.tensor([1.0, 2.0, 0.5]), torch.tensor([0.0, 1.0, 3.0])
    noise, weights = dc.gumbel([3, 5, 1003], dtype=torch.float64), torch.randn(5, 6).double()

    def loss(q: Tensor, c: Tensor, tau: Tensor, beta: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        v = by(implementation, dc.mix, q, c, tau, beta=beta, noise=noise, hard=hard)
        return (v * weights).sum(), v

    run = grad(loss, argnums=(0, 1), has_aux=True)
    in_dims = (0, None if shared else 0, 0, 0, 0)
    (of_query, of_codebook), v = vmap(run, in_dims)(query, codes, tau, beta, noise)
    alone = [
        run(query[i], codes if shared else codes[i], tau[i], beta[i], noise[i]) for i in range(3)
    ]
    for i, ((own_query, own_codebook), own) in enumerate(alone):
        torch.testing.assert_close(v[i], own)
        torch.testing.assert_close(of_query[i], own_query)
        torch.testing.assert_close(of_codebook[i], own_codebook)


@several_blocks
@pytest.mark.parametrize("hard", [False, True])
def test_jacobians_are_those_of_the_definition(hard: bool) -> None:
    """There only the backward pass is mapped, and kept weights are those of no replica."""
    query, codebook = (t.detach() for t in inputs(rows=2))
    noise = dc.gumbel([2, 1003], dtype=torch.float64)
    found, expected = (
        jacrev(partial(by, implementation, dc.mix, noise=noise, hard=hard), argnums=(0, 1))(
            query, codebook
        )
        for implementation in IMPLEMENTATIONS
    )
    torch.testing.assert_close(found, expected)


@several_blocks
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_second_backward_pass_finds_the_same(hard: bool, mapped: bool) -> None:
    query, codebook = inputs(3)
    noise = dc.gumbel([5, 1003], dtype=torch.float64)
    run = partial(by, "blockwise", dc.mix, noise=noise, hard=hard)
    v = vmap(run)(query, codebook) if mapped else run(query[0], codebook[0])
    once, twice = (
        torch.autograd.grad(v.square().sum(), (query, codebook), retain_graph=True)
        for _ in range(2)
    )
    torch.testing.assert_close(once, twice, rtol=0, atol=0)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("different", [False, True])
def test_vmap_shares_noise_as_asked(implementation: Implementation, different: bool) -> None:
    query, codebook = (t.detach() for t in inputs())

    def run(q: Tensor) -> Tensor:
        v: Tensor = by(implementation, dc.mix, q, codebook)
        return v

    v = vmap(run, randomness="different" if different else "same")(query.expand(2, 5, 6))
    assert torch.allclose(v[0], v[1]) != different


@pytest.mark.parametrize("hard", [False, True])
def test_replicas_keep_their_weights_too(hard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside of vmap no tensor says that it requires a gradient."""
    name = "_backward_of_choice" if hard else "_backward_of_weights"
    kept = Mock(wraps=getattr(blockwise, name))
    monkeypatch.setattr(blockwise, name, kept)
    query, codebook = inputs(3)
    gradients = []
    for implementation in IMPLEMENTATIONS:
        run = partial(by, implementation, dc.mix, beta=0.0, hard=hard)
        v = vmap(run)(query, codebook)
        gradients.append(torch.autograd.grad(v.square().sum(), (query, codebook)))
    kept.assert_called_once()
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("hard", "count"), [(False, 5), (True, 4)])
def test_no_mixture_is_made_of_what_is_chosen(
    hard: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    multiply = Mock(wraps=blocks.multiply)
    monkeypatch.setattr(blocks, "multiply", multiply)
    query, codebook = inputs()
    v = by("blockwise", dc.mix, query, codebook, hard=hard)
    torch.autograd.grad(v.square().sum(), (query, codebook))
    assert multiply.call_count == count


@several_blocks
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("learns", [False, True])
def test_the_shapes_are_known_before(hard: bool, learns: bool) -> None:
    query, codebook = inputs(2)
    p, _ = make_problem(query, codebook, 1.0, 0.5, None, None, None)
    fields = (p.query, p.codebook, p.tau, p.beta, p.keys, None, None, None, None)
    options = (p.noisy, "blockwise", True, hard, learns)
    torch.library.opcheck(
        operators._forward, (*fields, *options), test_utils=("test_schema", "test_faketensor")
    )


@several_blocks
def test_vmap_of_vmap() -> None:
    query, codebook = (t.detach() for t in inputs(2, 3))

    def run(q: Tensor, c: Tensor) -> Tensor:
        v: Tensor = by("blockwise", dc.mix, q, c, beta=0.0)
        return v

    expected = by("dense", dc.mix, query, codebook, beta=0.0)
    torch.testing.assert_close(vmap(vmap(run))(query, codebook), expected)
    one = vmap(vmap(run, (0, None)))(query, codebook[:, 0])
    torch.testing.assert_close(one[:, 0], expected[:, 0])
