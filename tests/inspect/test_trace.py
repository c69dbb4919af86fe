"""Trace: what each node decided, call by call."""

from __future__ import annotations

import torch

import dcgraph as dc
from models import Adder


def test_trace_records_decisions() -> None:
    torch.manual_seed(0)
    model = Adder().eval()
    a, b = torch.randn(9, 6), torch.randn(9, 6)
    with dc.trace(model) as steps:
        model(a, b)
        Adder()(a, b)  # another model is not traced
    model(a, b)  # nor what happens outside
    assert [(step.node, step.call) for step in steps] == [("symbol", 0), ("symbol", 1)]
    theta = model.symbol.logits(model.encode(b))
    assert torch.equal(steps[1].index, theta.argmax(-1))
    torch.testing.assert_close(steps[1].probability, theta.softmax(-1).amax(-1))
    assert str(steps).splitlines()[0].startswith("symbol[0]: ")
    assert [step.call for step in steps[1:]] == [1]


def test_choices_in_groups_are_printed_example_by_example() -> None:
    node = dc.Categorical().eval()
    index = torch.tensor([[0, 1, 2], [2, 2, 0]])
    with dc.trace(node) as steps:
        node(dc.one_hot(index, 3))
        node(dc.one_hot(index, 3)[0, 0])
        node(torch.zeros(20, 18, 2))
    assert torch.equal(steps[0].index, index)
    lines = str(steps).splitlines()
    assert lines[:3] == ["Categorical[0]: 0 1 2", "                2 2 0", "Categorical[1]: 0"]
    assert lines[3] == "Categorical[2]: " + "0 " * 16 + "... 18 choices"
    assert len(lines) == 3 + 8 + 1 and lines[-1] == "                ... [20, 18]"


def test_traces_nest() -> None:
    node = dc.Categorical().eval()
    theta = torch.tensor([[5.0, 1.0, 0.0]])
    with dc.trace(node) as outer:
        node(theta)
        with dc.trace(node) as inner:
            node(theta)
        node(theta, mask=torch.tensor([False, True, True]))
    assert (len(outer), len(inner)) == (3, 1)
    assert outer[2].index == 1
    torch.testing.assert_close(outer[2].probability, theta[:, 1:].softmax(-1)[:, 0])


def test_trace_of_relaxed_rows_is_their_largest_entry() -> None:
    node = dc.Categorical()
    theta = torch.randn(9, 4)
    with dc.trace(node) as steps:
        z = node(theta)
    assert torch.equal(steps[0].index, z.argmax(-1))
