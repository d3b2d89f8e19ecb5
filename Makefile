# The logic is in Python: cdc_platform/setup/bootstrap.py (.venv), java.py, jars.py.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-fast fuzz soak check lock proto ui docs bench clean

IS_GOOD := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(IS_GOOD)' 2>/dev/null && echo $$p && break; done)

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: ## .venv with the locked packages, Java 17+, the jars (does only what is missing)
	@"$(PYTHON)" -c '$(IS_GOOD)' 2>/dev/null || { echo "error: Python 3.11, 3.12 or 3.13 is needed$(if $(PYTHON), and $(PYTHON) is none). Install it with: sudo apt-get install -y python3 python3-venv, or name one: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -m cdc_platform.setup.bootstrap

IN_TWO := .venv/bin/pytest -q -n 2 --dist loadfile --no-loadscope-reorder

demo: setup ## the whole chain on a seeded shop, each cell compared with the truth
	@.venv/bin/cdc-platform demo

test: setup ## the tests, in two processes (each with a broker, and a session in one JVM)
	@$(IN_TWO) -m "not thorough"

test-all: setup ## the same and those marked thorough
	@$(IN_TWO)

test-fast: setup ## the tests that need no Spark
	@.venv/bin/pytest -q -m "not spark"

fuzz: setup ## 100,000 broken messages per format through every decoder
	@.venv/bin/python -m tests.formats.fuzz

soak: setup ## a real MariaDB's random workloads, seed after seed, through every format and the rooms
	@.venv/bin/python -m tests.oracle.soak

DG := VIRTUAL_ENV="$(CURDIR)/.venv" DAGSTER_DISABLE_TELEMETRY=1 CDC_CONFIG="$(CURDIR)/cdc.example.yaml" \
	PYTHONWARNINGS=ignore .venv/bin/dg

check: setup ## lint, format, types, what may import what, Dagster's definitions
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/pyright
	@.venv/bin/lint-imports --no-logo
	@$(DG) check defs
	@$(DG) list defs --json >/dev/null

ui: setup ## broker, warm Spark, Dagster's web pages and daemon together
	@.venv/bin/cdc-platform ui

docs: setup ## the reference pages, and the site in build/site
	@.venv/bin/python -m scripts.reference
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict

bench: setup ## seconds and events/s of each room and of the whole chain
	@.venv/bin/cdc-platform bench

UPGRADE ?= # make lock UPGRADE=--upgrade: the newest versions that the ranges allow, instead of those locked now

lock: setup ## renew both requirements.lock from pyproject.toml, and jars.lock from ivy.xml
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && .venv/bin/python -m venv "$$tmp" && \
		"$$tmp/bin/pip" -q install uv && \
		"$$tmp/bin/uv" pip compile -q pyproject.toml --all-extras --universal --generate-hashes --no-header \
			$(UPGRADE) -o requirements.lock && \
		"$$tmp/bin/uv" pip compile -q pyproject.toml --extra postgres --universal --generate-hashes --no-header \
			-c requirements.lock -o deploy/requirements.lock
	@.venv/bin/python -m cdc_platform.setup.jars --write-lock

proto: setup ## Python classes of proto/*.proto
	@.venv/bin/python -m grpc_tools.protoc -I proto --python_out=cdc_platform/formats/pb \
		--pyi_out=cdc_platform/formats/pb proto/*.proto

clean: ## remove .venv and what tools left behind; keeps .cdc (data) and the jars in the user's cache
	@rm -rf .venv .pytest_cache .ruff_cache .hypothesis build *.egg-info spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
