"""Every number on the page of what did not work is that of a record."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.tables import records_of
from dcgraph.experiments.tasks import get_table

ROOT = Path(__file__).parents[2]
RENDER = runpy.run_path(str(ROOT / "docs" / "render.py"))
PAGE = " ".join((ROOT / "docs" / "what-did-not-work.md").read_text().split())
METHOD = "The paper's method, tau 1"


@cache
def table(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = RENDER["_cells"]([name])
    return found


def cell(name: str, row: str, column: str, part: str = "") -> str:
    """As the tables of the site have it."""
    found = table(name)[RENDER["Place"](name, row, column, part)]
    text: str = RENDER["_spread"](found.mean, found.std)
    return text


def column(name: str, column: str, part: str = "") -> Callable[[str], str]:
    return lambda row: cell(name, row, column, part)


def found(folder: str, name: str) -> Any:
    return json.loads((ROOT / folder / f"{name}.json").read_text())


def example(name: str) -> Any:
    return found("results/examples", name)["found"]["rows"]


def spread(values: list[float], digits: int) -> str:
    return f"{fmean(values):.{digits}f} ± {pstdev(values):.{digits}f}"


def row_of(some: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    (row,) = (row for row in some if wanted.items() <= row.items())
    return row


def methods() -> Iterator[str]:
    rates = column("addition-lr", "clean", "sample")
    yield f"the mean is {rates('lr 0.0001')}."
    yield f"tried too: {rates('lr 0.0003')} ("
    chain = column("addition-chain", "clean", "sample")
    neither = chain("neither")
    yield f"methods have {chain('TempMatch and DropRes')} and plain Gumbel-softmax {neither} (8"
    slow = column("annealing", "test accuracy")
    yield f"{slow('3 summands, TauAnn')} against {slow('3 summands, TempMatch')} (9 seeds)"
    yield f"from 2 to 1: {chain('neither, tau annealed')} (8 seeds)"
    exact = {row["model"]: row["exact"] for row in example("parity_machine")[6:10]}
    yield (
        f"makes {exact['only TempMatch']} of 8 seeds exact, plain Gumbel-softmax "
        f"{exact['neither']}, DropRes {exact['only DropRes']}, and both methods "
        f"{exact['both methods']}."
    )
    umls = column("paths-small", "1")
    both = umls("The paper's method, settings for a small graph")
    yield f"MRR of {both} with both and {umls('without both')} without (3 seeds)"
    results = column("listops-ablation", "task", "sample")
    yield f"On ListOps {results('residual always on')} of the results"
    yield f"against {results(METHOD)} with DropRes; one that is faded"
    yield f"has {results('residual weighted')}, which is no difference (8"


def listops() -> Iterator[str]:
    sample, argmax = (column("listops-ladder", "task", part) for part in ("sample", "argmax"))
    edge, deep = (column("listops-ladder", name, "argmax") for name in ("edge", "d10"))
    silent, earlier = "+ silent root, no self-loop", "+ parent before child"
    operators, recipe = "+ operator parents", "trained as preset best"
    yield f"by argmax**: {argmax(METHOD)} of the results, against {sample(METHOD)} by sampling"
    yield f"sends nothing, {argmax(silent)} ("
    critical = column("listops", "critical, depth 8", "sample")
    yield f"has {critical(METHOD)} by sampling, an LSTM without a tree {critical('LSTM')}."
    yield (
        f"edges {edge(earlier)} before, {edge(operators)} after; "
        f"results {argmax(earlier)} and {argmax(operators)}."
    )
    yield f"edges {edge(operators)} before, {edge(recipe)} after."
    yield f"10, {deep(operators)} before and {deep(recipe)} after."
    counters, nearest = argmax("counters in place of LSTMs"), argmax("+ nearest match, root")
    yield f"results {counters} before, {nearest} after, because"
    restart = argmax("+ restart: preset best")
    yield f"brackets, {argmax('+ silent ]')}, and restarts, {restart}."
    masks = column("listops-masks", "task", "sample")
    pair = masks("a mask for each pair, as the paper")
    yield f"{pair} of the results, against {masks('a mask for a sender and a token')} with shared"


def paths() -> Iterator[str]:
    noise = column("paths-noise", "H@10", "validation")
    loud, quiet = noise("hard, tau 1, share 1"), noise("hard, tau 1, share 0.0947")
    yield f"H@10 of {loud} on validation paths of WN11, with noise up to tau / ln n {quiet} (one"
    top = noise("tau 4, share 1, only the top 100")
    yield f"soft hops little, {noise('tau 4, share 1')} and {top}."
    hits = column("paths", "H@10", "optimistic ties")
    soft, once = hits("Soft hops, our settings, triples once"), hits("Our variant, triples once")
    yield f"WN11 is {soft}, with hard ones {once} (3 seeds)"
    whole = get_table("paths-search")
    search = sorted(float(cell(whole.name, row.name, "H@10", "validation")) for row in whole.rows)
    most = f"{len(search) - 1} have {search[1]} to {search[-1]} on validation"
    yield f"{most}, and one fails with {search[0]}."
    short = column("paths-short", "H@10", "validation")
    times = "WN11: dropout 0.7, 0.1, 0.5; triples {}"
    yield f"rises from {short(times.format('once'))} to {short(times.format('4 times'))} (one seed)"
    yield f"it has {hits('Our variant')} against {once} (3 seeds)"
    three = column("paths-extrapolation", "MQ", "optimistic ties")
    before, after = (three(f"Our variant{one}, paths up to 3") for one in (", triples once", ""))
    yield f"MQ falls from {before} to {after} (one seed)"
    yield f"H@10 of {hits('ROP')} (one seed)"
    fb13 = table("paths")[RENDER["Place"]("paths", "FB13: CoKE", "MQ", "optimistic ties")].paper[0]
    mq = column("paths", "MQ", "optimistic ties")("FB13: our variant")
    by_beam = column("paths", "MQ", "beam search, bidirectional")("FB13: our variant")
    yield f"published {fb13}; our variant has {mq} by argmax and {by_beam} by its best"
    coke = table("paths")[RENDER["Place"]("paths", "FB13: CoKE", "H@10", "optimistic ties")].paper
    yield f"higher, {hits('FB13: our variant')} against {coke[0]} ("
    both_ways, one_way = (
        cell(f"paths-small-{way}", "ComplEx-C", "10") for way in ("bidirectional", "beam")
    )
    yield f"the MRR is {both_ways}, by plain beam search {one_way} (3 seeds)"


def other_models() -> Iterator[str]:
    vae = example("discrete_vae")
    matched, plain = vae["TempMatch, tau 1"], vae["Gumbel-softmax, tau 0.5"]
    one = vae["no network: mixture of 1"]["test"]
    yield f"ELBO is {spread(matched['test'], 2)} nats at tau 1, worse"
    yield f"is black, {fmean(one):.2f}; plain Gumbel-softmax has {spread(plain['test'], 2)} at tau"
    relaxed = {fmean(row["relaxed"]): row for row in vae.values() if "relaxed" in row}
    assert relaxed[max(relaxed)] == matched
    yield f"the opposite: {spread(matched['relaxed'], 2)} is the best of all"
    errors = {name: row["test"] for name, row in example("vector_quantised").items()}
    nodes = {fmean(errors[name]): name for name in errors if "TempMatch" in name}
    assert nodes[min(nodes)] == "straight-through, tau 0.02, TempMatch and DropRes"
    yield f"an error of {spread(errors[nodes[min(nodes)]], 1)} per cent of the variance"
    yield f"are revived, has {spread(errors['nearest row, unused rows revived'], 1)} (4 seeds)"
    gates = {
        row["setting"]: f"{100 * fmean(row['hard']):.0f}"
        for row in example("logic_gates")
        if row["depth"] == 12
    }
    yield (
        f"plain softmax has {gates['pass-through, softmax']} of the bits, with Gumbel noise "
        f"{gates['pass-through, Gumbel-softmax']}, with TempMatch "
        f"{gates['pass-through, TempMatch']}."
    )
    replaced, weighted = gates['DropRes, "replace" by gate'], gates['DropRes, "weighted"']
    yield f'DropRes `"replace"` has {replaced}, `"weighted"` {weighted} (8 seeds)'
    sweep = {
        (row["codebook"][:5], row["tau"]): f"{100 * fmean(row['accuracy']):.0f}"
        for row in example("sweep_of_my_model")
    }
    one_, two, four, eight = (sweep["large", tau] for tau in (1, 2, 4, 8))
    yield f"8 have {one_}, {four} and {eight}, and 2 has {two}; with small rows"
    small = max(value for (rows, _), value in sweep.items() if rows == "small")
    yield f"no tau has more than {small} (8 seeds)"


def speed() -> Iterator[str]:
    rows = found("benchmarks/results", "mix-cuda")["rows"]
    whole, dense = (
        row_of(rows, task="mix", n=1000, rows=512, dim=512, precision="bf16", way=way)["total"]
        for way in ("whole matrices", "dense")
    )
    yield f"`mix` has {whole / dense:.2f} times the speed of whole matrices."
    rows = found("benchmarks/results", "mix-cpu")["rows"]
    own = row_of(
        rows, task="cross_entropy", n=10_000, precision="float32", way="blockwise", rows=64
    )
    yield f"64 queries: {own['speedup']:.1f} times the speed of whole matrices."
    one = row_of(
        found("benchmarks/results", "population-cpu")["population"], way="eager", replicas=1
    )
    yield f"2 CPU cores**: {one['speedup']:.2f} times the plain way."
    rates = {
        row["way"]: f"{row['model_steps_per_second']:,.0f}"
        for row in found("benchmarks/results", "own_loop-cuda")["rows"]
        if row["replicas"] == 256
    }
    yield f"make {rates['dc.Population']} steps a second, and `torch.func` by hand "
    yield f"by hand {rates['torch.func by hand']}. *Instead:* `capture`, "
    yield f"`capture`, {rates['dc.Population, captured']} ("
    rows = found("benchmarks/results", "relaxation-cpu")["node"]
    yield f"2 CPU cores: {row_of(rows, sizes=[16, 84, 19])['speedup']:.2f} times the speed of three"
    times = {
        row["way"]: row["ms_per_step"] for row in found("benchmarks/results", "paths-cpu")["rows"]
    }
    own_time = times.pop("dcgraph")
    yield f"on a CPU**: {min(times.values()) / own_time:.2f} times the faster plain way"


CLAIMS = [claim for some in (methods, listops, paths, other_models, speed) for claim in some()]


def test_what_the_page_says_is_in_the_records() -> None:
    missing = [claim for claim in CLAIMS if " ".join(claim.split()) not in PAGE]
    assert not missing, "\n".join(missing)


def test_no_other_number_is_on_the_page() -> None:
    """Of those with a decimal point; settings are no results."""
    rest = PAGE
    for claim in sorted(CLAIMS, key=len, reverse=True):
        rest = rest.replace(" ".join(claim.split()), " ")
    settings = {"0.0001", "0.0003", "0.5"}
    assert set(re.findall(r"\d+\.\d+", rest)) <= settings


def test_how_many_runs_failed() -> None:
    whole = get_table("addition-lr")
    (row,) = (row for row in whole.rows if row.name == "lr 0.0001")
    accuracy = Metric("accuracy", decoder="sample")
    values = [record.value(accuracy) or 0.0 for record in records_of(whole, row, ROOT / "results")]
    assert [value < 0.9 for value in sorted(values)] == [True] * 2 + [False] * 6
    slow = get_table("annealing")
    rows = [row for row in slow.rows if row.name.startswith("3 summands")]
    assert all(cell("annealing", row.name, "reached 0.9 (%)")[:3] == "0.0" for row in rows)
    runs = sum(len(records_of(slow, row, ROOT / "results")) for row in rows)
    assert f"none of {runs} runs reaches 90" in PAGE


def test_the_page_is_no_longer_than_a_page() -> None:
    assert len((ROOT / "docs" / "what-did-not-work.md").read_text().split()) <= 1200
