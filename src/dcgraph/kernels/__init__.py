"""Triton kernels for CUDA. Each has a plain torch twin, which its module names.

This package stands below its callers, the twins' modules; it imports nothing of the library.
"""

import torch


@torch.compiler.assume_constant_result
def available() -> bool:
    """Whether the kernels can be imported: there are GPUs without Triton."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True
