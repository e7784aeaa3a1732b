# What one does with a checkout of xskit. Everything is installed into .venv, from the hashes in requirements.lock;
# the machine needs python3 (3.11 or newer), python3-venv and make, and nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed
PREFIX ?= /usr/local
LINK := $(PREFIX)/bin/xskit
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help root demo install test test-pure test-real test-vm test-vm-bench coverage coverage-pure coverage-real lint types bench bench-peers experiments docs lock clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | awk -F'|' '{ printf "  make %-14s %s\n", $$1, $$2 }'

demo: root $(INSTALLED)  ## two hosts, an emulated link, real traffic: asked against achieved (root)
	@$(BIN)/xskit demo

install: $(INSTALLED)  ## link xskit into /usr/local/bin (PREFIX=DIR: into DIR/bin)
	@test -L "$(LINK)" || test ! -e "$(LINK)" || { echo "$(LINK) exists and is not a link: rm $(LINK)" >&2; exit 1; }
	@mkdir -p "$(dir $(LINK))" && ln -sfn "$(CURDIR)/$(BIN)/xskit" "$(LINK)"

root:
	@test "$$(id -u)" = 0 || { echo "network namespaces and AF_XDP sockets need root: sudo make $(MAKECMDGOALS)" >&2; exit 1; }

test: $(INSTALLED) test-pure test-real coverage  ## all tests, then the coverage run (root, or the real ones are skipped)

# Pure tests share the CPUs; those with interfaces and packets have the machine to themselves, one after the other.
PARALLEL := --numprocesses auto --maxprocesses 8 --dist worksteal

test-pure: $(INSTALLED)  ## tests that need no kernel and no root, on all CPUs
	@$(BIN)/python -m pytest -q $(PARALLEL) tests/pure

test-real: $(INSTALLED)  ## tests on the kernel, and of the command (root, or they are skipped)
	@$(BIN)/python -m pytest -q tests/real tests/e2e

test-vm: $(INSTALLED)  ## other kernels and NIC models, in guests (QEMU; kernels are fetched into the user's cache)
	@$(BIN)/python -m pytest -q -m 'vm and not root' --numprocesses auto --maxprocesses 4 --dist loadscope tests/vm
	@$(BIN)/python -m pytest -q -m 'vm and root' tests/vm

test-vm-bench: $(INSTALLED)  ## benchmarks and experiments in guests: minutes of counting instructions, so not in CI
	@$(BIN)/python -m pytest -q -m vm_bench tests/vm

# Compiled code is invisible to coverage; its pure-Python twins are not. The threshold is in pyproject.toml. Coverage's
# own .pth file starts it in every worker, and in what tests start. These pure tests do not run the data plane.
NOT_DATA_PLANE := abi bench_compare bench_conclusions bench_guests bench_session benchmark blas bpf capture \
  cli code_cache docs engine_pipeline_source experiments files guards house lab netconf netlink packaging public_api \
  remedies statistics units vm
DATA_PLANE = $(filter-out $(NOT_DATA_PLANE:%=tests/pure/test_%.py) $(NOT_DATA_PLANE:%=tests/pure/test_%_%), \
  $(wildcard tests/pure/test_*.py))
PLAIN := NUMBA_DISABLE_JIT=1 COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml COVERAGE_FILE=$(CURDIR)/$(VENV)/coverage

coverage: $(INSTALLED) coverage-pure coverage-real  ## the data plane as plain Python, without its compiler: what the tests reach

coverage-pure: $(INSTALLED)
	@rm -f $(VENV)/coverage $(VENV)/coverage.*
	@$(PLAIN) $(BIN)/python -m pytest -q $(PARALLEL) $(DATA_PLANE)

coverage-real: $(INSTALLED)
	@$(PLAIN) $(BIN)/python -m pytest -q $(wildcard tests/real/test_engine*.py)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

lint: $(INSTALLED)  ## ruff, its formatter, and the floors: imports go downwards only
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check
	@$(BIN)/lint-imports --no-cache --no-logo

types: $(INSTALLED)  ## mypy --strict, of the package and of what stands around it
	@$(BIN)/mypy --strict
	@MYPYPATH=src:benchmarks:docs $(BIN)/mypy --strict benchmarks/*.py benchmarks/parts/*.py docs/*.py examples/*.py

bench: root $(INSTALLED)  ## the engine and whole links against C twins (root, and a C compiler)
	@$(BIN)/python benchmarks/run.py

bench-peers: root $(INSTALLED)  ## xskit bench against C twins, and xdpsock where it is on the PATH (root, and a C compiler)
	@$(BIN)/python benchmarks/peers.py

# In guests a TCP transfer or a benchmark needs no more than a moment: what counts there are packets, not times.
EXPERIMENT := $(BIN)/xskit experiment run
experiments: root $(INSTALLED)  ## all published experiments, here and in guests, into docs/experiments (root, QEMU, a quiet machine)
	@echo "about 22 minutes on 2 CPUs; results are kept as they come, and whatever else runs spoils them"
	-@$(EXPERIMENT) frame-sizes --seconds 0.5 >/dev/null
	-@$(EXPERIMENT) bridge --seconds 0.5 >/dev/null
	-@$(EXPERIMENT) veth-tcp --seconds 1 >/dev/null
	-@$(EXPERIMENT) tx-sizes --seconds 1 >/dev/null
	-@$(EXPERIMENT) frame-sizes --short --kernel 7.3 >/dev/null
	-@$(EXPERIMENT) bridge --short --kernel 7.3 >/dev/null
	-@$(EXPERIMENT) veth-tcp --short --repeat 1 --kernel 6.1,6.12,7.3 >/dev/null
	-@$(EXPERIMENT) tx-sizes --kernel 5.10,6.1,7.3 >/dev/null
	-@$(EXPERIMENT) netem --kernel 6.12 >/dev/null
	@$(BIN)/python docs/make_experiments.py

docs: $(INSTALLED)  ## the documentation, into site/
	@$(BIN)/mkdocs build --quiet --strict

lock: $(INSTALLED)  ## requirements.lock anew from pyproject.toml (UPGRADE=--upgrade: the newest)
	@$(BIN)/uv pip compile pyproject.toml --group dev --output-file requirements.lock --quiet --no-config \
	  --universal --python-version 3.11 --fork-strategy fewest --only-binary :all: --generate-hashes \
	  --custom-compile-command "make lock" $(UPGRADE)

clean:  ## remove .venv and all that was built
	@rm -rf $(VENV) build dist site benchmarks/c/build .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Nothing is compiled: every locked package is a wheel, and the locked hatchling installs xskit itself, editable.
$(INSTALLED): $(LOCKED) pyproject.toml
	@$(PIP) --no-deps --no-index --no-build-isolation --editable .
	@touch $@

$(LOCKED): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "xskit needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "this Python cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV) (only when requirements.lock has changed)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) --require-hashes --only-binary :all: --requirement requirements.lock
	@touch $@
