"""Triton kernels of ListOps."""
