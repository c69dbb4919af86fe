"""Calibrated probabilities, by hand and by drawing from what they say."""

from __future__ import annotations

import math

import pytest
import torch

from dcgraph.experiments.tasks.paths.answers.calibration import (
    BINS,
    Calibration,
    calibration_from,
    expected_calibration_error,
    features,
    fit,
    fit_lengths,
)


def test_probabilities_are_those_computed_by_hand() -> None:
    """Of four entities the first is known: q is the share among the other three, U their sum."""
    share = [0.6, 0.3, 0.08, 0.02]
    unknown = [False, True, True, True]
    a, b, c = 1.2, 0.5, -0.3
    found = Calibration({2: (a, b, c)}).probabilities(
        2, torch.tensor([share]).log(), torch.tensor([unknown])
    )
    whole = 0.3 + 0.08 + 0.02
    for entity in (1, 2, 3):
        logit = a * math.log(share[entity] / whole) + b * math.log(whole) + c
        assert float(found[0, entity]) == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-5)


def test_features_are_finite_whatever_the_shares_are() -> None:
    shares = torch.tensor([[0.0, -math.inf, -200.0], [-math.inf, 0.0, -math.inf]])
    for unknown in ([True] * 3, [False] * 3, [False, True, True], [True, False, True]):
        found = features(shares, torch.tensor([unknown] * 2))
        assert bool(found.isfinite().all()) and bool((found[..., :2] <= 0).all())


def test_numbers_of_other_lengths_are_those_of_the_next_shorter_one() -> None:
    found = Calibration({2: (1.0, 1.0, 0.0), 4: (2.0, 1.0, 0.0)})
    assert [found.numbers(length)[0] for length in (1, 2, 3, 4, 9)] == [1, 1, 1, 2, 2]


def test_the_fit_finds_the_numbers_that_answers_were_drawn_from() -> None:
    torch.manual_seed(0)
    x = torch.stack(
        [-2 * torch.rand(40_000), -3 * torch.rand(40_000), torch.ones(40_000)], 1
    ).double()
    true = torch.tensor([1.5, 0.4, 0.7], dtype=torch.float64)
    right = torch.rand(40_000) < (x @ true).sigmoid()
    found = torch.tensor(fit(x, right), dtype=torch.float64)
    assert float((found - true).abs().max()) < 0.1
    # At the maximum of the likelihood the sum of probabilities is that of what is right.
    assert float((x @ found).sigmoid().mean()) == pytest.approx(
        float(right.double().mean()), abs=1e-3
    )
    assert expected_calibration_error((x @ found).sigmoid(), right) < 0.01
    assert expected_calibration_error((x @ (2 * true)).sigmoid(), right) > 0.05


@pytest.mark.parametrize("right", [True, False])
def test_answers_that_say_nothing_give_finite_numbers(right: bool) -> None:
    """All right, or all wrong: the likelihood has no maximum, the ridge gives it one."""
    x = torch.tensor([[-0.1, -1.0, 1.0]]).double().expand(30, 3)
    assert all(math.isfinite(number) for number in fit(x, torch.full((30,), right)))
    assert not fit_lengths({1: (x, torch.full((30,), right))}).of, "and are not used"


def test_the_error_is_the_weighted_mean_over_the_bins() -> None:
    torch.manual_seed(1)
    said, right = torch.rand(500), torch.rand(500) < 0.4
    by_hand = 0.0
    for k in range(BINS):
        low, high = k / BINS, (k + 1) / BINS
        inside = (said >= low) & (said < high)
        if bool(inside.any()):
            gap = abs(float(said[inside].double().mean()) - float(right[inside].double().mean()))
            by_hand += int(inside.sum()) / 500 * gap
    assert expected_calibration_error(said, right) == pytest.approx(by_hand, rel=1e-5)
    assert expected_calibration_error(torch.ones(3), torch.tensor([True] * 3)) == 0
    assert expected_calibration_error(torch.ones(0), torch.zeros(0).bool()) == 0


def test_numbers_for_a_file_and_back() -> None:
    found = Calibration({1: (1.0, 0.5, 0.25), 3: (0.1, 0.2, 1 / 3)})
    numbers = found.as_numbers()
    assert len(numbers) == 6 and numbers["answers of length 3, constant"] == 1 / 3
    assert calibration_from({"inverse temperature": 2.0} | numbers) == found
    assert calibration_from({"inverse temperature": 2.0}) == Calibration({})


@pytest.mark.parametrize(
    "numbers",
    [
        {"answers of length 1, share": 1.0},
        {"answers of length x, share": 1.0},
        {"answers of length 1, size": 1.0},
        {f"answers of length 2, {name}": math.nan for name in ("share", "unknown", "constant")},
    ],
)
def test_numbers_without_sense_are_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="length"):
        calibration_from(numbers)
