"""What the page of a run shows of an addition model is what the model does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dcgraph.experiments.engine.jobs import Job
from dcgraph.experiments.engine.models import load_model
from dcgraph.experiments.engine.panels import Examples, Grid
from dcgraph.experiments.engine.records import read_probes, read_record
from dcgraph.experiments.engine.runs import perform
from dcgraph.experiments.report import Replica, write_report
from dcgraph.experiments.tasks.addition.settings import DEMO, AdditionSettings
from dcgraph.experiments.tasks.addition.task import Addition
from pages import Page


def trained(folder: Path, settings: AdditionSettings) -> Replica:
    """A short run; its record and model."""
    short = replace(settings, epochs=1, batch=4000, evaluations=4)
    job = Job(short, folder / "record.json", folder / "model.safetensors")
    list(perform(Addition(), [job], folder / "work"))
    return Replica("all", read_record(job.record), read_probes(job.record), job.model)


@pytest.mark.parametrize("model", ["discrete", "deepproblog"])
def test_two_summands_and_models_without_nodes(model: str, tmp_path: Path) -> None:
    way = AdditionSettings(images="digits", values=3, summands=2, model=model)  # type: ignore[arg-type]
    replica = trained(tmp_path, way)
    path = tmp_path / "report.html"
    write_report(path, Addition(), [replica], title="two", command="dcgraph ...")
    read = Page(path.read_text())
    sections = {section["id"] for section in read.all("section")}
    assert ("dials" in sections) == ("chain" in sections) == (model == "discrete")
    assert ("The addition table it learned" in read.text) == (model == "discrete")
    assert len(read.all("img")) >= 2 * 4


@pytest.mark.parametrize("symbols", [0, 7], ids=["one codebook", "two codebooks"])
def test_the_panels_are_what_the_model_does(symbols: int, tmp_path: Path) -> None:
    replica = trained(tmp_path, replace(DEMO, symbols=symbols))
    assert replica.model is not None
    model, settings = load_model(replica.model, Addition())
    data = Addition().data(settings)
    examples, first, both = Addition().panels(model, settings, data)
    assert isinstance(examples, Examples) and isinstance(first, Grid) and isinstance(both, Grid)
    assert (len(first.rows), len(first.columns)) == (5, 5) and len(both.rows) == 9
    for shown, images, total in zip(
        examples.rows[:4],
        data.table("test")["images"],
        data.table("test")["total"],
        strict=False,
    ):
        assert [part.image is not None for part in shown] == [True, True, False, True, False]
        batch = {"images": data.constants["images"][images].unsqueeze(0) / 16}
        with torch.no_grad():
            answer = int(model(batch["images"]).argmax())
        assert shown[-1].text == f"= {answer}" and shown[-1].right == (answer == int(total))
    assert all(row[-1].right is False for row in examples.rows[4:]), "then errors"
    for row, cells in zip(both.rows, both.cells, strict=True):
        for column, (text, right) in zip(both.columns, cells, strict=True):
            assert right == (text == str(int(row) + int(column)))
