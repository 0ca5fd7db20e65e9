# Every target makes what it needs. `make demo` and `make test` are all that a new machine has to run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check format bench clean
.DEFAULT_GOAL := test

# The environment is made anew when what it is made from changes.
$(VENV)/.made: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kvledger needs Python 3.11 or newer; name one with make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.made
	@$(BIN)/kvledger demo

test: $(VENV)/.made
	$(BIN)/python -m pytest

check: $(VENV)/.made
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.made
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.made
	$(BIN)/python -m tests.benchmarks

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
