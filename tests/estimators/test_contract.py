"""What every estimator keeps: shapes, dtypes, masks, generators, dials, finite numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.overrides import TorchFunctionMode

import dcgraph as dc
from dcgraph.estimators import ESTIMATORS
from estimator_cases import CASES, FUNCTIONS, WITH_LOSS, dialled, play

ALL = [*FUNCTIONS, *WITH_LOSS]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def check_rows(name: str, z: Tensor) -> None:
    """Rows on the simplex, and one-hot where the forward pass is hard."""
    tolerance = 4 * z.shape[-1] * torch.finfo(z.dtype).eps
    assert (z >= 0).all()
    torch.testing.assert_close(z.sum(-1), torch.ones_like(z.sum(-1)), atol=tolerance, rtol=0)
    if CASES[name].hard:
        assert ((z == 0) | (z == 1)).all() and (z.sum(-1) == 1).all()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ALL)
def test_shapes_and_dtypes_come_out_as_they_went_in(name: str, dtype: torch.dtype) -> None:
    shapes = [(5, 3), (4, 2, 3)] if name in WITH_LOSS else [(3,), (5, 3), (4, 2, 3), (2, 2, 3, 7)]
    for shape in shapes:
        theta, weights = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
        z, gradient = play(name, theta, weights, tau=1.5, beta=0.7)
        assert z.shape == theta.shape and z.dtype == dtype
        assert gradient.shape == theta.shape and gradient.dtype == dtype
        assert gradient.isfinite().all()
        check_rows(name, z)


@pytest.mark.parametrize("name", ALL)
def test_one_category_and_no_rows(name: str) -> None:
    z, gradient = play(name, torch.randn(4, 1))
    assert (z == 1).all() and (gradient == 0).all()
    z, gradient = play(name, torch.randn(0, 3))
    assert z.shape == gradient.shape == (0, 3)


@pytest.mark.parametrize("name", ALL)
def test_gradients_of_rows_add_up_to_zero(name: str) -> None:
    """A number that is added to all logits of a row changes nothing."""
    torch.manual_seed(0)
    theta = torch.randn(40, 5, dtype=torch.float64)
    _, gradient = play(name, theta, torch.randn(40, 5).double(), tau=1.5, beta=0.7)
    assert gradient.abs().amax() > 0
    torch.testing.assert_close(gradient.sum(-1), torch.zeros(40).double(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("by", ["mask", "-inf"])
@pytest.mark.parametrize("name", ALL)
def test_masked_categories_have_nothing_and_get_no_gradient(name: str, by: str) -> None:
    torch.manual_seed(0)
    mask = torch.rand(300, 5) < 0.5
    mask[:, 0] |= ~mask.any(-1)
    theta = torch.randn(300, 5)
    theta[~mask] = 30.0 if by == "mask" else -torch.inf
    z, gradient = play(
        name, theta, torch.randn(300, 5), tau=1.5, beta=2.0, mask=mask if by == "mask" else None
    )
    assert (z[~mask] == 0).all() and (gradient[~mask] == 0).all()
    assert gradient.isfinite().all() and gradient.abs().amax() > 0
    check_rows(name, z)


@pytest.mark.parametrize("what", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ALL)
def test_whatever_stands_under_a_mask_reaches_nothing(name: str, what: float) -> None:
    theta, weights = torch.randn(30, 4), torch.randn(30, 4)
    mask = torch.tensor([True, False, True, True]).expand(30, 4)
    noise = dc.gumbel([30, 4])
    finite = play(name, theta, weights, mask=mask, noise=noise, generator=seeded())
    theta[:, 1] = what
    for one, other in zip(
        play(name, theta, weights, mask=mask, noise=noise, generator=seeded()), finite, strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_half_precision_is_rounded_once(name: str, dtype: torch.dtype) -> None:
    """Inside it is float32: the gradient is that of float32 logits, rounded at the end."""
    theta, weights = torch.randn(50, 4).to(dtype), torch.randn(50, 4).to(dtype)
    half, full = (
        play(name, t, w, tau=1.5, beta=0.7, generator=seeded())
        for t, w in ((theta, weights), (theta.float(), weights.float()))
    )
    for one, other in zip(half, full, strict=True):
        assert torch.equal(one, other.to(dtype))


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("name", ALL)
def test_the_only_category_left_is_chosen(name: str, beta: float) -> None:
    only = torch.arange(12) % 4
    mask = dc.one_hot(only, 4) > 0
    z, gradient = play(name, torch.randn(12, 4), torch.randn(12, 4), beta=beta, mask=mask)
    assert torch.equal(z.argmax(-1), only) and (z == mask).all()
    assert gradient.abs().amax() < 1e-5


@pytest.mark.parametrize("name", ALL)
def test_a_generator_decides_everything(name: str) -> None:
    theta, weights = torch.randn(50, 4), torch.randn(50, 4)
    before = torch.get_rng_state()
    one, same, other = (
        play(name, theta, weights, generator=seeded(seed)) for seed in (0, 0, 1)
    )  # the control variate of "relax" is drawn when its node is built
    assert name == "relax" or torch.equal(before, torch.get_rng_state())
    for a, b in zip(one, same, strict=True):
        assert torch.equal(a, b)
    if name not in ("enumeration", "topk_sparsemax"):  # which draw nothing
        assert not torch.equal(one[0], other[0])
        if name != "straight_through":  # whose gradient has nothing that is drawn
            assert not torch.equal(one[1], other[1])


@pytest.mark.parametrize("name", ALL)
def test_noise_is_replayed(name: str) -> None:
    theta, weights, noise = torch.randn(50, 4), torch.randn(50, 4), dc.gumbel([50, 4])
    (z, gradient), (again, same) = (
        play(name, theta, weights, tau=1.5, beta=0.7, noise=noise) for _ in range(2)
    )
    if name in ("enumeration", "topk_sparsemax"):
        return
    assert torch.equal(z, again)
    assert torch.equal(z.argmax(-1), (theta + 0.7 * noise).argmax(-1))
    if not CASES[name].draws_more:
        assert torch.equal(gradient, same)


@pytest.mark.parametrize("name", ALL)
def test_reversed_noise_is_drawn_or_refused(name: str) -> None:
    theta = torch.randn(50, 4)
    if not CASES[name].takes_reversed:
        with pytest.raises(ValueError, match=f"'{name}' needs choices .*\"reversed\" does not"):
            play(name, theta, noise="reversed")
        with pytest.raises(ValueError, match=f"'{name}' needs choices"):
            dc.Categorical(estimator=name, categories=4, noise="reversed")
        node = dc.Categorical(estimator=name, categories=4)
        with pytest.raises(ValueError, match=f"'{name}' needs choices"):  # also beside padding
            node(theta, noise="reversed", rows=torch.arange(50) < 40)
        return
    z, _ = play(name, theta, noise="reversed", generator=seeded())
    drawn = dc.gumbel([50, 4], generator=seeded())
    assert torch.equal(z.argmax(-1), (theta - drawn).argmax(-1))


@pytest.mark.parametrize("beta", [0.0, 0.7])
@pytest.mark.parametrize("name", ALL)
def test_dials_may_be_numbers_or_one_for_each_row(name: str, beta: float) -> None:
    theta, weights = torch.randn(6, 3).double(), torch.randn(6, 3).double()
    noise = dc.gumbel([6, 3], dtype=torch.float64)
    dials = torch.full((6, 1), 1.5).double(), torch.full((6, 1), beta).double()
    drawn = [
        play(name, theta, weights, tau=t, beta=b, noise=noise, generator=seeded())
        for t, b in ((1.5, beta), dials, (torch.tensor(1.5), torch.tensor(beta)))
    ]
    # With a number beta = 0 nothing is drawn, so that what comes later is drawn from elsewhere.
    if beta or not CASES[name].draws_more:
        for z, gradient in drawn[1:]:
            torch.testing.assert_close(z, drawn[0][0], atol=1e-6, rtol=1e-6)
            torch.testing.assert_close(gradient, drawn[0][1], atol=1e-6, rtol=1e-6)
    assert all(gradient.isfinite().all() for _, gradient in drawn)


@pytest.mark.parametrize("name", ALL)
def test_each_row_has_its_own_dials(name: str) -> None:
    theta, weights, noise = torch.randn(3, 4), torch.randn(3, 4), dc.gumbel([3, 4])
    tau, beta = torch.tensor([[0.5], [1.0], [3.0]]), torch.tensor([[0.2], [1.0], [2.0]])
    z, gradient = play(name, theta, weights, tau=tau, beta=beta, noise=noise)
    for i in range(3):
        row = slice(i, i + 1)
        alone, own = play(
            name, theta[row], weights[row], tau=tau[i].item(), beta=beta[i].item(), noise=noise[row]
        )
        torch.testing.assert_close(z[row], alone)
        if not CASES[name].draws_more and name != "adaptive_imle":  # its step is that of the batch
            torch.testing.assert_close(gradient[row], own)


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_without_noise_everything_is_finite_and_the_first_of_the_best_is_chosen(
    name: str, as_tensor: bool
) -> None:
    beta: Any = torch.tensor(0.0) if as_tensor else 0.0
    theta = torch.tensor([[0.0] * 4, [3.0, 3.0, -1.0, 3.0], [1e4, 1e4, 0, 0], [0.0, 1.0, 2.0, 3.0]])
    before = torch.get_rng_state()
    z, gradient = play(name, theta, torch.randn(4, 4, generator=seeded()), tau=2.0, beta=beta)
    assert gradient.isfinite().all() and z.isfinite().all()
    check_rows(name, z)
    if name != "topk_sparsemax":  # which goes through equal ones in any order
        assert z.argmax(-1).tolist() == [0, 0, 0, 3]
    if not as_tensor and not CASES[name].draws_more:
        assert torch.equal(before, torch.get_rng_state()), "there was nothing to draw"
    if CASES[name].needs_noise:
        assert gradient[3].abs().max() < 1e-5, "the choice is certain"
    elif name not in ("imle", "adaptive_imle"):
        assert gradient[3].abs().max() > 1e-3


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("beta", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("name", ALL)
def test_extreme_logits_are_finite(name: str, beta: float, dtype: torch.dtype) -> None:
    big = 1e4
    theta = torch.tensor([[big, -big, 0.0], [big, big, -big], [-big, -big, -big], [0.0, 1.0, big]])
    weights = torch.randn(4, 3, generator=seeded())
    z, gradient = play(name, theta.to(dtype), weights.to(dtype), tau=0.5, beta=beta)
    assert gradient.isfinite().all()
    check_rows(name, z)


@pytest.mark.parametrize("name", ALL)
def test_weights_without_a_difference_give_no_gradient(name: str) -> None:
    _, gradient = play(name, torch.randn(20, 4), torch.ones(20, 4), tau=1.5, beta=0.7)
    assert gradient.abs().amax() < 1e-5


WRONG: list[tuple[str, Callable[[], dict[str, Any]], str]] = [
    ("nan", lambda: {"logits": torch.full((3, 4), torch.nan)}, "logits are NaN"),
    ("inf", lambda: {"logits": torch.full((3, 4), torch.inf)}, r"logits are \+inf"),
    ("empty", lambda: {"mask": torch.zeros(3, 4, dtype=torch.bool)}, "no category left"),
    ("mask", lambda: {"mask": torch.ones(2, 4, dtype=torch.bool)}, "mask has shape"),
    ("tau", lambda: {"tau": 0.0}, "tau=0, but a temperature is > 0"),
    ("beta", lambda: {"beta": -1.0}, "beta=-1, but a noise scale is >= 0"),
    ("tau of columns", lambda: {"tau": torch.ones(4)}, "tau has shape .4,., but one value per row"),
    ("beta of columns", lambda: {"beta": torch.ones(4)}, "beta has shape .4,., but one value"),
    ("noise", lambda: {"noise": torch.zeros(3, 5)}, "noise has shape .3, 5., but the logits"),
]


@pytest.mark.parametrize(("arguments", "words"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
@pytest.mark.parametrize("name", ALL)
def test_wrong_arguments_are_errors(
    name: str, arguments: Callable[[], dict[str, Any]], words: str
) -> None:
    wrong = arguments()
    logits = wrong.pop("logits", torch.randn(3, 4))
    with pytest.raises(ValueError, match=words):
        play(name, logits, **wrong)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_is_a_loop(name: str) -> None:
    theta, weights, noise = torch.randn(3, 6, 4), torch.randn(3, 6, 4), dc.gumbel([3, 6, 4])
    tau, beta = torch.tensor([0.5, 1.0, 3.0]), torch.tensor([0.2, 1.0, 2.0])
    function = ESTIMATORS[name]

    def loss(t: Tensor, w: Tensor, n: Tensor, tau: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        z = function(t, tau=tau, beta=beta, mask=None, noise=n, generator=None)
        return (z * w).sum(), z

    mapped = vmap(torch.func.grad(loss, has_aux=True), randomness="different")
    gradient, z = mapped(theta, weights, noise, tau, beta)
    assert gradient.isfinite().all()
    for i in range(3):
        alone, own = play(
            name, theta[i], weights[i], tau=tau[i].item(), beta=beta[i].item(), noise=noise[i]
        )
        torch.testing.assert_close(z[i], alone)
        if not CASES[name].draws_more:
            torch.testing.assert_close(gradient[i], own)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_draws_for_each_and_an_empty_row_gives_zeros(name: str) -> None:
    function = ESTIMATORS[name]
    theta = torch.zeros(4, 50, 3)
    theta[0, 0] = -torch.inf

    def loss(t: Tensor) -> tuple[Tensor, Tensor]:
        z = function(t, tau=1.0, beta=1.0, mask=None, noise=None, generator=None)
        return (z * torch.arange(3.0)).sum(), z

    gradient, z = vmap(torch.func.grad(loss, has_aux=True), randomness="different")(theta)
    assert len({tuple(one.flatten().tolist()) for one in z}) == 4
    assert (z[0, 0] == 0).all() and (gradient[0, 0] == 0).all()
    assert gradient.isfinite().all()
    torch.testing.assert_close(z[1:].sum(-1), torch.ones(3, 50))


@pytest.mark.parametrize("name", WITH_LOSS)
def test_surrogate_under_vmap(name: str) -> None:
    """As in a population: finite, of the same shape, and drawn for each."""
    node = dc.Categorical(estimator=name, categories=3)
    dc.Dials.constant(node, tau=1.0, beta=1.0)
    theta, costs = torch.zeros(4, 50, 3), torch.tensor([0.0, 1.0, 5.0])

    def loss(t: Tensor) -> tuple[Tensor, Tensor]:
        each = dc.surrogate(node, lambda: node(t) @ costs)
        return each.sum(), each

    gradient, each = vmap(torch.func.grad(loss, has_aux=True), randomness="different")(theta)
    assert each.shape == (4, 50) and gradient.isfinite().all()
    if name == "enumeration":
        p = torch.full((3,), 1 / 3)
        expected = p * (costs - p @ costs)
        torch.testing.assert_close(gradient, expected.expand(4, 50, 3))
    elif name != "topk_sparsemax":
        assert len({tuple(one.flatten().tolist()) for one in gradient}) == 4


@pytest.mark.parametrize("name", WITH_LOSS)
def test_surrogate_of_an_empty_row_under_vmap(name: str) -> None:
    """It gives zeros, and spoils nothing of the others."""
    node = dc.Categorical(estimator=name, categories=3)
    dc.Dials.constant(node, tau=1.0, beta=1.0)
    theta, costs = torch.randn(2, 5, 3), torch.tensor([1.0, 2.0, 5.0])
    theta[0, 0] = -torch.inf

    def loss(t: Tensor) -> tuple[Tensor, Tensor]:
        each = dc.surrogate(node, lambda: node(t) @ costs)
        return each.sum(), each

    gradient, each = vmap(torch.func.grad(loss, has_aux=True), randomness="different")(theta)
    assert gradient.isfinite().all() and (gradient[0, 0] == 0).all()
    assert each[0, 0] == 0 and (each.flatten()[1:] >= 1).all()


class NothingFromTheHost(TorchFunctionMode):
    """Numbers that are copied to a device break the capture of a CUDA graph."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in (torch.tensor, torch.as_tensor) or isinstance(args[0], Tensor)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("beta", [0.0, 0.7, torch.tensor(0.0), torch.full((400, 1), 0.7)])
@pytest.mark.parametrize("name", ALL)
def test_nothing_is_copied_from_the_host(name: str, beta: Any) -> None:
    theta = torch.randn(400, 3, requires_grad=True)  # fewer have a way of their own on the CPU
    with_loss = dc.Categorical(estimator=name, categories=3) if name in WITH_LOSS else None
    if with_loss is not None:
        dialled(with_loss)
    with NothingFromTheHost():
        if with_loss is None:
            z = ESTIMATORS[name](
                theta, tau=1.5, beta=beta, mask=None, noise=None, generator=None
            ).sum()
        else:
            if isinstance(beta, Tensor):
                with_loss.beta = beta
            z = dc.surrogate(with_loss, lambda: with_loss(theta).square().sum(-1)).sum()
        z.backward()
    assert theta.grad is not None
