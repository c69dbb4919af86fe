"""Every registered name is tested: the tests go through the registries, not through a list."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest

import dcgraph as dc
from dcgraph._arguments import EstimatorName
from dcgraph.estimators import (
    ESTIMATORS,
    LOSS_ESTIMATORS,
    VECTOR_ESTIMATORS,
    Estimator,
    get_estimator,
)
from dcgraph.estimators._draws import NEEDS_GUMBEL
from estimator_cases import CASES


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
    assert LOSS_ESTIMATORS[name].calls and inspect.getdoc(LOSS_ESTIMATORS[name].estimate)


@pytest.mark.parametrize("name", sorted(VECTOR_ESTIMATORS))
def test_those_for_vectors_say_where_they_work(name: str) -> None:
    with pytest.raises(ValueError, match=rf"'{name}' is for vectors .* dcgraph\.Discrete"):
        get_estimator(name)


def test_an_unknown_name_is_an_error_with_the_closest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'reinmax'"):
        get_estimator("reinmaxx")
    with pytest.raises(ValueError, match="did you mean 'reinforce'"):
        dc.Categorical(estimator="reinforced")
