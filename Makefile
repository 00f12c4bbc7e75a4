# Everything happens in .venv; nothing global is touched. pip's own configuration decides where packages come from.
TORCH_VERSION ?= 2.13.0
PYTHON ?= python3
# The newest torch that is tested; part of the tests runs on it in an environment of its own.
TORCH_NEWEST ?= 2.14.1
# What Understudy is compared with, in an environment of its own.
TORCHFT_VERSION ?= 0.2.0
NVRX_VERSION ?= 0.4.1
# Most tests wait for processes most of the time; each starts about five.
TESTS_AT_ONCE ?= 2
VENV := .venv
PEERS := .venv-peers
NEWEST := .venv-newest
BIN := $(VENV)/bin
# One stamp for each torch version, so that another TORCH_VERSION sets up again.
STAMP := $(VENV)/.setup-torch-$(TORCH_VERSION)
NEWEST_STAMP := $(NEWEST)/.setup-torch-$(TORCH_NEWEST)
PEERS_STAMP := $(PEERS)/.setup-torch-$(TORCH_VERSION)-torchft-$(TORCHFT_VERSION)-nvrx-$(NVRX_VERSION)
# What depends most on torch: groups, faults in every place, the scripts of the diagonal that lean on it most (`make conformance` has all).
ON_NEWEST := tests/contract tests/faults/test_losses.py \
	tests/conformance/test_diagonal.py tests/integration/test_leaks.py tests/integration/test_gloo_waits.py \
	tests/worker/test_torch_internals.py -k "not on_purpose and not does_not_end and not moco and not leaves_eval and not nanogpt \
	and not prefetched and not arguments_changed and not mixing and not two_forwards and not hangs and not data_loader \
	and not spare_lost and not two_at_once"
SOURCES := $(wildcard src tests examples benchmarks) $(if $(wildcard scripts/*.py),scripts)

# Everything about nodes that are left: detectors, policies, drains, checks, going home.
LEAVING := tests/integration/test_evidence.py tests/integration/test_detectors.py tests/integration/test_evidence_http.py \
	tests/integration/test_straggler.py tests/integration/test_drain.py tests/integration/test_parallel_drains.py \
	tests/integration/test_return.py tests/integration/test_check_node.py tests/integration/test_prometheus.py \
	tests/integration/test_leaving.py tests/integration/test_disturbed_moves.py

.PHONY: help setup demo drain test whole leaving slurm kubernetes newest setup-newest model mutants matrix drills conformance lint format bench peers compare clean

help:
	@echo "make setup   a virtual environment in .venv with the package and its tools; tested: torch 2.13 to 2.14, Python 3.11 to 3.13"
	@echo "make demo    train, kill a rank in the middle, compare with the undisturbed run"
	@echo "make drain   train on two nodes, drain one of them under the job, compare with the undisturbed run"
	@echo "make test    lint, types, imports and all tests"
	@echo "make whole   all tests, in every way to be parallel (hours); make test goes through a diagonal of them"
	@echo "make newest  types and part of the tests on torch $(TORCH_NEWEST), in .venv-newest: groups, faults, some scripts"
	@echo "make leaving nodes that are left before they fail: detectors, policies, drains, checks and going home, whole"
	@echo "make slurm   jobs on a real Slurm cluster of the tests, whole (Debian: slurmctld slurmd slurmdbd slurm-client mariadb-server)"
	@echo "make kubernetes  a real control plane and nodes that are stand-ins, whole (Debian: etcd-server; kube-* in KUBEBUILDER_ASSETS)"
	@echo "make model   the protocol in every order of events, within larger bounds than in make test"
	@echo "make mutants changes of meaning in the pure parts, one at a time, and which of them the fast tests do not notice"
	@echo "make matrix  every fault in every phase, in every way to be parallel, on real jobs (hundreds of cells)"
	@echo "make drills  every fault in every phase of a drill, and a drill at every step of a score of scripts"
	@echo "make conformance  what real training scripts do, with kills, bit by bit; writes docs/conformance.md (an hour or two)"
	@echo "make lint    lint, types and who imports whom, only"
	@echo "make format  let ruff rewrite the sources"
	@echo "make bench   recovery and overhead benchmarks"
	@echo "make peers   what Understudy is compared with, in .venv-peers"
	@echo "make compare the comparison, with the peers that are there"
	@echo "TORCH_VERSION=$(TORCH_VERSION) PYTHON=$(PYTHON) TORCHFT_VERSION=$(TORCHFT_VERSION) NVRX_VERSION=$(NVRX_VERSION)"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; give one with make PYTHON=...") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "torch==$(TORCH_VERSION)"
	$(BIN)/python -m pip install --quiet --editable ".[data,dev]"
	@rm -f $(VENV)/.setup-torch-* && touch $@

demo: setup
	$(BIN)/python examples/demo.py

drain: setup
	$(BIN)/python examples/drain.py

lint: setup
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports --no-logo --no-cache

test: lint
	$(BIN)/python -m pytest --numprocesses $(TESTS_AT_ONCE) --dist worksteal --durations 15

slurm: setup
	$(BIN)/python -m pytest --durations 15 -m "whole or not whole" tests/slurm

kubernetes: setup
	$(BIN)/python -m pytest --durations 15 -m "whole or not whole" tests/kubernetes

# Every test there is: hours. Where Prometheus, Slurm or Kubernetes are not installed, theirs are left out.
whole: setup
	$(BIN)/python -m pytest --numprocesses $(TESTS_AT_ONCE) --dist worksteal --durations 15 -m "whole or not whole"

leaving: setup
	$(BIN)/python -m pytest --numprocesses $(TESTS_AT_ONCE) --dist worksteal --durations 15 -m "whole or not whole" $(LEAVING)

# Whole on another torch: make test TORCH_VERSION=...
newest: $(NEWEST_STAMP)
	$(NEWEST)/bin/mypy $(SOURCES)
	$(NEWEST)/bin/python -m pytest --numprocesses $(TESTS_AT_ONCE) --dist worksteal --durations 15 $(ON_NEWEST)

setup-newest: $(NEWEST_STAMP)

$(NEWEST_STAMP): pyproject.toml
	test -x $(NEWEST)/bin/python || $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet "torch==$(TORCH_NEWEST)"
	$(NEWEST)/bin/python -m pip install --quiet --editable ".[data,dev]"
	@rm -f $(NEWEST)/.setup-torch-* && touch $@

model: setup
	$(BIN)/python -m tests.model

mutants: setup
	$(BIN)/python -m tests.mutants --at-once $(TESTS_AT_ONCE)

matrix: setup
	$(BIN)/python -m tests.matrix

drills: setup
	EVERY_RANK=1 $(BIN)/python -m pytest tests/integration/test_drill_parallel.py
	$(BIN)/python -m tests.drills

conformance: setup
	$(BIN)/python -m tests.conformance --at-once $(TESTS_AT_ONCE) --write docs/conformance.md

format: setup
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench: setup
	$(BIN)/python benchmarks/recovery.py
	$(BIN)/python benchmarks/overhead.py

# A peer that does not install is left out; the comparison then says why it has no figures of it.
peers: $(PEERS_STAMP)

$(PEERS_STAMP):
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet "torch==$(TORCH_VERSION)" numpy
	-$(PEERS)/bin/python -m pip install --quiet "torch==$(TORCH_VERSION)" "torchft==$(TORCHFT_VERSION)"
	-$(PEERS)/bin/python -m pip install --quiet "torch==$(TORCH_VERSION)" "nvidia-resiliency-ext==$(NVRX_VERSION)"
	@rm -f $(PEERS)/.setup-torch-* && touch $@

compare: setup
	$(BIN)/python benchmarks/compare.py

clean:
	rm -rf $(VENV) $(PEERS) $(NEWEST) build dist .mypy_cache .ruff_cache .pytest_cache src/*.egg-info
