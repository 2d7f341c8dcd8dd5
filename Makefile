# Every target sets up what it needs: `make demo` works as the first command on a fresh clone.

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench sim clean

# The newest Python that runs (a pyenv shim may exist and still refuse). Another one: make PYTHON=/path/to/python3 …
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$python && break; done)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -q --disable-pip-version-check install
DEV := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench
SEEDS ?= 10000

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(DEV) ## create .venv with Tailrace and its development tools

demo: $(DEV) ## a word count that survives the loss of a worker, on this machine
	@$(BIN)/tailrace demo

test: $(DEV) ## all tests
	@$(BIN)/python -m pytest

check: $(DEV) ## lint, format, types, and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/unit/test_import_direction.py

bench: $(DEV) $(BENCH) ## throughput and latency of the engine, in worker processes
	@$(BIN)/tailrace bench engine --host process

sim: $(DEV) ## the engine's core under simulated faults: SEEDS=10000 histories
	@$(BIN)/python -m tailrace.sim --seeds $(SEEDS)

clean: ## remove .venv, caches and build products
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	@find src tests -name __pycache__ -prune -exec rm -rf {} +
	@find src -name '*.so' -delete

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 found; install one, or say make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "make: $(PYTHON) is not a working Python >= 3.11" >&2; exit 1; }
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "make: $(PYTHON) cannot create a virtual environment; is its venv package installed?" >&2; exit 1; }

# C sources are compiled at installation, hence prerequisites. The interpreter is an order-only prerequisite: it is a link to a file that is older than anything here.
$(DEV): pyproject.toml $(wildcard setup.py) $(shell find src -name '*.c') | $(BIN)/python
	@echo "installing Tailrace and its development tools"
	@$(PIP) -e '.[dev]'
	@touch $@

# Bytewax comes as a wheel or not at all: building it takes a Rust toolchain. Without it its figures are left out.
$(BENCH): pyproject.toml $(DEV)
	@echo "installing the baselines"
	@$(PIP) --only-binary bytewax -e '.[bench]' || echo "bytewax could not be installed: the comparison with it is skipped" >&2
	@touch $@
