"""The order of examples: every one once in an epoch, and another order in the next."""

from __future__ import annotations

import torch

from dcgraph.experiments.engine.order import order_of_epoch, schedule_of_epoch


def test_every_example_comes_once_in_an_epoch() -> None:
    schedule = schedule_of_epoch([8, 1, 3], epoch=4)
    assert sorted(schedule) == [0] * 8 + [1] + [2] * 3
    assert schedule != schedule_of_epoch([8, 1, 3], epoch=5)
    orders = [order_of_epoch(50, seed=1, epoch=2, table=table) for table in (0, 1)]
    assert not torch.equal(*orders)
    assert all(torch.equal(order.sort().values, torch.arange(50)) for order in orders)


def test_a_replica_sees_another_order_in_every_epoch() -> None:
    orders = [order_of_epoch(50, seed=1, epoch=epoch, table=0) for epoch in (0, 1)]
    assert not torch.equal(*orders)
    assert torch.equal(orders[0], order_of_epoch(50, seed=1, epoch=0, table=0))
