"""The gates: what they compute, relaxed and hard, and that pass-through is what it says."""

from __future__ import annotations

import torch

import dcgraph as dc
from logic_gates import BITS, PASS, SETTINGS, TRUTH, WIRES, Gates, data, run, table


def test_hard_gates_are_functions_of_bits() -> None:
    torch.manual_seed(0)
    model = Gates(3, passes=False, mode="replace").eval()
    bits = torch.randint(2, (20, BITS)).float()
    wires = bits.repeat(1, 13)[:, :WIRES].long()
    for logits, other in zip(model.logits.argmax(-1), model.other, strict=True):
        wires = TRUTH[logits, 2 * wires + wires[:, other]]
    expected = torch.stack([group.float().mean(1) for group in wires[:, :126].split(21, 1)], 1)
    torch.testing.assert_close(model(bits), 10 * (expected - 0.5))


def test_relaxed_gates_are_the_expectation_over_their_functions() -> None:
    """Of one layer, whose inputs are bits."""
    torch.manual_seed(0)
    model = Gates(1, passes=False, mode=None)
    dc.Dials.constant(model, beta=0.0)
    bits = torch.randint(2, (20, BITS)).float()
    wires = bits.repeat(1, 13)[:, :WIRES].long()
    tables = model.logits[0].softmax(-1) @ TRUTH.float()
    values = tables[torch.arange(WIRES), 2 * wires + wires[:, model.other[0]]]
    expected = torch.stack([group.mean(1) for group in values[:, :126].split(21, 1)], 1)
    torch.testing.assert_close(model(bits), 10 * (expected - 0.5))


def test_pass_through_lets_the_input_through_all_layers() -> None:
    deep, none = (Gates(depth, passes=True, mode=None).eval() for depth in (12, 1))
    bits = torch.randint(2, (20, BITS)).float()
    torch.testing.assert_close(deep(bits), none(bits))
    assert (deep.logits.argmax(-1) == PASS).all()
    assert TRUTH[PASS].tolist() == [0, 0, 1, 1], "a, at (a, b) = 00, 01, 10, 11"


def test_the_answers_are_the_sums() -> None:
    bits, answers = data()
    low, high = (bits[:, part] @ 2.0 ** torch.arange(5) for part in (slice(5), slice(5, 10)))
    assert torch.equal(low + high, answers @ 2.0 ** torch.arange(6))
    assert len(bits.unique(dim=0)) == 1024


def test_every_setting_has_its_rows() -> None:
    found = run(quick=True)
    assert [row["setting"] for row in found["rows"][::2]] == list(SETTINGS)
    assert [row["depth"] for row in found["rows"]] == [6, 12] * len(SETTINGS)
    for row in found["rows"]:
        assert all(len(row[kind]) == 2 for kind in ("relaxed", "hard"))
        assert all(0 <= one <= 1 for kind in ("relaxed", "hard") for one in row[kind])
    assert table(found).count("\n") == 1 + len(found["rows"])
