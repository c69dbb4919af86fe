"""A captured step without a GPU: a graph that records and replays what the tests put in its place.

What a real graph does is in tests/plain/test_cuda.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.population import _capture as capture
from dcgraph.population._capture import WARM_UP, CapturedStep

CPU = torch.device("cpu")


class Graph:
    """Replays a function on the tensors it was recorded with, as a CUDA graph does."""

    def __init__(self) -> None:
        self.run: Callable[[], None] = lambda: None

    def pool(self) -> None:
        return None

    def replay(self) -> None:
        self.run()


class Stream:
    def __init__(self, *_: object) -> None: ...
    def wait_stream(self, other: Stream) -> None: ...


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order."""
    seen: list[str] = []

    @contextmanager
    def recording(graph: Graph, pool: object) -> Iterator[None]:
        seen.append("capture")
        yield

    @contextmanager
    def stream(_: object) -> Iterator[None]:
        seen.append("beside")
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: Stream())
    monkeypatch.setattr(capture, "recording", recording)
    return seen


def test_a_step_is_run_three_times_then_captured_and_replayed(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory: list[tuple[Tensor, Tensor]] = []

    def step(x: Tensor, scale: float) -> Tensor:
        calls.append(f"step {scale:g}")
        out = x * scale
        memory.append((x, out))
        return out

    def replay(graph: Graph) -> None:
        calls.append("replay")
        for x, out in memory[WARM_UP:]:
            out.copy_(x * 2)

    monkeypatch.setattr(Graph, "replay", replay)
    run = CapturedStep(step, CPU)
    results = [run(torch.full((2,), float(k)), 2.0) for k in range(6)]
    assert [result.tolist() for result in results] == [[2.0 * k] * 2 for k in range(6)]
    assert calls == ["beside", "step 2"] * WARM_UP + ["capture", "step 2"] + ["replay"] * 3
    memory.clear()
    calls.clear()
    run(torch.zeros(3), 2.0)  # another shape, another number: another graph
    run(torch.zeros(2), 3.0)
    assert calls == ["beside", "step 2", "beside", "step 3"]


def test_on_the_cpu_a_step_is_captured_as_it_is() -> None:
    population = dc.Population(lambda: nn.Linear(4, 3), range(2))

    def step(x: Tensor) -> Tensor:
        return x

    assert population.capture(step) is step


def test_what_cannot_be_an_argument() -> None:
    with pytest.raises(TypeError, match="was given a set; pass tensors, numbers and names"):
        CapturedStep(lambda x: x, CPU)({1})


def test_a_failing_capture_says_what_a_step_must_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def graph(*_: Any, **__: Any) -> Iterator[None]:
        yield
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "graph", graph)
    with pytest.raises(RuntimeError) as caught, capture.recording(Graph()):  # type: ignore[arg-type]
        pass
    (note,) = caught.value.__notes__
    assert "must not read values" in note and "capturable=True" in note
