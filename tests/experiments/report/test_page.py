"""The page of a run: whole, self-contained, escaped; and a real browser renders it."""

from __future__ import annotations

import base64
import copy
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image
from torch import nn

import dcgraph as dc
from dcgraph.experiments import cli
from dcgraph.experiments.engine import Data, Metric, train
from dcgraph.experiments.engine.jobs import Job
from dcgraph.experiments.engine.panels import Examples, Grid, Panel, Remark, Shown
from dcgraph.experiments.engine.records import Record, read_probes, read_record
from dcgraph.experiments.engine.runs import make_records, perform, probes_of
from dcgraph.experiments.report import Replica, write_report
from dcgraph.experiments.report.charts import HEIGHT
from dcgraph.experiments.report.curves import chains_of
from dcgraph.experiments.report.groups import grouped
from dcgraph.experiments.report.page import data_uri
from pages import Page, browse, in_browser, measured_in_browser
from parity import QUICK, Parity, ParitySettings


class Displayed(Parity):
    """Parity that shows its models at work."""

    def panels(self, model: nn.Module, settings: ParitySettings, data: Data) -> Sequence[Panel]:
        picture = torch.eye(8, dtype=torch.int64)
        example = (Shown("bits", "1 0 1", picture), Shown("parity", "= 0", right=False))
        cells = ((("0", True), ("1", None)), (("1", True), ("1", False)))
        return (
            Examples("Three bits at work", "An error is red.", (example, example)),
            Grid("The table it learned", "Rows xor columns.", "xor", ("0", "1"), ("0", "1"), cells),
        )


def charts_of(page: Page) -> list[dict[str, str | None]]:
    """All drawings except the keys beside names."""
    return [svg for svg in page.all("svg") if svg.get("class") != "key"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything on it: two groups of two, a title that would like to run."""
    folder = tmp_path_factory.mktemp("run")
    ways = (QUICK, replace(QUICK, tempmatch=False, dropres=False))
    jobs = {
        Job(replace(way, seed=seed), folder / f"{w}{seed}.json", folder / f"{w}{seed}"): w
        for w, way in enumerate(ways)
        for seed in range(2)
    }
    list(perform(Displayed(), list(jobs), folder / "work"))
    replicas = [
        Replica(f"way {w}", read_record(job.record), read_probes(job.record), job.model)
        for job, w in jobs.items()
    ]
    path = folder / "report.html"
    command = "dcgraph train parity --out '<b>'"
    write_report(path, Displayed(), replicas, title="<script>alert(1)</script>", command=command)
    return path


def test_every_part_is_there(page: Path) -> None:
    read = Page(page.read_text())
    sections = {section["id"] for section in read.all("section")}
    assert sections == {
        *("results", "curves", "dials", "chain", "categories", "panels", "settings", "repeat")
    }
    # Two learning curves and three dials; a gradient and three maps of categories for each group.
    assert len(charts_of(read)) == 2 + 3 + 2 * (1 + 3)
    kinds = [attributes["class"] or "" for attributes in read.all("path") if "class" in attributes]
    assert sum(kind.startswith("run ") for kind in kinds) == 2 * 4, "all replicas, in both charts"
    for words in ("way 0", "way 1", "symbol[1]", "tempmatch", "Three bits at work", " parameters"):
        assert words in read.text, words
    assert "dcgraph train parity --out '<b>'" in read.text


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
        record = read_record(path)
        assert f"{record.value(Metric('accuracy')):.3f}" in read.text
        assert record.population.name in read.text and record.data in read.text


def test_what_is_wrong_in_a_panel_is_marked(page: Path) -> None:
    marked = [
        attributes.get("class") for tag, attributes in Page(page.read_text()).elements
        if tag in ("div", "td")
    ]  # fmt: skip
    # In each of two groups one cell of the grid, and the answers of two examples.
    assert marked.count("wrong") == 2 * (1 + 2)


@cache
def _trained(changes: tuple[tuple[str, Any], ...]) -> list[Replica]:
    replicas = [replace(QUICK, seed=seed, **dict(changes)) for seed in range(2)]
    data = Parity().data(QUICK)
    outcome = train(Parity(), replicas, data)
    records = make_records(Parity(), outcome, data)
    return [Replica("all", record, probes_of(outcome, k)) for k, record in enumerate(records)]


def parity_replicas(**changes: Any) -> list[Replica]:
    """Two seeds, for the test to change."""
    return copy.deepcopy(_trained(tuple(changes.items())))


def parity_page(path: Path, replicas: Sequence[Replica]) -> Page:
    write_report(path, Parity(), replicas, title="Parity", command="dcgraph train ...")
    return Page(path.read_text())


def last_of(replica: Replica) -> list[dict[str, Any]]:
    """What the probe read last."""
    return list(replica.probes.values())[-1]


def test_a_task_without_panels_and_a_replica_that_stopped(tmp_path: Path) -> None:
    data = Parity().data(QUICK)
    outcome = train(Parity(), [QUICK, replace(QUICK, seed=1, lr=1e30)], data)
    records = make_records(Parity(), outcome, data)
    assert records[1].stopped_at is not None
    read = parity_page(tmp_path / "report.html", [Replica("all", record) for record in records])
    assert "panels" not in {section["id"] for section in read.all("section")}
    assert f"not finite at step {records[1].stopped_at}" in read.text


class Named(Parity):
    """Parity whose symbols have names, and which shows a chain of them."""

    def categories(self, settings: ParitySettings) -> Sequence[str]:
        return ("north", "<south>", "east", "a name that is far too long for a chart")

    def panels(self, model: nn.Module, settings: ParitySettings, data: Data) -> Sequence[Panel]:
        row = (
            Shown("source", "ann"),
            Shown("mother, 98%", "bea"),
            Shown("town", "<b>", right=False),
        )
        return (Examples("Chains", "Arrows.", (row,), chains=True),)


def test_names_of_categories_and_chains_with_arrows(tmp_path: Path) -> None:
    jobs = [Job(QUICK, tmp_path / "a.json", tmp_path / "a")]
    list(perform(Named(), jobs, tmp_path / "work"))
    record = jobs[0].record
    shown = [Replica("all", read_record(record), read_probes(record), jobs[0].model)]
    page = tmp_path / "report.html"
    remarks = (Remark("It recalls <98%>."), Remark("it is red.", warning=True))
    write_report(page, Named(), shown, title="t", command="c", remarks=remarks)
    text = page.read_text()
    for name in ("north", "&lt;south&gt;", "a name that is far …"):
        assert f">{name}</text>" in text, name
    assert "<title>a name that is far too long for a chart</title>" in text
    assert "<i>mother, 98%</i><b>bea</b>" in text and "<b>ann</b>" in text
    assert '<span class="wrong"><i>town</i><b>&lt;b&gt;</b>' in text
    assert "<i>source</i>" not in text, "what it starts from has no arrow"
    read = Page(text).text
    assert "It recalls <98%>." in read and "Warning. it is red." in read


def test_nodes_that_are_never_sampled_have_dials(tmp_path: Path) -> None:
    replicas = parity_replicas()
    for replica in replicas:
        for metric in [m for m in replica.record.curve.metrics if m.decoder == "sample"]:
            del replica.record.curve.metrics[metric]
    read = parity_page(tmp_path / "report.html", replicas)
    assert "dials" in {section["id"] for section in read.all("section")}


def test_without_probes_the_dials_are_drawn_and_no_chain(tmp_path: Path) -> None:
    replicas = [replace(replica, probes={}) for replica in parity_replicas()]
    read = parity_page(tmp_path / "report.html", replicas)
    sections = {section["id"] for section in read.all("section")}
    assert "dials" in sections and not sections & {"chain", "categories"}


def test_the_table_of_the_chain_ends_where_its_chart_does(tmp_path: Path) -> None:
    replicas = parity_replicas()
    for replica, gradients in zip(replicas, ([1e-2, 1e-3, 1e-4], [1e-6, 1e-3, 1e-4]), strict=True):
        for reading, gradient in zip(last_of(replica), gradients, strict=True):
            reading["gradient"] = gradient
    text = parity_page(tmp_path / "report.html", replicas).text
    assert "symbol[0] 1.0e-04 1 " in text, "the geometric mean, and as much as the last node"
    assert "symbol[1] 1.0e-03 10 " in text and "symbol[2] 1.0e-04 1 " in text


def test_the_gradients_of_all_groups_have_one_scale() -> None:
    one, two = parity_replicas()
    for replica, gradient in ((one, 1e-1), (two, 1e-7)):
        for readings in replica.probes.values():
            for reading in readings:
                reading["gradient"] = gradient
    groups = grouped(Parity(), [replace(one, group="one"), replace(two, group="two")])
    charts = [chain["svg"] for chain in chains_of(groups)]
    ticks = [re.findall(r'<text[^>]*text-anchor="end"[^>]*>([^<]+)<', svg) for svg in charts]
    assert ticks[0] and ticks[0] == ticks[1]


def test_a_gradient_of_nothing_is_shown_as_nothing(tmp_path: Path) -> None:
    replicas = parity_replicas()
    watched = {"name": "watched", "call": 0, "gradient": 5.0, "by_category": None}
    watched |= dict.fromkeys(("categories", "used", "entropy", "saturated", "gap"))
    for replica in replicas:
        last_of(replica)[0]["gradient"] = 0.0
        last_of(replica)[2]["gradient"] = 0.5
        last_of(replica).append(watched)
    text = parity_page(tmp_path / "report.html", replicas).text
    assert "symbol[0] 0.0e+00 0 " in text
    assert "symbol[2] 5.0e-01 1 " in text and "watched[0] 5.0e+00 10 " in text, "vs the last node"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_record_older_than_a_setting_had_its_default(
    order: tuple[int, int], tmp_path: Path
) -> None:
    new, old = parity_replicas(beta_share=0.5)
    del old.record.settings["beta_share"]
    replicas = [(replace(new, group="new"), replace(old, group="old"))[k] for k in order]
    shown = parity_page(tmp_path / "page.html", replicas).text
    assert "new 0.5" in shown and f"old {QUICK.beta_share}" in shown


def test_calls_that_come_and_go_and_numbers_that_are_none(tmp_path: Path) -> None:
    replicas = parity_replicas()
    for replica in replicas:
        steps = list(replica.probes)
        replica.probes[steps[0]] = replica.probes[steps[0]][1:2]  # a call fewer, in front
        replica.probes[steps[1]][2]["by_category"]["weight"][0] = None
        replica.record.curve.metrics[Metric("accuracy", "validation")][2] = None
    read = parity_page(tmp_path / "report.html", replicas)
    assert len(charts_of(read)) == 2 + 3 + 1 + 3


def mean_line(svg: str) -> list[tuple[float, float]]:
    (path,) = [p for p in ElementTree.fromstring(svg).iter("path") if "mean" in p.attrib["class"]]
    places = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.attrib["d"])
    return [(float(x), float(y)) for x, y in places]


def test_the_dials_are_drawn_as_they_were_set(tmp_path: Path) -> None:
    # 6 steps an epoch, a schedule step each
    replicas = parity_replicas(batch=10, schedule_steps=4, tau=2.0, gamma=0.5)
    read = parity_page(tmp_path / "report.html", replicas)
    assert replicas[0].record.steps == 12
    (svg,) = re.findall(
        r"<svg[^>]*beta, the scale.*?</svg>", (tmp_path / "report.html").read_text()
    )
    (_, zero), *_, (_, last) = mean_line(svg)
    top = 1.05 * dc.temp_match(2.0, 0.5)(12)  # the end of the axis
    height = (zero - last) / (zero - 10)
    assert height == pytest.approx(dc.temp_match(2.0, 0.5)(12) / top, abs=0.01)
    assert "beta, the scale of the noise" in read.text


def test_png_holds_the_pixels() -> None:
    image = torch.tensor([[0, 8, 16], [16, 0, 4]])
    raw = base64.b64decode(data_uri(image).partition("base64,")[2])
    assert raw.startswith(b"\x89PNG\r\n\x1a\n")
    picture = Image.open(io.BytesIO(raw))
    assert (picture.mode, picture.size) == ("L", (3, 2))
    assert list(picture.tobytes()) == [255, 128, 0, 0, 255, 191]
    assert data_uri(torch.zeros(2, 2)), "an empty image is white, not an error"


def with_curve(record: Record, losses: list[float | None], metric: list[float | None]) -> Record:
    curve = replace(record.curve, step=record.curve.step[: len(losses)], loss=losses)
    monitored = record.selection.metric
    return replace(record, curve=replace(curve, metrics={monitored: metric}))


def loss_chart(page: Path, records: dict[str, Record]) -> str:
    parity_page(page, [Replica(name, record) for name, record in records.items()])
    (svg,) = re.findall(
        r'<svg[^>]*"training loss over training.*?</svg>', page.read_text(), re.DOTALL
    )
    return str(svg)


def test_a_loss_that_explodes_leaves_the_others_to_be_seen(tmp_path: Path) -> None:
    record, other = (replica.record for replica in parity_replicas())
    records = {
        "broken": with_curve(record, [2.0, 5e4, 1e6, 3e5], [0.5] * 4),
        "steady": with_curve(other, [9.0, 2.0, 0.7, 0.6], [0.5] * 4),
    }
    for some in (records, {"broken": records["broken"]}):
        svg = loss_chart(tmp_path / "page.html", some)
        assert "in powers of ten" in svg and ">1e6<" in svg and ">1<" in svg
    svg = loss_chart(tmp_path / "page.html", records)
    (steady,) = [path for path in re.findall(r"<path[^>]*>.*?</path>", svg) if "steady" in path]
    heights = [float(y) for y in re.findall(r"[ML]-?[\d.]+ (-?[\d.]+)", steady)]
    assert max(heights) - min(heights) > 0.05 * HEIGHT


@pytest.mark.parametrize(
    ("losses", "exploded"),
    [([9.0, 0.001], False), ([1.0, 990.0], False), ([1.0, 1010.0], True), ([0.0, 1.0], False)],
)
def test_only_a_loss_that_grows_a_thousandfold_is_drawn_so(
    losses: list[float | None], exploded: bool, tmp_path: Path
) -> None:
    """Metrics never are, however small they begin."""
    record = with_curve(parity_replicas()[0].record, losses, [3e-4, 0.85])
    assert ("in powers of ten" in loss_chart(tmp_path / "page.html", {"one": record})) == exploded
    assert ">0.8<" in (tmp_path / "page.html").read_text(), "the metric is drawn from 0 to 1"


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


TRAIN = ["train", "parity:Parity", "--epochs", "1", "--evaluations", "2"]


def test_the_command_writes_it_and_resuming_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert cli.main([*TRAIN, "--sweep", "tau=1,8", "--out", str(out)]) == 0
    assert f"Report: {out / 'report.html'}" in capsys.readouterr().out
    written = Page((out / "report.html").read_text()).text
    assert "tau-1" in written and "tau-8" in written
    assert f"dcgraph {' '.join(TRAIN)} --sweep tau=1,8 --out {out}" in written
    (out / "report.html").unlink()
    capsys.readouterr()
    assert cli.main(["train", "parity:Parity", "--out", str(out), "--resume"]) == 0
    repeated = Page((out / "report.html").read_text()).text
    assert written.partition("Written")[0] == repeated.partition("Written")[0]


def test_a_run_without_a_step_has_a_page(tmp_path: Path) -> None:
    assert cli.main([*TRAIN, "--epochs", "0", "--out", str(tmp_path / "run")]) == 0
    read = Page((tmp_path / "run" / "report.html").read_text())
    assert "0 steps" in read.text
    assert not charts_of(read), "nothing happened over training"


def test_a_page_that_fails_says_that_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no picture")

    monkeypatch.setattr(Parity, "panels", fail)
    assert cli.main([*TRAIN, "--out", str(tmp_path / "run")]) == 1
    shown = capsys.readouterr()
    assert "records and models are complete" in shown.err and "no picture" in shown.err
    assert "On the test set" in shown.out


def test_remarks_are_said_and_stand_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the best replica."""

    def remarks(_: Parity, model: nn.Module, settings: ParitySettings, *__: object) -> list[Remark]:
        return [Remark(f"Trained at tau {settings.tau:g}."), Remark("less would do.", warning=True)]

    monkeypatch.setattr(Parity, "remarks", remarks)
    out = tmp_path / "run"
    assert cli.main([*TRAIN, "--sweep", "tau=1,8", "--out", str(out)]) == 0
    records = [read_record(path) for path in (out / "records").glob("*.json")]
    best = max(records, key=lambda record: record.score()).settings["tau"]
    said = capsys.readouterr().out
    assert f"\nTrained at tau {best:g}.\nWarning: less would do.\n" in said
    assert f"Trained at tau {best:g}." in Page((out / "report.html").read_text()).text

    def fail(*_: object) -> None:
        raise RuntimeError("nothing to say")

    monkeypatch.setattr(Parity, "remarks", fail)
    assert cli.main(["train", "parity:Parity", "--out", str(out), "--resume"]) == 1
    assert "records and models are complete" in capsys.readouterr().err


def test_final_metrics_stand_row_by_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the screen and on the page: what was measured on what in rows, how in columns."""
    numbers = {
        Metric("right", "near"): 0.25,
        Metric("right", "far", "sample"): 0.125,
        Metric("sure", decoder=None): 1.0,
    }
    monkeypatch.setattr(Parity, "final_metrics", lambda *_: dict(numbers))
    assert cli.main([*TRAIN, "--out", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("On the test set"))
    head, accuracy, near, far, sure = lines[at + 1 : at + 6]
    assert head.split() == ["argmax", "sample"]
    assert accuracy.split()[0] == "accuracy" and len(accuracy.split()) == 3
    assert near.split() == ["near:", "right", "0.2500"]
    assert far.split() == ["far:", "right", "0.1250"] and sure.split() == ["sure", "1.0000"]
    ends = [head.index("argmax") + 6, head.index("sample") + 6]
    assert [len(near), len(far)] == ends, "numbers stand under their columns"
    page = (tmp_path / "run" / "report.html").read_text()
    table = page[page.index("in detail") : page.index("How it learned")]
    rows = re.findall(r'scope="row">([\w: ]+)</th>(.*?)</tr>', table)
    cells = {name: re.findall(r"<td>([^<]*)</td>", row) for name, row in rows}
    assert list(cells) == ["accuracy", "near: right", "far: right", "sure"]
    assert cells["near: right"] == ["0.250", "", ""] and cells["far: right"] == ["", "0.125", ""]
    assert cells["sure"] == ["", "", "1.000"]
