"""Triton kernels for CUDA. Each has a plain torch twin, which its module names.

This package stands below its callers, the twins' modules; it imports nothing of the library.
"""
