"""The pages on asking a model: screens and scores are those of the model in the package."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments import cli
from dcgraph.experiments.engine.metrics import Decoder, Metric
from dcgraph.experiments.engine.models import calibration_of, settings_of
from dcgraph.experiments.engine.records import read_record
from dcgraph.experiments.tasks.paths import commands
from dcgraph.experiments.tasks.paths.answers.candidates import LOST

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "asking.md").read_text()
RESULTS = (ROOT / "docs" / "asking-results.md").read_text()
SHIPPED = Path(commands.__file__).parent / commands.SHIPPED
ASKING = json.loads((ROOT / "benchmarks" / "results" / "asking-cpu.json").read_text())
RECORD = ROOT / "results" / "paths" / "shipped" / "seed-0.json"


def without_numbers(text: str) -> list[str]:
    """The last bits of a product differ between machines, and so may a percentage."""
    return re.sub(r" *[<>]?\d+ %", " # %", text).strip().splitlines()


def test_screens_are_those_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    screens = re.findall(r"<!-- screen: (.*?) -->\n```\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(screens) == 2
    for words, shown in screens:
        assert cli.main(["predict", "paths", *shlex.split(words)]) == 0
        assert without_numbers(shown) == without_numbers(capsys.readouterr().out)


def test_the_page_names_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    """As the JSON of a query has them, in their order."""
    assert cli.main(["predict", "paths", "virus", "causes,**treats", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    named = re.findall(r"^\| (`.*?`) \|", PAGE[PAGE.index("| field |") :], flags=re.MULTILINE)
    listed = [name for cell in named for name in re.findall(r"`(\w+)`", cell)]
    assert listed == ["line", *found, "evidence"]
    for name in ("hops", "answers"):
        (line,) = re.findall(rf"^\| `{name}` \| .*: (.*) \|$", PAGE, flags=re.MULTILINE)
        first = found[name][0]
        fields = first[0] if name == "hops" else first
        assert re.findall(r"`(\w+)`", line) == list(fields)
    (line,) = re.findall(r"^\| `evidence` \| .*: (.*) \|$", PAGE, flags=re.MULTILINE)
    assert re.findall(r"`(\w+)`", line) == list(found["answers"][0]["evidence"][0])


def test_the_record_is_that_of_the_model() -> None:
    record = read_record(RECORD)
    assert record.settings == settings_of(SHIPPED)
    assert record.calibration == calibration_of(SHIPPED)
    assert f"{SHIPPED.stat().st_size / 1000:.0f} kB" in RESULTS


def test_what_the_page_says_of_calibration() -> None:
    rows = ASKING["calibration"]
    shares, one, each = (
        [row[kind] for row in rows]
        for kind in ("error of shares", "error, one fit", "error, a fit for each length")
    )
    assert len(rows) == 12 and 0.12 < max(shares) < 0.13
    assert all(fitted <= raw + 5e-4 for fitted, raw in zip(each, shares, strict=True))
    assert sum(a < b for a, b in zip(each, one, strict=True)) == 8
    worse = {
        (row["graph"], row["lengths"]) for row, a, b in zip(rows, each, one, strict=True) if a > b
    }
    assert worse == {(g, k) for g in ("umls", "kinships") for k in ("2 to 5", "6 to 10")}
    assert 0.075 < max(each) < 0.085, "kinships, 6 to 10"


def test_what_the_page_says_of_candidates() -> None:
    found = {row["graph"]: row for row in ASKING["candidates"]}
    assert all(row["auto"]["lost"] < LOST for row in found.values())
    assert max(row["kind"]["lost"] for row in found.values()) < 0.001
    assert 0.45 < found["wn11"]["range"]["lost"] < 0.5
    assert 0.45 < found["fb13"]["auto"]["left"] < 0.55 and found["wn11"]["auto"]["left"] > 0.99
    assert all(abs(row["all"] - row["auto"]) < 0.0025 for row in ASKING["ranks"])


def row(name: str) -> list[str]:
    (line,) = re.findall(rf"^\| {name} \| (.*) \|$", RESULTS, flags=re.MULTILINE)
    return str(line).split(" | ")


@pytest.mark.parametrize(("name", "decoder"), [("argmax", "argmax"), ("beam search", "beam")])
def test_the_scores_are_those_of_the_record(name: str, decoder: Decoder) -> None:
    record = read_record(RECORD)
    by_length = [
        record.value(Metric("MRR", "test", decoder, False, length)) for length in (1, 2, 3, 5, 10)
    ]
    every = record.value(Metric("MRR", "test", decoder))
    found = [*by_length, every]
    assert row(name) == [f"{100 * value:.1f}" for value in found if value is not None]


def test_the_model_in_the_package_is_measured_without_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DCGRAPH_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    record = read_record(RECORD)
    assert cli.main(["evaluate", "paths"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert said["model"] == "shipped"
    assert said["MRR"] == pytest.approx(record.value(Metric("MRR")), abs=1e-4)
