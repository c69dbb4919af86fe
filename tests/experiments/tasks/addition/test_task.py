"""The addition task as the engine sees it."""

from __future__ import annotations

import math

from dcgraph.experiments.tasks.addition.settings import DEMO
from dcgraph.experiments.tasks.addition.task import Addition

TASK = Addition()


def test_loss_at_the_start_is_that_of_guessing_wildly() -> None:
    data = TASK.data(DEMO)
    rows = {name: table[:64] for name, table in data.table("train").items()}
    batch = data.batch(rows, training=True)
    loss = TASK.loss(TASK.model(DEMO).train(), batch).detach()
    assert loss.shape == (64,) and 0.5 * math.log(13) < float(loss.mean()) < 2 * math.log(13)
