"""What the baselines of addition compute."""

from __future__ import annotations

import pytest
import torch
from problog import get_evaluatable
from problog.program import PrologString
from torch import nn

from dcgraph.experiments.tasks.addition.baselines import Concatenated, Marginalised, log_prob_of_sum


def test_the_distribution_of_a_sum_is_deepproblogs() -> None:
    """Against the problog package, which the DeepProbLog baseline of the paper stands on."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(1, 50, (2, 3), generator=generator).double() / 200
    a, b = torch.cat([weights, 1 - weights.sum(-1, keepdim=True)], -1)  # exact in six digits
    lines = [
        "; ".join(f"{float(p[k]):.6f}::digit({x},{k})" for k in range(4)) + "."
        for x, p in (("x", a), ("y", b))
    ]
    program = "\n".join(
        [*lines, "add(X,Y,Z) :- digit(X,X2), digit(Y,Y2), Z is X2+Y2.", "query(add(x,y,_))."]
    )
    answers = get_evaluatable().create_from(PrologString(program)).evaluate()
    exact = {int(term.args[2]): probability for term, probability in answers.items()}
    ours = log_prob_of_sum(a.log().unsqueeze(0), b.log().unsqueeze(0)).exp()[0]
    assert sorted(exact) == list(range(7))
    for total, probability in exact.items():
        assert float(ours[total]) == pytest.approx(probability, abs=1e-9)


def test_marginalisation_over_three_images_is_enumeration() -> None:
    model = Marginalised(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), digits=3).double()
    images = torch.rand(2, 3, 2, 2, dtype=torch.double)
    p = torch.softmax(model.digit(images.flatten(0, 1)), -1).view(2, 3, 3)
    expected = torch.zeros(2, 7, dtype=torch.double)
    for i in range(3):
        for j in range(3):
            for k in range(3):
                expected[:, i + j + k] += p[:, 0, i] * p[:, 1, j] * p[:, 2, k]
    torch.testing.assert_close(model(images).exp(), expected)


def test_marginalisation_stays_finite_where_probabilities_vanish() -> None:
    left = torch.tensor([[0.0, -300.0, -300.0]], requires_grad=True)
    total = log_prob_of_sum(left.log_softmax(-1), left.log_softmax(-1))
    assert total.isfinite().all() and float(total.detach()[0, 4]) == pytest.approx(-600.0)
    total[0, 4].backward()
    assert left.grad is not None and left.grad.isfinite().all()


def test_the_baseline_sees_the_images_side_by_side() -> None:
    model = Concatenated(2, 19).eval()
    images = torch.rand(3, 2, 28, 28)
    assert model(images).shape == (3, 19)
    assert not torch.allclose(model(images), model(images.flip(1)))
