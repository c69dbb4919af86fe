"""Codebooks in several blocks, for those who ask by ``codebooks.several_blocks``."""

from __future__ import annotations

import pytest

from dcgraph.codebook import _blocks as blocks


@pytest.fixture(params=[0, 1 << 25], ids=["made again", "kept"])
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks, whose weights are made again in the backward pass or kept for it."""
    monkeypatch.setitem(blocks._ENTRIES, "cpu", 3000)
    monkeypatch.setitem(blocks._KEPT, "cpu", request.param)
