"""Codebooks whose rows are divided over the ranks of torch.distributed.

The functions of :mod:`dcgraph.codebook` take a ``group``, and a :class:`dcgraph.Discrete` node
takes ``shard``: the ranks that have the rows. Here is what they need: which rows a rank has, and
how ranks that have batches of their own share one codebook.
"""

from ._batches import gather_batch, own_batch
from ._shards import shard_rows

__all__ = ["gather_batch", "own_batch", "shard_rows"]
