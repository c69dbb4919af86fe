"""Operators: uses of a table and their one gradient; dropout, of which each table has its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dcgraph.experiments.tasks.paths.operators import drop, dropout_factors, table_uses


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_table_has_the_gradient_of_all_its_uses(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    table, index = torch.randn(2, 9, 4), torch.tensor([[3, 3, 0], [8, 0, 8]])
    weights = torch.randn(9, 4).to(dtype)

    def value(rows: Tensor, tables: list[Tensor]) -> Tensor:  # the second use has no gradient
        of_tables = [(t.square() * weights).float().sum() for t in tables[::2]]
        return rows.square().sum() + sum(of_tables)

    def one(table: Tensor, index: Tensor) -> Tensor:
        return value(*table_uses(table, index, 3, dtype))

    def plainly(table: Tensor, index: Tensor) -> Tensor:
        return value(table[index], [table.to(dtype)] * 3)

    leaf = table.requires_grad_()
    (expected,) = torch.autograd.grad(plainly(leaf[0], index[0]) + plainly(leaf[1], index[1]), leaf)
    (found,) = torch.autograd.grad(one(leaf[0], index[0]) + one(leaf[1], index[1]), leaf)
    (mapped,) = torch.autograd.grad(torch.func.vmap(one)(leaf, index).sum(), leaf)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))
    torch.testing.assert_close(mapped, found)
    rows, _ = table_uses(leaf[0], index[0], 3, dtype)
    (of_rows,) = torch.autograd.grad(rows.sum(), leaf)
    assert of_rows[0, :, 0].tolist() == [1, 0, 0, 2, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("uses", [1, 3])
def test_a_table_is_dropped_only_in_its_last_use(uses: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    table = torch.randn(2, 500, 16, requires_grad=True)
    index = torch.tensor([[3, 3, 0], [8, 0, 8]])

    def one(table: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        rows, tables = table_uses(table, index, uses, dtype, 0.25)
        return rows, *tables

    rows, *whole, last = torch.func.vmap(one, randomness="different")(table, index)
    torch.testing.assert_close(rows, torch.stack([table[0, index[0]], table[1, index[1]]]))
    assert all(torch.equal(one, table.to(dtype)) for one in whole) and len(whole) == uses - 1
    kept = (last != 0).float()
    assert last.dtype == dtype and abs(kept.mean() - 0.75) < 0.02
    assert not torch.equal(kept[0], kept[1])  # each replica draws for itself
    torch.testing.assert_close(last, (table * kept / 0.75).to(dtype))
    joined = torch.stack([*whole, last]).float()
    (gradient,) = torch.autograd.grad(joined.sum(), table)
    torch.testing.assert_close(gradient, uses - 1 + kept / 0.75)
