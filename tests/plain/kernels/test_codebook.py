"""The kernels of codebooks against their references, in Triton's interpreter without a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from captured import losses_of_captured_steps
from dcgraph import kernels
from dcgraph._philox import draw_gumbel_at
from dcgraph.codebook import _blocks as blocks
from dcgraph.codebook import _blockwise as blockwise
from dcgraph.codebook import _operators as operators
from dcgraph.codebook import _problem as problems
from dcgraph.codebook._blocks import Block
from dcgraph.codebook._functions import make_problem
from dcgraph.codebook._problem import Implementation, Problem, _perturbed, scan_dense
from large_logits import errors_by_row, large_logits

steps = pytest.importorskip("dcgraph.kernels._codebook_blocks", reason="the kernels need Triton")
stream: Any = pytest.importorskip("dcgraph.kernels._codebook_stream", reason="needs Triton")
stream_backward: Any = pytest.importorskip("dcgraph.kernels._codebook_stream_backward")
kernel_noise = pytest.importorskip("dcgraph.kernels._noise", reason="the kernels need Triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TARGET = torch.tensor([[0, 300, 250], [127, 128, 7]], device=DEVICE)
NOTHING_KEPT = blocks.Kept(torch.empty(0, device=DEVICE), torch.empty(0, device=DEVICE))
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="there is no GPU")


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that overlap, as for an odd number of categories, and the kernels between products."""
    parts = [Block(211, 301, 256), Block(0, 128, 0), Block(128, 256, 128)]
    monkeypatch.setattr(blocks, "split", lambda *_: parts)
    monkeypatch.setattr(blocks, "has_kernels", lambda *_: True)
    monkeypatch.setitem(blocks._KEPT, DEVICE, 0)


def problem(**options: Any) -> Problem:
    torch.manual_seed(0)
    groups, rows, n, dim = 2, 3, 301, 5
    query = torch.randn(groups, rows, dim, device=DEVICE, requires_grad=True)
    codebook = torch.randn(groups, n, dim, device=DEVICE, requires_grad=True)
    given = {"tau": 1.5, "beta": 0.5, "mask": None, "noise": None, **options}
    tau = (torch.rand(rows, groups, 1, device=DEVICE) + given["tau"]).transpose(0, 1)
    p, _ = make_problem(
        *(query, codebook, tau, given["beta"], given["mask"], given["noise"]),
        torch.Generator(DEVICE).manual_seed(1),
    )
    return p


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().norm() / expected.detach().norm())


def agree(
    p: Problem,
    implementation: Implementation,
    *,
    mixes: bool,
    chooses: bool,
    tolerance: float = 1e-5,
) -> None:
    """Values and gradients as by the definition."""
    found = operators.scan(p, implementation, mixes=mixes, chooses=chooses)
    expected = scan_dense(p, mixes=mixes, chooses=chooses)
    torch.testing.assert_close(found[3], expected[3], rtol=1e-4, atol=1e-4)
    if chooses:
        assert torch.equal(found[2], expected[2])
    which = 0 if mixes else 1
    assert relative_error(found[which], expected[which]) < tolerance
    weights = torch.randn_like(found[which])
    gradients = [
        torch.autograd.grad((v[which] * weights).sum(), (p.query, p.codebook))
        for v in (found, expected)
    ]
    for of_found, of_expected in zip(*gradients, strict=True):
        assert relative_error(of_found, of_expected) < tolerance


def case(name: str) -> Problem:
    noise = torch.randn(2, 3, 301, device=DEVICE)
    mask = torch.rand(2, 3, 301, device=DEVICE) > 0.5
    cases: dict[str, Callable[[], Problem]] = {
        "drawn noise": problem,
        "given noise": lambda: problem(noise=noise),
        "a mask": lambda: problem(mask=mask),
        "a mask for all": lambda: problem(mask=mask[0, 0]),
        "no noise": lambda: problem(beta=0.0),
        "a target": lambda: replace(problem(beta=0.0), target=TARGET),
        "an index": lambda: replace(problem(beta=0.0), index=TARGET),
    }
    return cases[name]()


MIXTURES = ["drawn noise", "given noise", "a mask", "a mask for all", "no noise", "an index"]
CHOICES = ["drawn noise", "given noise", "a mask", "no noise"]
CASES = [*((name, False) for name in MIXTURES), *((name, True) for name in CHOICES)]
"""Names of problems, and whether a row is chosen."""


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize(("name", "chooses"), CASES)
def test_fused_steps(name: str, chooses: bool) -> None:
    agree(case(name), "blockwise", mixes=True, chooses=chooses)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("kept", [0, 10_000])
@pytest.mark.parametrize("rise", [0.1, 1.0, -1.0])
def test_rows_that_rise_or_fall_by_orders_of_magnitude(
    rise: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are brought to a new base, within a block and from block to block."""
    monkeypatch.setattr(steps, "_TILE", 128)
    monkeypatch.setitem(blocks._KEPT, DEVICE, kept)
    parts = [Block(0, 256, 0), Block(256, 301, 256)]
    monkeypatch.setattr(blocks, "split", lambda *_: parts)
    slope = rise * torch.arange(301.0, device=DEVICE).expand(2, 3, -1)
    p = problem(noise=slope, beta=1.0)
    agree(p, "blockwise", mixes=True, chooses=True, tolerance=3e-5)  # a is large, and float32


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("name", ["drawn noise", "a mask", "an index"])
def test_fused_steps_with_weights_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(blocks._KEPT, DEVICE, 10_000)
    agree(case(name), "blockwise", mixes=True, chooses=name == "a mask")


def multiply_roughly(a: Tensor, b: Tensor, out: Tensor, adds: bool = False) -> None:
    """What a GPU does: products of bfloat16 that add up in float32."""
    product = torch.bmm(a.float(), b.float())
    out.copy_(out.float() + product if adds else product)


@pytest.mark.usefixtures("fused")
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # a row that rises is done again
@pytest.mark.parametrize("kept", [0, 10_000])
@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("name", ["a mixture", "an index"])
def test_gradients_in_bfloat16_where_one_category_has_all_the_weight(
    name: str, scale: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then delta is a small difference of large numbers, which rounding must not drown."""
    monkeypatch.setitem(blocks._KEPT, DEVICE, kept)
    monkeypatch.setattr(blocks, "product_dtype", lambda p: p.query.dtype)
    if DEVICE == "cpu":
        monkeypatch.setattr(blocks, "multiply", multiply_roughly)
    p = problem(beta=0.1, tau=0.0)
    p = replace(p, index=TARGET) if name == "an index" else p
    rough = [(scale * t).detach().bfloat16().requires_grad_() for t in (p.query, p.codebook)]
    exact = [t.detach().double().requires_grad_() for t in rough]
    dials: dict[str, Any] = {"tau": p.tau.double(), "beta": p.beta.double()}
    weights = torch.randn(2, 3, 5, device=DEVICE)
    gradients = []
    for (query, codebook), own in ((rough, {}), (exact, dials)):
        q = replace(p, query=query, codebook=codebook, **own)
        scan = scan_dense if own else partial(operators.scan, implementation="blockwise")
        value = scan(q, mixes=True, chooses=False)[0]
        gradients.append(torch.autograd.grad((value * weights).sum(), (query, codebook)))
    for of_rough, of_exact in zip(*gradients, strict=True):
        assert relative_error(of_rough.double(), of_exact) < 0.02


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("kept", [0, 10_000])
@pytest.mark.parametrize("gap", [4.0, 8.0])
@pytest.mark.parametrize("chooses", [False, True])
def test_bfloat16_where_categories_with_almost_the_same_row_compete(
    chooses: bool, gap: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [Block(0, 512, 0), Block(512, 1003, 512)]
    monkeypatch.setattr(blocks, "split", lambda *_: parts)
    monkeypatch.setitem(blocks._KEPT, DEVICE, kept)
    monkeypatch.setattr(blocks, "product_dtype", lambda p: p.query.dtype)
    if DEVICE == "cpu":
        monkeypatch.setattr(blocks, "multiply", multiply_roughly)
    assert compete(gap, torch.bfloat16, "blockwise", chooses) < 0.02


@pytest.mark.parametrize("gap", [8.0, 12.0])
@pytest.mark.parametrize("chooses", [False, True])
def test_streams_where_categories_with_almost_the_same_row_compete(
    chooses: bool, gap: float
) -> None:
    assert compete(gap, torch.float32, "streaming", chooses) < 0.01


def compete(gap: float, dtype: torch.dtype, implementation: Implementation, chooses: bool) -> float:
    """The largest error of a gradient of a query, with logits around 500."""
    rough = [t.to(DEVICE, dtype) for t in large_logits(500.0, gap)]
    gradients = []
    for precision in (dtype, torch.float64):
        query, codebook = (t.to(precision).requires_grad_() for t in rough)
        p, _ = make_problem(query, codebook, 1.0, 0.0, None, None, None)
        own = partial(operators.scan, implementation=implementation)
        scan = own if precision == dtype else scan_dense
        value = scan(p, mixes=True, chooses=chooses)[0]
        gradients.append(torch.autograd.grad((value * rough[1][0]).sum(), query)[0])
    return max(errors_by_row(*gradients))


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("kept", [0, 10_000])
def test_fused_steps_without_mixture(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no mixture, products are kept."""
    monkeypatch.setitem(blocks._KEPT, DEVICE, kept)
    agree(case("a target"), "blockwise", mixes=False, chooses=True)
    p = replace(problem(beta=0.0), target=TARGET)
    assert blocks.keeps(p, mixes=False, learns=True) == (kept > 0)
    agree(p, "blockwise", mixes=False, chooses=False)


@pytest.mark.parametrize(("name", "chooses"), CASES)
def test_streaming(name: str, chooses: bool) -> None:
    agree(case(name), "streaming", mixes=True, chooses=chooses)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("way", ["blockwise", "streaming"])
@pytest.mark.parametrize("first", [128, 201, 1_000_000_007])
@pytest.mark.parametrize("name", ["drawn noise", "given noise", "a mask", "a target", "an index"])
def test_rows_of_a_larger_codebook_have_the_noise_of_their_place(
    name: str, first: int, way: str
) -> None:
    """Values and gradients of one shard, the log-sum-exp being that of its rows."""
    shard: Any = SimpleNamespace(first=first)
    p = replace(case(name), shard=shard)
    mixes, stays = p.target is None, torch.ones_like(p.keys, dtype=torch.bool)
    if p.target is not None:  # one of them is a row of another shard
        p, stays = replace(p, target=TARGET.where(TARGET < 300, -1)), TARGET < 300
    expected, lse, best, top = scan_dense(replace(p, target=None), mixes=mixes, chooses=False)
    forward, backward = {
        "blockwise": (blockwise.forward, partial(blockwise.backward, kept=NOTHING_KEPT)),
        "streaming": (stream.forward, stream_backward.backward),
    }[way]
    with torch.no_grad():
        mixture, found_lse, index, found_top, *_ = forward(p, mixes=mixes, chooses=True)
    assert p.index is not None or torch.equal(index, best)
    torch.testing.assert_close(found_top, top)
    assert relative_error(found_lse, lse) < 1e-5
    if mixes:
        of_value, of_lse = torch.randn_like(mixture), None
        total = (expected * of_value).sum()
    else:
        assert p.target is not None
        of_value, of_lse = None, torch.randn_like(lse)
        at_target = _perturbed(p).gather(-1, p.target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        total = ((lse - at_target * stays) * of_lse).sum()
    wanted = torch.autograd.grad(total, (p.query, p.codebook))
    with torch.no_grad():
        found = backward(p, mixture, lse, of_value, of_lse)[:2]
        if p.index is not None and of_value is not None:
            operators.add_to_chosen(p.index, of_value, found[1])
    for one, other in zip(found, wanted, strict=True):
        assert relative_error(one, other) < 1e-5


def test_the_stream_rounds_to_tf32_where_torch_may() -> None:
    p = problem()
    expected = scan_dense(p, mixes=True, chooses=False)[0]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        found = operators.scan(p, "streaming", mixes=True, chooses=False)[0]
    finally:
        torch.set_float32_matmul_precision(before)
    assert 1e-5 < relative_error(found, expected) < 1e-3


def test_streaming_without_mixture() -> None:
    agree(case("a target"), "streaming", mixes=False, chooses=True)


@pytest.mark.usefixtures("fused")
@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")  # of the interpreter
@pytest.mark.parametrize("implementation", ["blockwise", "streaming"])
def test_empty_rows_are_zeros_and_nan_stays_visible(implementation: Implementation) -> None:
    mask = torch.ones(2, 3, 301, dtype=torch.bool, device=DEVICE)
    mask[0, 1] = False
    p = problem(mask=mask)
    value, lse, index, top = operators.scan(p, implementation, mixes=True, chooses=True)
    assert (value[0, 1] == 0).all() and index[0, 1] == -1
    assert lse[0, 1] == top[0, 1] == -torch.inf
    gradients = torch.autograd.grad(value.square().sum(), (p.query, p.codebook))
    assert all(g.isfinite().all() for g in gradients) and (gradients[0][0, 1] == 0).all()
    with torch.no_grad():
        p.query[1, 2, 0] = torch.nan
    value, lse, _, top = operators.scan(p, implementation, mixes=True, chooses=False)
    assert value[1, 2].isnan().all() and lse[1, 2].isnan() and top[1, 2].isnan()
    assert value[1, :2].isfinite().all()


def test_noise_is_that_of_the_reference() -> None:
    keys = torch.arange(5, 8, device=DEVICE)
    noise = torch.empty(3, 700, device=DEVICE)
    kernel_noise.draw(keys, noise, 300)
    expected = draw_gumbel_at(keys.cpu(), 300, 700).to(DEVICE)
    torch.testing.assert_close(noise, expected, rtol=1e-3, atol=1e-3)


def test_a_gpu_without_triton_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "available", lambda: False)
    problems._warn_without_triton.cache_clear()
    problem: Any = SimpleNamespace(
        query=SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32),
        codebook=torch.empty(10**7, 8, device="meta"),
        shape=(1, 512, 10**7, 8),
    )
    with pytest.warns(RuntimeWarning, match="install the package triton"):
        assert problems.fastest(problem) == "blockwise"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert problems.fastest(problem) == "blockwise"
    problems._warn_without_triton.cache_clear()


@on_gpu
@pytest.mark.parametrize("dim", [64, 512])
@pytest.mark.parametrize("n", [14_541, 38_696])
@pytest.mark.parametrize(
    ("dtype", "precision", "tolerance"),
    [
        (torch.float32, "highest", 1e-5),
        (torch.float32, "high", 1e-3),
        (torch.bfloat16, "highest", 1e-2),
    ],
)
def test_all_implementations_on_a_gpu(
    dim: int, n: int, dtype: torch.dtype, precision: str, tolerance: float
) -> None:
    """Against the definition in float64, with the same noise, of bf16 inputs as they are."""
    torch.manual_seed(0)
    query, codebook = (torch.randn(size, dim, device="cuda").to(dtype) for size in (96, n))
    query = (query.float() / dim**0.5 * 3).to(dtype).requires_grad_()
    codebook.requires_grad_()
    keys = torch.randint(2**62, (1, 96), device="cuda")
    weights = torch.randn(96, dim, device="cuda").to(dtype)

    def run(implementation: Implementation, to: torch.dtype) -> list[Tensor]:
        q, c = (t.detach().to(to).requires_grad_() for t in (query, codebook))
        p, _ = make_problem(q, c, 2.0, 1.5, None, None, None)
        values = {**vars(p), "keys": keys}
        if implementation == "dense":
            values["noise"] = draw_gumbel_at(keys, 0, n).to(to)
        p = Problem(**values)
        scan = scan_dense if implementation == "dense" else operators.scan
        arguments = () if implementation == "dense" else (implementation,)
        v = scan(p, *arguments, mixes=True, chooses=False)[0].view(96, dim)
        return [v, *torch.autograd.grad((v * weights.to(to)).sum(), (q, c))]

    expected = run("dense", torch.float64)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        for implementation in ("blockwise", "streaming") if dim <= 128 else ("blockwise",):
            for found, wanted in zip(run(implementation, dtype), expected, strict=True):
                assert relative_error(found.double(), wanted) < tolerance, implementation
    finally:
        torch.set_float32_matmul_precision(before)


@on_gpu
@pytest.mark.parametrize("categories", [5001, 100_003])
def test_captured_training_step_of_a_large_node(categories: int) -> None:
    torch.manual_seed(0)
    node = dc.Discrete(8, categories, residual="none").cuda()
    dc.Dials(tau=1.0, beta=0.5).attach(node)
    losses = losses_of_captured_steps(node, rows=64)
    assert len(set(losses)) > 50, "each replay draws anew"
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


@on_gpu
def test_ten_million_categories() -> None:
    query = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    codebook = torch.randn(10**7, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    dc.mix(query, codebook).float().square().sum().backward()
    gradient = codebook.numel() * 2
    assert torch.cuda.max_memory_allocated() - before - gradient < 1e9
