"""The machine: its data, its table, and when the table is that of the right machine."""

from __future__ import annotations

import torch

import dcgraph as dc
from parity_machine import (
    METHODS,
    NETWORKS,
    SYMBOLS,
    TASKS,
    Machine,
    automaton,
    is_exact,
    run,
    strings,
    table,
)


def test_answers_are_those_of_the_bits_before_the_padding() -> None:
    lengths = torch.tensor([1, 4, 8])
    for task, value in (
        ("parity", lambda b: b.count("1") % 2),
        ("modulo 5", lambda b: int(b, 2) % 5),
    ):
        (bits, _), answers = strings(task, lengths, torch.Generator().manual_seed(0))
        for row, length, answer in zip(
            bits.tolist(), lengths.tolist(), answers.tolist(), strict=True
        ):
            assert answer == value("".join(map(str, row[:length])))


def test_padding_changes_no_answer() -> None:
    machine = Machine(5).eval()
    bits, lengths = torch.randint(2, (20, 6)), torch.randint(1, 7, (20,))
    longer = torch.cat([bits, torch.randint(2, (20, 3))], 1)
    torch.testing.assert_close(machine(longer, lengths), machine(bits, lengths))
    alone = torch.cat([machine(b[None, :n], n[None]) for b, n in zip(bits, lengths, strict=True)])
    torch.testing.assert_close(machine(bits, lengths), alone)


def test_the_table_says_what_the_machine_does() -> None:
    torch.manual_seed(0)
    machine = Machine(5).eval()
    moves, answers = automaton(machine)
    bits = torch.randint(2, (50, 12))
    with dc.trace(machine) as steps:
        machine(bits, torch.full((50,), 12))
    state = torch.full((50,), SYMBOLS)
    for t, step in enumerate(steps):
        state = torch.tensor(moves)[state, bits[:, t]]
        assert torch.equal(step.index, state)
    said = machine(bits, torch.full((50,), 12)).argmax(-1)
    assert torch.equal(torch.tensor(answers)[state], said)


def test_a_machine_is_exact_if_it_is_right_on_every_string() -> None:
    """Symbols 0 to 4 stand for the numbers, 5 for a second 0; the start leads to 0 or 1."""
    right = [[2 * v % 5, (2 * v + 1) % 5] for v in range(5)] + [[5, 1], [0, 0], [0, 0], [5, 1]]
    assert is_exact("modulo 5", right, [0, 1, 2, 3, 4, 0, 9, 9, 9])
    assert not is_exact("modulo 5", right, [0, 1, 2, 3, 4, 1, 9, 9, 9]), "the second 0 says 1"
    wrong = [*right[:4], [4, 4], *right[5:]]
    assert not is_exact("modulo 5", wrong, [0, 1, 2, 3, 4, 0, 9, 9, 9])
    merged = [[1, 1], [0, 0], *[[0, 0]] * 6, [0, 1]]
    assert not is_exact("parity", merged, [0, 1, *[0] * 7])


def test_every_model_has_a_row_and_every_seed_a_number() -> None:
    found = run(quick=True)
    names = [*METHODS, *(name for name, _, _ in NETWORKS)]
    assert [(r["task"], r["model"]) for r in found["rows"]] == [
        (t, n) for t in TASKS for n in names
    ]
    for row in found["rows"]:
        assert [len(one) for one in row["accuracy"]] == [2, 2, 2]
        assert all(0 <= one <= 1 for accuracy in row["accuracy"] for one in accuracy)
    assert table(found).count("\n") == 1 + len(found["rows"])
