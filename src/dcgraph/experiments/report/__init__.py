"""The page of a run: one HTML file that needs no other, with what happened and what was learned."""

from __future__ import annotations

from .groups import Replica
from .page import write_report
from .search import write_search_report

__all__ = ["Replica", "write_report", "write_search_report"]
