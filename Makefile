PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
JOBS ?= 2
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install lint test matrix docs dist bench demo clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED)  ## create .venv with the library and its development tools

# torch comes first and pinned: a looser requirement may pull gigabytes of CUDA libraries.
$(INSTALLED): pyproject.toml
	@echo "installing into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install '$(TORCH)'
	@$(PIP) install -e '.[dev]'
	@touch $@

lint: install  ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy src/vcsg $(wildcard benchmarks/*.py examples/*.py docs/site/*.py)

test: lint  ## lint, then the tests, two files of them at a time; JOBS=1 for one
	@$(BIN)/python -m pytest $(if $(filter-out 1,$(JOBS)),-n $(JOBS) --dist loadfile)

matrix:  ## the quick tests on every Python from 3.11 to 3.14 that is found; TORCH=torch takes the newest
	@TORCH='$(TORCH)' .ci/matrix

docs: install  ## the documentation site, in build/site: open build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build

dist: install  ## the wheel and the sources for a package index, in dist, and checked
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation > /dev/null
	@$(BIN)/python -m twine check --strict dist/*

bench: install  ## the benchmarks: ratios measured in one run
	@$(BIN)/python benchmarks/run.py

# b = 1, the default of VCSG's second regime, of SCSG and of SVRG, would take many times as long.
demo: install  ## compare VCSG with its relatives on real images; two minutes on two cores
	@$(BIN)/python -m vcsg compare mnist-mini/lenet-300-100 --methods auto,vcsg,scsg,svrg,sgd,tuned:sgd-momentum \
		--set vcsg.b_min=16 --set scsg.b=16 --set svrg.b=64 --set sgd.b=64 --budget 20passes --seeds 2 --jobs 2 \
		--target test-error=0.05 --out demo-output

clean:  ## remove caches and build products (.venv stays)
	@rm -rf build dist src/*.egg-info .pytest_cache .ruff_cache .mypy_cache
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
