# Needs only make and Python >= 3.11. Every target makes .venv itself; the second time that is a no-op.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet

.PHONY: run demo test nightly fuzz lint tables bench clean

run: $(VENV)/.runtime
	$(VENV)/bin/talaria serve

demo: $(VENV)/.runtime
	$(VENV)/bin/talaria demo

# Side by side, for they mostly wait: what talks to a real Hermes, what starts browsers, shells and relays as processes of
# their own, and the rest. The reports of the first two come at the end.
APART := tests/browser tests/cli tests/crash tests/deploy tests/doctor tests/terminal
test: $(VENV)/.dev
	@$(PY) -m pytest -m "hermes and not nightly" >$(VENV)/hermes-tests.log 2>&1 & hermes=$$!; \
	$(PY) -m pytest -m "not hermes and not nightly" $(APART) >$(VENV)/apart-tests.log 2>&1 & apart=$$!; \
	$(PY) -m pytest -m "not hermes and not nightly" $(APART:%=--ignore=%); rest=$$?; \
	wait $$apart; apart=$$?; cat $(VENV)/apart-tests.log; \
	wait $$hermes; hermes=$$?; cat $(VENV)/hermes-tests.log; \
	exit $$((rest | apart | hermes))

# What takes minutes of waiting.
nightly: $(VENV)/.dev
	$(PY) -m pytest -m nightly

# Any request that /openapi.json allows, and many that it does not.
fuzz: $(VENV)/.dev
	$(PY) -m pytest -m nightly tests/api/test_any_request.py

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

tables: $(VENV)/.dev
	$(PY) -m deploy.tables

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
