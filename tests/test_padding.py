"""Padding: rows=valid of the nodes. It draws nothing, counts nowhere, and comes out as asked."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from dcgraph._arguments import Distribution
from dcgraph.nodes import Decode
from dcgraph.residual import Gate, Mode
from statistics_of_fit import chi_square_p

Fill = Literal["input", "zero"] | Tensor
VALID = torch.tensor([[True, True, False], [True, False, False]])


def node_of(kind: str) -> dc.Discrete:
    """Small, or so large that there is no matrix of logits."""
    node = dc.Discrete(4, 5 if kind == "small" else 4100, gate="vector")
    dc.Dials.constant(node, tau=2.0, beta=1.0, alpha=0.5)
    return node


@pytest.mark.parametrize("kind", ["small", "large"])
@pytest.mark.parametrize("decode", [None, "argmax", "sample"])
def test_padding_passes_through_whatever_is_in_it(kind: str, decode: Decode | None) -> None:
    node = node_of(kind).train(decode is None)
    node.categorical.decode = decode or "argmax"
    u = torch.randn(2, 3, 4)
    u[~VALID] = torch.tensor([torch.nan, torch.inf, 0.0, 1.0])
    u.requires_grad_()
    before = torch.randn(2, 3, 4)
    fills: dict[Fill, Tensor] = {"input": u, "zero": torch.zeros(2, 3, 4), before: before}
    for fill, expected in fills.items():
        v = node(u, rows=VALID, fill=fill)
        torch.testing.assert_close(v[~VALID], expected[~VALID], equal_nan=True)
        assert v[VALID].isfinite().all()
    if decode is None:
        v = node(u, rows=VALID, fill="zero")
        (gradient,) = torch.autograd.grad(v.sum(), u)
        assert (gradient[~VALID] == 0).all() and gradient[VALID].isfinite().all()
        assert (gradient[VALID] != 0).any()


def test_a_padded_batch_draws_what_its_rows_draw() -> None:
    """So how long the longest example is changes nothing."""
    node = node_of("small")
    u = torch.randn(2, 3, 4)

    def run(u: Tensor, rows: Tensor | None) -> Tensor:
        return node(u, rows=rows, generator=torch.Generator().manual_seed(5))

    alone = run(u[VALID], torch.ones(3, dtype=torch.bool))
    torch.testing.assert_close(run(u, VALID)[VALID], alone)
    longer = torch.cat([u, torch.randn(2, 6, 4)], 1)
    wide = torch.cat([VALID, torch.zeros(2, 6, dtype=torch.bool)], 1)
    torch.testing.assert_close(run(longer, wide)[wide], alone)
    choice, theta = dc.Categorical(decode="sample").eval(), torch.zeros(2, 3, 100)

    def draw(theta: Tensor, rows: Tensor | None) -> Tensor:
        return choice(theta, rows=rows, generator=torch.Generator().manual_seed(5))

    assert torch.equal(draw(theta, VALID)[VALID], draw(theta[VALID], None)), "in eval mode, too"
    everything = run(u[VALID], None)
    torch.testing.assert_close(everything, alone, msg="no padding is no rows")


def test_noise_beside_padding_is_the_noise_that_was_asked_for() -> None:
    """The reversed one too; and none where beta is 0."""
    theta, everything = torch.randn(2, 3, 5), torch.ones(2, 3, dtype=torch.bool)
    drawn = []
    kinds: tuple[Distribution, ...] = ("gumbel", "reversed")
    for kind in kinds:
        node = dc.Categorical(noise=kind)
        dc.Dials.constant(node)
        for rows in (None, everything):
            drawn.append(node(theta, rows=rows, generator=torch.Generator().manual_seed(5)))
    torch.testing.assert_close(drawn[0], drawn[1])
    torch.testing.assert_close(drawn[2], drawn[3])
    assert not torch.equal(drawn[0], drawn[2])
    dc.Dials.constant(node, beta=0.0)
    before = torch.get_rng_state()
    node(theta, rows=VALID)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("gate", ["call", "example", "vector", "element"])
@pytest.mark.parametrize("mode", ["drop", "replace", "weighted", "always"])
def test_the_gate_of_padding_is_not_drawn(gate: Gate, mode: str) -> None:
    value, residual = torch.zeros(2, 3, 2), torch.ones(2, 3, 2)

    def run(rows: Tensor | None, seed: int) -> Tensor:
        return dc.drop_residual(
            value, residual, 0.5, mode=mode, gate=gate, rows=rows,  # type: ignore[arg-type]
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip

    nobody = torch.zeros(2, 3, dtype=torch.bool)
    for seed in range(20):
        out = run(VALID, seed)
        assert (out[~VALID] == 0).all(), "padding keeps its value"
        assert (run(nobody, seed) == 0).all()
        torch.testing.assert_close(run(~nobody, seed), run(None, seed))
    if mode == "drop":
        kept = torch.stack([run(VALID, seed) for seed in range(400)])[:, VALID]
        assert abs(kept.mean() - 0.5) < 0.1


@pytest.mark.parametrize("alpha", [0, 0.0, 1.0])
def test_padding_keeps_its_value_where_the_gate_is_sure(alpha: float) -> None:
    value, residual = torch.zeros(2, 3, 2), torch.ones(2, 3, 2)
    mode: Mode
    for mode in ("drop", "replace"):
        out = dc.drop_residual(value, residual, alpha, mode=mode, rows=VALID)
        assert (out[~VALID] == 0).all() and (out[VALID] == 1 - alpha).all()


def test_empty_rows_are_no_error_where_they_are_padding() -> None:
    theta = torch.randn(2, 3, 5)
    theta[~VALID] = -torch.inf
    mask = (torch.rand(2, 3, 5) < 0.5) | (torch.arange(5) == 0)
    mask[~VALID] = False
    for node in (dc.Categorical(), dc.Categorical().eval(), dc.Categorical(decode="sample").eval()):
        z = node(theta, mask=mask, rows=VALID)
        assert (z[~VALID] == 0).all()
        torch.testing.assert_close(z[VALID].sum(-1), torch.ones(3))
        assert (z[~mask] == 0).all()


@pytest.mark.parametrize("kind", ["small", "large"])
def test_padding_counts_in_no_reading(kind: str) -> None:
    torch.manual_seed(0)
    node = node_of(kind)
    u = torch.randn(2, 3, 4, requires_grad=True)
    dc.Dials.constant(node, tau=2.0, beta=0.0, alpha=1.0)

    def closure(u: Tensor, rows: Tensor | None) -> Tensor:
        v = node(u, rows=rows, fill="zero")
        return v.square().sum()

    padded = dc.probe(node, lambda: closure(u, VALID)).readings[0]
    alone = dc.probe(node, lambda: closure(u[VALID], None)).readings[0]
    for name in ("entropy", "largest", "used", "dead", "saturated", "gap", "logit_gradient"):
        expected = getattr(alone, name)
        assert getattr(padded, name) == (expected and pytest.approx(expected, rel=1e-4)), name
    if kind == "small":
        assert padded.by_category is not None and alone.by_category is not None
        for field in ("use", "weight", "gradient"):
            expected = pytest.approx(getattr(alone.by_category, field), rel=1e-4)
            assert getattr(padded.by_category, field) == expected
    for model in (node, node.eval()):
        with dc.trace(model) as steps:
            node(u, rows=VALID)
        assert ((steps[0].index == -1) == ~VALID).all()
        first, second = str(steps).splitlines()
        assert first.split()[-1] == "-" and second.split()[-2:] == ["-", "-"]


def test_rows_map() -> None:
    """Where no values can be read, padding draws, too; all else is the same."""
    torch.manual_seed(0)
    node = node_of("small")
    u = torch.randn(2, 3, 4)
    mapped = torch.func.vmap(lambda u, rows: node(u, rows=rows), randomness="different")(u, VALID)
    torch.testing.assert_close(mapped[~VALID], u[~VALID])
    many = torch.func.vmap(
        lambda u, rows: node.categorical(u, rows=rows).argmax(-1), randomness="different"
    )(torch.zeros(2, 5000, 3), torch.arange(10_000).view(2, 5000) % 2 == 0)
    counts = many.flatten()[::2].bincount(minlength=3)
    assert chi_square_p(counts, torch.full((3,), 1 / 3)) > 1e-4
