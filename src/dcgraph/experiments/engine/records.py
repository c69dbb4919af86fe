"""Records: one JSON file per replica, with what is needed to believe and repeat its numbers.

A record is found by its place, ``results/TASK/RUN/seed-N.json``. It has a schema version and all
settings written out. What the probe read on the way stands apart, compressed: figures need it of a
few runs only.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from .errors import RecordError, shortened
from .files import LARGEST, read_bytes, read_json, write_atomically
from .metrics import Metric, Metrics, from_fields, to_fields

SCHEMA = 1
_ALL_DIGITS = 17  # of a float: as many give it back exactly

Readings = list[dict[str, Any]]
"""What the probe read of a replica, node by node."""

Probes = dict[int, Readings]
"""The same by training step."""


@dataclass(frozen=True)
class Curve:
    """What training evaluated on its way; an entry for each evaluation in all of them."""

    step: list[int] = field(default_factory=list)
    loss: list[float | None] = field(default_factory=list)  # of training, since the last one
    metrics: dict[Metric, list[float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """How the weights that were tested had been selected: those best by ``metric``."""

    metric: Metric  # its set is the split
    step: int


@dataclass(frozen=True)
class PopulationInfo:
    """The population that a replica was trained in."""

    name: str
    size: int


@dataclass(frozen=True)
class Record:
    """What came of one replica."""

    task: str
    settings: dict[str, Any]  # all of them
    code: str
    data: str  # fingerprint
    hardware: str
    torch: str
    seconds: float  # of the whole population
    steps: int
    parameters: int
    population: PopulationInfo
    selection: Selection
    stopped_at: int | None  # the step where a loss or gradient was not finite
    curve: Curve
    calibration: dict[str, float]  # what was tuned on the validation split
    metrics: Metrics  # on the test split and other evaluation sets

    @property
    def seed(self) -> int:
        return int(self.settings["seed"])

    @property
    def steps_per_epoch(self) -> float:
        return float(self.steps / max(1, self.settings["epochs"]))

    def value(self, metric: Metric) -> float | None:
        """A final metric; None where it was not measured."""
        return self.metrics.get(metric)

    def score(self) -> float:
        """What the weights were selected by, at its best; -inf if it was never measured."""
        values = self.curve.metrics.get(self.selection.metric, [])
        return max((value for value in values if value is not None), default=-math.inf)

    def when_selected(self, metric: Metric) -> float | None:
        """A metric of the curve at the step whose weights were selected."""
        for step, value in zip(self.curve.step, self.curve.metrics.get(metric, []), strict=False):
            if step == self.selection.step:
                return value
        return None


def write_record(path: Path, record: Record) -> None:
    """One line for each entry, and for each metric."""
    entries: dict[str, Any] = {"schema": SCHEMA}
    entries |= {entry.name: getattr(record, entry.name) for entry in fields(record)}
    entries["population"] = asdict(record.population)
    entries["selection"] = {
        "metric": to_fields(record.selection.metric),
        "step": record.selection.step,
    }
    # Settings are numbers to compare with, and calibrated ones to compute with: to the last digit.
    # The others were measured.
    settings = json.dumps(record.settings, allow_nan=False)
    curve = [f'"{name}": {_json(getattr(record.curve, name))}' for name in ("step", "loss")]
    curve.append(_lines("metrics", record.curve.metrics, "values"))
    written = {
        "settings": f'"settings": {settings}',
        "calibration": f'"calibration": {_json(record.calibration, _ALL_DIGITS)}',
        "curve": f'"curve": {{{", ".join(curve)}}}',
        "metrics": _lines("metrics", record.metrics, "value"),
    }
    lines = [written.get(name) or f'"{name}": {_json(value)}' for name, value in entries.items()]
    content = "{\n " + ",\n ".join(lines) + "\n}\n"
    write_atomically(path, lambda draft: draft.write_text(content))


def _lines(name: str, metrics: Mapping[Metric, Any], of: str) -> str:
    each = [_json({**to_fields(metric), of: value}) for metric, value in metrics.items()]
    return f'"{name}": [' + ",".join(f"\n  {line}" for line in each) + "]"


def _json(value: Any, digits: int = 6) -> str:
    return json.dumps(_rounded(value, digits), allow_nan=False, separators=(",", ":"))


def _rounded(value: Any, digits: int) -> Any:
    """What could not be measured is null, for JSON knows no NaN."""
    if isinstance(value, dict):
        return {key: _rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, digits) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def read_record(path: Path) -> Record:
    """A record, as :func:`write_record` left it."""
    remedy = "delete it, and it is made again."
    try:
        stored = read_json(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or shortened(error)
        raise RecordError(f"cannot read the record {str(path)!r} ({reason}); {remedy}") from error
    if not isinstance(stored, dict) or type(stored.get("schema")) is not int:
        raise RecordError(f"{str(path)!r} is not a record; {remedy}")
    if (schema := stored.pop("schema")) != SCHEMA:
        code = stored.get("code")
        version = f"dcgraph {code:.40}" if isinstance(code, str) else "the dcgraph that made it"
        remedy = "update dcgraph." if schema > SCHEMA else f"read it with {version}."
        raise RecordError(
            f"{str(path)!r} is a record of schema {schema}, but this dcgraph reads schema {SCHEMA};"
            f" {remedy}"
        )
    try:
        curve, selection = stored.pop("curve"), stored.pop("selection")
        record = Record(
            **{
                **stored,
                "population": PopulationInfo(**stored["population"]),
                "selection": Selection(from_fields(selection["metric"]), selection["step"]),
                "curve": Curve(
                    curve["step"], curve["loss"], _by_metric(curve["metrics"], "values")
                ),
                "metrics": _by_metric(stored["metrics"], "value"),
            }
        )
        _check(record)
        return record
    except _DAMAGED as error:
        raise RecordError(
            f"{str(path)!r} is a damaged record ({shortened(error)}); {remedy}"
        ) from error


def _check(record: Record) -> None:
    """That its entries are of their types, and its curve of one length."""
    curve, selection, population = record.curve, record.selection, record.population
    for entry in fields(record):
        if (kinds := _TYPES.get(entry.type)) is not None:
            _check_kind(entry.name, getattr(record, entry.name), kinds)
    whole = [record.settings["seed"], record.settings["epochs"], population.size, selection.step]
    for name, number in zip(("seed", "epochs", "size", "selection"), whole, strict=True):
        _check_kind(name, number, (int,))
    for name, number in (("steps", record.steps), *zip(("seed", "epochs"), whole, strict=False)):
        if number < 0:
            raise ValueError(f"{name} is {number}")
    _check_kind("population", population.name, (str,))
    for step in curve.step:
        _check_kind("step", step, (int,))
    for values in (curve.loss, *curve.metrics.values()):
        if len(values) != len(curve.step):
            raise ValueError(f"{len(curve.step)} steps, but {len(values)} values")
        for value in values:
            _check_kind("the curve", value, _NUMBER)
    for value in (*record.metrics.values(), *record.calibration.values()):
        _check_kind("a metric", value, _NUMBER)


def checked_readings(stored: object) -> Readings:
    """What the probe read of a replica, if it can be that; for what comes from a file."""
    if not isinstance(stored, list):
        raise TypeError(f"readings are {stored!r:.40}")
    for reading in stored:
        own = {**reading}
        of_categories = own.pop("by_category", None) or {}
        _check_kind("name", own.pop("name", ""), (str,))
        _check_kind("call", own.pop("call", 0), (int,))
        for name, value in own.items():
            _check_kind(name, value, _NUMBER)
        for name, values in of_categories.items():
            for value in [] if values is None else values:
                _check_kind(name, value, _NUMBER)
    return stored


_DAMAGED = (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError)


def _check_kind(name: str, value: object, kinds: tuple[type, ...]) -> None:
    if type(value) not in kinds or (isinstance(value, int) and abs(value) >= 1 << 63):
        raise TypeError(f"{name} is {value!r:.40}")


_NUMBER = (int, float, type(None))
_TYPES: dict[Any, Any] = {
    "str": (str,),
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "dict[str, Any]": (dict,),
    "dict[str, float]": (dict,),
}
"""What JSON has for the types of a record; they are strings, as annotations are here."""


def _unpacked(packed: bytes) -> bytes:
    """Of a file that may be made to fill the memory."""
    reader = lzma.LZMADecompressor(memlimit=LARGEST)
    content = reader.decompress(packed, LARGEST)
    if not reader.eof:
        raise ValueError("cut, or too large")
    return content


def _by_metric(stored: list[dict[str, Any]], of: str) -> dict[Metric, Any]:
    return {from_fields({n: v for n, v in one.items() if n != of}): one[of] for one in stored}


def probes_beside(record: Path) -> Path:
    """Where the probe curve of a record is."""
    return record.with_suffix(".probes.json.xz")


def write_probes(record: Path, probes: Probes) -> None:
    """The same probes give the same file."""
    lines = ",\n".join(f'"{step}": {json.dumps(readings)}' for step, readings in probes.items())
    packed = lzma.compress(f"{{\n{lines}\n}}\n".encode())
    write_atomically(probes_beside(record), lambda draft: draft.write_bytes(packed))


def read_probes(record: Path) -> Probes:
    """The probe curve that stands beside a record; empty where there is none."""
    path = probes_beside(record)
    if not path.exists():
        return {}
    try:
        stored = json.loads(_unpacked(read_bytes(path, LARGEST)))  # which may have NaN
        return {int(step): checked_readings(some) for step, some in stored.items()}
    except (OSError, lzma.LZMAError, *_DAMAGED) as error:
        reason = getattr(error, "strerror", None) or shortened(error)
        raise RecordError(
            f"cannot read the probe curve {str(path)!r} ({reason}); delete it with its record, and "
            "both are made again."
        ) from error
