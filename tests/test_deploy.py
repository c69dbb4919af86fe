"""The files of deploy/: they parse, they fit together, and dcgraph accepts the commands in them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dcgraph.experiments import cli

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
SCRIPTS = sorted(DEPLOY.rglob("*.sbatch"))
MANIFESTS = sorted(DEPLOY.rglob("*.yaml"))
WITH_COMMANDS = [*SCRIPTS, *MANIFESTS, DEPLOY / "README.md", ROOT / "docs/beyond-one-machine.md"]

Manifest = dict[str, Any]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def objects(path: Path) -> dict[tuple[str, str], Manifest]:
    """What a manifest asks for, by kind and name."""
    found = [one for one in yaml.safe_load_all(path.read_text()) if one]
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(named) == len(found)
    return named


def pods(manifest: Manifest) -> Manifest:
    spec: Manifest = manifest["spec"]["template"]["spec"]
    return spec


def shell_of(container: Manifest) -> str:
    """The text that the shell of a container runs."""
    words = [*container.get("command", []), *container.get("args", [])]
    return words[2] if words[:2] == ["bash", "-c"] else ""


def containers() -> Iterator[tuple[str, Manifest, Manifest]]:
    """Each container of each manifest, with the object that it belongs to."""
    for path in MANIFESTS:
        for (kind, own), manifest in objects(path).items():
            if kind in ("Job", "StatefulSet"):
                spec = pods(manifest)
                for container in (*spec.get("initContainers", []), *spec["containers"]):
                    yield f"{path.name}: {own}: {container['name']}", manifest, container


# Shell


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_scripts_are_shell_that_slurm_reads(path: Path) -> None:
    subprocess.run(["bash", "-n", path], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", path], check=True)
    lines = path.read_text().splitlines()
    first = next(k for k, line in enumerate(lines) if line and not line.startswith("#"))
    late = [line for line in lines[first:] if line.startswith("#SBATCH")]
    assert not late, "Slurm reads none after the first command"
    assert "#SBATCH --requeue" in lines[:first] and "#SBATCH --open-mode=append" in lines[:first]
    assert sum(line.startswith("# ---- ") for line in lines) == 2, "one block to change"


def test_the_shell_of_containers_is_shell() -> None:
    texts = [text for _, _, container in containers() if (text := shell_of(container))]
    assert len(texts) >= 3
    for text in texts:
        subprocess.run(["bash", "-n", "-c", text], check=True)


# Manifests


def test_the_pods_of_a_run_find_each_other() -> None:
    manifests = objects(DEPLOY / "kubernetes/train.yaml")
    (job,) = (one for (kind, _), one in manifests.items() if kind == "Job")
    (service,) = (one for (kind, _), one in manifests.items() if kind == "Service")
    spec, own = job["spec"], job["metadata"]["name"]
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"], "ranks meet before any pod is ready"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": own}
    assert pods(job)["subdomain"] == service["metadata"]["name"]
    (container,) = pods(job)["containers"]
    options = torchrun_options(shell_of(container))
    (port,) = (one["port"] for one in service["spec"]["ports"])
    assert options["rdzv-endpoint"] == f"{own}-0.{service['metadata']['name']}:{port}"
    assert int(options["nnodes"]) == spec["completions"]
    assert int(options["nproc-per-node"]) == container["resources"]["limits"]["nvidia.com/gpu"]
    assert options["rdzv-backend"] == "c10d" and "JOB_COMPLETION_INDEX" in options["rdzv-conf"]
    # torchrun restarts ranks; where it gives up, all pods fail, and new ones go on.
    assert int(options["max-restarts"]) > 0 and pods(job)["restartPolicy"] == "Never"
    assert spec["backoffLimit"] >= spec["completions"]
    assert spec["podFailurePolicy"]["rules"][0]["action"] == "Ignore"


def torchrun_options(text: str) -> dict[str, str]:
    found = re.search(r"torchrun (.*?) -m ", text.replace("\\\n", " "))
    assert found
    pairs = (word.removeprefix("--").split("=", 1) for word in shlex.split(found[1]))
    return dict(pairs)


def test_workers_of_a_search_share_a_study_and_its_password_is_a_secret() -> None:
    manifests = objects(DEPLOY / "kubernetes/search.yaml")
    (job,) = (one for (kind, _), one in manifests.items() if kind == "Job")
    (database,) = (one for (kind, _), one in manifests.items() if kind == "StatefulSet")
    assert job["spec"]["parallelism"] > 1 and "completions" not in job["spec"]
    assert ("Service", database["spec"]["serviceName"]) in manifests
    (server,), (worker,) = pods(database)["containers"], pods(job)["containers"]
    has = {one["name"]: one for one in server["env"]}
    asks = {one["name"]: one for one in worker["env"]}
    assert has["POSTGRES_PASSWORD"]["valueFrom"] == asks["PGPASSWORD"]["valueFrom"]
    assert asks["STORAGE"]["value"] == (
        f"postgresql://{has['POSTGRES_USER']['value']}@{database['spec']['serviceName']}/"
        f"{has['POSTGRES_DB']['value']}"
    )
    (init,) = pods(job)["initContainers"]
    assert database["spec"]["serviceName"] in shell_of(init)
    assert "Secret" not in {kind for kind, _ in manifests}, "a password belongs into no file"


def test_containers_have_an_image_a_user_and_the_volumes_that_they_mount() -> None:
    found = list(containers())
    assert len(found) == 4
    for label, owner, container in found:
        spec = pods(owner)
        assert re.fullmatch(r"[\w./-]+:[\w.-]+", container["image"]), label
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"]
        there = {one["name"]: one for one in spec.get("volumes", [])}
        there |= {
            one["metadata"]["name"]: one for one in owner["spec"].get("volumeClaimTemplates", [])
        }
        for mount in container.get("volumeMounts", []):
            assert mount["name"] in there, f"{label}: {mount}"
            if mount["mountPath"] == "/dev/shm":
                assert there[mount["name"]]["emptyDir"]["medium"] == "Memory"


def test_claims_of_pods_are_made_and_can_be_mounted_by_all_of_them() -> None:
    for path in MANIFESTS:
        manifests = objects(path)
        for (kind, own), manifest in manifests.items():
            if kind != "Job":
                continue
            claims = [
                one["persistentVolumeClaim"]["claimName"]
                for one in pods(manifest)["volumes"]
                if "persistentVolumeClaim" in one
            ]
            assert claims, f"{path.name}: {own} keeps nothing"
            for claim in claims:
                made = manifests["PersistentVolumeClaim", claim]
                assert made["spec"]["accessModes"] == ["ReadWriteMany"]
            (container,) = pods(manifest)["containers"]
            kept = {one["mountPath"] for one in container["volumeMounts"]} - {"/dev/shm"}
            text = shell_of(container)
            for variable in container["env"]:
                text = text.replace(f'"${variable["name"]}"', variable.get("value", ""))
            (out,) = set(re.findall(r"--out (\S+?)[)\s]", text))
            assert any(out.startswith(f"{folder}/") for folder in kept), f"{path.name}: {out}"


# Image


def test_the_image_has_what_the_commands_need_and_does_not_run_as_root() -> None:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    steps = [line.split(None, 1) for line in text.splitlines() if re.match(r"[A-Z]+ ", line)]
    assert steps[0] == ["FROM", "python:3.12-slim"]
    users = [what for step, what in steps if step == "USER"]
    assert users[-1] not in ("root", "0")
    uids = {pods(owner)["securityContext"]["runAsUser"] for _, owner, c in containers()
            if "dcgraph" in c["image"]}  # fmt: skip
    assert uids == {int(users[-1])}
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [source for step, what in steps if step == "COPY" for source in what.split()[:-1]]
    for source in copied:
        assert (ROOT / source).exists() and f"!{source}" in ignored, source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {project["project"]["readme"], *project["project"]["license-files"], "pyproject.toml"}
    folders = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed |= {path.partition("/")[0] for path in [*folders["packages"], *folders["force-include"]]}
    assert needed <= set(copied)
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    known = set(project["project"]["optional-dependencies"])
    if "search" not in cli.COMMANDS:
        known.add("search")
    assert set(extras.split(",")) <= known


# Commands


def commands(path: Path) -> list[list[str]]:
    """The words of every command of dcgraph in a file, with something for each variable."""
    text = path.read_text().replace("\\\n", " ")
    found = re.findall(r"(?<![\w/.:-])dcgraph ((?:train|search) (?:[^)`#&\n])*)", text)
    return [shlex.split(re.sub(r"\$\{?\w+\}?", "given", command)) for command in found]


def accept(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """What the command line makes of a command, up to where it would begin to work."""
    work = {"train": "_run", "search": "_work"}[words[0]]
    module = f"dcgraph.experiments.cli.{words[0]}"
    begun: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[module], work, lambda *given: begun.append(given))
        code = cli.main(words)
    assert code or begun
    return code


@pytest.mark.parametrize("path", WITH_COMMANDS, ids=name)
def test_dcgraph_accepts_the_commands(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in commands(path):
        if words[0] in cli.COMMANDS:  # search may not be there yet
            assert accept(words, monkeypatch) == 0, capsys.readouterr().err


def test_all_files_have_commands_and_a_mistake_would_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = {name(path): sorted({words[0] for words in commands(path)}) for path in WITH_COMMANDS}
    assert kinds["deploy/slurm/train.sbatch"] == kinds["deploy/kubernetes/train.yaml"] == ["train"]
    assert kinds["deploy/slurm/search.sbatch"] == ["search"]
    assert kinds["deploy/kubernetes/search.yaml"] == ["search"]
    assert "train" in kinds["docs/beyond-one-machine.md"]
    assert accept(["train", "addition", "--preset", "demo", "--seed-s", "4"], monkeypatch) == 2


@pytest.mark.parametrize("path", [*SCRIPTS, *MANIFESTS], ids=name)
def test_a_run_goes_on_with_the_task_and_folder_that_it_began_with(path: Path) -> None:
    found = commands(path)
    assert len(found) == (2 if found[0][0] == "train" else 1)
    places = {(words[1], words[words.index("--out") + 1]) for words in found}
    assert len(places) == 1
    assert ["--resume" in words for words in found[1:]] == [True] * (len(found) - 1)


def test_the_readme_is_short_and_lists_every_file() -> None:
    text = (DEPLOY / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix not in (".md", ".dockerignore"):
            assert f"]({path.relative_to(DEPLOY).as_posix()})" in text


# The script of Slurm, without Slurm

STUBS = {
    "srun": """
        while [[ "$1" == -* ]]; do shift; done
        export SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURMD_NODENAME=127.0.0.1
        echo "$BASHPID" >"$STUBS/step"
        exec "$@"
    """,
    "scontrol": """
        case "$1 $2" in
            "show hostnames") echo "$3" ;;
            "requeue $SLURM_JOB_ID") echo requeue >>"$STUBS/log" ;;
            *) exit 1 ;;
        esac
    """,
    "scancel": """
        [ "$*" = "--signal=TERM $SLURM_JOB_ID" ] || exit 1
        echo cancel >>"$STUBS/log"
        kill -TERM "$(cat "$STUBS/step")"
    """,
}
"""What Slurm does on one node: the command that srun starts is the process that gets signals."""


def job_with_a_free_port() -> str:
    for job in range(os.getpid() % 10_000, 20_000):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", 20_000 + job % 10_000))
            except OSError:
                continue
            return str(job)
    raise AssertionError("no free port")


def test_the_script_of_slurm_saves_queues_again_and_goes_on_to_its_records(tmp_path: Path) -> None:
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for program, body in STUBS.items():
        (stubs / program).write_text(f"#!/usr/bin/env bash\nset -eu\n{body}")
        (stubs / program).chmod(0o755)
    script = (DEPLOY / "slurm/train.sbatch").read_text()
    for old, new in (
        ("RANKS_PER_NODE=8 ", "RANKS_PER_NODE=2 "),
        ('VENV="$HOME/dcgraph/.venv"', f'VENV="{Path(sys.executable).parents[1]}"'),
        ("--preset demo --seeds 64", "--preset demo --seeds 4 --batch 2048 --evaluations 1 "
         "--device cpu"),
        ("--resume)", "--resume --device cpu)"),
    ):  # fmt: skip
        assert script.count(old) == 1
        script = script.replace(old, new)
    (tmp_path / "train.sbatch").write_text(script)
    environment = os.environ | {
        "PATH": f"{stubs}{os.pathsep}{os.environ['PATH']}", "STUBS": str(stubs),
        "PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo",
        "SLURM_JOB_ID": job_with_a_free_port(), "SLURM_JOB_NODELIST": "127.0.0.1",
    }  # fmt: skip

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "train.sbatch"], cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    out = tmp_path / "runs/addition"
    job = start()
    try:
        until = time.monotonic() + 100
        while not list(out.glob("checkpoints/*.pt")) and time.monotonic() < until:
            assert job.poll() is None, job.communicate()[0]
            time.sleep(0.05)
        os.kill(job.pid, signal.SIGUSR1)  # to the script only, as --signal=B: does
        said = job.communicate(timeout=60)[0]
        assert job.returncode == 0, said
        assert (stubs / "log").read_text().split() == ["cancel", "requeue"], said
        assert "interrupted; go on with" in said and not list(out.glob("records/*")), said
        (checkpoint,) = out.glob("checkpoints/*.pt")
        size = checkpoint.stat().st_size
        job = start()
        said = job.communicate(timeout=100)[0]
    finally:
        if job.poll() is None:  # ranks are in sessions of their own, and end with torchrun
            os.kill(int((stubs / "step").read_text()), signal.SIGTERM)
            job.communicate(timeout=60)
    assert job.returncode == 0, said
    assert "4 replicas of addition on 2 ranks, cpu" in said and "holds a run" not in said
    records = [json.loads(path.read_text()) for path in sorted(out.glob("records/seed-?.json"))]
    assert [record["settings"]["seed"] for record in records] == [0, 1, 2, 3]
    assert {record["population"]["size"] for record in records} == {4}
    assert (stubs / "log").read_text().split() == ["cancel", "requeue"], "once"
    stored = 4 * 16 * records[0]["parameters"]
    assert stored < size < 1.05 * stored, "bytes of a checkpoint, as docs/beyond-one-machine.md"
