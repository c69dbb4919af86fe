"""Records and shipped models from the format before schema 1 to schema 1. Run once.

python tools/migrate_records.py OLD_RESULTS NEW_RESULTS

Settings are renamed, metrics become data, probe curves stand apart (only those a figure needs), and
every record goes to the folder of its run, which is the one run of a table with equal settings.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.records import (
    Curve,
    Population,
    Record,
    Selection,
    write_probes,
    write_record,
)
from dcgraph.experiments.engine.runs import without_categories
from dcgraph.experiments.engine.tables import Run
from dcgraph.experiments.tasks import TABLES, get_table

RENAMED = {
    "moves": "schedule_steps",
    "choose_by": "monitor",
    "choose_on": "validate_on",
    "backwards": "inverse",
    "nearest": "top_k",
}
REMOVED = {"counters"}
LISTOPS = {
    "task": "task accuracy",
    "edge": "edge precision",
    "inter": "intermediate accuracy",
}
ADDITION = {"digit accuracy": "digit accuracy", "table accuracy": "addition table accuracy"}
PATHS = re.compile(
    r"(?P<metric>MQ|MRR|H@\d+)"
    r"(?:, (?P<way>ties as the paper|beam|looking back|argmax looking back))?"
    r"(?:, length (?P<length>\d+))?"
)
WAYS: dict[str | None, dict[str, Any]] = {
    None: {},
    "ties as the paper": {"ties": "optimistic"},
    "beam": {"decoder": "beam"},
    "looking back": {"decoder": "beam", "bidirectional": True},
    "argmax looking back": {"bidirectional": True},
}
CALIBRATED = {
    "sharpness of the beam": "inverse temperature",
    "weight of the way back": "bidirectional weight",
}


def settings_of(old: dict[str, Any]) -> dict[str, Any]:
    return {RENAMED.get(name, name): v for name, v in old.items() if name not in REMOVED}


def measured(name: str, split: str) -> Metric:
    metric, _, decoder = name.partition("/")
    return Metric(metric, split, decoder)  # type: ignore[arg-type]


def final(task: str, name: str) -> Metric:
    if task == "addition":
        return Metric(ADDITION[name])
    if task == "listops":
        (where, what), decoder = name.partition("/")[0].split(), name.partition("/")[2]
        return Metric(LISTOPS[what], where, decoder)  # type: ignore[arg-type]
    match = PATHS.fullmatch(name)
    assert match, name
    length = int(match["length"]) if match["length"] else None
    return Metric(match["metric"], length=length, **WAYS[match["way"]])


def record_of(old: dict[str, Any]) -> tuple[Record, dict[int, Any]]:
    looks, split = old["curve"], old["chosen_on"]
    names = [n for n in looks[0] if n not in ("step", "loss", "probe")]
    by = measured(old.get("chosen_by", "accuracy/argmax"), split)
    record = Record(
        task=old["task"],
        settings=settings_of(old["settings"]),
        code=old["code"],
        data=old["data"],
        hardware=old["hardware"],
        torch=old["torch"],
        seconds=old["seconds"],
        steps=old["steps"],
        parameters=old["parameters"],
        population=Population(**old["population"]),
        selection=Selection(by, old["chosen_at"]),
        stopped_at=old["stopped_at"],
        curve=Curve(
            [look["step"] for look in looks],
            [look["loss"] for look in looks],
            {measured(n, split): [look[n] for look in looks] for n in names},
        ),
        calibration={CALIBRATED[n]: v for n, v in old["readout"].items() if n in CALIBRATED},
        metrics={
            **{measured(n, "test"): v for n, v in old["test"].items()},
            **{final(old["task"], n): v for n, v in old["readout"].items() if n not in CALIBRATED},
        },
    )
    return record, {look["step"]: look["probe"] for look in looks if "probe" in look}


def runs() -> dict[str, dict[str, Run]]:
    """The runs of all tables, by task and settings."""
    found: dict[str, dict[str, Run]] = {}
    for name in TABLES:
        table = get_table(name)
        for row in table.rows:
            for run in row.runs:
                key = json.dumps(asdict(replace(run.settings, seed=0)), sort_keys=True)
                before = found.setdefault(table.task, {}).setdefault(key, run)
                assert before.name == run.name, (before.name, run.name)
                if run.probes:
                    found[table.task][key] = run
    return found


def complete(task: str, stored: dict[str, Any], some: Run) -> dict[str, Any]:
    """Settings that are younger than a record had the value that is their default now."""
    defaults = asdict(type(some.settings)())
    assert stored.keys() <= defaults.keys(), stored.keys() - defaults.keys()
    return {name: stored.get(name, default) for name, default in defaults.items()}


def migrate(old_results: Path, results: Path) -> None:
    known = runs()
    for path in sorted(old_results.glob("*/*/*.json")) + sorted(old_results.glob("*/*.json")):
        old = json.loads(path.read_text())
        record, probes = record_of(old)
        some = next(iter(known[record.task].values()))
        settings = complete(record.task, record.settings, some)
        record = replace(record, settings=settings)
        if path.name == "shipped.json":
            place = results / record.task / "shipped" / f"seed-{record.seed}.json"
            write_record(place, record)
            continue
        run = known[record.task].get(json.dumps({**settings, "seed": 0}, sort_keys=True))
        if run is None:
            print("no row has the settings of", path)
            continue
        place = results / record.task / run.name / f"seed-{record.seed}.json"
        assert not place.exists(), place
        write_record(place, record)
        if run.probes:
            write_probes(place, probes if run.categories else without_categories(probes))


def migrate_model(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        notes = file.metadata()
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    task = notes["task"]
    some = next(iter(runs()[task].values()))
    settings = complete(task, settings_of(json.loads(notes["settings"])), some)
    notes = {
        "format": "dcgraph model 2",
        "task": task,
        "settings": json.dumps(settings),
        "score": notes["score"],
        "calibration": "{}",
        "vocabulary": "",
    }
    save_file(weights, path, notes)


if __name__ == "__main__":
    migrate(Path(sys.argv[1]), Path(sys.argv[2]))
    for shipped in sys.argv[3:]:
        migrate_model(Path(shipped))
