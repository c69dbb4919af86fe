"""The examples of the task: sums of images from lists, and what a batch of them looks like."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from .....noise import draw_uniform
from ....engine.task import Batch, Data, fingerprint_of
from ..settings import AdditionSettings
from . import images, lists

_SEED = 0  # of splits and lists: the same examples for every replica
_HELD_OUT = 10_000  # images of MNIST's training lists, about
_EMBEDDED = {
    "train": 160_000,
    "validation": 2_000,
    "test": 2_000,
}  # random sums of the small images


def examples(settings: AdditionSettings, data_dir: Path | None = None) -> Data:
    """The splits of sums, and the images and labels to which they point."""
    if settings.images == "digits":
        source, indices = _embedded(settings)
    else:
        source, indices = _mnist(settings, data_dir)
    labels = torch.cat([source.train_labels, source.test_labels])

    def sums(rows: Int64[Tensor, "rows summands"]) -> Batch:
        if settings.digits:
            return {"images": rows, "total": digits_of_sums(labels[rows])}
        total = labels[rows].sum(-1)
        return {"images": rows, "total": total % settings.modulo if settings.modulo else total}

    splits = {split: [sums(rows) for rows in tables] for split, tables in indices.items()}
    every = [rows for split in sorted(indices) for rows in indices[split]]
    fingerprint = fingerprint_of(source.fingerprint, *every)
    constants = {"images": torch.cat([source.train, source.test]), "labels": labels}
    return Data(splits, fingerprint, constants, partial(to_batch, settings))


_Indices = dict[str, list[Int64[Tensor, "rows summands"]]]  # by split: a table for each length


def _mnist(settings: AdditionSettings, data_dir: Path | None) -> tuple[images.Images, _Indices]:
    source = images.mnist(data_dir)
    images_of_a_sum = 2 * settings.digits or settings.summands
    if images_of_a_sum == 2:
        train, test = lists.published_pairs(data_dir)
    else:
        train = lists.tuples(len(source.train), images_of_a_sum, _SEED)
        test = lists.tuples(len(source.test), images_of_a_sum, _SEED)
    indices = {"train": [train], "test": [test + len(source.train)]}
    if settings.protocol == "clean":
        kept, held = lists.holdout(len(train), _HELD_OUT // images_of_a_sum, _SEED)
        indices |= {"train": [train[kept]], "validation": [train[held]]}
    if settings.lengths == "all":
        (whole,) = indices["train"]
        indices["train"] = lists.of_all_lengths(whole.flatten(), settings.summands, _SEED)
    return source, indices


def _embedded(settings: AdditionSettings) -> tuple[images.Images, _Indices]:
    """Random sums of the small images, from separate images in each split.

    The images are split at random, so a writer's digits may be in all three.
    """
    source = images.digits()
    labels = torch.cat([source.train_labels, source.test_labels])
    shuffled = lists.tuples(len(labels), 1, _SEED).flatten()
    pools = {"train": shuffled[:1300], "test": shuffled[1300:]}
    if settings.protocol == "clean":
        pools |= {"train": shuffled[:1100], "validation": shuffled[1100:1300]}
    indices = {}
    for split, pool in pools.items():
        used = pool[labels[pool] < settings.values]
        lengths = [settings.summands]
        if split == "train" and settings.lengths == "all":
            lengths = list(range(2, settings.summands + 1))
        indices[split] = [lists.random_tuples(used, _EMBEDDED[split], n, _SEED) for n in lengths]
    indices["train"] = [
        rows[: settings.examples // len(indices["train"])] for rows in indices["train"]
    ]
    return source, indices


def digits_of_sums(labels: Int64[Tensor, "n images"]) -> Int64[Tensor, "n digits"]:
    """Of two numbers in digits, the last digit first, the digits of their sum in the same order.

    >>> digits_of_sums(torch.tensor([[9, 4, 3, 5]]))  # 49 + 53
    tensor([[2, 0, 1]])
    """
    digits = []
    carry = torch.zeros_like(labels[:, 0])
    for a, b in zip(*(half.unbind(1) for half in labels.chunk(2, 1)), strict=True):
        total = a + b + carry
        digits.append(total % 10)
        carry = total // 10
    return torch.stack([*digits, carry], 1)


def to_batch(settings: AdditionSettings, constants: Batch, rows: Batch, training: bool) -> Batch:
    """The images that rows point to, in training with augmentation."""
    seen = pixels(constants["images"][rows["images"]], settings.images)
    if training and settings.augment > 0:
        seen = jitter(seen.flatten(0, 1), settings.augment).view(seen.shape)
    return {"images": seen, "total": rows["total"]}


def pixels(images: Tensor, source: str) -> Tensor:
    """Pixel values as the networks see them: MNIST in [-1, 1] as in the paper, digits in [0, 1]."""
    return images / 127.5 - 1 if source == "mnist" else images / 16


def jitter(images: Float[Tensor, "n h w"], strength: float) -> Float[Tensor, "n h w"]:
    """Augmentation: each image a little turned, scaled, sheared and shifted, each differently.

    The maps are affine; at strength 1 the entries of the matrix vary by 0.15, the shift by 0.15. A
    shift of 1 is half the width of the image. What comes in from outside repeats the border.
    """
    n, height, width = images.shape
    uniform = 2 * draw_uniform((n, 2, 3), None, images.device) - 1
    identity = torch.eye(2, 3, device=images.device)
    maps = identity + 0.15 * strength * uniform
    # As F.affine_grid, which cannot be mapped over replicas.
    y, x = ((2 * torch.arange(s, device=images.device) + 1) / s - 1 for s in (height, width))
    places = torch.stack(
        [*torch.meshgrid(x, y, indexing="xy"), torch.ones(height, width).to(x)], -1
    )
    grid = (places.flatten(0, 1) @ maps.mT).unflatten(1, (height, width))
    moved = F.grid_sample(images.unsqueeze(1), grid, padding_mode="border", align_corners=False)
    return moved.squeeze(1)
