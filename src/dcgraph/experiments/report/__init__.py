"""The page of a run: one HTML file that needs no other, with what happened and what was learned."""

from __future__ import annotations

from .groups import Replica
from .page import write_report

__all__ = ["Replica", "write_report"]
