"""Tables are rendered from records, and the tables in the docs are the rendered ones."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from dcgraph.experiments import cli
from dcgraph.experiments.engine.runs import perform
from dcgraph.experiments.engine.tables import Column, Row, Table, as_json, as_text, jobs, part
from dcgraph.experiments.tasks import TABLES, get_table
from dcgraph.experiments.tasks.addition.tables import ADDITION
from dcgraph.experiments.tasks.listops.tables import ABLATION, LISTOPS
from parity import QUICK, Parity

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
RENDER = runpy.run_path(str(ROOT / "docs" / "render.py"))
HAVE_RECORDS = {  # of the tables that are not complete; all other rows are left open in the docs
    "paths": tuple(
        row.name
        for row in get_table("paths").rows
        if row.name != "Ours, triples once, the paper's tau and noise"
        and ("FB13: ours" in row.name or "FB13" not in row.name)
    ),
    "paths-extrapolation": (
        "CoKE, paths up to 5",
        *(f"Ours, triples once, soft, paths up to {length}" for length in (1, 2, 5)),
        *(f"Ours, triples once, paths up to {length}" for length in range(1, 6)),
        *(f"Ours, paths up to {length}" for length in range(1, 6)),
        "FB13: ours, paths up to 5",
    ),
    "paths-short": tuple(
        row.name
        for row in get_table("paths-short").rows
        if not (row.name.startswith("FB13") and row.name.endswith("once"))
    ),
    "fb15k-237": ("ComplEx, triples alone", "ComplEx-C", "Ours"),
    "fb15k-237-beam": ("ComplEx, triples alone", "ComplEx-C", "Ours"),
}
SMALL = Table(
    name="small",
    task="parity",
    title="Parity.",
    columns=(
        Column("test", lambda record: 100 * record["test"]["accuracy/argmax"]),
        Column("never", lambda record: None),
    ),
    rows=(
        Row("slow", (QUICK,), seeds=3, paper={"test": (50.0, 1.5)}),
        Row("fast", (replace(QUICK, lr=1e-2),), seeds=2),
    ),
)


def test_a_table_from_records_beside_the_papers_numbers(tmp_path: Path) -> None:
    everything = [job for row in jobs(SMALL, tmp_path).values() for job in row]
    assert as_json(SMALL, tmp_path)[0]["mean"] is None  # nothing has run
    assert "no records yet" in as_text(SMALL, tmp_path)
    list(perform(Parity(), everything, tmp_path / "work"))
    first, _, second, _ = as_json(SMALL, tmp_path)
    assert (first["row"], first["column"], first["seeds"]) == ("slow", "test", 3)
    assert first["paper"] == (50.0, 1.5) and second["paper"] is None and second["seeds"] == 2
    values = [json.loads(job.record.read_text())["test"]["accuracy/argmax"] for job in everything]
    assert first["mean"] == pytest.approx(100 * sum(values[:3]) / 3, abs=0.01)
    text = as_text(SMALL, tmp_path)
    assert "2 to 3 seeds" in text and "| 50.00 ± 1.50 |" in text
    assert len({len(line) for line in text.splitlines()[2:]}) == 1  # aligned


def test_a_part_of_a_table_has_the_columns_of_one_ending(tmp_path: Path) -> None:
    columns = tuple(replace(SMALL.columns[0], name=f"test, {d}") for d in ("sample", "argmax"))
    row = Row("slow", (QUICK,), paper={"test, sample": (50.0, 1.5)})
    table = replace(SMALL, columns=columns, rows=(row,))
    sampled = part(table, "sample")
    assert [column.name for column in sampled.columns] == ["test"]
    assert sampled.rows[0].paper == {"test": (50.0, 1.5)}
    assert jobs(sampled, tmp_path) == jobs(table, tmp_path)
    text = as_text(sampled, tmp_path)
    assert text.startswith("Parity. By sample.") and "paper" in text
    assert "paper" not in as_text(part(table, "argmax"), tmp_path)


def test_a_record_of_other_settings_does_not_count(tmp_path: Path) -> None:
    (job, *_) = jobs(SMALL, tmp_path)["slow"]
    job.record.parent.mkdir(parents=True)
    job.record.write_text(json.dumps({"settings": {"lr": 1.0}}))
    assert as_json(SMALL, tmp_path)[0]["seeds"] == 0
    job.record.write_text("[]")
    with pytest.raises(ValueError, match="is not a record"):
        as_json(SMALL, tmp_path)


def test_rows_that_two_tables_share_have_the_same_records() -> None:
    paths = [
        {job.record for row in jobs(get_table(name), RESULTS).values() for job in row}
        for name in ("addition", "addition-lr")
    ]
    assert len(paths[0] & paths[1]) == 24  # three learning rates, eight seeds


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_its_records(name: str) -> None:
    """All seeds of all rows but the open ones, which have none: what the docs say can be redone."""
    seeds = {row.name: row.seeds for row in get_table(name).rows}
    for cell in as_json(get_table(name), RESULTS):
        if not cell["column"].startswith("at epoch"):  # which many a run never reaches
            assert cell["seeds"] in (0, seeds[cell["row"]]), cell
    have_records = HAVE_RECORDS.get(name, tuple(seeds))
    assert set(have_records) <= set(seeds)
    for row, wanted in jobs(get_table(name), RESULTS).items():
        assert {job.record.exists() for job in wanted} == {row in have_records}, row


def test_the_targets_are_reached() -> None:
    cells = {(cell["row"], cell["column"]): cell["mean"] for cell in as_json(ADDITION, RESULTS)}
    assert cells["Ours, tau 8, lr 0.0003", "best on test, sample"] >= 98.1
    assert cells["Ours, tau 8, lr 0.0005", "clean, sample"] >= 98.0
    assert cells["Ours, preset best", "clean, sample"] >= 98.6


def test_the_targets_of_listops_are_reached() -> None:
    cells = {(c["row"], c["column"]): c["mean"] for t in (LISTOPS, ABLATION)
             for c in as_json(t, RESULTS)}  # fmt: skip
    bars = {"task": 95.7, "edge": 81.2, "inter": 69.7, "d8": 90, "d10": 82}
    for column, bar in bars.items():
        assert cells["Ours, tau 1", f"{column}, sample"] >= bar, column
        for decode in ("sample", "argmax"):
            assert cells["Ours, the tree given", f"{column}, {decode}"] >= 99.7, column
    bars = {"task": 99.3, "edge": 97, "inter": 95, "d8": 97, "d10": 95}
    for column, bar in bars.items():
        assert cells["Ours, preset best", f"{column}, argmax"] >= bar, column
    falling = [cells[row.name, "task, sample"] for row in ABLATION.rows[:4]]
    assert falling == sorted(falling, reverse=True) and len(set(falling)) == 4


@pytest.mark.parametrize("path", RENDER["PAGES"], ids=lambda path: path.name)
def test_the_docs_show_the_rendered_tables(path: Path) -> None:
    """Which tables there are to be, other tests say."""
    assert RENDER["rendered"](path.read_text()) == path.read_text(), "run `make tables`"


def test_benchmarks_and_headlines_are_in_the_docs() -> None:
    pages = "".join(path.read_text() for path in RENDER["PAGES"])
    scripts = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "common"]
    assert sorted(re.findall(r"<!-- benchmark (\S+) -->", pages)) == sorted(scripts)
    assert RENDER["headlines"]().count("\n") == len(RENDER["HEADLINES"]) + 1
    assert "<!-- headlines -->" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", HAVE_RECORDS)
def test_what_has_no_record_can_be_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs = {row.name: row.seeds * len(row.settings) for row in get_table(name).rows}
    done = sum(runs[row] for row in HAVE_RECORDS[name])
    assert cli.main(["reproduce", name, "--results", str(RESULTS), "--dry"]) == 0
    said = capsys.readouterr().out
    assert f"{name}: {sum(runs.values())} runs, {done} have a record" in said
    assert {row for row in runs if repr(row) in said} == runs.keys() - set(HAVE_RECORDS[name])


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_in_the_docs(name: str) -> None:
    """All columns of it, in one table or in parts."""
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    parts = re.findall(rf"<!-- table {name}: (\w+) -->", pages)
    shown = {f"{column.name}, {of}" for of in parts for column in part(get_table(name), of).columns}
    everything = {column.name for column in get_table(name).columns}
    assert f"<!-- table {name} -->" in pages or shown == everything


def test_the_command_prints_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["table", "addition", "--results", str(RESULTS)]) == 0
    assert "98.10 ± 0.15" in capsys.readouterr().out
    assert cli.main(["table", "addition", "--results", str(RESULTS), "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)
    assert {"row", "column", "mean", "std", "seeds", "paper"} == set(cells[0])
    assert cli.main(["table", "addition", "--results", "nowhere"]) == 1
    assert "dcgraph reproduce addition" in capsys.readouterr().err
    assert cli.main(["reproduce", "addition", "--results", str(RESULTS), "--dry"]) == 0
    assert "128 runs, 128 have a record" in capsys.readouterr().out


def test_reproduce_says_that_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dry = ["reproduce", "addition", "--results", str(tmp_path), "--dry"]
    assert cli.main(dry) == 0
    assert "checkpoint" not in capsys.readouterr().out
    (tmp_path / ".addition").mkdir()
    (tmp_path / ".addition" / "0123.pt").touch()
    assert cli.main(dry) == 0
    assert "goes on from its checkpoint" in capsys.readouterr().out


def test_the_command_prints_a_part(capsys: pytest.CaptureFixture[str]) -> None:
    table = ["table", "listops", "--results", str(RESULTS), "--part"]
    assert cli.main([*table, "argmax"]) == 0
    assert capsys.readouterr().out == f"{as_text(part(LISTOPS, 'argmax'), RESULTS)}\n"
    assert cli.main([*table, "argmax", "--json"]) == 0
    columns = {cell["column"] for cell in json.loads(capsys.readouterr().out)}
    assert len(columns) == len(LISTOPS.columns) / 2 and "critical, depth 8" in columns


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("listops", "did you mean 'sample'? There are: sample, argmax."),
        ("annealing", "it has none at all, show the whole."),
    ],
)
def test_a_part_that_a_table_does_not_have(
    name: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["table", name, "--results", str(RESULTS), "--part", "sampel"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"dcgraph: table {name!r} has no part 'sampel'; {remedy}"


def test_tables_can_be_run_together_and_in_part(capsys: pytest.CaptureFixture[str]) -> None:
    """A row that is in both is run once, and what differs in dials alone is one population."""
    both = ["reproduce", "listops", "listops-ablation", "--results", "nowhere", "--dry"]
    assert cli.main([*both, "--rows", "Ours, tau", "without"]) == 0
    said = capsys.readouterr().out
    assert "40 runs, 0 have a record" in said and "40 replicas as one population" in said
    paths = ["reproduce", "paths", "--results", "nowhere", "--dry", "--rows"]
    for text, runs in (("Ours", 3), ("Ours, ", 7)):  # a whole name is that row alone
        assert cli.main([*paths, text]) == 0
        assert f"paths: {runs} runs" in capsys.readouterr().out
    assert cli.main([*both, "--rows", "tau 7"]) == 2
    assert "no row has 'tau 7' in its name; there are" in capsys.readouterr().err
    assert cli.main(["reproduce", "addition", "listops", "--dry"]) == 2
    assert "one at a time" in capsys.readouterr().err
    assert cli.main(["reproduce", "--dry"]) == 2
    assert "which table?" in capsys.readouterr().err
