"""Choices among the rows of a codebook of any size, without a matrix of all logits.

Four functions of queries and a codebook, whose logits are the products of the two: :func:`mix`, its
hard form :func:`choose`, :func:`logsumexp` and :func:`cross_entropy`. Each has several
implementations, which compute the same with the same noise; the fastest is taken. After
:func:`by_distance` the logits are distances instead. :func:`rotate` gives a chosen row another
gradient.
"""

from ._estimators import rotate
from ._functions import by_distance, choose, cross_entropy, logsumexp, mix

__all__ = ["by_distance", "choose", "cross_entropy", "logsumexp", "mix", "rotate"]
