"""Populations: R replicas of any module, trained and evaluated as one program."""

from ._population import Population

__all__ = ["Population"]
