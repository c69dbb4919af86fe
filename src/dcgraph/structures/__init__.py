"""Distributions over trees, chosen by name, and a node that chooses one.

Each structure is a module with the same five functions of scores [..., child, parent]:
``log_partition``, ``marginals``, ``sparsemap``, ``argmax`` and ``sample``; see :class:`Structure`.
Node 0 is the root, ``mask`` says which edges may be chosen and ``used`` which nodes are there.

- :mod:`one_parent`: each node except the root has one parent, independently of the others;
- :mod:`arborescence`: and all of them lead to the root;
- :mod:`spanning_tree`: the same without direction.
"""

from . import arborescence, one_parent, spanning_tree
from ._nodes import STRUCTURES, Structure, TreeEdges

__all__ = [
    "STRUCTURES",
    "Structure",
    "TreeEdges",
    "arborescence",
    "one_parent",
    "spanning_tree",
]
