"""What a type checker sees: mypy reads this file, and fails where a type is another one, or Any."""

from __future__ import annotations

from typing import assert_type

import torch
from torch import Tensor

import dcgraph as dc


def test_what_is_called_and_returned_has_a_type() -> None:
    u = torch.randn(2, 4)
    node, choice, around = dc.Discrete(4, 3), dc.Categorical(), dc.DropRes()
    tree = dc.structures.TreeEdges("one_parent")
    assert_type(node(u), Tensor)
    assert_type(node(u, residual=u, mask=torch.ones(3, dtype=torch.bool)), Tensor)
    assert_type(node.logits(u), Tensor)
    assert_type(node.codebook, torch.nn.Parameter)
    assert_type(node.tau, Tensor)
    assert_type(node.alpha, Tensor | None)
    assert_type(node.distribution(u), dc.OneHotCategorical)
    assert_type(node.distribution(u).sample(), Tensor)
    assert_type(choice(u), Tensor)
    assert_type(around(u, u), Tensor)
    assert_type(tree(torch.zeros(3, 3)), Tensor)
    assert_type(dc.gumbel_softmax(u), Tensor)
    assert_type(dc.sample(u), Tensor)
    assert_type(dc.mix(u, node.codebook), Tensor)
    assert_type(dc.codebook.choose(u, node.codebook), tuple[Tensor, Tensor])
    dials = dc.Dials(beta=dc.temp_match(1.0, 0.1))
    assert_type(dials, dc.Dials)
    assert_type(dials.attach(node), dc.Dials)
    assert_type(dials.schedule_steps, int)
