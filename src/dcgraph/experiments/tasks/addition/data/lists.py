"""Which images are added: published lists, lists of a user, and lists drawn from a seed.

An example is a row of image indices, one per summand.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor

from ....engine.datasets import File, locate
from ....engine.errors import DataError
from ....engine.files import read_bytes

# The lists belong to the DeepProbLog publication (Manhaeve et al., NeurIPS 2018; Apache 2.0;
# github.com/ML-KULeuven/deepproblog); this copy of that repository still has them.
_COPY = "https://raw.githubusercontent.com/ghosthamlet/deepproblog"
PAIRS = (
    File(
        "mnist-addition/train_data.txt",
        "b4f9de1859b23994b8fe41d40ef0e57644121d9f53875a5de34153a2110ec652",
        (
            f"{_COPY}/cd383b1205cb8f3b5cd7a05a6dcd105458edacf8"
            "/examples/NIPS/MNIST/single_digit/train_data.txt",
        ),
    ),
    File(
        "mnist-addition/test_data.txt",
        "4fdde51b91776e38bd6c56dd8d44c2bb8668fc4ca869e46971ab4a549e4a1860",
        (
            f"{_COPY}/7a3ae571b570a047382f7340d16705bdf334f64c"
            "/examples/MNIST/single_digit/test_data.txt",
        ),
    ),
)
"""The published training and test pairs."""

_NUMBER = r"\s*[0-9]{1,18}\s*"  # at most 18 digits fit 64 bits
_LINE = re.compile(rf"addition\(({_NUMBER}(?:,{_NUMBER})+)\)\s*\.")


def published_pairs(
    data_dir: Path | None = None,
) -> tuple[Int64[Tensor, "30000 2"], Int64[Tensor, "5000 2"]]:
    """The pairs of MNIST images of the DeepProbLog publication, for training and for test.

    Every MNIST image occurs once. The files are found as
    :func:`dcgraph.experiments.engine.datasets.locate` describes.
    """
    train, test = (locate(file, data_dir) for file in PAIRS)
    return read_pairs(train, images=60_000)[0], read_pairs(test, images=10_000)[0]


def read_pairs(
    path: Path, images: int, summands: int = 2
) -> tuple[Int64[Tensor, "n summands"], Int64[Tensor, "n"]]:
    """The image indices and the sums of a list with one ``addition(i,j,sum).`` per line.

    With three summands a line is ``addition(i,j,k,sum).``, and so on. Blank lines are
    skipped. Indices count from 0 and lie below ``images``. Whether a sum is that of the labels is
    not looked at here.
    """
    examples = []
    for number, line in enumerate(_lines(path), 1):
        if not line:
            continue
        try:
            examples.append(_numbers(line, images, summands))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from None
    if not examples:
        raise DataError(f"{path} has no examples; write one {_form(summands)} per line.")
    table = torch.tensor(examples)
    return table[:, :-1].contiguous(), table[:, -1].contiguous()


def tuples(images: int, summands: int, seed: int) -> Int64[Tensor, "n {summands}"]:
    """Rows of ``summands`` different images; each image is in one row at most.

    They are consecutive entries of a permutation, and the few images left over are in no row.

    >>> tuples(7, 2, seed=0).shape
    torch.Size([3, 2])
    """
    if summands < 1 or images < summands:
        raise ValueError(f"summands={summands}, but {images} images give 1 to {images} summands.")
    rows = images // summands
    order = torch.randperm(images, generator=torch.Generator().manual_seed(seed))
    return order[: rows * summands].view(rows, summands)


def of_all_lengths(
    pool: Int64[Tensor, "images"], summands: int, seed: int
) -> list[Int64[Tensor, "n _"]]:
    """Rows of 2, of 3, ... of ``summands`` images, as many rows of each length.

    Each image is in one row at most; the few left over are in no row.

    >>> [tuple(rows.shape) for rows in of_all_lengths(torch.arange(100), 4, seed=0)]
    [(11, 2), (11, 3), (11, 4)]
    """
    sizes = range(2, summands + 1)
    rows = len(pool) // sum(sizes)
    if rows < 1:
        raise ValueError(
            f"summands={summands}, but {len(pool)} images are too few for all lengths."
        )
    order = pool[torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))]
    parts = order[: rows * sum(sizes)].split([rows * size for size in sizes])
    return [part.view(rows, size) for part, size in zip(parts, sizes, strict=True)]


def random_tuples(
    pool: Int64[Tensor, "images"], count: int, summands: int, seed: int
) -> Int64[Tensor, "{count} {summands}"]:
    """Rows of images, every one drawn uniformly and with replacement from the pool.

    >>> random_tuples(torch.tensor([4]), 1, 3, seed=0)
    tensor([[4, 4, 4]])
    """
    if not len(pool):
        raise ValueError("pool is empty, but images are drawn from it; pass at least one index.")
    generator = torch.Generator().manual_seed(seed)
    return pool[torch.randint(len(pool), (count, summands), generator=generator)]


def holdout(rows: int, size: int, seed: int) -> tuple[Int64[Tensor, "kept"], Int64[Tensor, "held"]]:
    """Row indices in two ascending parts: those kept, and ``size`` held out at random.

    >>> kept, held = holdout(5, 2, seed=0)
    >>> len(kept), len(held)
    (3, 2)
    """
    if not 0 <= size <= rows:
        raise ValueError(f"size={size}, but of {rows} rows 0 to {rows} can be held out.")
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    return order[size:].sort().values, order[:size].sort().values


def _lines(path: Path) -> list[str]:
    """The lines of a text file, without the space around them."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror}; name a list of examples."
        ) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {number}: not text; name a list of examples.") from error
    return [line.strip() for line in text.split("\n")]


def _numbers(line: str, images: int, summands: int) -> list[int]:
    """Indices and sum of one line; a ValueError says what is wrong with it."""
    match = _LINE.fullmatch(line)
    if not match:
        shown = line if len(line) <= 40 else f"{line[:40]}..."
        raise ValueError(f"{shown!r} is not of the form {_form(summands)}")
    *indices, total = map(int, match[1].split(","))
    if len(indices) != summands:
        raise ValueError(f"{len(indices)} summands, but {summands} are needed: {_form(summands)}")
    if max(indices) >= images:
        raise ValueError(f"image {max(indices)}, but there are images 0 to {images - 1} only.")
    if total > 9 * summands:
        raise ValueError(f"the sum is {total}, but {summands} digits add up to {9 * summands}.")
    return [*indices, total]


def _form(summands: int) -> str:
    return f"addition({','.join(f'i{number + 1}' for number in range(summands))},sum)."
