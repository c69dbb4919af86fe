"""Several threads at once: probes, traces and checks of one say nothing of, and to, another."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

import dcgraph as dc
from dcgraph._checks import may_read, unchecked
from dcgraph.structures import arborescence
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


def of_functions(generator: torch.Generator) -> list[torch.Tensor]:
    theta = torch.randn(7, 5, generator=generator)
    query, codes = torch.randn(7, 4, generator=generator), torch.randn(9, 4, generator=generator)
    edges = torch.randn(3, 5, 5, generator=generator)
    return [
        dc.gumbel_softmax(theta, 0.5, generator=generator),
        dc.sample(theta, generator=generator),
        dc.drop_residual(theta, theta, 0.5, gate="element", generator=generator),
        dc.mix(query, codes, tau=0.5, generator=generator),
        dc.codebook.choose(query, codes, beta=1.0, generator=generator)[0],
        arborescence.sample(edges, generator=generator),
        arborescence.marginals(edges),
    ]


@pytest.mark.parametrize("training", [True, False])
def test_what_threads_may_share_gives_each_what_it_would_get_without_the_others(
    training: bool,
) -> None:
    """Functions, one node, and schedules; each thread draws from a generator of its own."""
    node = dc.Discrete(4, 5, gate="vector", decode="sample")
    dc.Dials.constant(node, tau=2.0, alpha=0.5)
    node.train(training)
    schedule = dc.temp_match(8.0, 0.01)

    def work(seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        found = []
        for t in range(20):
            u = torch.randn(6, 4, generator=generator)
            found += [node(u, generator=generator), torch.tensor(schedule(t))]
            found += of_functions(generator)
        return found

    serial = {seed: work(seed) for seed in range(4)}
    threaded: dict[int, list[torch.Tensor]] = {}
    together(*(lambda seed=seed: threaded.update({seed: work(seed)}) for seed in serial))
    for seed, expected in serial.items():
        for own, other in zip(expected, threaded[seed], strict=True):
            assert torch.equal(own, other)


def test_gradients_of_threads_that_share_a_model_are_those_of_each() -> None:
    """With torch.autograd.grad, which leaves the parameters' own gradients as they are."""
    node = dc.Discrete(4, 5)
    dc.Dials.constant(node)
    inputs, noise = torch.randn(4, 6, 4), torch.randn(4, 6, 5)

    def gradient(k: int) -> torch.Tensor:
        (found,) = torch.autograd.grad(node(inputs[k], noise=noise[k]).sum(), node.codebook)
        return found

    serial = [gradient(k) for k in range(4)]
    threaded: dict[int, torch.Tensor] = {}

    def work(k: int) -> None:
        for _ in range(20):
            threaded[k] = gradient(k)
            assert torch.equal(threaded[k], serial[k])

    together(*(lambda k=k: work(k) for k in range(4)))
    assert len(threaded) == 4 and node.codebook.grad is None
