# make setup | demo | test | test-versions | lint | docs | bench | bench-all | lock | upgrade.  Another Python: make setup PYTHON=python3.12

BIN := .venv/bin

# The first run keeps the bytecode of what it imports. Without that, every Spark worker would compile it again.
unexport PYTHONDONTWRITEBYTECODE

SITE := out/docs

.PHONY: help setup demo test test-versions lint docs bench bench-all lock upgrade

help:
	@echo "make setup    the environment in .venv, with the command .venv/bin/anabranch"
	@echo "make demo     the lending job with a live view, within a minute"
	@echo "make test     lint, types and all tests"
	@echo "make test-versions  the tests that need Spark on 4.1, 4.2 and 4.3; some: VERSIONS=4.2 TESTS=tests/spark/api"
	@echo "make lint     lint, types and the English of texts alone"
	@echo "make docs     the site of these docs in out/docs/html, without network; warnings are errors"
	@echo "make bench    windows against native Spark, within 15 minutes"
	@echo "make bench-all  the figures of the performance page, in an hour and a half; some: CASES=\"A small\""
	@echo "make lock     requirements.lock for a changed pyproject.toml; versions that still fit stay"
	@echo "make upgrade  requirements.lock with the newest versions that pyproject.toml allows"

# Takes a fraction of a second where there is nothing to do.
setup:
	@PYTHON="$(PYTHON)" bash scripts/setup

lock upgrade:
	@PYTHON="$(PYTHON)" bash scripts/setup $@

# A minute is too short for the JVM's second compiler to pay.
demo: export PYSPARK_SUBMIT_ARGS ?= --driver-java-options "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" pyspark-shell
demo: setup
	@$(BIN)/anabranch run examples/lending.py --checkpoint out/checkpoint --fresh --for "45 seconds" --finish --slots 1 --latency "1500 milliseconds" --max-slots 4

test: lint
	@echo "== tests"
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal

# Each version of Spark has an environment of its own in .venvs.
test-versions: setup
	@$(BIN)/python scripts/test-versions $(VERSIONS) $(if $(TESTS),--tests $(TESTS)) $(if $(JOBS),--jobs $(JOBS))

lint: setup
	@echo "== ruff"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@echo "== words"
	@$(BIN)/python scripts/check-text
	@echo "== mypy"
	@$(BIN)/mypy

docs: setup
	@$(BIN)/python -m sphinx -E -W --keep-going -q -b html -d $(SITE)/doctrees docs $(SITE)/html
	@echo "site: $(SITE)/html/index.html"

bench: setup
	@$(BIN)/anabranch bench windows

bench-all: setup
	@$(BIN)/python scripts/measure-all $(CASES)
