"""Populations: R replicas of any module as one program."""

from ._population import Population

__all__ = ["Population"]
