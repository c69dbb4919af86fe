"""The page of a run: one HTML file that needs no other, with what happened and what was learned."""

from __future__ import annotations

from .page import Replica, write_report

__all__ = ["Replica", "write_report"]
