# Two commands need nothing but Python (3.11, 3.12 or 3.13) and make: `make demo` and `make test`.
# Both set up a virtual environment in .venv first and reuse it while it is up to date.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
# Most tests are too small for several threads, so that processes side by side are faster.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal

.PHONY: help demo quick test docs docs-serve docs-check package format tables bench lock sbom clean
.PHONY: coverage fuzz kills limits memory mutation samplers
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; choose one with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Installing into .venv (a few minutes the first time) ..."
	$(PYTHON) -m venv --clear .venv
	$(PIP) '.[cli,viz]'
	@touch $@

.venv/dev: .venv/ready
	@echo "Installing what tests and docs need ..."
	$(PIP) '.[dev]'
	@touch $@

demo: .venv/ready  ## train a chain with and without the method, about two minutes
	$(BIN)/dcgraph demo

# tests/plain runs in a session of its own: torch.compile and Triton cannot trace through the run-time
# shape checks that the other tests switch on.
quick: .venv/dev  ## tests and doctests of the library, for daily work
	$(PYTEST) tests --ignore tests/experiments --ignore tests/plain --jaxtyping-packages dcgraph,beartype.beartype
	$(PYTEST) tests/plain src --ignore tests/plain/experiments --ignore src/dcgraph/experiments --doctest-modules

test: .venv/dev  ## format, lint, types, tests, doctests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) tests --ignore tests/plain --jaxtyping-packages dcgraph,beartype.beartype
	$(PYTEST) tests/plain src --doctest-modules

docs: .venv/dev  ## build the site of the documentation, in site/
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs site
	@echo "Open site/index.html."

docs-serve: docs  ## the same, on http://localhost:8000
	$(BIN)/python -m http.server --directory site --bind 127.0.0.1 8000

docs-check: .venv/dev  ## code, links, words and tables of the docs, against the code and the records
	$(PYTEST) docs/checks

package: .venv/dev  ## build wheel and source archive into dist/, and try them in a clean environment
	rm -rf dist
	$(BIN)/python tests/packaged.py dist

format: .venv/dev  ## format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

tables: .venv/dev  ## put the tables of the docs in their places, from the records
	$(BIN)/python docs/render.py

bench: .venv/dev  ## speed against torch's own and the plain way, as ratios from one run
	$(BIN)/python benchmarks/relaxation.py
	$(BIN)/python benchmarks/estimators.py
	$(BIN)/python benchmarks/population.py
	$(BIN)/python benchmarks/listops.py
	$(BIN)/python benchmarks/mix.py
	$(BIN)/python benchmarks/sharded.py
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/paths.py
	$(BIN)/python benchmarks/queries.py
	$(BIN)/python benchmarks/asking.py
	$(BIN)/python benchmarks/search.py

# Longer than the tests, with a record each: what docs/what-we-promise.md and
# docs/how-it-is-tested.md show after `make tables`.
coverage: .venv/dev  ## lines and branches of the library that its tests run
	$(BIN)/python promises/covered.py

fuzz: .venv/dev  ## damaged input for every parser and loader, ten minutes
	$(BIN)/python promises/fuzz.py --minutes 10

kills: .venv/dev  ## runs that are killed at every kind of moment, and go on
	$(BIN)/python promises/kills.py
	$(BIN)/python promises/killed_ranks.py

limits: .venv/dev  ## the largest that fits, on a CPU
	$(BIN)/python promises/limits.py

memory: .venv/dev  ## memory of training loops over 10,000 steps
	$(BIN)/python promises/memory.py

mutation: .venv/dev  ## how many small faults in the core the tests notice
	$(BIN)/python promises/mutation.py

samplers: .venv/dev  ## goodness of fit of every sampler over 200 seeds
	$(BIN)/python promises/samplers.py

lock:  ## versions and checksums of what users install, in requirements.lock
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/pip install --quiet --disable-pip-version-check uv==0.13.8
	.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-annotate --no-emit-index-url --custom-compile-command "make lock" \
		--constraint constraints.txt --extra cli --extra viz --group build \
		--output-file requirements.lock pyproject.toml
	rm -rf .venv-lock

sbom: .venv/dev  ## what is installed for dcgraph, in the CycloneDX format, in dist/sbom.json
	$(BIN)/python tools/sbom.py dist/sbom.json

clean:  ## remove the virtual environment, caches and figures
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis figures runs site dist
