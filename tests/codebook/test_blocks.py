"""Blocks of a codebook: every category once, sums in pieces, and memory that does not grow."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import dcgraph as dc
from dcgraph._philox import GROUP
from dcgraph.codebook import _blocks as blocks
from dcgraph.codebook import _blockwise as blockwise
from dcgraph.codebook._functions import make_problem, using


@pytest.mark.parametrize("width", [56, 60, 1000])
@pytest.mark.parametrize("adds", [False, True])
def test_a_sum_in_pieces_is_the_sum(width: int, adds: bool) -> None:
    weights, codes = torch.rand(3, width).double(), torch.randn(width, 5).double()
    before = torch.randn(3, 5).double()
    out = before.clone()
    blocks.sum_in_pieces(weights, codes, out, adds)
    torch.testing.assert_close(out, weights @ codes + (before if adds else 0))


@pytest.mark.parametrize("n", [1, 100, 5000, 14_541, 38_696, 75_043, 1_000_003])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_blocks_have_every_category_once(n: int, device: str) -> None:
    parts = blocks.split(n, 512, torch.device(device))
    own = sorted((part.new, part.last) for part in parts)
    assert [start for start, _ in own] == [0, *(end for _, end in own[:-1])]
    assert own[-1][1] == n and all(part.first <= part.new for part in parts)
    if device == "cuda" and n > 2 * GROUP:
        assert all(part.width % 8 == 0 for part in parts)
        # Who writes the gradient of a shared category last has it all.
        written: dict[int, int] = {}
        for part in parts:
            written |= dict.fromkeys(range(part.first, part.last), part.new)
        assert all(new <= category for category, new in written.items())


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that is made inside, other than of a given size."""

    def __init__(self, but: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.but = but
        self.bytes: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else [found]:
            if isinstance(tensor, Tensor) and not tensor._is_view() and tensor.numel() != self.but:
                self.bytes = max(self.bytes, tensor.numel() * tensor.element_size())
        return found


def largest_made(n: int) -> int:
    query, codebook = torch.randn(4, 6), torch.randn(n, 6)
    p, _ = make_problem(query, codebook, 1.0, 1.0, None, None, None)
    with Largest(but=codebook.numel()) as seen:
        mixture, lse, _, _, kept = blockwise.forward(p, mixes=True, chooses=False, learns=True)
        blockwise.backward(p, mixture, lse, mixture, None, kept)
    return int(seen.bytes)


def test_memory_does_not_grow_with_the_categories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(blocks._ENTRIES, "cpu", 3000)
    monkeypatch.setitem(blocks._KEPT, "cpu", 10_000)
    small, large = largest_made(10_000), largest_made(160_000)
    assert 0 < large <= 1.5 * small
    assert large < 4 * 160_000  # less than one row of all logits

    kept: list[int] = []
    for n in (10_000, 160_000):
        query = torch.randn(4, 6, requires_grad=True)
        codebook = torch.randn(n, 6, requires_grad=True)
        saved = 0

        def pack(tensor: Tensor, given: tuple[int, ...] = (query.numel(), codebook.numel())) -> Any:
            nonlocal saved
            saved += tensor.numel() * (tensor.numel() not in given)
            return tensor

        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
            using("blockwise"),
        ):
            dc.mix(query, codebook)
        kept.append(saved)
    assert kept[0] == kept[1] > 0
