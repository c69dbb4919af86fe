"""Lists of the images to add: read, published and drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dcgraph.experiments.engine.datasets import locate
from dcgraph.experiments.engine.errors import DataError
from dcgraph.experiments.tasks.addition.data import images, lists
from local_files import require


@pytest.fixture(scope="module")
def mnist() -> images.Images:
    """MNIST where it is on this machine already; a test does not download."""
    require(*images.MNIST)
    return images.mnist()


def listed(folder: Path, content: str | bytes) -> Path:
    path = folder / "list.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_list_is_read(tmp_path: Path) -> None:
    path = listed(
        tmp_path, "\ufeffaddition(0,9,18).\r\n\r\n  addition( 3, 4, 0 ) .\naddition(5,5,7)."
    )
    indices, sums = lists.read_pairs(path, images=10)
    assert indices.tolist() == [[0, 9], [3, 4], [5, 5]]
    assert sums.tolist() == [18, 0, 7]
    assert indices.dtype == sums.dtype == torch.long
    path = listed(tmp_path, "addition(0,1,2,27).\n")
    indices, sums = lists.read_pairs(path, images=3, summands=3)
    assert (indices.tolist(), sums.tolist()) == ([[0, 1, 2]], [27])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("\naddition(1,2).\naddition(1,2,3)", ", line 2: 1 summands, but 2 are needed: "),
        ("addition(1,2,3,4).", ", line 1: 3 summands, but 2 are needed: addition(i1,i2,sum)."),
        ("addition(1,2,3)", ", line 1: 'addition(1,2,3)' is not of the form addition(i1,i2,sum)."),
        ("addition(1 2,3,3).", ", line 1: 'addition(1 2,3,3).' is not of the form"),
        ("addition(-1,2,3).", ", line 1: 'addition(-1,2,3).' is not of the form"),
        ("addition(1,2,3).\n1 2 3", ", line 2: '1 2 3' is not of the form"),
        ("addition(٣,2,3).", ", line 1: 'addition(٣,2,3).' is not of the form"),
        (f"addition({'9' * 5000},2,3).", f", line 1: 'addition({'9' * 31}...' is not of the form"),
        ("addition(1,10,3).", ", line 1: image 10, but there are images 0 to 9 only."),
        (f"addition({'9' * 18},0,3).", f", line 1: image {'9' * 18}, but there are images"),
        ("addition(1,2,19).", ", line 1: the sum is 19, but 2 digits add up to 18."),
        ("", " has no examples; write one addition(i1,i2,sum). per line."),
        ("\n \n", " has no examples; write one"),
        (b"addition(1,2,3).\n\x89PNG\xff", ", line 2: not text; name a list of examples."),
        (b"\0\0\x08\x03", r", line 1: '\x00\x00\x08\x03' is not of the form"),
    ],
)
def test_a_wrong_list_is_an_error_with_file_and_line(
    tmp_path: Path, content: str | bytes, reason: str
) -> None:
    path = listed(tmp_path, content)
    with pytest.raises(DataError) as raised:
        lists.read_pairs(path, images=10)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"{path}{reason}")


def test_a_list_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent: No such file or directory; name a list"):
        lists.read_pairs(tmp_path / "absent", images=10)
    with pytest.raises(DataError, match="Is a directory; name a list"):
        lists.read_pairs(tmp_path, images=10)


def test_the_published_pairs_are_those_of_mnist(mnist: images.Images) -> None:
    try:
        paths = [locate(replace(file, urls=())) for file in lists.PAIRS]
    except DataError as error:
        pytest.skip(str(error))
    pairs = lists.published_pairs()
    labels = (mnist.train_labels, mnist.test_labels)
    for part, path, label in zip(pairs, paths, labels, strict=True):
        assert part.flatten().sort().values.equal(torch.arange(len(label)))  # each image once
        assert label[part].sum(1).equal(lists.read_pairs(path, images=len(label))[1])


def test_tuples_use_each_image_once() -> None:
    rows = lists.tuples(100, 3, seed=1)
    assert rows.shape == (33, 3)
    assert len(rows.unique()) == 99
    assert rows.equal(lists.tuples(100, 3, seed=1))
    assert not rows.equal(lists.tuples(100, 3, seed=2))
    assert lists.tuples(4, 4, seed=0).shape == (1, 4)


def test_random_tuples_draw_uniformly_from_the_pool() -> None:
    pool = torch.tensor([3, 5, 8, 13])
    rows = lists.random_tuples(pool, 10_000, 2, seed=1)
    assert rows.shape == (10_000, 2)
    assert rows.equal(lists.random_tuples(pool, 10_000, 2, seed=1))
    assert not rows.equal(lists.random_tuples(pool, 10_000, 2, seed=2))
    counts = torch.stack([(rows == image).sum(0) for image in pool])
    assert counts.sum() == rows.numel()  # nothing but the pool
    assert (counts - 2500).abs().max() < 200  # 4.6 standard deviations of 43
    again = (rows[:, 0] == rows[:, 1]).double().mean()
    assert again.item() == pytest.approx(0.25, abs=0.02)  # with replacement, independent


def test_holdout_splits_the_rows() -> None:
    kept, held = lists.holdout(50, 20, seed=1)
    assert (len(kept), len(held)) == (30, 20)
    for part in (kept, held):
        assert part.equal(part.sort().values)
    assert torch.cat([kept, held]).sort().values.equal(torch.arange(50))
    assert held.equal(lists.holdout(50, 20, seed=1)[1])
    assert not held.equal(lists.holdout(50, 20, seed=2)[1])
    assert [len(part) for part in lists.holdout(5, 0, seed=0)] == [5, 0]
    assert [len(part) for part in lists.holdout(5, 5, seed=0)] == [0, 5]


def test_impossible_draws_are_errors() -> None:
    with pytest.raises(ValueError, match="size=6, but of 5 rows 0 to 5 can be held out"):
        lists.holdout(5, 6, seed=0)
    with pytest.raises(ValueError, match="summands=3, but 2 images give 1 to 2 summands"):
        lists.tuples(2, 3, seed=0)
    with pytest.raises(ValueError, match="pool is empty"):
        lists.random_tuples(torch.tensor([], dtype=torch.long), 1, 2, seed=0)


def test_drawing_does_not_touch_the_global_generator() -> None:
    before = torch.get_rng_state()
    lists.tuples(10, 2, seed=0)
    lists.random_tuples(torch.arange(10), 5, 2, seed=0)
    lists.holdout(10, 2, seed=0)
    assert torch.get_rng_state().equal(before)
