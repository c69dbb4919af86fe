"""Looking inside a chain of nodes: probe, trace, watch and debug."""

from .._checks import debug
from .._observe import watch
from ._probe import Categories, NoNodeCalledError, Reading, Report, probe
from ._trace import Step, Trace, trace

__all__ = [
    "Categories",
    "NoNodeCalledError",
    "Reading",
    "Report",
    "Step",
    "Trace",
    "debug",
    "probe",
    "trace",
    "watch",
]
