"""The page of a run: whole, self-contained, escaped; and a real browser renders it."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from dcgraph.experiments.engine.readouts import by_set
from dcgraph.experiments.report.png import data_uri

import dcgraph as dc
from dcgraph.experiments import cli
from dcgraph.experiments.engine import train
from dcgraph.experiments.engine.panels import Examples, Grid
from dcgraph.experiments.engine.records import make_records
from dcgraph.experiments.engine.runs import Job, perform
from dcgraph.experiments.engine.tables import jobs
from dcgraph.experiments.report import Replica, charts, write_report
from dcgraph.experiments.tasks import get_table
from dcgraph.experiments.tasks.addition.task import DEMO, Addition, AdditionSettings
from dcgraph.experiments.tasks.paths.task import Paths
from pages import Page, browse, in_browser, measured_in_browser
from parity import QUICK, Parity


def charts_of(page: Page) -> list[dict[str, str | None]]:
    """All drawings but the keys beside names."""
    return [svg for svg in page.all("svg") if svg.get("class") != "key"]


def addition_run(folder: Path, *ways: AdditionSettings) -> list[Replica]:
    """Short runs of the demo's task, two seeds of each way; their records and models."""
    short = [replace(way, epochs=1, batch=4000, evaluations=4) for way in ways]
    jobs = [
        (
            f"way {w}",
            Job(replace(way, seed=seed), folder / f"{w}{seed}.json", folder / f"{w}{seed}"),
        )
        for w, way in enumerate(short)
        for seed in range(2)
    ]
    list(perform(Addition(), [job for _, job in jobs], folder / "work"))
    return [Replica(name, json.loads(job.record.read_text()), job.model) for name, job in jobs]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything on it: three summands, two groups, a title that would like to run."""
    folder = tmp_path_factory.mktemp("run")
    replicas = addition_run(folder, DEMO, replace(DEMO, tempmatch=False, dropres=False))
    path = folder / "report.html"
    command = "dcgraph train addition --out '<b>'"
    write_report(path, Addition(), replicas, title="<script>alert(1)</script>", command=command)
    return path


def test_every_part_is_there(page: Path) -> None:
    read = Page(page.read_text())
    sections = {section["id"] for section in read.all("section")}
    assert sections == {
        *("results", "curves", "dials", "chain", "categories", "exhibits", "settings", "repeat")
    }
    # Two learning curves and three dials; a gradient and two maps of categories for each group.
    assert len(charts_of(read)) == 2 + 3 + 2 * (1 + 2)
    kinds = [attributes["class"] or "" for attributes in read.all("path") if "class" in attributes]
    assert sum(kind.startswith("run ") for kind in kinds) == 2 * 4, "all replicas, in both charts"
    for words in (
        "way 0",
        "way 1",
        "symbol[1]",
        "tempmatch",
        "Both additions",
        "23,296 parameters",
    ):
        assert words in read.text, words
    assert "dcgraph train addition --out '<b>'" in read.text


def test_it_needs_no_other_file_and_runs_nothing(page: Path) -> None:
    read = Page(page.read_text())
    assert not read.all("script") and "<script>" not in page.read_text()
    assert read.all("title") and "<script>alert(1)</script>" in read.text, "escaped, not lost"
    for _, attributes in read.elements:
        for name in ("src", "href", "srcset", "action"):
            assert (attributes.get(name) or "data:").startswith("data:")
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"@import|url\(|https?:", page.read_text())


def test_it_says_what_it_shows_to_those_who_cannot_see(page: Path) -> None:
    read = Page(page.read_text())
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in charts_of(read))
    assert read.all("img") and all(image["alt"] for image in read.all("img"))
    assert read.all("html")[0]["lang"] == "en"
    for svg in re.findall(r"<svg.*?</svg>", page.read_text(), flags=re.DOTALL):
        ElementTree.fromstring(svg)


def test_the_numbers_on_the_page_are_those_of_the_records(page: Path) -> None:
    read = Page(page.read_text())
    for path in page.parent.glob("??.json"):
        record = json.loads(path.read_text())
        assert f"{record['test']['accuracy/argmax']:.3f}" in read.text
        assert record["population"]["name"] in read.text and record["data"] in read.text


def test_a_task_without_exhibits_and_a_replica_that_stopped(tmp_path: Path) -> None:
    wild = replace(QUICK, seed=1, lr=1e30)
    data = Parity().data(QUICK)
    records = make_records(Parity(), train(Parity(), [QUICK, wild], data), data)
    assert records[1]["stopped_at"] is not None
    path = tmp_path / "report.html"
    replicas = [Replica("all", json.loads(json.dumps(record))) for record in records]
    write_report(path, Parity(), replicas, title="Parity", command="dcgraph train ...")
    read = Page(path.read_text())
    assert "exhibits" not in {section["id"] for section in read.all("section")}
    assert f"not finite at step {records[1]['stopped_at']}" in read.text


def parity_records(**changes: Any) -> list[dict[str, Any]]:
    data = Parity().data(QUICK)
    outcome = train(Parity(), [replace(QUICK, seed=seed, **changes) for seed in range(2)], data)
    return [json.loads(json.dumps(record)) for record in make_records(Parity(), outcome, data)]


def parity_page(path: Path, records: list[dict[str, Any]]) -> Page:
    replicas = [Replica("all", record) for record in records]
    write_report(path, Parity(), replicas, title="Parity", command="dcgraph train ...")
    return Page(path.read_text())


def test_the_table_of_the_chain_ends_where_its_chart_does(tmp_path: Path) -> None:
    records = parity_records()
    for record, gradients in zip(records, ([1e-2, 1e-3, 1e-4], [1e-6, 1e-3, 1e-4]), strict=True):
        for reading, gradient in zip(record["curve"][-1]["probe"], gradients, strict=True):
            reading["gradient"] = gradient
    text = parity_page(tmp_path / "report.html", records).text
    assert "symbol[0] 1.0e-04 1 " in text, "the geometric mean, and as much as the last node"
    assert "symbol[1] 1.0e-03 10 " in text and "symbol[2] 1.0e-04 1 " in text


def test_a_gradient_of_nothing_is_shown_as_nothing(tmp_path: Path) -> None:
    records = parity_records()
    watched = {"name": "watched", "call": 0, "gradient": 5.0, "by_category": None}
    watched |= dict.fromkeys(("categories", "used", "entropy", "saturated", "gap"))
    for record in records:
        record["curve"][-1]["probe"][0]["gradient"] = 0.0
        record["curve"][-1]["probe"][2]["gradient"] = 0.5
        record["curve"][-1]["probe"].append(watched)
    text = parity_page(tmp_path / "report.html", records).text
    assert "symbol[0] 0.0e+00 0 " in text
    assert "symbol[2] 5.0e-01 1 " in text and "watched[0] 5.0e+00 10 " in text, "vs the last node"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_record_older_than_a_setting_had_its_default(
    order: tuple[int, int], tmp_path: Path
) -> None:
    new, old = parity_records(beta_share=0.5)
    del old["settings"]["beta_share"]
    replicas = [(Replica("new", new), Replica("old", old))[k] for k in order]
    write_report(tmp_path / "page.html", Parity(), replicas, title="Parity", command="none")
    shown = " ".join(Page((tmp_path / "page.html").read_text()).text.split())
    assert "new 0.5" in shown and f"old {QUICK.beta_share}" in shown


def test_calls_that_come_and_go_and_numbers_that_are_none(tmp_path: Path) -> None:
    records = parity_records()
    for record in records:
        record["curve"][0]["probe"] = record["curve"][0]["probe"][1:2]  # a call fewer, in front
        record["curve"][1]["probe"][2]["by_category"]["weight"][0] = None
        record["curve"][2]["accuracy/argmax"] = None
    read = parity_page(tmp_path / "report.html", records)
    assert len(charts_of(read)) == 2 + 3 + 1 + 3


def test_the_dials_are_drawn_as_they_were_set(tmp_path: Path) -> None:
    records = parity_records(batch=10, moves=4, tau=2.0, gamma=0.5)  # 6 steps an epoch, a move each
    read = parity_page(tmp_path / "report.html", records)
    assert records[0]["steps"] == 12
    svg = re.findall(r"<svg[^>]*beta, the scale.*?</svg>", (tmp_path / "report.html").read_text())[
        0
    ]
    *_, (_, last) = points(svg)
    (_, zero), *_ = points(svg)
    top = 1.05 * dc.temp_match(2.0, 0.5)(12)  # the end of the axis
    height = (zero - last) / (zero - 10)
    assert height == pytest.approx(dc.temp_match(2.0, 0.5)(12) / top, abs=0.01)
    assert "beta, the scale of the noise" in read.text


@pytest.mark.parametrize("model", ["discrete", "deepproblog"])
def test_two_summands_and_models_without_nodes(model: str, tmp_path: Path) -> None:
    way = AdditionSettings(images="digits", digits=3, summands=2, model=model)  # type: ignore[arg-type]
    replicas = addition_run(tmp_path, way)
    path = tmp_path / "report.html"
    write_report(path, Addition(), replicas, title="two", command="dcgraph ...")
    read = Page(path.read_text())
    sections = {section["id"] for section in read.all("section")}
    assert ("dials" in sections) == ("chain" in sections) == (model == "discrete")
    assert ("The addition table it learned" in read.text) == (model == "discrete")
    assert len(read.all("img")) >= 2 * 4


def test_the_exhibits_are_what_the_model_does(tmp_path: Path) -> None:
    from dcgraph.experiments.engine.models import load_model

    replica = addition_run(tmp_path, DEMO)[0]
    assert replica.model is not None
    model, settings = load_model(replica.model, Addition())
    data = Addition().data(settings)
    examples, first, both = Addition().exhibits(model, settings, data)
    assert isinstance(examples, Examples) and isinstance(first, Grid) and isinstance(both, Grid)
    assert (len(first.rows), len(first.columns)) == (5, 5) and len(both.rows) == 9
    for shown, images, total in zip(
        examples.rows[:4],
        data.table("test")["images"],
        data.table("test")["total"],
        strict=False,
    ):
        assert [part.image is not None for part in shown] == [True, True, False, True, False]
        batch = {"images": data.shared["images"][images].unsqueeze(0) / 16}
        with torch.no_grad():
            answer = int(model(batch["images"]).argmax())
        assert shown[-1].text == f"= {answer}" and shown[-1].right == (answer == int(total))
    assert all(row[-1].right is False for row in examples.rows[4:]), "then errors"
    for row, cells in zip(both.rows, both.cells, strict=True):
        for column, (text, right) in zip(both.columns, cells, strict=True):
            assert right == (text == str(int(row) + int(column)))


def test_the_command_writes_it_and_resuming_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    arguments = ["train", "addition", "--preset", "demo", "--batch", "4000", "--evaluations", "2"]
    assert cli.main([*arguments, "--sweep", "tau=1,8", "--out", str(out)]) == 0
    assert f"Report: {out / 'report.html'}" in capsys.readouterr().out
    written = Page((out / "report.html").read_text()).text
    assert "tau-1" in written and "tau-8" in written
    assert f"dcgraph {' '.join(arguments)} --sweep tau=1,8 --out {out}" in written
    (out / "report.html").unlink()
    capsys.readouterr()
    assert cli.main(["train", "addition", "--out", str(out), "--resume"]) == 0
    repeated = Page((out / "report.html").read_text()).text
    assert written.partition("Written")[0] == repeated.partition("Written")[0]


def test_png_holds_the_pixels() -> None:
    image = torch.tensor([[0, 8, 16], [16, 0, 4]])
    raw = base64.b64decode(data_uri(image).partition("base64,")[2])
    assert raw.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", raw[16:24])
    assert (width, height) == (3, 2)
    start = raw.index(b"IDAT") + 4
    (length,) = struct.unpack(">I", raw[start - 8 : start - 4])
    rows = zlib.decompress(raw[start : start + length])
    assert list(rows) == [0, 255, 128, 0, 0, 0, 255, 191]
    assert data_uri(torch.zeros(2, 2)), "an empty image is white, not an error"


def drawn(svg: str) -> str:
    (path,) = [p for p in ElementTree.fromstring(svg).iter("path") if "mean" in p.attrib["class"]]
    return path.attrib["d"]


def points(svg: str) -> list[tuple[float, float]]:
    places = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", drawn(svg))
    return [(float(x), float(y)) for x, y in places]


def chart(values: list[float | None], **options: Any) -> str:
    line = charts.Line("a", list(enumerate(values)), 0, bold=True)
    return charts.line_chart([line], label="l", x_label="x", y_label="y", **options)


def test_a_curve_is_drawn_to_scale() -> None:
    (_, bottom), (_, middle), (right, top) = points(chart([0.0, 1.0, 2.0]))
    assert bottom - middle == pytest.approx(middle - top, abs=0.11) and bottom > top
    assert right == charts.WIDTH - 10
    low, mid, high = points(chart([1e-4, 1e-2, 1.0], logarithmic=True))
    assert low[1] - mid[1] == pytest.approx(mid[1] - high[1], abs=0.11)
    (left, _), (right, _) = points(chart([1.0, None, 1.0]))
    assert right > left and "L" not in drawn(chart([1.0, None, 1.0])), "two dots, a gap between"


@pytest.mark.parametrize(
    ("values", "logarithmic"),
    [([0.0], False), ([5.0, 5.0], False), ([-1.0, 1.0], False), ([0.0, 1e-30, 1.0], True),
     ([0.0, 0.0], True), ([1e-3], True)],
)  # fmt: skip
def test_odd_curves_stay_inside_the_chart(values: list[float | None], logarithmic: bool) -> None:
    places = points(chart(values, logarithmic=logarithmic))
    assert len(places) == len(values)
    for x, y in places:
        assert 0 <= x <= charts.WIDTH and 0 <= y <= charts.HEIGHT
    assert chart([None, None]) == ""


def loss_chart(page: Path, records: dict[str, dict[str, Any]]) -> str:
    replicas = [Replica(name, record) for name, record in records.items()]
    write_report(page, Paths(), replicas, title="two", command="none")
    (svg,) = re.findall(
        r'<svg[^>]*"training loss over training.*?</svg>', page.read_text(), re.DOTALL
    )
    return str(svg)


def test_a_loss_that_explodes_leaves_the_others_to_be_seen(tmp_path: Path) -> None:
    """The baseline ROP broke down on WN11; DistMult beside it did not."""
    rows = jobs(get_table("paths"), Path(__file__).parents[1] / "results")
    records = {name: json.loads(rows[name][0].record.read_text()) for name in ("ROP", "DistMult-C")}
    for some in (records, {"ROP": records["ROP"]}):
        svg = loss_chart(tmp_path / "page.html", some)
        assert "in powers of ten" in svg and ">1e6<" in svg and ">1<" in svg
    svg = loss_chart(tmp_path / "page.html", records)
    (steady,) = [path for path in re.findall(r"<path[^>]*>.*?</path>", svg) if "DistMult-C" in path]
    heights = [float(y) for y in re.findall(r"[ML]-?[\d.]+ (-?[\d.]+)", steady)]
    assert max(heights) - min(heights) > 0.05 * charts.HEIGHT


@pytest.mark.parametrize(
    ("losses", "exploded"),
    [([9.0, 0.001], False), ([1.0, 990.0], False), ([1.0, 1010.0], True), ([0.0, 1.0], False)],
)
def test_only_a_loss_that_grows_a_thousandfold_is_drawn_so(
    losses: list[float], exploded: bool, tmp_path: Path
) -> None:
    """Metrics never are, however small they begin."""
    rows = jobs(get_table("paths"), Path(__file__).parents[1] / "results")
    record = json.loads(rows["DistMult-C"][0].record.read_text())
    record["curve"] = record["curve"][:2]
    for look, loss, hits in zip(record["curve"], losses, (3e-4, 0.85), strict=True):
        look |= {"loss": loss, "H@10/argmax": hits}
    assert ("in powers of ten" in loss_chart(tmp_path / "page.html", {"one": record})) == exploded
    assert ">0.8<" in (tmp_path / "page.html").read_text(), "the metric is drawn from 0 to 1"


def test_a_map_is_darkest_where_the_value_is_largest() -> None:
    svg = charts.heat_map(
        [("a", [0.0, 1.0]), ("b", [0.5, 0.01])], [1.0, 2.0],
        label="l", x_label="x", y_label="y", colour=0,
    )  # fmt: skip
    cells = {
        path.attrib["fill-opacity"]: path.attrib["d"].count("M")
        for path in ElementTree.fromstring(svg).iter("path")
        if "fill-opacity" in path.attrib
    }
    assert cells == {"0.50": 1, "1.00": 1}, "nothing is drawn for next to nothing"


@in_browser
def test_a_browser_renders_it_without_a_complaint(page: Path, tmp_path: Path) -> None:
    seen, console = browse(page, tmp_path / "profile")
    assert "How to repeat it" in seen and not console


@in_browser
@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_phones_and_screens_in_light_and_dark(
    page: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    measured, console = measured_in_browser(page, tmp_path, width, scheme)
    assert measured["overflow"] <= 0, "no scrolling sideways"
    assert measured["charts"] and min(measured["charts"]) > 250
    assert measured["images"] and set(measured["images"]) == {8}
    assert (measured["paper"] == "rgb(255, 255, 255)") == (scheme == "light")
    assert not console


@in_browser
def test_the_browser_test_can_fail(tmp_path: Path) -> None:
    broken: Callable[[str], tuple[str, list[str]]] = lambda script: browse(  # noqa: E731
        _written(tmp_path / "broken.html", f"<p>before</p><script>{script}</script>"),
        tmp_path / "profile",
    )
    seen, console = broken("null.crash()")
    assert "before" in seen and len(console) == 1


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_run_of_an_older_version_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    arguments = ["train", "addition", "--preset", "demo", "--batch", "4000", "--evaluations", "1"]
    assert cli.main([*arguments, "--out", str(out)]) == 0
    plan = json.loads((out / "run.json").read_text())
    del plan["command"]
    (out / "run.json").write_text(json.dumps(plan))
    assert cli.main(["train", "addition", "--out", str(out), "--resume"]) == 0
    assert "the command itself was not kept" in (out / "report.html").read_text()


def test_a_page_that_fails_says_that_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no picture")

    monkeypatch.setattr(Addition, "exhibits", fail)
    arguments = ["train", "addition", "--preset", "demo", "--batch", "4000", "--evaluations", "1"]
    assert cli.main([*arguments, "--out", str(tmp_path / "run")]) == 1
    shown = capsys.readouterr()
    assert "records and models are complete" in shown.err and "no picture" in shown.err
    assert "On the test set" in shown.out


def test_numbers_of_several_sets_stand_set_by_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {
        "near right/argmax": 0.25,
        "far, right/argmax": 0.125,
        "near sure": 1.0,
        "alone": 0.5,
    }
    monkeypatch.setattr(Addition, "readout", lambda *_: dict(numbers))
    arguments = ["train", "addition", "--preset", "demo", "--batch", "4000", "--evaluations", "1"]
    assert cli.main([*arguments, "--out", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("  accuracy/argmax"))
    assert lines[at].endswith("near sure 1.0000, alone 0.5000")
    assert [line.split() for line in lines[at + 1 : at + 4]] == [
        ["right/argmax"],
        ["near", "0.2500"],
        ["far", "0.1250"],
    ]
    assert len({len(line) for line in lines[at + 1 : at + 4]}) == 1  # aligned
    page = (tmp_path / "run" / "report.html").read_text()
    table = page[page.index("in detail") : page.index("How it learned")]
    assert re.findall(r'scope="row">(\w+)</th><td>([\d.]+)', table) == [
        ("near", "0.250"),
        ("far", "0.125"),
    ]


def test_a_grid_of_numbers_is_higher_than_wide() -> None:
    names = [f"{metric}, length {hops}" for metric in ("MQ", "H@10") for hops in range(1, 4)]
    alone, grid = by_set(["loss", *names])
    assert alone == ["loss"] and list(grid) == ["length 1", "length 2", "length 3"]
    assert grid["length 3"] == {"MQ": "MQ, length 3", "H@10": "H@10, length 3"}
    _, grid = by_set([f"{one} {m}" for one in ("near", "far", "d8") for m in ("task", "edge")])
    assert list(grid) == ["near", "far", "d8"] and list(grid["d8"]) == ["task", "edge"]
    _, grid = by_set(["d8, a", "d8 a", "d10, a"])  # nothing is lost
    assert grid == {"d8,": {"a": "d8, a"}, "d8": {"a": "d8 a"}, "d10": {"a": "d10, a"}}
