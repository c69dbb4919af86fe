"""Images of digits: MNIST, and those that come with the package."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
import torch

from dcgraph.experiments.engine.errors import DataError
from dcgraph.experiments.tasks.addition.data import images
from local_files import require


def idx(*shape: int, content: bytes, kind: int = 8) -> bytes:
    header = bytes((0, 0, kind, len(shape))) + struct.pack(f">{len(shape)}I", *shape)
    return gzip.compress(header + content, mtime=0)


def test_idx_is_read_row_by_row() -> None:
    table = images.read_idx(idx(2, 3, content=bytes(range(6))), "table", 2)
    assert table.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert table.dtype == torch.uint8


@pytest.mark.parametrize(
    ("compressed", "reason"),
    [
        (b"", "does not start like an IDX file"),
        (b"plain text", "is not a whole gzip file"),
        (idx(2, content=b"ab")[:-9], "is not a whole gzip file"),
        (idx(2, content=b"ab")[:12] + b"\xff" * 20, "is not a whole gzip file"),
        (
            gzip.compress(b"\0\0\x08", mtime=0),
            "does not start like an IDX file of bytes in 1 dimensions",
        ),
        (idx(1, 2, content=b"ab"), "does not start like an IDX file"),
        (idx(2, content=b"ab", kind=9), "does not start like an IDX file"),
        (idx(3, content=b"ab"), "announces 3 bytes and holds 2"),
        (idx(1, content=b"ab"), "announces 1 bytes and holds 2"),
        (idx(0, content=b""), "announces 0 bytes and holds 0"),
    ],
)
def test_a_malformed_idx_file_is_an_error(compressed: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=f"^some.gz {reason}.*; fetch it anew[.]$"):
        images.read_idx(compressed, "some.gz", 1)


def test_the_embedded_digits() -> None:
    digits = images.digits()
    assert digits.train.shape == (1300, 8, 8)
    assert digits.test.shape == (497, 8, 8)
    assert digits.train_labels.shape == (1300,)
    assert digits.test_labels.shape == (497,)
    labels = torch.cat([digits.train_labels, digits.test_labels])
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    pixels = torch.cat([digits.train, digits.test])
    assert [pixels.min().item(), pixels.max().item()] == [0, 16]
    assert digits.train_labels[:30].tolist() == [*range(10)] * 3  # the order of the source
    assert digits.train[0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]


def test_the_embedded_digits_are_readable() -> None:
    """The nearest training image has the same label, far more often than one time in ten."""
    digits = images.digits()
    distances = torch.cdist(digits.test.flatten(1).float(), digits.train.flatten(1).float())
    same = digits.train_labels[distances.argmin(1)] == digits.test_labels
    assert same.double().mean() > 0.9


def test_the_embedded_digits_are_small_and_keep_their_attribution() -> None:
    folder = Path(images.__file__).parent / "embedded"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 100_000
    readme = (folder / "README.md").read_text()
    for needed in ("Alpaydin", "Kaynak", "10.24432/C50P49", "creativecommons.org/licenses/by/4.0"):
        assert needed in readme


def test_the_fingerprint_sees_every_pixel_and_label(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = images.digits()
    assert images.digits().fingerprint == digits.fingerprint
    assert len(digits.fingerprint) == 16
    read = images.read_idx
    for changed in (1, 3):

        def altered(compressed: bytes, name: str, dimensions: int, at: int = changed) -> object:
            content = read(compressed, name, dimensions)
            if dimensions == at:
                content.view(-1)[-1] += 1
            return content

        monkeypatch.setattr(images, "read_idx", altered)
        assert images.digits().fingerprint != digits.fingerprint


@pytest.fixture(scope="module")
def mnist() -> images.Images:
    """MNIST where it is on this machine already; a test does not download."""
    require(*images.MNIST)
    return images.mnist()


def test_mnist(mnist: images.Images) -> None:
    assert mnist.train.shape == (60_000, 28, 28)
    assert mnist.test.shape == (10_000, 28, 28)
    assert mnist.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert mnist.train_labels.bincount(minlength=10).sum() == 60_000
    assert [mnist.train.min().item(), mnist.train.max().item()] == [0, 255]
    assert mnist.train.float().mean().item() / 255 == pytest.approx(0.1307, abs=1e-4)  # well known


def test_mnist_files_have_two_addresses_each() -> None:
    for file in images.MNIST:
        assert len(file.urls) == 2
        assert all(url.endswith(f"/{file.path}") for url in file.urls)
