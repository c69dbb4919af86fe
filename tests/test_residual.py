"""DropRes: its gate, its modes, its expected Jacobian, and that eval mode leaves nothing of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from dcgraph.nodes import Residual
from dcgraph.residual import Gate, Mode


@pytest.mark.parametrize(
    ("gate", "drawn"),
    [("call", (1, 1, 1)), ("example", (50, 1, 1)), ("vector", (50, 4, 1)), ("element", (50, 4, 3))],
)
def test_gate_is_shared_as_asked(gate: Gate, drawn: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    value, residual = torch.randn(50, 4, 3), torch.ones(50, 4, 3)
    alpha = 0.3
    seen = torch.stack(
        [dc.drop_residual(value, residual, alpha, gate=gate) - value for _ in range(400)]
    ).round()
    assert ((seen == 0) | (seen == 1)).all()
    for dim, size in enumerate(drawn, start=1):
        if size == 1:
            assert (seen == seen.narrow(dim, 0, 1)).all(), "one draw is shared along this dimension"
        else:
            assert (seen != seen.narrow(dim, 0, 1)).any(), "each has a draw of its own"
    draws = 400 * math.prod(drawn)
    own = seen[tuple(slice(None) if size > 1 else 0 for size in (400, *drawn))]
    assert abs(own.mean() - (1 - alpha)) < 5 * math.sqrt(alpha * (1 - alpha) / draws)


@pytest.mark.parametrize("gate", ["call", "example", "vector"])
def test_a_single_vector_is_one_example(gate: Gate) -> None:
    for dial in (0.5, torch.tensor(0.5)):
        torch.manual_seed(0)
        seen = [dc.drop_residual(torch.zeros(8), torch.ones(8), dial, gate=gate) for _ in range(40)]
        shares = {one.mean().item() for one in seen}
        assert shares == {0.0, 1.0}, "all of it or nothing"


def test_alpha_zero_keeps_and_one_drops_the_residual() -> None:
    value, residual = torch.zeros(1000, 2), torch.ones(1000, 2)
    for alpha, expected in ((0.0, residual), (1.0, value)):
        for dial in (alpha, torch.tensor(alpha)):
            got = dc.drop_residual(value, residual, dial, gate="element")
            assert torch.equal(got, expected)


def test_a_dropped_residual_cannot_spoil_the_value() -> None:
    bad = torch.full((3, 2), torch.inf)
    assert dc.drop_residual(torch.zeros(3, 2), bad, torch.tensor(1.0)).eq(0).all()


def test_residual_modes() -> None:
    u, noise = torch.randn(7, 6), dc.gumbel([7, 4])
    modes: dict[Residual, Callable[[Tensor], Tensor]] = {
        "always": lambda h: h + u,
        "weighted": lambda h: 0.75 * u + 0.25 * h,
        "none": lambda h: h,
    }
    for mode, combine in modes.items():
        node = dc.Discrete(6, 4, residual=mode)
        dc.Dials(alpha=0.25).attach(node)
        h = node.categorical(node.logits(u), noise=noise) @ node.codebook
        torch.testing.assert_close(node(u, noise=noise), combine(h))


@pytest.mark.parametrize(
    ("mode", "of_step", "of_residual"),
    [("drop", 1.0, 0.7), ("replace", 0.3, 0.7), ("weighted", 0.3, 0.7), ("always", 1.0, 1.0)],
)
@pytest.mark.parametrize("gate", ["example", "element"])
def test_expected_jacobian(mode: Mode, of_step: float, of_residual: float, gate: Gate) -> None:
    """E[dv/du] of the paper's DropRes is (1 - alpha) I + dv/dz dz/dtheta dtheta/du, and of the
    other modes as drop_residual says; by simulation of the gate."""
    torch.manual_seed(0)
    alpha, tau, draws = 0.3, 2.0, 20_000
    node = dc.Discrete(3, 4, residual=mode, gate=gate).double()
    dc.Dials(tau=tau, beta=0.0, alpha=alpha).attach(node)
    u = torch.randn(3, dtype=torch.float64)
    batch = u.repeat(draws, 1).requires_grad_()
    v = node(batch)
    simulated = torch.stack(
        [torch.autograd.grad(v[:, i].sum(), batch, retain_graph=True)[0].mean(0) for i in range(3)]
    )
    codebook = node.codebook.detach()
    z = (codebook @ u / tau).softmax(-1)
    dz_dtheta = (torch.diag(z) - torch.outer(z, z)) / tau
    step = codebook.T @ dz_dtheta @ codebook
    expected = of_residual * torch.eye(3) + of_step * step
    spread = math.sqrt(alpha * (1 - alpha) / draws) * (1 + float(step.abs().max()))
    torch.testing.assert_close(simulated, expected, atol=5 * spread, rtol=0)


@pytest.mark.parametrize("gate", get_args(Gate))
def test_what_replaces_is_never_between_the_two(gate: Gate) -> None:
    """Nor beyond them, as gates of truth values need it."""
    torch.manual_seed(0)
    value, residual = torch.rand(40, 4, 3), torch.rand(40, 4, 3)
    mixed = [dc.drop_residual(value, residual, 0.3, mode="replace", gate=gate) for _ in range(200)]
    kept = torch.stack([v == residual for v in mixed])
    assert torch.equal(kept, torch.stack([v != value for v in mixed]))
    assert abs(kept.float().mean() - 0.7) < (0.2 if gate == "call" else 0.05)
    faded = dc.drop_residual(value, residual, 0.3, mode="weighted", gate=gate)
    torch.testing.assert_close(faded, 0.7 * residual + 0.3 * value)


def test_dropres_goes_around_any_layer() -> None:
    layer, around = torch.nn.Linear(3, 3), dc.DropRes("replace", gate="example")
    dc.Dials.constant(around, alpha=0.5)
    x = torch.randn(100, 3)
    y = around(layer(x), x)
    kept = (y == x).all(-1)
    assert 20 < kept.sum() < 80 and torch.equal(y[~kept], layer(x)[~kept])


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_nothing_is_left_of_the_residual_in_eval_mode(mode: Mode, alpha: float) -> None:
    """Not of the module by itself either, without a node around it."""
    torch.manual_seed(0)
    module = dc.DropRes(mode, gate="element")
    dc.Dials(alpha=alpha).attach(module)
    value, residual = torch.randn(50, 4), torch.randn(50, 4, requires_grad=True)
    if mode == "always" or alpha < 1:
        assert not torch.equal(module(value, residual), value), "in training mode it is there"
    out = module.eval()(value, residual)
    assert torch.equal(out, value) and not out.requires_grad


def test_the_ends_of_alpha_are_sure_whatever_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws lie in [0, 1): alpha = 0 keeps all residuals, alpha = 1 none."""
    value, residual = torch.zeros(2, 3), torch.ones(2, 3)
    for draw in (0.0, 1 - 2**-24):

        def drawn(shape: tuple[int, ...], *_: object, draw: float = draw) -> Tensor:
            return torch.full(shape, draw)

        monkeypatch.setattr("dcgraph.residual.draw_uniform", drawn)
        for alpha, expected in ((0.0, residual), (1.0, value)):
            assert torch.equal(dc.drop_residual(value, residual, torch.tensor(alpha)), expected)


@pytest.mark.parametrize("alpha", [0.5, torch.tensor(0.5)])
@pytest.mark.parametrize("gate", get_args(Gate))
@pytest.mark.parametrize(("drawn", "kept"), [(0.5, 1.0), (0.5 - 2**-24, 0.0)])
def test_a_draw_that_equals_alpha_keeps_the_residual(
    drawn: float, kept: float, gate: Gate, alpha: float | Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draws are in [0, 1): below alpha they are with probability alpha to the last bit."""
    monkeypatch.setattr(
        "dcgraph.residual.draw_uniform", lambda shape, *_: torch.full(tuple(shape), drawn)
    )
    values, ones = torch.zeros(4, 2, 3), torch.ones(2, 3)
    rows = torch.tensor([[True, False]]).expand(4, 2)
    assert torch.equal(
        dc.drop_residual(values[0], ones, alpha, gate=gate), torch.full((2, 3), kept)
    )
    # Under vmap no values can be read: padding draws, too, and still keeps its value.
    mapped = torch.vmap(
        lambda v, r: dc.drop_residual(v, ones, alpha, gate=gate, rows=r), randomness="different"
    )
    assert torch.equal(mapped(values, rows), rows.unsqueeze(-1) * torch.full((4, 2, 3), kept))
    without = torch.vmap(
        lambda v: dc.drop_residual(v, ones, alpha, gate=gate), randomness="different"
    )
    assert torch.equal(without(values), torch.full((4, 2, 3), kept))


def test_dropres_says_what_it_does_and_needs_vectors() -> None:
    assert repr(dc.DropRes("replace", "vector")) == "DropRes(mode='replace', gate='vector')"
    number = torch.tensor(1.0)
    with pytest.raises(ValueError, match="output of the discrete step is a single number"):
        dc.drop_residual(number, number, 0.5)


def test_without_arguments_a_whole_call_is_dropped_or_added_to() -> None:
    torch.manual_seed(0)
    value, residual = torch.zeros(50, 3), torch.ones(50, 3)
    around = dc.DropRes()
    assert (around.mode, around.gate) == ("drop", "call")
    dc.Dials.constant(around, alpha=0.5)
    for combine in (around, lambda h, u: dc.drop_residual(h + 2, u, 0.5) - 2):
        seen = [combine(value, residual) for _ in range(20)]
        assert all((one == one[0, 0]).all() for one in seen), "one draw for the whole call"
        assert {float(one[0, 0]) for one in seen} == {0.0, 1.0}, "added, or not"
