"""Keeping freed memory: half of a small training step on the CPU would be getting it back."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h of the GNU C library
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Ask the C library not to hand freed memory back to the system while this process lives.

    A training step frees and allocates the same tensors over and over. By default large ones go
    back to the system, and every page is fetched and cleared again. Does nothing where the C
    library has no such setting.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST)
    mallopt(_M_TRIM_THRESHOLD, _LARGEST)
