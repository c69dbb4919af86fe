"""Dropout of a table: its share, and that every table has factors of its own."""

from __future__ import annotations

import pytest
import torch

from dcgraph.experiments.tasks.paths.dropout import drop, dropout_factors


def test_a_share_of_the_entries_is_dropped() -> None:
    kept = dropout_factors(torch.arange(1, 3), 5000, 30, 0.3)
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    share = (kept == 0).double().mean()
    assert abs(share - 0.3) < 5 * (0.3 * 0.7 / kept.numel()) ** 0.5
    assert not torch.equal(kept[0], kept[1])


def test_tables_are_multiplied_with_their_factors() -> None:
    tables, keys = torch.randn(2, 50, 12), torch.arange(1, 3)
    dropped, copies = drop(tables, keys, 0.5, torch.float32, True)
    torch.testing.assert_close(dropped, tables * dropout_factors(keys, 50, 12, 0.5))
    assert torch.equal(copies, tables)
    again = torch.vmap(lambda t, k: drop(t[None], k[None], 0.5, torch.float32, False)[0])
    torch.testing.assert_close(again(tables, keys)[:, 0], dropped)
