"""Every registered name is tested: the tests go through the registries, not through a list."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from dcgraph._arguments import EstimatorName
from dcgraph._checks import Dial
from dcgraph.estimators import (
    ESTIMATORS,
    LOSS_ESTIMATORS,
    VECTOR_ESTIMATORS,
    Estimator,
    get_estimator,
)
from dcgraph.estimators._draws import NEEDS_GUMBEL
from dcgraph.nodes import LARGE
from dcgraph.noise import Noise
from estimator_cases import CASES, dialled


def test_the_names_are_those_of_the_registries_and_each_stands_in_one() -> None:
    registered = [*ESTIMATORS, *LOSS_ESTIMATORS, *VECTOR_ESTIMATORS]
    assert sorted(registered) == sorted(get_args(EstimatorName))
    assert len(set(registered)) == len(registered)


def test_every_estimator_has_a_case() -> None:
    assert set(CASES) == {*ESTIMATORS, *LOSS_ESTIMATORS}, (
        "write down in tests/estimator_cases.py what the estimator does, and its gradient"
    )
    for name, case in CASES.items():
        assert (case.gradient is None) == (name in LOSS_ESTIMATORS)
        assert case.takes_reversed == (name not in NEEDS_GUMBEL)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_functions_have_one_signature_and_are_found_by_name(name: str) -> None:
    function = get_estimator(name)
    assert function is ESTIMATORS[name]
    own = inspect.signature(function).parameters
    for argument in list(inspect.signature(Estimator.__call__).parameters)[1:]:
        assert argument in own
        kinds = own[argument].KEYWORD_ONLY, own[argument].POSITIONAL_OR_KEYWORD
        assert own[argument].kind in kinds
    extra = {a: p for a, p in own.items() if a not in ("logits", "tau", "beta")}
    assert all(p.default is not inspect.Parameter.empty for p in extra.values())
    assert inspect.getdoc(getattr(function, "func", function))


@pytest.mark.parametrize("name", sorted(LOSS_ESTIMATORS))
def test_those_that_need_the_loss_say_so(name: str) -> None:
    with pytest.raises(ValueError, match=rf"'{name}' needs the loss .* dcgraph\.surrogate\("):
        get_estimator(name)
    assert inspect.getdoc(LOSS_ESTIMATORS[name].estimate)


@pytest.mark.parametrize("name", sorted(VECTOR_ESTIMATORS))
def test_those_for_vectors_say_where_they_work(name: str) -> None:
    with pytest.raises(ValueError, match=rf"'{name}' is for vectors .* dcgraph\.Discrete"):
        get_estimator(name)


def test_an_unknown_name_is_an_error_with_the_closest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'reinmax'"):
        get_estimator("reinmaxx")
    with pytest.raises(ValueError, match="did you mean 'reinforce'"):
        dc.Categorical(estimator="reinforced")


def test_an_estimator_of_ones_own_is_a_function_and_an_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def identity(
        logits: Tensor,
        *,
        tau: Dial,
        beta: Dial,
        mask: Tensor | None = None,
        noise: Noise | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """D, whose gradient reaches the logits as it is, over tau."""
        index = dc.sample(logits, beta=beta, mask=mask, noise=noise, generator=generator)
        hard = dc.one_hot(index, logits.shape[-1], logits.dtype)
        return dc.straight_through(hard, logits / tau)

    with pytest.raises(ValueError, match="'identity' is unknown"):
        dc.Categorical(estimator="identity")
    monkeypatch.setitem(ESTIMATORS, "identity", identity)
    assert get_estimator("identity") is identity
    choice = dc.Categorical(estimator="identity")
    small, large = (dc.Discrete(3, n, estimator="identity", residual="none") for n in (5, LARGE))
    for node in (choice, small, large):
        dialled(node, tau=2.0)
    weights, theta = torch.randn(4, 3), torch.randn(4, 3, requires_grad=True)
    (choice(theta) * weights).sum().backward()
    torch.testing.assert_close(theta.grad, weights / 2.0)
    for node in (small, large):
        (gradient,) = torch.autograd.grad((node(theta) * weights).sum(), theta)
        torch.testing.assert_close(gradient, weights @ node.codebook.T @ node.codebook / 2.0)
    population = dc.Population(lambda: dc.Discrete(3, 5, estimator="identity"), range(2))
    dc.Dials.constant(population)
    assert population(theta).shape == (2, 4, 3)
    with pytest.raises(ValueError, match=r"'identitx' is unknown; did you mean 'identity'"):
        dc.Discrete(3, 5, estimator="identitx")
