"""Augmentation: each image a little turned, scaled, sheared and shifted, differently every time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def jitter(images: Float[Tensor, "n h w"], strength: float) -> Float[Tensor, "n h w"]:
    """Random affine maps; at strength 1 the entries of the matrix vary by 0.15, the shift by 0.15.

    A shift of 1 is half the width of the image. What comes in from outside repeats the border.
    """
    n = images.shape[0]
    uniform = 2 * torch.rand(n, 2, 3, device=images.device) - 1
    identity = torch.eye(2, 3, device=images.device)
    maps = identity + 0.15 * strength * uniform
    grid = F.affine_grid(maps, [n, 1, *images.shape[1:]], align_corners=False)
    moved = F.grid_sample(images.unsqueeze(1), grid, padding_mode="border", align_corners=False)
    return moved.squeeze(1)
