"""Triton kernels for CUDA. Each has a plain torch twin in :mod:`dcgraph.functional`.

This package stands below ``functional``, which calls it; it imports nothing of the library.
"""
