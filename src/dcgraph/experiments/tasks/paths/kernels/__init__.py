"""Triton kernels of path queries."""
