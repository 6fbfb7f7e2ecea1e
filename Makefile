# Needs only make and Python >= 3.11. Every target makes .venv itself; the second time that is a no-op.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet

.PHONY: run demo test lint bench clean

run: $(VENV)/.runtime
	$(VENV)/bin/talaria serve

demo: $(VENV)/.runtime
	$(VENV)/bin/talaria demo

test: $(VENV)/.dev
	$(PY) -m pytest

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: $(VENV)/.dev
	$(PY) -m deploy.bench

$(VENV)/bin/python:
	$(PYTHON) deploy/make_venv.py $(VENV)

$(VENV)/.runtime: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) install --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
