"""Several threads at once: probes, traces and checks of one say nothing of, and to, another."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

import dcgraph as dc
from dcgraph._checks import may_read, unchecked
from models import Adder


def together(*runs: Callable[[], None]) -> None:
    """Run each in a thread of its own; the first error of any is raised here."""
    errors: list[BaseException] = []

    def guarded(run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_a_probe_and_a_trace_see_only_their_own_thread() -> None:
    """One thread trains the model that others look at; and each looks at rows of its own."""
    model, stop = Adder(), threading.Event()
    dc.Dials.constant(model)

    def look(rows: int) -> None:
        a, b = torch.randn(rows, 6), torch.randn(rows, 6)
        for _ in range(20):
            with dc.trace(model) as steps:
                model(a, b)
            assert [tuple(step.index.shape) for step in steps] == [(rows,)] * 2

    def train() -> None:
        while not stop.is_set():
            model(torch.randn(50, 6), torch.randn(50, 6))

    def look_at_all() -> None:
        try:
            together(*(lambda rows=rows: look(rows) for rows in (3, 4, 5)))
        finally:
            stop.set()

    together(train, look_at_all)

    def probe(categories: int) -> None:
        node = dc.Categorical()
        dc.Dials.constant(node)
        theta = torch.randn(7, categories, requires_grad=True)
        for _ in range(20):
            report = dc.probe(node, lambda: node(theta).square().sum())
            assert [row.categories for row in report.readings] == [categories]

    together(*(lambda k=k: probe(k) for k in (3, 4, 5)))


def test_blocks_without_checks_that_overlap_leave_the_checks_on() -> None:
    first_inside, second_inside, first_left = (threading.Event() for _ in range(3))
    bad = torch.full((2, 3), torch.nan)

    def first() -> None:
        with unchecked():
            first_inside.set()
            second_inside.wait(10)
        first_left.set()
        with pytest.raises(ValueError, match="NaN"):
            dc.gumbel_softmax(bad)

    def second() -> None:
        first_inside.wait(10)
        assert may_read(bad), "the block of the first is not this thread's"
        with unchecked():
            second_inside.set()
            first_left.wait(10)
            dc.gumbel_softmax(bad)
        with pytest.raises(ValueError, match="NaN"):
            dc.gumbel_softmax(bad)

    together(first, second)
    with pytest.raises(ValueError, match="NaN"):
        dc.gumbel_softmax(bad)
