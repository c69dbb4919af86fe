"""The noise: its distribution, its tail, and where it is drawn from."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import dcgraph as dc
from dcgraph.noise import _SCALES, _of_rank, draw_gumbel_in, draw_uniform
from statistics_of_fit import chi_square_p, kolmogorov_p

THETA = torch.tensor([1.0, -0.5, 0.3, 2.0, 0.0])


def gumbel_cdf(x: Tensor, beta: float) -> Tensor:
    return torch.exp(-torch.exp(-x.double() / beta))


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_noise_is_gumbel(beta: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    draws = 1000 if dtype == torch.bfloat16 else 100_000  # its 8 bits show in larger samples
    noise = dc.gumbel([draws], beta=beta, dtype=dtype)
    assert noise.dtype == dtype and noise.isfinite().all()
    assert kolmogorov_p(gumbel_cdf(noise, beta)) > 1e-4
    assert kolmogorov_p(gumbel_cdf(-noise, beta)) < 1e-12, "the test must tell the sign"


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_argmax_frequencies_are_softmax_of_theta_over_beta(beta: float) -> None:
    torch.manual_seed(1)
    rows = THETA.expand(200_000, -1)

    def fit(noise: Literal["gumbel", "reversed"]) -> float:
        drawn = dc.sample(rows, beta=beta, noise=noise)
        return chi_square_p(drawn.bincount(minlength=5), (THETA / beta).softmax(-1))

    assert fit("gumbel") > 1e-4
    assert fit("reversed") < 1e-12, "the test must fail for the sign of the released code"


def test_relaxed_rows_have_the_frequencies_of_samples() -> None:
    torch.manual_seed(2)
    z = dc.gumbel_softmax(THETA.expand(100_000, -1), tau=3.0, beta=2.0)
    assert chi_square_p(z.argmax(-1).bincount(minlength=5), (THETA / 2.0).softmax(-1)) > 1e-4


def test_upper_tail_is_fine() -> None:
    """2,000 of 2 million exponentials lie below 1e-3; 24-bit uniforms would collide 100 times."""
    torch.manual_seed(3)
    top = dc.gumbel([2_000_000]).topk(2000).values
    assert len(top.unique()) > 1980
    coarse = torch.rand(2_000_000).mul(1 - 2**-24).add(2**-25)
    assert len((-(-coarse.log()).log()).topk(2000).values.unique()) < 1980, (
        "a coarse tail must fail"
    )


def test_no_ties_among_ten_million_categories() -> None:
    torch.manual_seed(4)
    for _ in range(8):
        noise = dc.gumbel([10_000_000])
        assert noise.isfinite().all()
        assert (noise == noise.max()).sum() == 1


def test_extreme_bits_stay_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    for bits in (0, 2**62 - 1):
        monkeypatch.setattr(torch, "randint", lambda *a, bits=bits, **k: torch.full((3,), bits))
        for dtype in (torch.float32, torch.float64):
            assert dc.gumbel([3], dtype=dtype).isfinite().all()


@given(
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    scale=st.sampled_from([0.0, 1.0, 100.0, 6e4]),
    tau=st.floats(1e-3, 1e3),
    beta=st.floats(0.0, 1e3),
    hard=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_rows_are_finite_and_sum_to_one(
    dtype: torch.dtype, scale: float, tau: float, beta: float, hard: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    logits = (torch.rand(4, 33) * 2 - 1).mul(scale).to(dtype).requires_grad_()
    z = dc.gumbel_softmax(logits, tau, beta=beta, hard=hard)
    (gradient,) = torch.autograd.grad((z.float() * torch.randn(4, 33)).sum(), logits)
    assert z.dtype == dtype
    assert z.isfinite().all() and gradient.isfinite().all()
    torch.testing.assert_close(z.float().sum(-1), torch.ones(4), atol=2e-2, rtol=0)
    if hard:
        assert ((z == 0) | (z == 1)).all()


def test_large_tensor_is_finite() -> None:
    z = dc.gumbel_softmax(torch.zeros(8, 1024, 96, 8), dim=1)
    assert z.isfinite().all()


def test_seed_and_generator_repeat() -> None:
    logits = torch.randn(5, 7)
    torch.manual_seed(0)
    first = dc.gumbel_softmax(logits)
    torch.manual_seed(0)
    assert torch.equal(first, dc.gumbel_softmax(logits))

    def own() -> torch.Generator:
        return torch.Generator().manual_seed(3)

    before = torch.get_rng_state()
    assert torch.equal(
        dc.gumbel_softmax(logits, generator=own()), dc.gumbel_softmax(logits, generator=own())
    )
    assert torch.equal(dc.sample(logits, generator=own()), dc.sample(logits, generator=own()))
    assert torch.equal(before, torch.get_rng_state()), "a generator leaves the global one alone"


def test_noise_replays_exactly() -> None:
    logits = torch.randn(5, 7)
    noise = dc.gumbel([5, 7], generator=torch.Generator().manual_seed(5))
    drawn = dc.gumbel_softmax(logits, 2.0, beta=3.0, generator=torch.Generator().manual_seed(5))
    assert torch.equal(dc.gumbel_softmax(logits, 2.0, beta=3.0, noise=noise), drawn)
    expected = ((logits + 3.0 * noise) / 2.0).softmax(-1)
    torch.testing.assert_close(drawn, expected)


def test_zero_beta_is_softmax_and_draws_nothing() -> None:
    logits = torch.randn(5, 7)
    before = torch.get_rng_state()
    z = dc.gumbel_softmax(logits, 2.0, beta=0.0)
    assert torch.equal(z, (logits / 2.0).softmax(-1))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(dc.gumbel_softmax(logits, 2.0, beta=torch.tensor(0.0)), z)


def test_reversed_noise_is_minus_gumbel() -> None:
    logits = torch.randn(5, 7)
    noise = dc.gumbel([5, 7], generator=torch.Generator().manual_seed(5))
    drawn = dc.gumbel_softmax(logits, noise="reversed", generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(drawn, (logits - noise).softmax(-1))


def test_a_scale_per_entry_enlarges_nothing() -> None:
    assert dc.gumbel([2, 3], beta=torch.rand(3)).shape == (2, 3)
    with pytest.raises(ValueError, match="does not broadcast to the shape"):
        dc.gumbel([3], beta=torch.rand(2, 3))


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("count", [3, 2000])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_noise_is_made_where_and_as_asked(beta: float, count: int, dtype: torch.dtype) -> None:
    with torch.device("meta"):
        noise = dc.gumbel([count], beta=beta, dtype=dtype, device="cpu")
    assert noise.device.type == "cpu" and noise.dtype == dtype
    assert dc.gumbel([count], beta=beta, dtype=dtype, device="meta").is_meta


def test_a_few_numbers_come_from_53_bits() -> None:
    """From 24 bits the noise would end at 16.6."""
    torch.manual_seed(0)
    uniform = (-(-dc.gumbel([1000], dtype=torch.float64)).exp()).exp()
    assert ((uniform * 2**24) % 1 != 0).float().mean() > 0.99


def test_uniforms_of_several_ranks_are_the_upper_24_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.rand has them: the least is 0, the largest below 1."""
    monkeypatch.setattr("dcgraph.noise._own_noise", lambda generator: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    for bits, expected in (
        (1, 0.0),
        ((1 << 62) - 1, 1 - 2**-24),
        (1 << 61, 0.5),
        (1 << 38, 2**-24),
    ):
        monkeypatch.setattr(torch, "randint", lambda *_, bits=bits, **__: torch.tensor([bits]))
        (drawn,) = draw_uniform((1,), None, torch.device("cpu"))
        assert drawn.dtype == torch.float32 and float(drawn) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padding_has_zeros_for_noise_where_values_can_be_read(dtype: torch.dtype) -> None:
    rows = torch.tensor([True, False, True])
    with torch.device("meta"):
        noise = draw_gumbel_in(rows, 5, None, dtype)
    assert noise.device.type == "cpu" and noise.dtype == dtype and noise.shape == (3, 5)
    assert (noise[1] == 0).all() and (noise[rows] != 0).all()
    drawn = torch.vmap(lambda r: draw_gumbel_in(r, 5, None, dtype), randomness="different")(
        rows.expand(2, 3)
    )
    assert drawn.shape == (2, 3, 5) and (drawn != 0).all(), "under vmap padding draws, too"


@pytest.mark.parametrize("rank", [1, 2, 7, 1000])
def test_what_a_rank_draws_is_a_step_of_splitmix64(rank: int) -> None:
    """By whole numbers of Python; the first output from seed 0 is a published one."""
    whole = (1 << 64) - 1

    def expected(bits: int) -> int:
        x = bits + rank * 0x9E3779B97F4A7C15 & whole
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & whole
        x = (x ^ x >> 27) * 0x94D049BB133111EB & whole
        return x ^ x >> 31

    assert rank > 1 or expected(0) == 0xE220A8397B1DCDAF
    drawn = [0, 1, 12345, (1 << 61) + 7, (1 << 62) - 1]
    found = _of_rank(torch.tensor(drawn), rank).tolist()
    assert found == [expected(bits) & (1 << 62) - 1 | 1 for bits in drawn]
    assert torch.equal(_of_rank(torch.tensor(drawn), 0), torch.tensor(drawn))


def test_62_bits_become_a_number_below_1_by_one_rounding() -> None:
    assert _SCALES[torch.float32] * 2.0**62 == 1 - 2.0**-24
    assert _SCALES[torch.float64] * 2.0**62 == 1 - 2.0**-53


def test_noise_has_scale_1_if_nothing_is_said() -> None:
    one = dc.gumbel([4], generator=torch.Generator().manual_seed(0))
    two = dc.gumbel([4], beta=2.0, generator=torch.Generator().manual_seed(0))
    assert torch.equal(2 * one, two)
