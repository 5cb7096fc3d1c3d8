# Everything runs from the virtual environment in .venv, which the targets make for themselves.
PYTHON ?= python3
BIN := .venv/bin
UPSTREAM ?=
MODEL ?=
OPTIONS ?=
# How long `make fuzz` works on each of the two sides.
FUZZ_SECONDS ?= 600
# Two workers by default: the tests start engines and proxies of their own beside them.
WORKERS ?= 2

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show what there is
	@awk 'BEGIN {FS = ":.*## "} /^[a-z][a-z-]*:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "giveway needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	         "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "making .venv (first time only)"
	@$(PYTHON) -m venv .venv && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8' || \
	  { rm -rf .venv; exit 1; }

.venv/run-ready: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing giveway and what it needs into .venv (under a minute)"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[simulation]'
	@touch $@

.venv/test-ready: .venv/run-ready
	@echo "installing the tools for the tests into .venv"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[operator,simulation]' --group dev
	@touch $@

.PHONY: run
run: .venv/run-ready ## Watch it work: the same load on an engine without and with giveway (UPSTREAM=URL MODEL=NAME: on yours)
	@$(BIN)/giveway demo $(if $(UPSTREAM),--upstream '$(UPSTREAM)') $(if $(MODEL),--model '$(MODEL)')

.PHONY: demo
demo: .venv/test-ready ## Watch it in a cluster: API server, Prometheus, operator, two proxies; an SLO that moves weights
	@bash tests/cluster/get_binaries.sh
	@KUBEBUILDER_ASSETS=$$(bash tests/cluster/get_binaries.sh --where) $(BIN)/python -m tests.cluster.demo $(OPTIONS)

.PHONY: test
test: check ## Check and test everything that needs no GPU and no real vLLM
	$(BIN)/python -m pytest -n $(WORKERS) -m "not vllm and not cluster and not nightly and not alone" --dist loadgroup
	$(BIN)/python -m pytest -m alone

.PHONY: check
check: .venv/test-ready ## Lint, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: wheel
wheel: .venv/test-ready ## Build a wheel with machine code for what runs at each request (needs a C compiler)
	HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/uv build --quiet --python $(BIN)/python --build-constraints constraints.txt --wheel -o dist .
	@ls dist/*.whl

# The same as in the wheel, unpacked: PYTHONPATH=.run/compiled puts it before the sources.
.run/compiled: pyproject.toml constraints.txt compiling_hook.py $(shell find admission -name '*.py') | .venv/test-ready
	@echo "compiling what runs at each request (a minute or two)"
	@rm -rf .run/wheel $@ && mkdir -p .run/wheel
	@HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/uv build --quiet --python $(BIN)/python --build-constraints constraints.txt --wheel -o .run/wheel .
	@$(BIN)/python -m zipfile -e .run/wheel/*.whl $@
	@rm -rf $@/*.dist-info .run/wheel
	@PYTHONPATH=$@ $(BIN)/python -c 'import giveway_scheduler.scheduling as it; assert it.__file__.endswith(".so"), it.__file__'
	@touch $@

.PHONY: test-compiled
test-compiled: .run/compiled ## The tests of what a wheel holds compiled, on the compiled form
	PYTHONPATH=.run/compiled $(BIN)/python -m pytest -n $(WORKERS) -m "not nightly and not alone" --dist loadgroup tests/scheduler tests/admission tests/live

.PHONY: test-vllm
test-vllm: .venv/test-ready ## Prove it on a real vLLM on the CPU (installs it once, about 5 minutes and 6 GB)
	$(BIN)/python -m pytest -m vllm tests/vllm

.PHONY: test-cluster
test-cluster: .venv/test-ready ## Prove the operator on a real API server and Prometheus (builds them once, about 10 minutes)
	bash tests/cluster/get_binaries.sh
	KUBEBUILDER_ASSETS=$$(bash tests/cluster/get_binaries.sh --where) $(BIN)/python -m pytest -m cluster tests/cluster

.PHONY: test-nightly
test-nightly: .venv/test-ready ## The long property runs and the five-seed comparison
	$(BIN)/python -m pytest -n $(WORKERS) -m nightly --timeout 3600

.PHONY: bench
bench: .run/compiled ## Compare giveway's speed with other proxies, side by side (OPTIONS='speed --rounds 1')
	@$(BIN)/python -m giveway_benchmarks $(OPTIONS)

.PHONY: bench-rivals
bench-rivals: ## Get the proxies that make bench compares with, outside of this folder (about 2 minutes, 1.2 GB)
	@PYTHON="$(PYTHON)" bash benchmarks/get_rivals.sh

.venv/fuzz-ready: .venv/test-ready
	@echo "installing the fuzzer into .venv"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt --group fuzz
	@touch $@

.PHONY: fuzz
fuzz: .venv/fuzz-ready ## Fuzz how requests and answers are read, ten minutes each (FUZZ_SECONDS=600)
	$(BIN)/python -m tests.fuzz.fuzzing request $(FUZZ_SECONDS)
	$(BIN)/python -m tests.fuzz.fuzzing answer $(FUZZ_SECONDS)

.PHONY: crds
crds: .venv/test-ready ## Write the CustomResourceDefinitions anew from the models
	$(BIN)/python -m giveway_operator.crd_writing crds

.PHONY: docs
docs: .venv/run-ready ## Write the references of policies and commands anew
	$(BIN)/python -m giveway_policy.describing > docs/policy.md
	$(BIN)/python -m giveway_command.describing > docs/commands.md

.PHONY: format
format: .venv/test-ready ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: clean
clean: ## Remove the environment and all caches
	rm -rf .venv .run .demo .fuzz .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
