"""The page on asking a model: its screen is what the model in the package says, its scores too."""

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

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "asking.md").read_text()
SHIPPED = Path(commands.__file__).parent / commands.SHIPPED
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
    assert f"{SHIPPED.stat().st_size / 1000:.0f} kB" in PAGE


def row(name: str) -> list[str]:
    (line,) = re.findall(rf"^\| {name} \| (.*) \|$", PAGE, flags=re.MULTILINE)
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
