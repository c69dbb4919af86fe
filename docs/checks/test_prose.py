"""Links lead somewhere, pages name no machine, and the words are those of the field."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "benchmarks/README.md",
]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TEMPLATES = sorted([*(ROOT / "src").rglob("*.html"), *(ROOT / "src").rglob("*.js")])
TESTS = sorted([*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "docs/checks").glob("test_*.py")])

RETIRED = {
    r"look(s|ing|ed)? back|ways? back|--back\b": "bidirectional scoring",
    r"sharpness": "inverse temperature",
    r"examinations?": "evaluation set",
    r"competitors?|compet(e|es|ing) with an? (answer|entity)": "candidates",
    r"ties as the paper": "optimistic ties",
    r"walking|hopping|composing": "decoding, model, encoders",
    r"selecting|chosen on(?! the validation split)|--choose-(by|on)": (
        "split, validation split, monitor"
    ),
    r"backwards|turned (triples|paths)|turns? (triples|paths)": "inverse paths",
    r"ragged|remembered": "CSR, disk cache",
    r"trials?": "hyper-parameter search",
    r"(?<!of )course(?! of)|(stretches|pieces) of (parameters|the parameters|memory)": (
        "trainer state, parameter slices"
    ),
    r"exhibits?|read-?outs?|arranged": "report panels, final metrics, layout",
    r"--moves|(number of|\d) moves|moves (of the dials|per epoch)": "schedule steps",
    r"laws?": "distribution",
    r"islands?": "compute dtype",
    r"twins?": "reference implementation",
    r"mixing": "codebook",
    r"by a beam(?! search)|(a )?beam of \d+|beams? that": "beam search of width N",
    r"follow(s|ed)? (\d+|several|all) entities|entities (are |to )?follow(ed)?": "beam search",
    r"--nearest": "--top-k",
    r"alone": "only",
    r"told|tells (it|them|the model)": "given",
    r"but on": "except on",
}
"""Words of our own that the field has other words for, and those words."""

RETIRED_NAMES = {
    **RETIRED,
    r"stretch(es)?": "slices",
    r"ours": "variant, or the name of what it is",
}
"""The same for identifiers, which are read as their words; and words that only names must avoid."""

_OPTUNA = ("trials", "trial", "Trials", "Trial", "TRIALS")  # its word for one choice of settings
ALLOWED = {
    **dict.fromkeys(
        (
            "docs/searching.md",
            "docs/reference/commands.md",
            *(f"docs/reference/commands-{task}.md" for task in ("addition", "listops", "paths")),
            *(
                f"src/dcgraph/experiments/{name}"
                for name in (
                    "cli/search.py",
                    "engine/search.py",
                    "engine/studies.py",
                    "report/search.py",
                    "report/search.html",
                )
            ),
        ),
        _OPTUNA,
    ),
    "docs/reference/commands-paths.md": (*_OPTUNA, "chosen on the validation"),  # a line ends there
    "src/dcgraph/structures/arborescence.py": ("the elimination backwards",),
    "src/dcgraph/experiments/tasks/addition/settings.py": ("but on MNIST all 10 digits",),
    "src/dcgraph/experiments/tasks/listops/settings.py": ("only looks back; add --earlier",),
}
"""By file: phrases in which a retired word is another word."""


def retired(text: str, file: str, words: Mapping[str, str] = RETIRED) -> list[str]:
    """Each retired word in a text, with what stands around it and the word to use."""
    for phrase in ALLOWED.get(file, ()):
        text = text.replace(phrase, "")
    found = []
    for pattern, word in words.items():
        start, end = (r"(?<![\w-])" if pattern[0] != "-" else ""), r"(?![\w])"
        for hit in re.finditer(rf"{start}({pattern}){end}", text, flags=re.IGNORECASE):
            around = " ".join(text[max(0, hit.start() - 30) : hit.end() + 30].split())
            found.append(f"{around!r}: say {word}")
    return found


def prose(source: str) -> Iterator[str]:
    """Docstrings, help texts and messages of a module, its strings with several words; comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def identifiers(source: str) -> set[str]:
    """All names in a module: of functions, classes, arguments, variables, attributes, imports."""
    fields = ("name", "asname", "id", "attr", "arg", "module")
    found = {getattr(node, field, None) for node in ast.walk(ast.parse(source)) for field in fields}
    return {name for name in found if isinstance(name, str)}


def words_of(name: str) -> str:
    """``way_back``, ``WayBack`` and ``WAY_BACK`` as words with spaces between them."""
    return " ".join(re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)).lower()


def test_the_check_finds_retired_words() -> None:
    assert retired("Steps that\nlook back.", "x") and retired("use --back 0.5", "x")
    assert retired("Trained on triples alone, by a beam.", "x")
    assert not retired("Of course a feedback of lawful, untold courses.", "x")
    source = '"""Sharpness of a beam."""\ndef f():\n    shared(1, "entities to follow")\n'
    assert [bool(retired(text, "x")) for text in prose(source)] == [True, True]
    (comment,) = prose("x = 1  # of this alone")
    assert retired(comment, "x")


@pytest.mark.parametrize(
    "source",
    ["sharpness = 1", "x.way_back", "class Exhibits: ...", "from .mixing import x", "f(law=1)",
     "def f(looking_back): ...", "OURS = 1", "import ragged as r", "def test_of_twins(): ..."],
)  # fmt: skip
def test_the_check_finds_retired_names(source: str) -> None:
    assert any(retired(words_of(name), "x", RETIRED_NAMES) for name in identifiers(source))


def test_the_check_passes_names_that_only_contain_a_retired_word() -> None:
    names = ("lawful", "feedback", "backward", "of_course", "mix", "hours", "readouterr")
    assert not [name for name in names if retired(words_of(name), "x", RETIRED_NAMES)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages_have_the_words_of_the_field(path: Path) -> None:
    found = retired(path.read_text(), path.relative_to(ROOT).as_posix())
    assert not found, "\n".join(found)


def test_docstrings_and_help_texts_have_the_words_of_the_field() -> None:
    texts = [(path, text) for path in SOURCES for text in prose(path.read_text())]
    texts += [(path, path.read_text()) for path in TEMPLATES]
    found = []
    for path, text in texts:
        file = path.relative_to(ROOT).as_posix()
        found += [f"{file}: {hit}" for hit in retired(text, file)]
    assert not found, "\n".join(found)


def test_identifiers_have_the_words_of_the_field() -> None:
    found = []
    for path in SOURCES:
        file = path.relative_to(ROOT).as_posix()
        for name in sorted({*identifiers(path.read_text()), path.stem, path.parent.name}):
            hits = retired(words_of(name), file, RETIRED_NAMES)
            found += [f"{file}: {name}: {hit}" for hit in hits]
    assert not found, "\n".join(found)


def test_names_of_tests_have_the_words_of_the_field() -> None:
    found = []
    for path in TESTS:
        names = {n for n in identifiers(path.read_text()) if n.startswith("test_")} | {path.stem}
        for name in sorted(names):
            found += [f"{path.name}: {hit}" for hit in retired(words_of(name), "", RETIRED_NAMES)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith("http"):
            continue
        file, _, heading = target.partition("#")
        page = path.parent / file if file else path
        assert page.exists(), target
        if heading:
            assert heading in {anchor(title) for title in headings(page.read_text())}, target


def headings(page: str) -> list[str]:
    without_code = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.+)$", without_code, flags=re.MULTILINE)


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_path_of_a_machine_is_in_a_page(path: Path) -> None:
    assert re.findall(r"/(?:home|root|work|Users|mnt|scratch)/\S*", path.read_text()) == []


COLUMNS, WORDS = 7, 1250


def without_code(page: str) -> str:
    """A page without its blocks of code and without marks."""
    block = r"^ *(`{3,})[^`\n]*\n.*?^ *\1`*[ \t]*$"
    page = re.sub(block, "", page, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)


def columns(page: str) -> int:
    """Of the widest table of a page."""
    rows = re.findall(r"^ *\|(.*)\|[ \t]*$", without_code(page), flags=re.MULTILINE)
    return max((len(re.split(r"(?<!\\)\|", row)) for row in rows), default=0)


def words(page: str) -> int:
    """Of its prose: what is in no table and no block of code."""
    prose = re.sub(r"^ *\|.*$", "", without_code(page), flags=re.MULTILINE)
    return len(re.findall(r"\S*\w\S*", prose))


def test_the_check_counts_columns_and_words_of_prose() -> None:
    page = "# Two words\n\n| a | b \\| c | d |\n|---|---|---|\n| 1 | 2 | 3 |\n\n<!-- a mark -->\n"
    page += "Three more words.\n\n```python\nx = 1 | 2\n```\n\n"
    page += "````text\n```\n| a | b | c | d |\n````\n"
    assert (columns(page), words(page)) == (3, 5)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages_are_short_and_tables_narrow(path: Path) -> None:
    """Else a page is split by subject; a table shows what matters, and links to a file with all."""
    page = path.read_text()
    assert columns(page) <= COLUMNS
    assert words(page) <= WORDS
