"""Settings of dials as data in a checkpoint."""

from __future__ import annotations

import json

import pytest

import dcgraph as dc
from dcgraph.frameworks._settings import settings_of, values_to_log, with_settings


def test_settings_make_the_same_dials_again() -> None:
    dials = dc.Dials(
        tau=[1.0, 2.0], beta=[dc.temp_match(1.0, 0.1), dc.linear(0, 2, 9)], alpha=0.5, every=3
    )
    again = with_settings(json.loads(json.dumps(settings_of(dials))))
    assert settings_of(again) == settings_of(dials)
    assert [again.at(step) for step in range(40)] == [dials.at(step) for step in range(40)]
    assert settings_of(dc.Dials(tau=[1.0, lambda t: 2.0])) is None
    assert values_to_log(again) == {
        "dials/tau/0": 1.0, "dials/tau/1": 2.0, "dials/beta/0": 0.0, "dials/beta/1": 0.0,
        "dials/alpha": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"tau": [], "beta": ["constant", 1], "alpha": ["constant", 1], "every": 1},
        {"tau": ["constant", 1], "beta": ["constant"], "alpha": ["constant", 1], "every": 1},
        {"tau": ["constant", -1], "beta": ["constant", 1], "alpha": ["constant", 1], "every": 1},
        {"tau": ["constant", 1], "beta": ["constant", 1], "alpha": ["constant", 1], "every": "2"},
        {"tau": 3, "beta": ["constant", 1], "alpha": ["constant", 1], "every": 1},
    ],
)
def test_what_is_wrong_in_a_file_is_one_error(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the checkpoint has no settings of dials: "):
        with_settings(wrong)
