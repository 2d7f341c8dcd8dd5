# Every target sets up what it needs: `make demo` works as the first command on a fresh clone.

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench sim golden stress soak cluster-test clean java iproute2

# The newest Python that runs (a pyenv shim may exist and still refuse). Another one: make PYTHON=/path/to/python3 …
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$python && break; done)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -q --disable-pip-version-check install
DEV := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench
SEEDS ?= 10000
SECONDS ?= 300

JAVA_NEEDED := 17
JAVA_VERSION = "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p'

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: java $(DEV) ## create .venv with Tailrace, its laboratory and its development tools; sees to Java as well

demo: java $(DEV) ## a word count on a local Spark that survives the loss of a worker
	@$(BIN)/tailrace demo

# Tests of processes measure time and kill things: they have the machine to themselves. Those of Spark wait more than they compute.
test: java iproute2 $(DEV) ## all tests
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/unit tests/properties tests/simulation research/tests/unit research/tests/properties
	@$(BIN)/python -m pytest tests/processes research/tests/processes tests/cluster
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/spark research/tests/spark

check: $(DEV) ## lint, format, types, and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/unit/house/test_import_direction.py research/tests/unit/test_research_imports.py

bench: java $(DEV) $(BENCH) ## throughput and latency of the engine on a local Spark, beside its rivals
	@$(BIN)/tailrace bench engine

sim: $(DEV) ## the engine's core under simulated faults: SEEDS=10000 histories
	@$(BIN)/python -m tailrace.sim --seeds $(SEEDS)

# To make the golden file again, after a change that is on purpose: $(BIN)/python tests/simulation/golden_outcomes.py --write
golden: $(DEV) ## compare 9,000 simulated runs with the golden file; says how to make the file again
	@$(BIN)/python tests/simulation/golden_outcomes.py

stress: $(DEV) ## processes at a ring stopped and killed at random, every record accounted for: SECONDS=300
	@$(BIN)/python -m tailrace_research.ring.stress --seconds $(SECONDS)

soak: java $(DEV) ## tests that take too long for every day
	@$(BIN)/python -m pytest -m soak

cluster-test: java iproute2 $(DEV) ## a cluster in a box: machines cut off, links cut, executors killed, slow drivers; takes root
	@$(BIN)/python -m pytest -m "not soak" tests/cluster

clean: ## remove .venv, caches and build products
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info research/src/*.egg-info
	@find src tests research -name __pycache__ -prune -exec rm -rf {} +
	@find src -name '*.so' -delete

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 found; install one, or say make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "make: $(PYTHON) is not a working Python >= 3.11" >&2; exit 1; }
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "make: $(PYTHON) cannot create a virtual environment; is its venv package installed?" >&2; exit 1; }

# Spark needs Java. Where we may install it, we do; elsewhere the reader is told what to install.
java:
	@version=$$($(JAVA_VERSION)); test "$${version:-0}" -ge $(JAVA_NEEDED) && exit 0; \
	if test -z "$$JAVA_HOME" && test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		why=; echo "installing a Java runtime"; export DEBIAN_FRONTEND=noninteractive; \
		apt-get -qq update >/dev/null; \
		for package in openjdk-$(JAVA_NEEDED)-jre-headless default-jre-headless; do \
			why=$$(apt-get -qq install --no-install-recommends $$package 2>&1 >/dev/null) && why= && break; done; \
	fi; \
	version=$$($(JAVA_VERSION)); test "$${version:-0}" -ge $(JAVA_NEEDED) || \
		{ test -z "$$why" || echo "$$why" >&2; \
		echo "make: Spark needs Java $(JAVA_NEEDED) or later, and $${JAVA_HOME:-PATH} has $${version:-none}; install a headless JRE," \
			"such as openjdk-$(JAVA_NEEDED)-jre-headless, or point JAVA_HOME to one" >&2; exit 1; }

# Namespaces need iproute2. Where it cannot be installed, tests that need it are skipped, and say so.
iproute2:
	@command -v ip >/dev/null && command -v tc >/dev/null && exit 0; \
	if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		echo "installing iproute2"; export DEBIAN_FRONTEND=noninteractive; \
		apt-get -qq update >/dev/null; apt-get -qq install --no-install-recommends iproute2 >/dev/null 2>&1; \
	fi; true

# C sources are compiled at installation, hence prerequisites. The interpreter is an order-only prerequisite: it is a link to a file that is older than anything here.
$(DEV): pyproject.toml research/pyproject.toml $(wildcard setup.py) $(shell find src -name '*.[ch]') | $(BIN)/python
	@echo "installing Tailrace, its laboratory and its development tools"
	@$(PIP) -e '.[dev,spark,connect]' -e research
	@touch $@

# Bytewax comes as a wheel or not at all: building it takes a Rust toolchain. Without it its figures are left out.
$(BENCH): research/pyproject.toml $(DEV)
	@echo "installing the baselines"
	@$(PIP) --only-binary bytewax -e 'research[bench]' || echo "bytewax could not be installed: the comparison with it is skipped" >&2
	@touch $@
