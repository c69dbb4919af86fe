"""Dials in the trainers of other libraries; each module needs its library and nothing else does.

- :mod:`dcgraph.frameworks.lightning`: a callback for PyTorch Lightning;
- :mod:`dcgraph.frameworks.transformers`: one for the Trainer of transformers.

accelerate, DDP and plain loops need nothing of this; see docs/frameworks.md.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from . import lightning, transformers

__all__ = ["lightning", "transformers"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, {}, modules=__all__)
