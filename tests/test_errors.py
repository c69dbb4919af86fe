"""Bad input gets one clear error: the argument, its value and the remedy."""

from __future__ import annotations

import math
from collections.abc import Callable

import jaxtyping
import pytest
import torch
from torch import nn

import dcgraph as dc

LOGITS = torch.zeros(3, 4)
EMPTY_ROW = LOGITS.masked_fill(torch.tensor([[False], [True], [False]]), -torch.inf)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dc.gumbel_softmax(LOGITS, 0.0), ["tau=0", "> 0", "hard=True"]),
        (lambda: dc.gumbel_softmax(LOGITS, -1.0), ["tau=-1", "> 0"]),
        (lambda: dc.gumbel_softmax(LOGITS, torch.tensor(0.0)), ["tau=0", "> 0"]),
        (lambda: dc.gumbel_softmax(LOGITS, torch.tensor([[1.0], [2], [-3]])), ["tau=-3"]),
        (lambda: dc.gumbel_softmax(LOGITS, float("nan")), ["tau=nan"]),
        (lambda: dc.gumbel_softmax(LOGITS, beta=-0.5), ["beta=-0.5", ">= 0"]),
        (lambda: dc.sample(LOGITS, beta=torch.tensor(-0.5)), ["beta=-0.5", ">= 0"]),
        (lambda: dc.gumbel([3], beta=-1.0), ["beta=-1"]),
        (lambda: dc.drop_residual(LOGITS, LOGITS, 1.5), ["alpha=1.5", "[0, 1]"]),
        (lambda: dc.drop_residual(LOGITS, LOGITS, torch.tensor(-0.1)), ["alpha=-0.1"]),
        (lambda: dc.gumbel_softmax(LOGITS, torch.ones(3)), ["tau", "(3,)", "(3, 1)"]),
        (lambda: dc.gumbel_softmax(torch.zeros(4, 4), beta=torch.ones(4)), ["beta", "(4, 1)"]),
        (lambda: dc.gumbel_softmax(LOGITS, torch.ones(2, 3, 1)), ["tau", "(2, 3, 1)"]),
        (lambda: dc.gumbel_softmax(LOGITS * torch.nan), ["NaN", "row 0"]),
        (lambda: dc.sample(LOGITS + torch.inf), ["+inf", "row 0", "mask="]),
        (lambda: dc.gumbel_softmax(EMPTY_ROW), ["row 1", "no category left"]),
        (lambda: dc.sample(EMPTY_ROW), ["row 1", "no category left"]),
        (lambda: dc.entropy(EMPTY_ROW), ["row 1", "no category left"]),
        (
            lambda: dc.argmax(torch.zeros(2, 2, 3), mask=torch.tensor([[True], [False]])),
            ["row (0, 1)", "no category left"],
        ),
        (lambda: dc.gumbel_softmax(torch.full((2, 3), 1e30), 1e-30), ["overflows", "tau"]),
        (lambda: dc.gumbel_softmax(LOGITS, 1e-38), ["overflows", "tau"]),
        (lambda: dc.gumbel_softmax(LOGITS, beta=1e38), ["overflows", "beta"]),
        (lambda: dc.sample(LOGITS, noise=LOGITS + torch.inf), ["noise", "infinite"]),
        (lambda: dc.sample(LOGITS, beta=torch.ones(3)), ["beta", "(3, 1)"]),
        (lambda: dc.gumbel([2], beta=torch.ones(5, 1)), ["beta", "(5, 1)", "(2,)"]),
        (
            lambda: dc.drop_residual(LOGITS, LOGITS, torch.ones(3) / 2),
            ["alpha", "(3, 1)", "output"],
        ),
        (lambda: dc.gumbel_softmax(torch.zeros(3, 0)), ["(3, 0)", "no categories"]),
        (lambda: dc.gumbel_softmax(torch.tensor(1.0)), ["no dimension"]),
        (lambda: dc.gumbel_softmax(LOGITS, dim=2), ["dim=2", "(3, 4)"]),
        (lambda: dc.gumbel_softmax(LOGITS, noise=torch.zeros(4)), ["noise", "(4,)", "(3, 4)"]),
        (lambda: dc.gumbel_softmax(LOGITS, mask=torch.ones(3).bool()), ["mask", "(3,)", "(3, 4)"]),
        (lambda: dc.Discrete(0, 3), ["dim=0", "at least 1"]),
        (lambda: dc.Discrete(4, 3, g=nn.Linear(4, 3), codebook="tied"), ["tied", "leave out"]),
        (lambda: dc.Discrete(4, 3, width=5), ["width=5", "dim=4", "separate"]),
        (lambda: dc.Discrete(4, 3)(torch.zeros(2, 5)), ["width 5", "dim=4"]),
        (
            lambda: dc.Discrete(4, 3)(torch.zeros(2, 4), codebook=torch.zeros(3, 5)),
            ["(3, 5)", "(3, 4)"],
        ),
        (lambda: dc.Discrete(4, 3, codebook="given")(torch.zeros(2, 4)), ["given", "codebook=C"]),
        (lambda: dc.Discrete(4, 3, g=nn.Linear(4, 2))(torch.zeros(2, 4)), ["(2, 2)", "(2, 3)"]),
        (
            lambda: dc.Categorical(estimator="gumbel_softmx"),
            ["mean 'gumbel_softmax'"],
        ),
        (lambda: dc.Dials(tau=-1.0), ["t=0", "tau=-1"]),
        (lambda: dc.Dials(beta=lambda t: -0.1 - t), ["t=0", "beta=-0.1"]),
        (lambda: dc.Dials(every=0), ["every=0", "whole number"]),
        (lambda: dc.Dials(every=True), ["every=True", "whole number"]),
        (lambda: dc.Dials().attach(nn.Linear(2, 2)), ["Linear", "no discrete nodes"]),
        (lambda: dc.temp_match(0.0, 0.1), ["tau=0", "> 0"]),
        (lambda: dc.temp_match(1.0, 0.0), ["gamma=0", "> 0"]),
        (lambda: dc.linear(0, 1, 0), ["steps=0", "constant()"]),
        (lambda: dc.linear(0, 1, math.inf), ["steps=inf", "constant()"]),
        (lambda: dc.exponential(8.0, 1.0, -1), ["steps=-1"]),
        (lambda: dc.exponential(8.0, 0.0, 10), ["end=0", "linear()"]),
        (lambda: dc.exponential(0.0, 2.0, 10), ["start=0", "linear()"]),
        (lambda: dc.piecewise([]), ["at least one"]),
        (lambda: dc.piecewise([(5, 1.0), (2, 0.0)]), ["must not decrease"]),
    ],
)
def test_bad_values(call: Callable[[], object], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_names_are_checked_when_set_later() -> None:
    node = dc.Categorical().eval()
    node.decode = "argmaxx"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="mean 'argmax'"):
        node(LOGITS)


def test_wrong_shape_is_caught_by_the_annotations() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        dc.straight_through(torch.zeros(3), torch.zeros(2))
