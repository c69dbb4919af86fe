"""Choices among the rows of a codebook of any size, without a matrix of all logits.

Four functions of queries and a codebook, whose logits are the products of the two: :func:`mix`, its
hard form :func:`choose`, :func:`log_sum_exp` and :func:`cross_entropy`. Each has several
implementations, which compute the same with the same noise; ``way=None`` takes the fastest one.
"""

from ._functions import choose, cross_entropy, log_sum_exp, mix
from ._ways import Way

__all__ = ["Way", "choose", "cross_entropy", "log_sum_exp", "mix"]
