"""What the page computes, against Python: the same logits, choices, gradients and samples."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from importlib.resources import as_file, files
from random import Random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dcgraph as dc
from chromium import Tab
from dcgraph.experiments.engine.errors import DataError
from dcgraph.experiments.engine.models import calibration_of, carried_by, load_model
from dcgraph.experiments.figures.simplex import log_density
from dcgraph.experiments.tasks.addition import commands as addition_commands
from dcgraph.experiments.tasks.addition.data import images
from dcgraph.experiments.tasks.addition.data.examples import pixels
from dcgraph.experiments.tasks.addition.model.adder import Adder
from dcgraph.experiments.tasks.addition.symbols import meaning_of, symbol_of_digit, symbol_use
from dcgraph.experiments.tasks.addition.task import Addition
from dcgraph.experiments.tasks.listops.commands import Commands
from dcgraph.experiments.tasks.listops.data.expressions import parse, text_of, tree_of
from dcgraph.experiments.tasks.listops.data.generator import distinct
from dcgraph.experiments.tasks.listops.data.sets import distribution_of, tensors_of
from dcgraph.experiments.tasks.listops.decoding import TreeDecoder
from dcgraph.experiments.tasks.listops.model.latent_tree import LatentTree
from dcgraph.experiments.tasks.listops.reading import heights, read
from dcgraph.experiments.tasks.listops.task import ListOps
from dcgraph.experiments.tasks.paths import commands as paths_commands
from dcgraph.experiments.tasks.paths.answers.answerer import GUESS, Answer, Answered, Answerer, Stop
from dcgraph.experiments.tasks.paths.answers.calibration import calibration_from
from dcgraph.experiments.tasks.paths.answers.candidates import Candidates
from dcgraph.experiments.tasks.paths.answers.known import known_triples
from dcgraph.experiments.tasks.paths.data.packing import unpack
from dcgraph.experiments.tasks.paths.decoding import step_scores
from dcgraph.experiments.tasks.paths.settings import INVERSE_TEMPERATURE, PathSettings
from dcgraph.experiments.tasks.paths.task import Paths
from pages import in_browser
from small_graphs import queries_of
from statistics_of_fit import chi_square_p

pytestmark = in_browser

EXAMPLES = 1000


# Addition


@pytest.fixture(scope="module")
def adder() -> Adder:
    model, _ = addition_commands.load(Addition(), None)
    assert isinstance(model, Adder)
    return model


@pytest.fixture(scope="module")
def written(tab: Tab) -> Tensor:
    """Digits as the keys write them, each a hundred times: all 0, all 1, ..."""
    found = tab.evaluate(
        f"""Array.from({{length: {EXAMPLES}}}, (_, k) =>
            Array.from(dcgraph.imageOf(dcgraph.writtenDigit(Math.floor(k / 100), k % 100)),
                (value) => "0123456789abcdefg"[Math.round(8 * (value + 1))]).join(""))"""
    )  # 16 samples are in a pixel
    shades = [["0123456789abcdefg".index(shade) for shade in image] for image in found]
    return torch.tensor(shades, dtype=torch.float64).view(-1, 28, 28) / 8 - 1


def exact(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def numbers(tensor: Tensor) -> str:
    return json.dumps(tensor.tolist())


def test_addition_has_the_logits_of_python(tab: Tab, adder: Adder, written: Tensor) -> None:
    precise = Addition().model(addition_commands.load(Addition(), None)[1]).double()
    precise.load_state_dict(adder.state_dict())
    assert isinstance(precise, Adder)
    some = written[::40]
    found = tab.evaluate(
        f"{numbers(some.flatten(1))}.map((x) => Array.from(dcgraph.addition.symbolLogits(x)))"
    )
    with torch.no_grad():
        torch.testing.assert_close(
            exact(found), precise.symbol.logits(precise.encode(some)), atol=1e-4, rtol=0
        )
        symbols = torch.cartesian_prod(*[torch.arange(len(precise.symbol.codebook))] * 2)
        both = precise.symbol.codebook[symbols].flatten(1)
        sums = precise.symbol.logits(precise.add[0](both).relu())
    found = tab.evaluate(
        f"{numbers(symbols)}.map(([a, b]) => Array.from(dcgraph.addition.sumLogits(a, b)))"
    )
    torch.testing.assert_close(exact(found), sums, atol=1e-4, rtol=0)


def test_addition_chooses_as_python(tab: Tab, adder: Adder, written: Tensor) -> None:
    found = tab.evaluate(
        f"""Array.from({{length: {EXAMPLES}}}, (_, k) => dcgraph.addition.read(
            dcgraph.imageOf(dcgraph.writtenDigit(Math.floor(k / 100), k % 100))))"""
    )
    assert found == adder.read(written.float()).tolist()
    pairs = torch.cartesian_prod(*[torch.arange(19)] * 2)
    sums = tab.evaluate(f"{numbers(pairs)}.map(([a, b]) => dcgraph.addition.sum(a, b))")
    assert sums == adder.compute(pairs)[:, -1].tolist()


def test_addition_reads_real_digits_as_python(tab: Tab, adder: Adder) -> None:
    try:
        source = images.mnist()
    except DataError:
        pytest.skip("MNIST is not here")
    raw = source.test[:EXAMPLES]
    content = base64.b64encode(bytes(raw.flatten().tolist())).decode()
    found = tab.evaluate(
        f"""(() => {{
            const all = Uint8Array.from(atob("{content}"), (c) => c.charCodeAt(0));
            return Array.from({{length: {EXAMPLES}}}, (_, k) => dcgraph.addition.read(
                Float64Array.from(all.subarray(784 * k, 784 * k + 784), (v) => v / 127.5 - 1)));
        }})()"""
    )
    assert found == adder.read(pixels(raw, "mnist")).tolist()


def test_digits_written_by_keys_are_read_as_such(tab: Tab, adder: Adder, written: Tensor) -> None:
    meaning = torch.tensor(tab.evaluate("dcgraph.addition.meaning"))
    assert torch.equal(
        meaning[adder.read(written.float())], torch.arange(10).repeat_interleave(100)
    )


def test_the_names_of_symbols_are_those_of_the_training_images(tab: Tab, adder: Adder) -> None:
    use = torch.tensor(tab.evaluate("dcgraph.addition.use"))
    assert tab.evaluate("dcgraph.addition.meaning") == meaning_of(use).tolist()
    assert tab.evaluate("dcgraph.addition.digits") == symbol_of_digit(use).tolist()
    settings = addition_commands.load(Addition(), None)[1]
    try:
        data = Addition().data(settings)
    except DataError:
        pytest.skip("MNIST is not here")
    again = symbol_use(adder, data, "train", settings)
    assert (again - use).abs().sum() <= 4, "an image on the edge may go either way"


def test_images_are_centred_as_those_of_mnist(tab: Tab) -> None:
    """A box of 20 x 20 pixels around the ink, its centre of mass in the middle of the image."""
    found = tab.evaluate(
        """[[1, 0, 0], [0.4, 0.1, 0.5], [1.2, -0.1, -0.1]].map(([size, x, y]) =>
            Array.from(dcgraph.imageOf(dcgraph.writtenDigit(4, 1).map((stroke) =>
                stroke.map(([a, b]) => [size * a + x, size * b + y])))))"""
    )
    ink = (torch.tensor(found).view(-1, 28, 28) + 1) / 2
    place = torch.arange(28) + 0.5
    for image in ink:
        for axis in (0, 1):
            along = image.sum(axis)
            assert (
                abs(float((along * place).sum() / along.sum()) - 14) < 0.15
            )  # four samples a pixel
        rows, columns = (image.sum(axis).nonzero() for axis in (1, 0))
        extent = max(int(at.max() - at.min()) + 1 for at in (rows, columns))
        assert 19 <= extent <= 21
    # The pen is as wide on paper whatever is drawn, so only the width of the line may differ.
    assert float((ink[0] - ink[2]).abs().mean()) < 0.02
    assert not tab.evaluate("dcgraph.imageOf([]).some((value) => value !== -1)")


# ListOps


@pytest.fixture(scope="module")
def listops() -> LatentTree:
    model, _ = Commands(ListOps()).load(None)
    assert isinstance(model, LatentTree)
    return model


def test_listops_chooses_as_python(tab: Tab, listops: LatentTree) -> None:
    expressions = [
        one
        for depth in (1, 2, 3, 5, 8)
        for one in distinct(distribution_of(depth), EXAMPLES // 5, Random(depth))
    ]
    assert len(expressions) == EXAMPLES
    texts = json.dumps([text_of(one) for one in expressions])
    found = tab.evaluate(
        f"""{texts}.map((text) => {{
            const tokens = dcgraph.parse(text);
            const {{parents, values}} = dcgraph.listops.read(tokens);
            return {{tokens, parents, values, truth: dcgraph.treeOf(tokens)}};
        }})"""
    )
    for reading, seen in zip(read(TreeDecoder(listops), expressions), found, strict=True):
        assert seen["tokens"] == list(reading.expression)
        assert seen["truth"]["parents"] == reading.truth.parents
        assert seen["truth"]["values"] == reading.truth.values
        assert seen["truth"]["heights"] == heights(reading)
        # What sends nothing has no parent; Python's reading has a bracket's as it was chosen.
        sends = [k > 0 and token != 0 for k, token in enumerate(reading.expression)]
        assert seen["parents"] == [
            parent if sent else -1 for parent, sent in zip(reading.parents, sends, strict=True)
        ]
        assert seen["values"] == reading.values


def test_listops_has_the_logits_of_python(tab: Tab, listops: LatentTree) -> None:
    expressions = distinct(distribution_of(5), 25, Random(0))
    for expression in expressions:
        tokens = list(expression)
        found = tab.evaluate(
            f"""(() => {{
                const tokens = {json.dumps(tokens)};
                const parents = dcgraph.listops.chooseParents(tokens);
                const logits = dcgraph.listops.follow(tokens, parents, 5).logits;
                const scores = dcgraph.listops.edgeScores(tokens);
                return [logits, scores].map((rows) => rows.map((row) => Array.from(row)));
            }})()"""
        )
        table = tensors_of([expression])
        with torch.no_grad():
            _, logits = listops.run(table["tokens"].long(), table["length"], rounds=5)
            assert listops.edges.encode is not None
            scores = listops.edges.encode(table["tokens"].long())[0]
        torch.testing.assert_close(torch.tensor(found[0]), logits[0], atol=1e-4, rtol=1e-6)
        for child, row in enumerate(found[1]):
            expected = scores[child, :child].double()
            likely = expected > -50  # the rest is lost in the rounding of float32
            torch.testing.assert_close(exact(row)[likely], expected[likely], atol=1e-3, rtol=1e-4)


def test_both_refuse_the_same_texts(tab: Tab) -> None:
    texts = [
        "", "]", "5", "[MAX", "[MAX ]", "[MAX 1 2", "[MAX 1 ] 2", "[MAX 1 ] ]", "[SUM 1 2 ]",
        "[MAX 12 ]", "[MED [MIN 3 ] ]", "[MAX 2 9 [MIN 4 7] 0]", "[ MAX 1 ]", "MAX 1 ]",
    ]  # fmt: skip
    for text in texts:
        refused = tab.evaluate(
            f"""(() => {{ try {{ dcgraph.parse({json.dumps(text)}); return ""; }}
                catch (mistake) {{ return mistake.message; }} }})()"""
        )
        try:
            parse(text)
            assert refused == ""
        except ValueError:
            assert refused.endswith(".") and len(refused) < 120, text


def test_random_formulas_are_formulas(tab: Tab) -> None:
    for text in tab.evaluate(
        "Array.from({length: 200}, (_, k) => dcgraph.textOf(dcgraph.randomFormula(k)))"
    ):
        assert 12 <= len(parse(text)) <= 26 and tree_of(parse(text)).depth >= 2


# The chain


@pytest.mark.parametrize(
    "setting",
    [
        {"length": 5, "tau": 8.0, "beta": 1.0, "alpha": 1.0},
        {"length": 20, "tau": 1.0, "beta": 2.0, "alpha": 0.5},
        {"length": 3, "tau": 0.5, "beta": 0.0, "alpha": 0.0},
    ],
)
def test_gradients_along_the_chain_are_those_of_autograd(tab: Tab, setting: dict[str, Any]) -> None:
    found = tab.evaluate(
        f"""(() => {{
            const [chain, noise] = [dcgraph.chainOf(1), dcgraph.noiseOf(2)];
            const rows = (matrix) => Array.from(matrix.data);
            return {{
                ...dcgraph.gradients(chain, noise, {json.dumps(setting)}),
                codebooks: chain.nodes.map((node) => rows(node.codebook)),
                rotations: chain.nodes.map((node) => rows(node.rotation)),
                inputs: chain.inputs.map((x) => Array.from(x)),
                targets: chain.targets.map((x) => Array.from(x)),
                noise: noise.gumbel.map((rows) => rows.map((row) => Array.from(row))),
                gates: noise.gates,
            }};
        }})()"""
    )
    given = {
        name: exact(found[name])
        for name in ("codebooks", "rotations", "inputs", "targets", "noise", "gates")
    }
    x = given["inputs"].requires_grad_()
    at_nodes, choices = [], []
    for k in range(setting["length"]):
        node = dc.Discrete(16, 10, residual="none").double()
        dc.Dials.constant(node, tau=setting["tau"], beta=setting["beta"])
        with torch.no_grad():
            node.codebook.copy_(given["codebooks"][k].view(10, 16))
        x.retain_grad()
        at_nodes.append(x)
        choices.append(
            dc.gumbel_softmax(
                node.logits(x), setting["tau"], beta=setting["beta"], noise=given["noise"][k]
            )
        )
        kept = (given["gates"][k] >= setting["alpha"]).double().unsqueeze(-1)  # DropRes
        turn = given["rotations"][k].view(16, 16)
        torch.testing.assert_close(turn @ turn.T, torch.eye(16).double(), atol=1e-9, rtol=0)
        x = F.linear(node(x, noise=given["noise"][k]) + kept * x, turn)
    (x - given["targets"]).square().mean(-1).sum().backward()  # of all examples
    sizes = torch.stack([u.grad.abs().mean() for u in at_nodes if u.grad is not None])
    torch.testing.assert_close(exact(found["size"]), sizes, rtol=1e-4, atol=0)
    saturated = torch.stack([(z.amax(-1) > 0.99).double().mean() for z in choices])
    torch.testing.assert_close(exact(found["saturated"]), saturated)


def test_the_gates_of_the_chain_keep_as_many_as_alpha_says(tab: Tab) -> None:
    gates = torch.tensor(tab.evaluate("dcgraph.noiseOf(3).gates.flat()"))
    for alpha in (0.1, 0.5, 0.9):
        kept = (gates >= alpha).sum()
        counts = torch.stack([kept, len(gates) - kept])
        assert chi_square_p(counts, torch.tensor([1 - alpha, alpha])) > 1e-4


def test_what_the_panel_says_of_the_chain(tab: Tab) -> None:
    """It dies by soft choices and by saturated ones, and DropRes keeps it alive."""

    def ratio(**setting: float) -> float:
        found = tab.evaluate(
            f"""dcgraph.gradients(dcgraph.chainOf(1), dcgraph.noiseOf(1),
                {json.dumps({"length": 10, "beta": 1.0, "alpha": 1.0} | setting)})"""
        )
        return float(found["size"][0] / found["size"][-1])

    assert ratio(tau=8.0) < 1e-6 and ratio(tau=0.1) < 1e-6
    assert ratio(tau=8.0, length=20) < 1e-4 * ratio(tau=8.0)
    assert ratio(tau=8.0, alpha=0.5) > 1e-3 and ratio(tau=8.0, alpha=0.0) > 0.1
    assert ratio(tau=0.1, alpha=0.5) > 1e-3


# Noise and temperature


@pytest.mark.parametrize("tau", [0.2, 2.0])
@pytest.mark.parametrize("beta", [0.5, 1.0, 4.0])
def test_winners_are_drawn_from_the_closed_form(tab: Tab, tau: float, beta: float) -> None:
    theta = [0.7, -0.7, 0.0]
    counts, expected = tab.evaluate(
        f"""(() => {{
            const noise = dcgraph.noiseFrom(5, 20000);
            const samples = noise.map((G) => dcgraph.relaxed({theta}, {tau}, {beta}, G));
            return [dcgraph.winners(samples).counts, dcgraph.shares({theta}, {beta})];
        }})()"""
    )
    shares = (exact(theta) / beta).softmax(-1)
    torch.testing.assert_close(exact(expected), shares, atol=1e-12, rtol=0)
    assert chi_square_p(torch.tensor(counts), shares) > 1e-4
    evener = (exact(theta) / (2 * beta)).softmax(-1)
    assert chi_square_p(torch.tensor(counts), evener) < 1e-4, "the test can fail"


def test_samples_and_their_density_are_those_of_python(tab: Tab) -> None:
    theta, noise = exact([0.3, -1.0, 0.8]), exact([0.1, 2.0, -0.5])
    for tau, beta in ((0.5, 1.0), (2.0, 0.5), (1.0, 4.0)):
        z = dc.gumbel_softmax(theta, tau, beta=beta, noise=noise)
        found = tab.evaluate(f"dcgraph.relaxed({theta.tolist()}, {tau}, {beta}, {noise.tolist()})")
        torch.testing.assert_close(exact(found), z, atol=1e-9, rtol=0)
        point = exact([0.2, 0.3, 0.5])
        density = tab.evaluate(
            f"dcgraph.logDensity({point.tolist()}, {theta.tolist()}, {tau}, {beta})"
        )
        assert density == pytest.approx(float(log_density(point, theta, tau, beta)), abs=1e-6)
    assert tab.evaluate("dcgraph.shares([0, 2, 1], 0)") == [0, 1, 0]


# Path queries


@pytest.fixture(scope="module")
def answerer() -> Answerer:
    """That of ``dcgraph predict paths``."""
    with as_file(files(paths_commands.__package__) / paths_commands.SHIPPED) as file:
        graph = unpack(carried_by(file))
        network, settings = load_model(file, Paths(graphs={"umls": graph}))
        numbers = calibration_of(file)
    assert isinstance(settings, PathSettings)
    known = known_triples(graph)
    return Answerer(
        graph,
        known,
        step_scores(network, numbers[INVERSE_TEMPERATURE]),
        Candidates(known.everything),
        settings.beam,
        calibration_from(numbers),
    )


@pytest.mark.parametrize(("width", "count"), [(1, 100), (16, 150)])  # of each length
def test_paths_are_answered_as_in_python(
    tab: Tab, answerer: Answerer, width: int, count: int
) -> None:
    assert tab.evaluate("dcgraph.paths.beam") == answerer.width == 16
    asked = replace(answerer, width=width, calibration=answerer.calibration if width > 1 else None)
    source = Random(width)
    entities, relations = len(answerer.graph.entities), len(answerer.relation_numbers)
    assert relations == 92, "with inverse ones"
    close = 0
    for hops in (1, 2, 3, 5):
        queries = [
            (source.randrange(entities), [source.randrange(relations) for _ in range(hops)])
            for _ in range(count)
        ]
        found = tab.evaluate(
            f"{json.dumps(queries)}.map(([source, path]) => "
            f"dcgraph.paths.answer(source, path, {width}, 8))"
        )
        expected = asked.answer(queries_of([(s, path, 0) for s, path in queries]), 8)
        for seen, answered in zip(found, expected, strict=True):
            same = _compare(answerer, seen, answered)
            close += not same
    assert close <= 2, "a tie in the rounding of float32"


def _compare(answerer: Answerer, seen: dict[str, Any], answered: Answered) -> bool:
    """Whether the choices are the same; all that does not depend on an order must be anyway."""
    names, marks = answerer.graph.entities, (*answerer.known.marks, "new")
    assert seen["candidates"] == answered.candidates
    assert seen["known"] == list(answered.known.values())
    rows = [*seen["hops"], seen["answers"]]
    stops: list[tuple[Stop | Answer, ...]] = [*answered.hops, answered.answers]
    for row, some in zip(rows, stops, strict=True):
        shares = [one["share"] for one in row]
        assert shares == pytest.approx([stop.share for stop in some], rel=1e-4, abs=1e-7)
    if any(
        [names[one["entity"]] for one in row] != [stop.entity for stop in some]
        for row, some in zip(rows, stops, strict=True)
    ):
        return False
    for row, some in zip(rows, stops, strict=True):
        for one, stop in zip(row, some, strict=True):
            assert marks[one["mark"]] == stop.mark
            assert one["probability"] == (
                None if stop.probability is None else pytest.approx(stop.probability, rel=1e-3)
            )
    for one, answer in zip(seen["answers"], answered.answers, strict=True):
        for triple, step in zip(one["steps"], answer.evidence, strict=True):
            assert [names[end] for end in triple["ends"]] == [step.source, step.target]
            assert (*answerer.known.marks, GUESS)[triple["mark"]] == step.mark
    return True


def test_paths_have_the_logits_of_python(tab: Tab, answerer: Answerer) -> None:
    with as_file(files(paths_commands.__package__) / paths_commands.SHIPPED) as file:
        network, _ = load_model(file, Paths(graphs={"umls": answerer.graph}))
    queries = [(entity, entity % 92) for entity in range(0, 135, 3)]
    found = tab.evaluate(
        f"{json.dumps(queries)}.map(([source, path]) => dcgraph.paths.scores(source, path))"
    )
    source, path = torch.tensor(queries, dtype=torch.int32).unbind(1)
    with torch.no_grad():
        scores = network(source, path.unsqueeze(1))
    torch.testing.assert_close(exact(found), scores.double(), atol=1e-4, rtol=0)
