"""Adding column by column: the cell as a table is the network, and what makes a cell exact."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.experiments.engine.errors import DataError
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.panels import Examples, Grid
from dcgraph.experiments.engine.task import Data
from dcgraph.experiments.tasks.addition import columns
from dcgraph.experiments.tasks.addition.data.examples import digits_of_sums
from dcgraph.experiments.tasks.addition.model.columns import CellTable, ColumnAdder
from dcgraph.experiments.tasks.addition.settings import CARRY, LENGTHS
from dcgraph.experiments.tasks.addition.task import Addition

TASK = Addition()


def called(model: nn.Module) -> object:
    return model(torch.randn(500, 8, 2, 2, generator=torch.Generator().manual_seed(1)))


def exact(symbols: int = 12, start: int = 2) -> tuple[CellTable, Tensor]:
    """Symbols 10 and 11 are a second 8 and 9; carries 0 and 1, and a start that is 0."""
    meaning = torch.tensor([*range(10), 8, 9])[:symbols]
    total = meaning.view(1, -1, 1) + meaning.view(1, 1, -1) + torch.tensor([0, 1, 0]).view(3, 1, 1)
    return CellTable(total % 10, total // 10, torch.tensor([0, 1, 0])), meaning


def test_the_digits_of_sums_are_those_of_whole_numbers() -> None:
    labels = torch.randint(10, (200, 12), generator=torch.Generator().manual_seed(0))
    powers = 10 ** torch.arange(7)
    left, right = (half @ powers[:6] for half in labels.chunk(2, 1))
    assert torch.equal(digits_of_sums(labels) @ powers, left + right)


def test_the_table_is_the_network() -> None:
    """By argmax, for numbers of any length; also where symbols and carries are pruned."""
    torch.manual_seed(0)
    model = ColumnAdder(nn.Flatten(), 4, 6, 3, prunable=True).eval()
    for pruned in (False, True):
        if pruned:
            left = dc.prune_categories(model, called, share=0.1)
            assert left[0]["symbol"] < 6
        images = torch.randn(50, 10, 2, 2)
        symbols = model.read(images.flatten(0, 1)).view(50, 10)
        digits, _ = model.table().add(*symbols.chunk(2, 1))
        assert digits.shape == (50, 6)
        assert torch.equal(digits, model(images).argmax(-1))


def test_a_cell_that_adds_is_exact_at_any_length() -> None:
    table, meaning = exact()
    assert table.wrong_entries(meaning) == (0, 3 * 12 * 12)
    symbols = torch.randint(12, (40, 2000), generator=torch.Generator().manual_seed(0))
    digits, carries = table.add(*symbols.chunk(2, 1))
    assert torch.equal(digits, digits_of_sums(meaning[symbols])) and carries.shape == (40, 1000)


def test_every_wrong_entry_that_can_be_reached_is_counted() -> None:
    table, meaning = exact()
    table.digit[1, 3, 4] += 1
    assert table.wrong_entries(meaning) == (1, 3 * 144)
    table.digit[0, 11, 11] += 1  # of a symbol that is not in use
    unused = meaning.clone()
    unused[11] = -1
    assert table.wrong_entries(unused) == (1, 3 * 121)


@pytest.mark.parametrize("what", ["a carry forgotten", "a carry with two meanings", "leading"])
def test_a_wrong_carry_is_found(what: str) -> None:
    table, meaning = exact()
    if what == "a carry forgotten":
        table.next[0, 9, 9] = 0
    elif what == "leading":
        table.leading[1] = 0
    else:
        table.next[:] = 0
    wrong, _ = table.wrong_entries(meaning)
    assert wrong > 0


def test_what_is_measured_is_counted_by_hand() -> None:
    """A reader that takes an 8 for a 9: sums are wrong there, but rightly added."""

    class ByHand(ColumnAdder):
        def __init__(self) -> None:
            super().__init__(nn.Flatten(), 1, 10, 2)

        def read(self, images: Tensor) -> Tensor:
            digits = images[:, 0, 0].round().long()
            return torch.where(digits == 8, 9, digits)

        def table(self) -> CellTable:
            return exact(symbols=10)[0]

    labels = torch.arange(4000) % 10
    rows = torch.arange(4000).view(-1, 8)
    constants = {"images": labels.view(-1, 1, 1) * 127.5 + 127.5, "labels": labels}
    data = Data({"train": {"images": rows}, "test": {"images": rows}}, "x", constants)
    found = columns.measured(ByHand(), data, CARRY, torch.arange(10))
    assert found[Metric("cell entries wrong", decoder=None)] == 0
    assert found[Metric("symbols in use", decoder=None)] == 10
    for length in LENGTHS:
        assert found[Metric("added right", length=length)] == 1
    assert found[Metric("accuracy", length=1)] == pytest.approx(0.81, abs=0.03)
    assert found[Metric("accuracy", length=100)] == 0


def test_the_model_of_the_preset_learns_from_digits_only() -> None:
    model = TASK.model(replace(CARRY, symbols=16)).train()
    dc.Dials.constant(model, tau=2.0, beta=1.0, alpha=0.5)
    images = torch.rand(3, 2 * CARRY.digits, 28, 28)
    total = torch.randint(10, (3, CARRY.digits + 1))
    loss = TASK.loss(model, {"images": images, "total": total})
    assert loss.shape == (3,)
    loss.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_a_sum_counts_only_if_all_its_digits_are_right() -> None:
    class Known(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return nn.functional.one_hot(images[:, :3, 0, 0].long(), 10).float()

    images = torch.zeros(2, 4, 1, 1)
    images[:, :3, 0, 0] = torch.tensor([[2, 0, 1], [2, 0, 1]])
    batch = {"images": images, "total": torch.tensor([[2, 0, 1], [2, 1, 1]])}
    assert TASK.metrics(Known(), batch)["accuracy"].tolist() == [1, 0]


def small_data() -> Data:
    """Images of one pixel whose brightness is the digit, except on test images of 7: they are 9."""
    labels = torch.arange(1600) % 10
    train, test = torch.arange(1600).view(-1, 8).chunk(2)
    brightness = torch.where((labels == 7) & (torch.arange(1600) >= 800), 9, labels) * 25
    constants = {"images": brightness.to(torch.uint8).view(-1, 1, 1), "labels": labels}
    splits = {
        split: {"images": rows, "total": digits_of_sums(labels[rows])}
        for split, rows in (("train", train), ("test", test))
    }
    return Data(splits, "x", constants)


class Brightness(ColumnAdder):
    """Symbols are brightness, and the cell is exact."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), 1, 12, 2)

    def read(self, images: Tensor) -> Tensor:
        return ((images[:, 0, 0] + 1) * 127.5 / 25).round().long()

    def table(self) -> CellTable:
        return exact()[0]


def test_a_sum_is_shown_column_by_column() -> None:
    settings = replace(CARRY, symbols=12)
    texts = list(columns.shown(Brightness(), settings, small_data(), 3, 0, 8))
    assert {"is 7, not 9" in text for text in texts} == {True, False}
    for text in texts:
        lines = text.splitlines()
        assert lines[0].split() == ["column", "symbols", "read", "as", "carried", "digit", "carry"]
        left, right, result = (int(line.strip(" +=")) for line in lines[-4:-1])
        assert left + right == result, "the cell is exact"
        assert ("is 7, not 9" in text) == ("wrong" in lines[-1])
        assert "added right" in lines[-1] or lines[-1] == "(right)"
    with pytest.raises(DataError, match="there are 0 to 132"):
        list(columns.shown(Brightness(), settings, small_data(), 3, 133, 5))


def test_the_page_of_a_run_shows_sums_and_the_cell() -> None:
    sums, *grids = columns.panels(Brightness(), replace(CARRY, symbols=12), small_data())
    assert isinstance(sums, Examples) and len(sums.rows) == 4
    assert all(len(row) == 2 * CARRY.digits + 1 for row in sums.rows)
    assert len(grids) == 3, "of the start, and of the carries 0 and 1"
    for grid in grids:
        assert isinstance(grid, Grid) and (len(grid.rows), len(grid.columns)) == (10, 10)
    read = {part.right for row in sums.rows for part in row[:-1]}
    assert read == {True, False}


def test_numbers_as_they_are_written() -> None:
    assert columns.in_digits(torch.tensor([2, 0, 1])) == "102"
    assert columns.in_digits(torch.tensor([0, 0])) == "0"
    assert columns.in_digits(torch.tensor([3, -1])) == "?3", "a symbol without a meaning"


@pytest.mark.parametrize("digits", [-1, 401])
def test_numbers_that_the_images_do_not_make(digits: int) -> None:
    with pytest.raises(DataError, match="1 to 400 digits"):
        list(columns.shown(Brightness(), replace(CARRY, symbols=12), small_data(), digits, 0, 1))
