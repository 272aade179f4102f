# make demo       look into a real broker's crashed store with rmqtool
# make check      the inner loop: lint, types, contracts, and the rooms that everything stands on; no broker, no Spark
# make test       lint, types, contracts and tests, in two processes more than there are cores (WORKERS=3: in three)
# make test-full  the same and the slow tests, some hours; writes docs/development/test-full.md. PARTS="tests/verify ..." runs these
# make format     put the code into the house's form
# make bench      measure the goals on stores of 2 GB, some 6 minutes; writes benchmarks/RESULTS.md. BENCH_DIR=... has 14 GB
# make zipapp     one file for hosts without internet, in dist/. EXTRAS=fast,rocksdb adds these, TARGETS="3.12-x86_64 ..." chooses
# make site       the documentation in English and Chinese, as pages to open: site/index.html
# make clean      remove what make made

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
PYTEST_ARGS ?=
PARTS ?=
EXTRAS ?=
TARGETS ?=
# Two more than cores, for tests with a broker or Spark wait.
WORKERS ?= $(shell echo $$(( $$(nproc) + 2 )))
# A file's tests stay in one process, for they share what they set up. Which files begin first: tests/distribution.py.
# Spark looks for its Python workers by the name python3 on the PATH.
# Without bytecode each process that a test starts compiles its modules for a second.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

BENCH_DIR ?= $(or $(TMPDIR),/tmp)

.PHONY: demo check test test-full bench lint tests format zipapp site clean check-python check-broker
.NOTPARALLEL:
.DEFAULT_GOAL := test

# Said in one line and before anything starts: what this machine lacks.
check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "missing: Python 3.11 or newer as '$(PYTHON)' (set PYTHON=/path/to/python3.11)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "missing: the venv module of '$(PYTHON)' (Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@command -v tar >/dev/null && command -v xz >/dev/null || \
	  { echo "missing: tar and xz, to unpack the stores that the tests and the demo read" >&2; exit 1; }

# The tests marked `broker` ask a real broker, those marked `spark` start Spark. Without Java they are left out, visibly; in CI that is an error.
check-broker:
	@missing=""; \
	java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || missing="Java 17"; \
	mvn -v >/dev/null 2>&1 || missing="$${missing:+$$missing and }Maven"; \
	if [ -n "$$missing" ]; then \
	  if [ "$$CI" = true ]; then echo "missing: $$missing, for the tests that run a real broker or Spark" >&2; exit 1; fi; \
	  echo "note: $$missing not found, so the tests that run a real broker or Spark are skipped"; \
	fi

$(STAMP): pyproject.toml
	@echo "setting up $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: check-python $(STAMP)
	@BIN=$(BIN) ./demo.sh

lint: check-python $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

tests: check-python check-broker $(STAMP)
	$(PYTEST) -m 'not slow' $(PYTEST_ARGS)

check: lint
	$(PYTEST) -q -m 'not slow and not broker and not spark and not s3' $(PYTEST_ARGS) \
	  --ignore tests/scan/test_install.py tests/formats tests/store tests/scan tests/engine tests/report tests/answer tests/test_house.py

# The prerequisites stand first, so that a missing one is said before the first minute is spent.
test: check-python check-broker lint tests

test-full: check-python check-broker lint
	$(BIN)/python tests/full_run.py $(PARTS)

format: check-python $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: check-python check-broker $(STAMP)
	PYTHONPATH="$(CURDIR)" $(BIN)/python -m benchmarks.goals --folder "$(BENCH_DIR)"

zipapp: check-python $(STAMP)
	@rm -rf build/wheel
	@$(BIN)/python -m build --wheel --no-isolation --outdir build/wheel . >/dev/null
	@wheel=$$(ls build/wheel/*.whl) && version=$${wheel#*-} && \
	  $(BIN)/python packaging/write_zipapp.py "$$wheel" "dist/rmqtool-$${version%%-*}.pyz" --extras '$(EXTRAS)' \
	  $(if $(TARGETS),--targets $(TARGETS))

site: check-python $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
