"""The parameter that holds the own rows: a DTensor, which optimizers and checkpoints know."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard

from .._philox import gumbel_of_bits, philox
from ..noise import drawn_alike, random_keys
from ._shards import shard_rows

_AT_ONCE = 1 << 16  # numbers


def sharded_parameter(n: int, width: int, std: float, group: dist.ProcessGroup) -> nn.Parameter:
    """Own rows of a matrix [n, width] from N(0, std^2), which is the same for any number of ranks.

    Rows are drawn one by one from a key that all ranks share, so that no rank has more than its own
    rows at any time.
    """
    own = shard_rows(n, group)
    rows = torch.empty(len(own), width)
    where = torch.device("cpu" if _reaches_cpu(group) else rows.device)
    with torch.no_grad(), drawn_alike(group):
        key = random_keys(1, where).to(rows.device)
        if not rows.is_meta:
            fill_normal(rows, key, own.start)
            rows.mul_(std)
    mesh = dist.device_mesh.DeviceMesh.from_group(group, rows.device.type)
    whole = DTensor.from_local(
        rows, mesh, [Shard(0)], run_check=False, shape=torch.Size((n, width)), stride=(width, 1)
    )
    return nn.Parameter(whole)


def _reaches_cpu(group: dist.ProcessGroup) -> bool:
    return "cpu" in {device.type for device in group._device_types}


def fill_normal(rows: Float[Tensor, "rows width"], key: Int[Tensor, "1"], first: int) -> None:
    """N(0, 1) as a function of the key, of the number of the row and of the column.

    Two columns share a draw: an exponential is half their squared length, a word is their angle.
    """
    width = rows.shape[1]
    pairs = torch.arange(-(-width // 2), device=rows.device)
    tall = max(1, _AT_ONCE // width)
    for start in range(0, len(rows), tall):
        part = rows[start : start + tall]
        number = torch.arange(first + start, first + start + len(part), device=rows.device)
        a, b, angle, _ = philox((key + number).unsqueeze(-1), (pairs, 0, 0, 0))
        length = gumbel_of_bits(a, b, torch.float32).neg_().exp_().mul_(2).sqrt_()
        turn = (angle & 0xFFFFFFFF).to(torch.float64).mul_(2 * math.pi * 2.0**-32).float()
        both = torch.stack([length * turn.cos(), length * turn.sin()], -1)
        part.copy_(both.flatten(1)[:, :width])
