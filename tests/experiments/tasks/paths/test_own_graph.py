"""``dcgraph train paths --graph FILE``: one file is enough, and the settings are fitted to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments import cli
from dcgraph.experiments.engine.records import read_record
from dcgraph.experiments.tasks.paths import task as paths_task
from dcgraph.experiments.tasks.paths.data import load_graph
from dcgraph.experiments.tasks.paths.settings import SMALL
from dcgraph.experiments.tasks.paths.task import Paths

LINES = [
    f"e{k},{name},e{(k + step) % 24}\n"
    for k in range(24)
    for name, step in (("next", 1), ("skip", 5), ("back", 23))
]
SHORT = ["--epochs", "2", "--dim", "4", "--beam", "1"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("ring.csv").write_text("".join(LINES))
    return tmp_path


def train(*words: str) -> int:
    return cli.main(["train", "paths", *words])


def replicas_of(run: str) -> list[dict[str, Any]]:
    stored = json.loads((Path("runs") / run / "run.json").read_text())
    assert stored["task"] == "paths"
    return [dict(replica) for replica in stored["replicas"]]


def test_one_file_is_enough(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--graph", "ring.csv", *SHORT) == 0
    shown = capsys.readouterr()
    assert "ring.csv: 72 triples between commas, 24 entities, 3 relations." in shown.err
    assert "Split: 58 triples for training, 7 for validation, 7 for test" in shown.err
    assert "The model recalls " in shown.out and "Warning: it has not learned" in shown.out
    assert "Report: runs/paths-ring/report.html" in shown.out
    page = Path("runs/paths-ring/report.html").read_text()
    assert 'class="chain"' in page and "has not learned its graph" in page
    assert 'id="dials"' in page, "the discrete model has nodes"
    (record,) = Path("runs/paths-ring/records").glob("*.json")
    settings = read_record(record).settings
    (planned,) = replicas_of("paths-ring")
    assert settings == planned and settings["graph"] == "ring.csv"
    assert (settings["epochs"], settings["dim"], settings["beam"]) == (2, 4, 1)
    assert None not in settings.values()
    evaluate = ["evaluate", "paths", "--model", "runs/paths-ring"]
    assert cli.main(evaluate) == 0
    assert json.loads(capsys.readouterr().out)["queries"] > 0
    with Path("ring.csv").open("a") as file:  # the same names, and so another split
        file.write("e0,next,e7\n")
    assert cli.main(evaluate) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "other names or triples than now" in line


def test_resuming_does_not_ask_the_rule_again(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--graph", "ring.csv", *SHORT) == 0
    (record,) = Path("runs/paths-ring/records").glob("*.json")
    before = record.read_text()
    record.unlink()

    def fail(*_: object) -> None:
        raise AssertionError("the rule of another day")

    monkeypatch.setattr(paths_task, "fitted", fail)
    assert train("--out", "runs/paths-ring", "--resume") == 0
    after = read_record(record)
    assert after.settings == json.loads(before)["settings"]
    capsys.readouterr()
    assert train("--out", "runs/paths-ring", "--resume", "--graph", "ring.csv") == 2
    assert "leave the others out" in capsys.readouterr().err


def test_sweeps_and_flags_come_before_the_rule(here: Path) -> None:
    words = ["--graph", "ring.csv", "--dim", "4", "--beam", "1", "--lr", "0.01"]
    assert train(*words, "--sweep", "epochs=1,2", "--sweep", "tau=1,4") == 0
    replicas = replicas_of("paths-ring")
    assert len(replicas) == 4 and {replica["lr"] for replica in replicas} == {0.01}
    assert {replica["epochs"] for replica in replicas} == {1, 2}
    one, two = (next(r for r in replicas if r["epochs"] == epochs) for epochs in (1, 2))
    assert one["gamma"] == pytest.approx(2 * two["gamma"], rel=0.01), "fitted to each"
    sizes = {read_record(path).population.size for path in Path("runs").glob("*/records/*.json")}
    assert sizes == {2}, "both tau are trained as one program"


def test_help_says_what_is_fitted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train("--graph", "ring.csv", "--help")
    said = " ".join(capsys.readouterr().out.split())
    assert "preset 'auto'" in said and "runs/paths-ring" in said
    assert "examples per step (default: fitted to the data)" in said


@pytest.mark.parametrize(
    ("given", "preset", "name"),
    [
        ({}, "small", "paths-small"),
        ({"graph": "umls"}, "small", "paths-small"),
        ({"graph": "wn11"}, "best", "paths-best"),
        ({"graph": "kinships"}, "auto", "paths-kinships"),
        ({"graph": "some/where/my graph.tsv.gz"}, "auto", "paths-my graph"),
        ({"graph": "fb15k-237"}, "fb15k-237", "paths-fb15k-237"),
    ],
)
def test_presets_and_folders_by_the_graph(given: dict[str, str], preset: str, name: str) -> None:
    assert Paths().preset_for(given) == preset
    assert Paths().run_name(preset, given) == name
    assert Paths().run_name("small", {"graph": "a/b.csv"}) == "paths-small-b"


def test_a_folder_is_named_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "v1.2").mkdir()
    assert Paths().run_name("auto", {"graph": str(tmp_path / "v1.2")}) == "paths-v1.2"


@pytest.mark.parametrize("content", ["one column\n", "", "a\tr\ta\n", None])
@pytest.mark.parametrize("more", [[], ["--preset", "small", "--out", "some/where"]])
def test_a_bad_graph_leaves_nothing_behind(
    content: str | None, more: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        Path("bad.tsv").write_text(content)
    before = sorted(here.rglob("*"))
    assert train("--graph", "bad.tsv", *more) == 2
    (line,) = [s for s in capsys.readouterr().err.splitlines() if s.startswith("dcgraph: ")]
    assert line.endswith(".") or "?" in line
    assert [p for p in sorted(here.rglob("*")) if "cache" not in p.parts] == before


def test_a_folder_that_was_there_stays(here: Path) -> None:
    Path("runs/paths-bad").mkdir(parents=True)
    Path("bad.tsv").write_text("one column\n")
    assert train("--graph", "bad.tsv", "--preset", "small", "--out", "runs/paths-bad") == 2
    assert Path("runs/paths-bad").is_dir() and not list(Path("runs/paths-bad").iterdir())


@pytest.mark.parametrize(
    "lines",
    [
        [f"leaf{k} in hub\n" for k in range(12)],  # a star: no triple can be left out
        ["a r b\n", "b r c\n", "c r a\n"],
        [f"a{k} r b{k}\n" for k in range(6)],  # pairs
        [f"n{k} next n{k + 1}\n" for k in range(9)],
        ["ann knows bob\n", "bob knows ann\n", "bob knows bob\n", "cid knows cid\n"],
    ],
)
def test_degenerate_graphs_train(lines: list[str], here: Path) -> None:
    Path("odd.txt").write_text("".join(lines))
    assert train("--graph", "odd.txt", "--epochs", "1", "--dim", "2", "--beam", "2") == 0
    assert Path("runs/paths-odd/report.html").exists()


def test_the_example_is_copied_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = ["data", "paths", "--graph", "example", "--out", "royals.tsv"]
    assert cli.main(copy) == 0
    assert "302 triples of made-up royal families, in royals.tsv." in capsys.readouterr().out
    graph = load_graph("royals.tsv")
    assert sum(map(len, graph.triples.values())) == 302 and "Dagmar" in graph.entities
    assert cli.main(copy) == 1
    assert "there already" in capsys.readouterr().err


def test_a_file_is_written_as_a_folder_with_another_split(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in ("0", "1"):
        words = ["--graph", "ring.csv", "--out", f"folder-{seed}", "--seed", seed]
        assert cli.main(["data", "paths", *words]) == 0
    same, other = (load_graph(f"folder-{seed}") for seed in "01")
    assert same.fingerprint == load_graph("ring.csv").fingerprint != other.fingerprint
    Path("star.txt").write_text("".join(f"leaf{k} in hub\n" for k in range(12)))
    assert cli.main(["data", "paths", "--graph", "star.txt", "--out", "star"]) == 1
    assert "train on the file itself" in capsys.readouterr().err


def test_known_graphs_keep_their_default(here: Path) -> None:
    assert Paths.presets["small"] == SMALL and next(iter(Paths.presets)) == "small"
