"""Images of handwritten digits: MNIST, and a small set that comes with the package."""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from ....engine.datasets import File, locate
from ....engine.errors import DataError
from ....engine.files import inflated


def _mnist_file(name: str, sha256: str) -> File:
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    return File(f"mnist/{name}", sha256, tuple(mirror + name for mirror in mirrors))


MNIST = (
    _mnist_file(
        "train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    _mnist_file(
        "train-labels-idx1-ubyte.gz",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    _mnist_file(
        "t10k-images-idx3-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    _mnist_file(
        "t10k-labels-idx1-ubyte.gz",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
"""Training images and labels, test images and labels."""


@dataclass(frozen=True, eq=False)
class Images:
    """Digits in a training and a test part: pixels from 0 (background) up."""

    train: UInt8[Tensor, "train h w"]
    train_labels: Int64[Tensor, "train"]
    test: UInt8[Tensor, "test h w"]
    test_labels: Int64[Tensor, "test"]
    fingerprint: str  # of all pixels and labels, so that a record can say what it was made from


def mnist(data_dir: Path | None = None) -> Images:
    """The MNIST database: 60,000 training and 10,000 test images of 28 x 28 pixels.

    The files are found as :func:`dcgraph.experiments.engine.datasets.locate` describes.
    """
    paths = [locate(file, data_dir) for file in MNIST]
    train, train_labels, test, test_labels = (
        read_idx(path.read_bytes(), str(path), dimensions)
        for path, dimensions in zip(paths, (3, 1, 3, 1), strict=True)
    )
    return _images(train, train_labels, test, test_labels)


def digits() -> Images:
    """The embedded set: 1,797 real digits of 8 x 8 pixels, the first 1,300 of them for training.

    The order is that of the source, where one writer's form of about 130 digits follows another.
    So the test part asks for handwriting that was not in training, except for one form that the
    split cuts (its first 13 digits are in the training part).

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine
    Learning Repository, 1998, doi 10.24432/C50P49, licence CC BY 4.0; the test part of that set.
    """
    folder = resources.files(__package__) / "embedded"
    pixels, labels = (
        read_idx((folder / name).read_bytes(), name, dimensions)
        for name, dimensions in (
            ("digits-images-idx3-ubyte.gz", 3),
            ("digits-labels-idx1-ubyte.gz", 1),
        )
    )
    return _images(pixels[:1300], labels[:1300], pixels[1300:], labels[1300:])


def read_idx(compressed: bytes, name: str, dimensions: int) -> UInt8[Tensor, "..."]:
    """The bytes of a gzip-compressed IDX file as a tensor; ``name`` is for the error.

    IDX is a magic number (0, 0, 8 for bytes, the number of dimensions), then the size of every
    dimension as a big-endian 32-bit number, then the bytes, last dimension fastest.
    """
    try:
        content = inflated(compressed)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{name} is not a whole gzip file ({error}); fetch it anew.") from error
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, 8, dimensions)):
        raise DataError(
            f"{name} does not start like an IDX file of bytes in {dimensions} dimensions; "
            "fetch it anew."
        )
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if not 0 < math.prod(shape) == len(content) - start:
        raise DataError(
            f"{name} announces {' x '.join(map(str, shape))} bytes and holds "
            f"{len(content) - start}; fetch it anew."
        )
    # A copy, because the view would keep the header and could be unaligned.
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)[start:].reshape(shape).clone()


def _images(
    train: UInt8[Tensor, "train h w"],
    train_labels: UInt8[Tensor, "train"],
    test: UInt8[Tensor, "test h w"],
    test_labels: UInt8[Tensor, "test"],
) -> Images:
    digest = hashlib.sha256()
    for part in (train, train_labels, test, test_labels):
        content = bytearray(part.numel())
        torch.frombuffer(content, dtype=torch.uint8).copy_(part.flatten())
        digest.update(content)
    return Images(
        train,
        train_labels.long(),
        test,
        test_labels.long(),
        digest.hexdigest()[:16],
    )
