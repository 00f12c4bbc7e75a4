# Everything happens in .venv; nothing global is touched. pip's own configuration decides where packages come from.
TORCH_VERSION ?= 2.13.0
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One stamp for each torch version, so that another TORCH_VERSION sets up again.
STAMP := $(VENV)/.setup-torch-$(TORCH_VERSION)
SOURCES := $(wildcard src tests examples benchmarks) $(if $(wildcard scripts/*.py),scripts)

.PHONY: help setup demo test model lint format bench clean

help:
	@echo "make setup   a virtual environment in .venv with the package and its development tools"
	@echo "make demo    train, kill a rank in the middle, compare with the undisturbed run"
	@echo "make test    lint, types and all tests"
	@echo "make model   the protocol in every order of events, within larger bounds than in make test"
	@echo "make lint    lint and types only"
	@echo "make format  let ruff rewrite the sources"
	@echo "make bench   recovery and overhead benchmarks"
	@echo "TORCH_VERSION=$(TORCH_VERSION) PYTHON=$(PYTHON)"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; give one with make PYTHON=...") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "torch==$(TORCH_VERSION)"
	$(BIN)/python -m pip install --quiet --editable ".[data,dev]"
	@rm -f $(VENV)/.setup-torch-* && touch $@

demo: setup
	$(BIN)/python examples/demo.py

lint: setup
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy $(SOURCES)

test: lint
	$(BIN)/python -m pytest

model: setup
	$(BIN)/python -m tests.model

format: setup
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench: setup
	$(BIN)/python benchmarks/recovery.py
	$(BIN)/python benchmarks/overhead.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache src/*.egg-info
