"""The nodes: what comes out in training and in eval mode, codebooks, estimators, DropRes."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

import dcgraph as dc
from dcgraph import nodes
from dcgraph.nodes import Decode, Residual
from statistics_of_fit import chi_square_p


def is_row(v: Tensor, codebook: Tensor) -> Tensor:
    return (v.unsqueeze(-2) == codebook).all(-1).any(-1)


def test_discrete_is_the_papers_component() -> None:
    node = dc.Discrete(6, 4)
    dc.Dials(tau=2.0, beta=0.5, alpha=1.0).attach(node)
    u, noise = torch.randn(7, 6), dc.gumbel([7, 4])
    theta = u @ node.codebook.T
    z = ((theta + 0.5 * noise) / 2.0).softmax(-1)
    torch.testing.assert_close(node.logits(u), theta)
    torch.testing.assert_close(node(u, noise=noise), z @ node.codebook)


def test_unattached_dials_are_plain_gumbel_softmax() -> None:
    node = dc.Discrete(6, 4)
    u, noise = torch.randn(7, 6), dc.gumbel([7, 4])
    z = dc.gumbel_softmax(node.logits(u), noise=noise)
    torch.testing.assert_close(node(u, noise=noise), z @ node.codebook)


@pytest.mark.parametrize("decode", ["argmax", "sample"])
@pytest.mark.parametrize("residual", ["drop", "always", "weighted", "none"])
def test_eval_returns_exact_codebook_rows(decode: Decode, residual: Residual) -> None:
    node = dc.Discrete(6, 4, residual=residual, decode=decode).eval()
    dc.Dials(tau=8.0, beta=8.0, alpha=0.0).attach(node)
    with torch.autocast("cpu", torch.bfloat16):  # a product with a one-hot row would be rounded
        assert is_row(node(torch.randn(50, 6)), node.codebook).all()


def test_eval_argmax_is_deterministic_and_sample_follows_softmax_of_theta() -> None:
    torch.manual_seed(0)
    node = dc.Categorical().eval()
    dc.Dials(tau=8.0, beta=5.0).attach(node)  # must not matter
    theta = torch.tensor([0.0, 1.0, -1.0])
    rows = theta.expand(100_000, -1)
    before = torch.get_rng_state()
    assert (node(rows).argmax(-1) == 1).all()
    assert torch.equal(before, torch.get_rng_state())
    node.decode = "sample"
    counts = node(rows).sum(0)
    assert chi_square_p(counts, theta.softmax(-1)) > 1e-4


def test_generator_decides_noise_and_gate() -> None:
    node = dc.Discrete(6, 4, gate="element")
    dc.Dials(tau=2.0, beta=1.0, alpha=0.5).attach(node)
    u = torch.randn(50, 6)

    def run(seed: int) -> Tensor:
        result: Tensor = node(u, generator=torch.Generator().manual_seed(seed))
        return result

    before = torch.get_rng_state()
    assert torch.equal(run(0), run(0)) and not torch.equal(run(0), run(1))
    assert torch.equal(before, torch.get_rng_state()), "noise and gate leave the global one alone"

    node.eval().categorical.decode = "sample"
    assert torch.equal(run(0), run(0)) and not torch.equal(run(0), run(1))
    assert torch.equal(before, torch.get_rng_state())


def test_reversed_noise_of_a_node() -> None:
    theta = torch.randn(5, 4)
    node = dc.Categorical(noise="reversed")
    noise = dc.gumbel([5, 4], generator=torch.Generator().manual_seed(0))
    z = node(theta, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(z, (theta - noise).softmax(-1))


def test_defaults_are_the_papers() -> None:
    node = dc.Discrete(6, 4)
    assert node.dropres is not None and (node.dropres.mode, node.dropres.gate) == ("drop", "call")
    assert node.source == "tied" and node.categorical.estimator == "gumbel_softmax"
    assert node.categorical.noise == "gumbel"


@pytest.mark.parametrize("change", ["parametrize", "weight_norm", "prune"])
def test_codebook_is_an_ordinary_parameter(change: str) -> None:
    node = dc.Discrete(6, 4)
    if change == "parametrize":
        parametrize.register_parametrization(node, "codebook", nn.Tanh())
    elif change == "weight_norm":
        parametrizations.weight_norm(node, "codebook")
    else:
        prune.random_unstructured(node, "codebook", amount=0.5)
    assert is_row(node.eval()(torch.randn(7, 6)), node.codebook).all()


def test_dials_start_at_one_wherever_the_model_comes_from() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        double = dc.Discrete(6, 4)
    finally:
        torch.set_default_dtype(torch.float32)
    assert double.tau.dtype == torch.float32
    with torch.device("meta"):
        node = dc.Discrete(6, 4)
    node.to_empty(device="cpu")
    assert node.alpha is not None
    assert all(dial == 1 for dial in (node.tau, node.beta, node.alpha))


def test_codebooks() -> None:
    u, given = torch.randn(7, 6), torch.randn(4, 6)
    separate = dc.Discrete(6, 4, codebook="separate", width=3, residual="none")
    assert separate(u).shape == (7, 3) and separate.codebook.shape == (4, 3)
    with_g = dc.Discrete(6, 4, g=nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4)))
    assert with_g(u).shape == (7, 6) and with_g.logits(u).shape == (7, 4)
    handed = dc.Discrete(6, 4, codebook="given")
    assert not list(handed.parameters())
    torch.testing.assert_close(handed.logits(u, given), u @ given.T)
    assert is_row(handed.eval()(u, codebook=given), given).all()
    own = dc.Discrete(6, 4).eval()
    assert is_row(own(u, codebook=given), given).all()


def test_gradients_reach_a_codebook_given_at_the_call() -> None:
    tokens = nn.Embedding(10, 6)
    node = dc.Discrete(6, 4, codebook="given")
    node(torch.randn(7, 6), codebook=tokens.weight[3:7]).sum().backward()
    assert tokens.weight.grad is not None
    used = tokens.weight.grad.abs().sum(-1) > 0
    assert used.tolist() == [False] * 3 + [True] * 4 + [False] * 3


def test_residual_given_at_the_call() -> None:
    node = dc.Discrete(6, 4, codebook="separate", width=3)
    dc.Dials(alpha=0.0).attach(node)
    u, residual, noise = torch.randn(7, 6), torch.randn(7, 3), dc.gumbel([7, 4])
    z = node.categorical(node.logits(u), noise=noise)
    torch.testing.assert_close(node(u, residual, noise=noise), z @ node.codebook + residual)


def test_mask_reaches_the_choice() -> None:
    node = dc.Discrete(6, 4).eval()
    mask = torch.tensor([False, False, True, False])
    assert torch.equal(node(torch.randn(9, 6), mask=mask), node.codebook[2].expand(9, -1))


def test_nodes_lists_each_node_once() -> None:
    shared = dc.Discrete(4, 3)
    model = nn.ModuleDict({"a": shared, "b": shared, "edges": dc.Categorical()})
    assert [name for name, _ in dc.named_nodes(model)] == ["a", "edges"]


def test_dials_are_not_in_the_state_dict() -> None:
    assert list(dc.Discrete(4, 3).state_dict()) == ["codebook"]


def test_dtype_moves_keep_the_dials_exact() -> None:
    node = dc.Discrete(4, 3)
    dc.Dials(tau=8.0, beta=6.83, alpha=0.123).attach(node)
    node.to(torch.bfloat16)
    assert node.codebook.dtype == torch.bfloat16
    assert node.alpha is not None and node.alpha.item() == pytest.approx(0.123, abs=1e-7)
    assert node(torch.randn(5, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert copy.deepcopy(node).beta.item() == pytest.approx(6.83, abs=1e-6)


def test_nodes_print_what_they_were_built_with() -> None:
    assert repr(dc.Categorical(decode="sample")) == (
        "Categorical(estimator='gumbel_softmax', decode='sample')"
    )
    assert "decode='argmax', noise='reversed'" in repr(dc.Categorical(noise="reversed"))
    assert "(\n  4, 3, codebook='tied'\n" in repr(dc.Discrete(4, 3))
    wide = repr(dc.Discrete(4, 3, codebook="separate", width=6))
    assert "4, 3, codebook='separate', width=6" in wide


@pytest.mark.parametrize("size", ["dim", "categories", "width"])
def test_a_size_of_one_is_the_least(size: str) -> None:
    sizes = {"dim": 2, "categories": 3, "width": 4}
    separate = {"codebook": "separate", "residual": "none"}
    node = dc.Discrete(**{**sizes, size: 1}, **separate)  # type: ignore[arg-type]
    assert node(torch.ones(5, node.dim)).shape == (5, node.width)
    with pytest.raises(ValueError, match=f"^{size}=0, but a size is at least 1."):
        dc.Discrete(**{**sizes, size: 0}, **separate)  # type: ignore[arg-type]


def test_the_codebook_starts_as_wide_as_asked() -> None:
    torch.manual_seed(0)
    for std in (0.1, 1, 3.0):
        spread = float(dc.Discrete(50, 200, init_std=std).codebook.detach().std())
        assert spread == pytest.approx(std, rel=0.05)
    for std in (0.0, -1.0, torch.inf, torch.nan):
        with pytest.raises(ValueError, match=f"^init_std={std}, but rows that are all alike"):
            dc.Discrete(4, 3, init_std=std)


def test_what_a_node_is_if_nothing_is_said() -> None:
    """Promised, for models are saved without it."""
    choice, node = dc.Categorical(), dc.Discrete(4, 3)
    for one in (choice, node.categorical):
        assert (one.estimator, one.decode, one.noise) == ("gumbel_softmax", "argmax", "gumbel")
        assert one.dial_names == ("tau", "beta") and one.tau == one.beta == 1
    assert node.dropres is not None and (node.dropres.mode, node.dropres.gate) == ("drop", "call")
    defaults = {n: p.default for n, p in inspect.signature(dc.Discrete).parameters.items()}
    assert defaults["init_std"] == 1.0
    assert inspect.signature(node.forward).parameters["fill"].default == "input"
    assert nodes.LARGE == 4096


def test_distance_logits_are_those_of_the_nearest_row() -> None:
    torch.manual_seed(0)
    node = dc.Discrete(6, 40, similarity="distance")
    u = torch.randn(50, 6)
    squared = (u.unsqueeze(1) - node.codebook).square().sum(-1)
    shared = u.square().sum(-1, keepdim=True) / 2
    torch.testing.assert_close(node.logits(u) - shared, -squared / 2)
    assert torch.equal(node.eval()(u), node.codebook[squared.argmin(-1)])


def test_by_distance_each_row_is_its_own_choice() -> None:
    """By products a row between two others is never the argmax, whatever comes in."""
    line = torch.tensor([[-2.0], [0.5], [1.0]])
    for similarity, own in (("product", [0, 2, 2]), ("distance", [0, 1, 2])):
        node = dc.Discrete(1, 3, codebook="given", similarity=similarity)  # type: ignore[arg-type]
        assert node.logits(line, line).argmax(-1).tolist() == own


def test_distance_logits_are_rounded_once_and_keep_their_gradient() -> None:
    torch.manual_seed(0)
    node, u = dc.Discrete(64, 9, similarity="distance"), torch.randn(20, 64)
    with torch.autocast("cpu", torch.bfloat16):
        exact = node.logits(u)
    assert torch.equal(exact, node.logits(u))
    half = copy.deepcopy(node).to(torch.bfloat16)
    rounded = half.logits(u.bfloat16())
    true = (
        u.bfloat16().double() @ half.codebook.double().T
        - half.codebook.double().square().sum(-1) / 2
    )
    assert rounded.dtype == half(u.bfloat16()).dtype == torch.bfloat16
    assert torch.equal(rounded, true.float().bfloat16())
    double = dc.Discrete(4, 3, similarity="distance").double()
    dc.Dials(tau=2.0, beta=1.0, alpha=0.5).attach(double)
    x, noise = torch.randn(5, 4, dtype=torch.double, requires_grad=True), dc.gumbel([5, 3])

    def mixture(x: Tensor, rows: Tensor) -> Tensor:
        torch.manual_seed(0)  # the gate
        return double(x, codebook=rows, noise=noise.double())

    rows = double.codebook.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(mixture, (x, rows))


@pytest.mark.parametrize("estimator", ["gumbel_softmax", "straight_through"])
def test_distances_to_a_large_codebook_are_those_to_a_small_one(
    estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    node = dc.Discrete(6, 40, similarity="distance", estimator=estimator)
    dc.Dials(tau=2.0, beta=1.0, alpha=0.0).attach(node)
    u, noise = torch.randn(9, 6, requires_grad=True), dc.gumbel([9, 40])

    def values_and_gradients() -> list[Tensor]:
        v = node(u, noise=noise)
        return [v, node.eval()(u), *torch.autograd.grad(v.pow(3).sum(), [u, node.train().codebook])]

    small = values_and_gradients()
    monkeypatch.setattr(nodes, "LARGE", 40)
    assert node.is_large
    for one, other in zip(values_and_gradients(), small, strict=True):
        torch.testing.assert_close(one, other)
    with dc.trace(node.eval()) as steps:
        node(u)
    assert torch.equal(next(iter(steps)).index, node.logits(u).argmax(-1))


def test_distance_with_what_takes_products_only() -> None:
    for wrong in ({"g": nn.Linear(4, 3)}, {"codebook": "separate"}, {"estimator": "rotation"}):
        with pytest.raises(ValueError, match="distance"):
            dc.Discrete(4, 3, similarity="distance", **wrong)
    assert "similarity='distance'" in repr(dc.Discrete(4, 3, similarity="distance"))
