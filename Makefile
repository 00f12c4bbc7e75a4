# Environments are in .venv and .venv-*; nothing global is touched. pip's own configuration decides where packages come from.
TORCH_VERSION ?= 2.13.0
PYTHON ?= python3
# The newest torch that is tested; part of the tests runs on it in an environment of its own.
TORCH_NEWEST ?= 2.14.1
# What Understudy is compared with, in an environment of its own.
TORCHFT_VERSION ?= 0.2.0
NVRX_VERSION ?= 0.4.1
# Training frameworks with an integration, in an environment of their own.
LIGHTNING_VERSION ?= 2.6.6
TRANSFORMERS_VERSION ?= 5.24.0
TRL_VERSION ?= 1.16.0
# For two cores: most tests wait for processes most of the time.
TESTS_AT_ONCE ?= 3
VENV := .venv
PEERS := .venv-peers
NEWEST := .venv-newest
FRAMEWORKS := .venv-frameworks
BIN := $(VENV)/bin
# One stamp for each torch version, so that another TORCH_VERSION sets up again.
STAMP := $(VENV)/.setup-torch-$(TORCH_VERSION)
NEWEST_STAMP := $(NEWEST)/.setup-torch-$(TORCH_NEWEST)
FRAMEWORKS_STAMP := $(FRAMEWORKS)/.setup-torch-$(TORCH_VERSION)-lightning-$(LIGHTNING_VERSION)-transformers-$(TRANSFORMERS_VERSION)-$(TRL_VERSION)
# One script of each framework, which the gate runs too.
ONE_OF_EACH := lightning_validation hugging_face_trainer_epochs
PEERS_STAMP := $(PEERS)/.setup-torch-$(TORCH_VERSION)-torchft-$(TORCHFT_VERSION)-nvrx-$(NVRX_VERSION)
# The tests of the gate that also run on the newest torch: the covering array that joins communicators again, the contract of backends, and
# the internals of torch.
ON_NEWEST := tests/matrix/test_covering.py tests/contract/test_backend.py tests/worker/doctor/test_torch_internals.py
# And what `make whole-newest` adds to that.
WHOLE_ON_NEWEST := tests/contract tests/faults/test_losses.py tests/worker \
	tests/integration/recovery/test_leaks.py tests/integration/recovery/test_gloo_waits.py
SOURCES := $(wildcard src tests examples benchmarks) $(if $(wildcard scripts/*.py),scripts)

PYTEST := $(BIN)/python -m pytest --numprocesses $(TESTS_AT_ONCE) --dist worksteal --durations 15
EVERYTHING := -m "gate or cluster or whole or not whole"
CONFORMANCE := conformance-1 conformance-2 conformance-3
# The parts of `make whole`, each of which ends within an hour.
PARTS := whole-units netpath model whole-faults whole-control whole-recovery whole-leaving drills \
	matrix $(CONFORMANCE) fuzz slurm kubernetes whole-newest

.PHONY: netpath-long one-of-each-framework frameworks help reference docs setup setup-newest demo drain lint test clusters newest costs covering whole $(PARTS) conformance mutants format bench peers compare clean

help:
	@echo "To begin:"
	@echo "  make setup        a virtual environment in .venv with the package and its tools (torch 2.13 to 2.14, Python 3.11 to 3.13); 2 min"
	@echo "  make demo         train, kill a rank in the middle, compare with the undisturbed run; 2 min"
	@echo "  make drain        train on two nodes, drain one of them under the job, compare with the undisturbed run; 2 min"
	@echo "  make test         lint, types, unit tests, and the real jobs of the gate on this machine; at most 10 min on two cores"
	@echo "  make lint         lint, types and the import contracts; 1 min; part of make test"
	@echo "The rest of the gate (.ci/run), and tools for it:"
	@echo "  make clusters     jobs of the covering array on a real Slurm and a real Kubernetes control plane; 5 min"
	@echo "  make newest       the tests of the gate that depend on torch, on torch $(TORCH_NEWEST); 5 min, and as much for its first setup"
	@echo "  make one-of-each-framework  a training of each framework that loses ranks; 3 min, and 3 for its first setup"
	@echo "  make covering     print the jobs of the covering array: mode, phase, fault, groups and scheduler of each"
	@echo "  make costs        measure what the gate costs, and record it (two cores, one of them busy)"
	@echo "Everything (before an issue is called resolved); each part ends within an hour and can be run alone:"
	@echo "  make whole        all parts, one after the other"
	@echo "    make whole-units      unit tests, rows of the model and contracts of ports that take minutes; 15 min on a busy machine"
	@echo "    make model            the protocol in every order of events, within larger bounds; 56 min on a busy machine"
	@echo "    make netpath          the network plugin between network namespaces, with sanitizers; 7 min on a busy machine"
	@echo "    make whole-faults     faults in every place of a step, each in every mode; contracts of ports; covering array; 9 min"
	@echo "    make whole-control    command line, agents, orchestrators, service, hosts; 38 min on a busy machine"
	@echo "    make whole-recovery   scripts that lose ranks; drills, redo, messages; 52 min on a busy machine"
	@echo "    make whole-leaving    nodes that are left before they fail: detectors, policies, drains, checks; 26 min"
	@echo "    make drills           every fault in every phase of a drill, and a drill at every step of a score of scripts; 15 min"
	@echo "    make matrix           every fault in every phase in every mode, 840 cells; 30 min with three jobs at once"
	@echo "    make conformance-1    a third of the conformance scripts; also -2 and -3; 33 min on a busy machine"
	@echo "    make fuzz             200 drawn scripts that hide state, with kills; another seed: UNDERSTUDY_FUZZ_SEED=2; 50 min"
	@echo "    make slurm            everything on a real Slurm cluster; 56 min"
	@echo "    make kubernetes       everything on a real Kubernetes control plane; 57 min"
	@echo "    make whole-newest     the tests that depend most on torch, on torch $(TORCH_NEWEST); 9 min, its first setup included"
	@echo "  make netpath-long a long random sequence of faults of the network plugin"
	@echo "  make conformance  its three parts in one go; writes docs/evidence/conformance.json and its page"
	@echo "  make frameworks   tests and conformance scripts of the integrations (Accelerate, Trainer, Lightning), in an environment of their own"
	@echo "  make mutants      change the meaning of the pure parts in one place at a time, and list the changes that no fast test notices"
	@echo "More:"
	@echo "  make reference    write docs/reference from the sources; a test checks that it was done"
	@echo "  make docs         build docs/ as a site in site/, and check all of its links"
	@echo "  make format       let ruff rewrite the sources"
	@echo "  make bench        recovery and overhead benchmarks"
	@echo "  make peers        what Understudy is compared with, in .venv-peers"
	@echo "  make compare      the comparison with these"
	@echo "  make setup-newest the environment of make newest only, in .venv-newest"
	@echo "  make clean        remove the environments and caches"
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
	$(PYTEST)

# Where Slurm or a control plane is missing, its jobs are left out, and the end of the run says how to get it.
clusters: setup
	$(BIN)/python -m pytest --durations 15 -m cluster tests/slurm tests/kubernetes

newest: $(NEWEST_STAMP)
	$(NEWEST)/bin/python -m pytest --numprocesses $(TESTS_AT_ONCE) --dist worksteal --durations 15 $(ON_NEWEST)

covering: setup
	$(BIN)/python -m tests.matrix.covering

costs: setup
	$(PYTEST) --write-costs tests/costs.json

whole: $(PARTS)

whole-units: setup
	$(PYTEST) -m whole --ignore tests/netpath --ignore tests/integration --ignore tests/faults --ignore tests/conformance --ignore tests/slurm --ignore tests/kubernetes
	$(PYTEST) -m hypothesis --hypothesis-profile searching

netpath: setup
	$(BIN)/python -m pytest --durations 15 -s -m whole tests/netpath

# One sequence of random faults, as long as wanted: make netpath-long NETPATH_SEED=7 NETPATH_CHANGES=5000
netpath-long: setup
	NETPATH_SEED=$(or $(NETPATH_SEED),2) NETPATH_CHANGES=$(or $(NETPATH_CHANGES),1000) $(BIN)/python -m pytest -s -m whole tests/netpath/test_random.py

model: setup
	$(BIN)/python -m tests.model

whole-faults: setup
	$(PYTEST) $(EVERYTHING) tests/faults tests/contract tests/matrix

whole-control: setup
	$(PYTEST) $(EVERYTHING) tests/integration/control

whole-recovery: setup
	$(PYTEST) $(EVERYTHING) tests/integration/recovery

whole-leaving: setup
	$(PYTEST) $(EVERYTHING) tests/integration/leaving

drills: setup
	EVERY_RANK=1 $(BIN)/python -m pytest $(EVERYTHING) tests/integration/recovery/test_drill_parallel.py
	$(BIN)/python -m tests.drills

matrix: setup
	$(BIN)/python -m tests.matrix

$(CONFORMANCE): conformance-%: setup
	$(BIN)/python -m tests.conformance --at-once $(TESTS_AT_ONCE) --part $*/3

fuzz: setup
	$(PYTEST) -m whole tests/conformance/fuzz

slurm: setup
	$(BIN)/python -m pytest --durations 15 $(EVERYTHING) tests/slurm

kubernetes: setup
	$(BIN)/python -m pytest --durations 15 $(EVERYTHING) tests/kubernetes

# All tests on another torch: make whole TORCH_VERSION=...
whole-newest: $(NEWEST_STAMP)
	$(NEWEST)/bin/mypy $(SOURCES)
	$(NEWEST)/bin/python -m pytest --numprocesses $(TESTS_AT_ONCE) --dist worksteal --durations 15 $(EVERYTHING) $(ON_NEWEST) $(WHOLE_ON_NEWEST)

setup-newest: $(NEWEST_STAMP)

$(NEWEST_STAMP): pyproject.toml
	test -x $(NEWEST)/bin/python || $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet "torch==$(TORCH_NEWEST)"
	$(NEWEST)/bin/python -m pip install --quiet --editable ".[data,dev]"
	@rm -f $(NEWEST)/.setup-torch-* && touch $@

mutants: setup
	$(BIN)/python -m tests.mutants --at-once $(TESTS_AT_ONCE)

conformance: setup
	$(BIN)/python -m tests.conformance --at-once $(TESTS_AT_ONCE) --write

frameworks: $(FRAMEWORKS_STAMP)
	$(FRAMEWORKS)/bin/python -m pytest $(EVERYTHING) tests/worker/integrations
	$(FRAMEWORKS)/bin/python -m tests.conformance --group frameworks

one-of-each-framework: $(FRAMEWORKS_STAMP)
	$(FRAMEWORKS)/bin/python -m pytest tests/worker/integrations
	$(FRAMEWORKS)/bin/python -m tests.conformance --no-alone $(ONE_OF_EACH)

$(FRAMEWORKS_STAMP): pyproject.toml
	test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet "torch==$(TORCH_VERSION)"
	$(FRAMEWORKS)/bin/python -m pip install --quiet --editable ".[data,dev,lightning,transformers]"
	$(FRAMEWORKS)/bin/python -m pip install --quiet "lightning==$(LIGHTNING_VERSION)" "pytorch-lightning==$(LIGHTNING_VERSION)" \
		"transformers==$(TRANSFORMERS_VERSION)" "trl==$(TRL_VERSION)"
	@rm -f $(FRAMEWORKS)/.setup-torch-* && touch $@

reference: setup
	$(BIN)/python -m scripts.reference

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --site-dir site

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
	rm -rf $(VENV) $(PEERS) $(NEWEST) $(FRAMEWORKS) build dist site .mypy_cache .ruff_cache .pytest_cache src/*.egg-info
