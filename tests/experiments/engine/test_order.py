"""When a run is evaluated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dcgraph.experiments.engine.order import Evaluations

small = st.integers(1, 7)


@given(epochs=st.integers(0, 9), per_epoch=small, in_an_epoch=small, every=small)
def test_evaluations_are_spread_over_the_epochs_that_have_them(
    epochs: int, per_epoch: int, in_an_epoch: int, every: int
) -> None:
    expected = {
        epoch * per_epoch + per_epoch * (k + 1) // in_an_epoch
        for epoch in range(epochs)
        if (epoch + 1) % every == 0 or epoch + 1 == epochs
        for k in range(in_an_epoch)
        if per_epoch * (k + 1) // in_an_epoch
    }
    steps = Evaluations(epochs, per_epoch, in_an_epoch, every)
    assert [steps[k] for k in range(len(steps))] == sorted(expected)
    for step in range(epochs * per_epoch + 1):
        assert (step in steps) == (step in expected)
        later = [one for one in expected if one > step]
        assert not later or steps.after(step) == min(later)


def test_a_run_of_a_billion_epochs_starts_at_once() -> None:
    steps = Evaluations(10**9, per_epoch=1875, in_an_epoch=2)
    assert len(steps) == 2 * 10**9 and steps.after(10**9) == 533_333 * 1875 + 937
