"""Settings of ListOps."""

from __future__ import annotations

import pytest

from dcgraph.experiments.tasks.listops.settings import ListOpsSettings


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds=0"):
        ListOpsSettings(rounds=0)
    with pytest.raises(ValueError, match=r"dropout=1\.0"):
        ListOpsSettings(dropout=1.0)
    with pytest.raises(ValueError, match="add --earlier"):
        ListOpsSettings(parents="operators")
    with pytest.raises(ValueError, match="add --earlier"):
        ListOpsSettings(senders="values")
    with pytest.raises(ValueError, match="only looks back"):
        ListOpsSettings(encoder="ternary")
    with pytest.raises(ValueError, match="has no direction"):
        ListOpsSettings(prior="spanning_tree")
    with pytest.raises(ValueError, match="no rule for parents"):
        ListOpsSettings(prior="arborescence", earlier=True)
    with pytest.raises(ValueError, match="no rule for parents"):
        ListOpsSettings(prior="arborescence", silent_root=True)
    with pytest.raises(ValueError, match="nothing to train; add --epochs 0"):
        ListOpsSettings(model="nearest_operator")
