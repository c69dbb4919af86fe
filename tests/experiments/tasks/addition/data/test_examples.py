"""The examples of addition: splits of sums, and batches of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dcgraph.experiments.tasks.addition.data import examples
from dcgraph.experiments.tasks.addition.data.examples import jitter, pixels
from dcgraph.experiments.tasks.addition.data.images import MNIST
from dcgraph.experiments.tasks.addition.data.lists import PAIRS
from dcgraph.experiments.tasks.addition.settings import CARRY, DEMO, PAPER
from dcgraph.experiments.tasks.addition.task import Addition
from local_files import require

TASK = Addition()


def test_augmentation_moves_images_a_little() -> None:
    image = torch.zeros(1, 28, 28)
    image[0, 10:18, 12:16] = 1.0
    images = image.expand(200, -1, -1)
    assert torch.allclose(jitter(images, 0.0), images, atol=1e-5)
    moved = jitter(images, 1.0)
    assert moved.shape == images.shape and moved.min() >= 0 and moved.max() <= 1.0001
    centre = (moved.sum(1) * torch.arange(28)).sum(-1) / moved.sum((1, 2))
    shift = centre - centre.mean()
    assert 0.5 < float(shift.std()) < 3 and not torch.equal(moved[0], moved[1])


def test_images_move_as_torch_moves_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that are not square, too; and without a word of a slow way over replicas."""
    uniform, images = torch.rand(9, 2, 3), torch.rand(9, 10, 14)
    monkeypatch.setattr(examples, "draw_uniform", lambda *_: uniform)
    maps = torch.eye(2, 3) + 0.15 * (2 * uniform - 1)
    grid = torch.nn.functional.affine_grid(maps, [9, 1, 10, 14], align_corners=False)
    expected = torch.nn.functional.grid_sample(
        images.unsqueeze(1), grid, padding_mode="border", align_corners=False
    )
    torch.testing.assert_close(jitter(images, 1.0), expected.squeeze(1))
    both = torch.func.vmap(lambda images: jitter(images, 1.0))(torch.stack([images, images]))
    torch.testing.assert_close(both[1], expected.squeeze(1))


def test_images_are_augmented_in_training_only() -> None:
    settings = replace(DEMO, augment=1.0)
    data = TASK.data(settings)
    rows = {name: table[:8] for name, table in data.table("train").items()}
    plain = data.constants["images"][rows["images"]] / 16
    assert torch.equal(data.batch(rows, training=False)["images"], plain)
    moved = data.batch(rows, training=True)["images"]
    assert moved.shape == plain.shape and not torch.equal(moved, plain)
    unchanged = TASK.data(DEMO).batch(rows, training=True)
    assert torch.equal(unchanged["images"], plain)
    assert torch.equal(unchanged["total"], rows["total"])


def test_pixels_are_as_in_the_paper() -> None:
    grey = torch.tensor([0, 255], dtype=torch.uint8)
    assert pixels(grey, "mnist").tolist() == [-1, 1]
    assert pixels(torch.tensor([0, 16], dtype=torch.uint8), "digits").tolist() == [0, 1]


def test_embedded_data_have_separate_images_and_right_sums() -> None:
    data = TASK.data(DEMO)
    labels = data.constants["labels"]
    images = {split: set(data.table(split)["images"].flatten().tolist()) for split in data.splits}
    assert not images["train"] & images["test"] and not images["train"] & images["validation"]
    for table in map(data.table, data.splits):
        assert torch.equal(labels[table["images"]].sum(-1), table["total"])
        assert int(labels[table["images"]].max()) == 4
    assert data.fingerprint == TASK.data(DEMO).fingerprint
    assert data.fingerprint != TASK.data(replace(DEMO, summands=2)).fingerprint


@pytest.mark.parametrize(
    ("summands", "train", "held_out"), [(2, 25_000, 5_000), (3, 16_667, 3_333)]
)
def test_mnist_is_split_before_it_is_added(summands: int, train: int, held_out: int) -> None:
    """No image is in two splits, test images are MNIST's; the paper's protocol holds none out."""
    require(*MNIST, *PAIRS)
    clean = TASK.data(replace(PAPER, protocol="clean", summands=summands))
    assert (clean.size("train"), clean.size("validation")) == (train, held_out)
    used = {split: clean.table(split)["images"].flatten() for split in clean.splits}
    assert len(torch.cat(list(used.values())).unique()) == sum(map(len, used.values()))
    seen = torch.cat([used["train"], used["validation"]])
    assert int(used["test"].min()) >= 60_000 > int(seen.max())
    labels = clean.constants["labels"]
    for table in map(clean.table, clean.splits):
        assert torch.equal(labels[table["images"]].sum(-1), table["total"])
    as_the_paper = TASK.data(replace(PAPER, summands=summands))
    assert set(as_the_paper.splits) == {"train", "test"}
    assert as_the_paper.size("train") == train + held_out
    assert torch.equal(as_the_paper.table("test")["images"], clean.table("test")["images"])


def test_fewer_examples_are_the_first_of_all() -> None:
    every, few = TASK.data(DEMO), TASK.data(replace(DEMO, examples=100))
    assert every.size("train") == 160_000 and few.size("train") == 100
    images = every.table("train")["images"][:100]
    assert torch.equal(few.table("train")["images"], images)
    for split in ("validation", "test"):
        assert torch.equal(few.table(split)["images"], every.table(split)["images"])


def test_sums_of_all_lengths_share_no_image_and_leave_test_and_validation_as_they_are() -> None:
    require(*MNIST)
    long = replace(PAPER, protocol="clean", summands=5)
    one, every = TASK.data(long), TASK.data(replace(long, lengths="all"))
    tables = every.tables("train")
    assert [tuple(table["images"].shape) for table in tables] == [(3571, n) for n in range(2, 6)]
    images = torch.cat([table["images"].flatten() for table in tables])
    assert len(images.unique()) == len(images)
    assert set(images.tolist()) <= set(one.table("train")["images"].flatten().tolist())
    for split in ("validation", "test"):
        assert torch.equal(every.table(split)["images"], one.table(split)["images"])
    labels = every.constants["labels"]
    assert all(torch.equal(labels[t["images"]].sum(-1), t["total"]) for t in tables)


def test_embedded_sums_of_all_lengths() -> None:
    settings = replace(DEMO, summands=4, lengths="all", examples=300)
    shapes = [tuple(table["images"].shape) for table in TASK.data(settings).tables("train")]
    assert shapes == [(100, 2), (100, 3), (100, 4)]
    assert TASK.data(settings).table("test")["images"].shape == (2000, 4)


def test_a_rest_and_numbers_of_several_digits() -> None:
    rest = TASK.data(replace(DEMO, modulo=3)).table("test")
    whole = TASK.data(DEMO).table("test")
    assert torch.equal(rest["total"], whole["total"] % 3) and replace(DEMO, modulo=3).numbers == 3
    require(*MNIST)
    data = TASK.data(replace(CARRY, digits=3))
    assert (data.size("train"), data.size("validation"), data.size("test")) == (8334, 1666, 1666)
    table = data.table("test")
    labels, powers = data.constants["labels"][table["images"]], 10 ** torch.arange(4)
    left, right = (half @ powers[:3] for half in labels.chunk(2, 1))
    assert torch.equal(table["total"] @ powers, left + right)
