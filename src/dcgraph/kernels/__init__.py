"""Triton kernels for CUDA. Each has a reference implementation in torch, which its module names.

This package stands below its callers, where the references are; it imports nothing of the library.
Its modules import Triton, so they are imported where a kernel runs; the package itself does not.
"""

from importlib.util import find_spec

_TRITON = find_spec("triton") is not None  # without importing it, which takes a second


def available() -> bool:
    """Whether the kernels can be imported: there are GPUs without Triton."""
    return _TRITON
