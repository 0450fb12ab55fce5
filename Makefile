# Everything a newcomer needs: `make demo`, `make test`, `make lint`. Each makes .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint simulate bench real-peers crowd faults systemd clean

demo: $(VENV)/.runtime
	$(BIN)/reconciled demo

# Two at once: the worlds of tests/simulation have a clock of their own, and do not mind what else the machine does.
test: lint
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/simulation >$(VENV)/simulation.log 2>&1 & worlds=$$!; \
	trap 'kill $$worlds' INT TERM; \
	$(BIN)/python -m pytest -q --ignore=tests/simulation; rest=$$?; \
	echo "The worlds of tests/simulation:"; wait $$worlds; worlds=$$?; \
	cat $(VENV)/simulation.log; exit $$((rest | worlds))

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# Random worlds on every core: SEEDS of them, about 25 operations each (4100: a hundred thousand). tests/simulation/README.md.
simulate: $(VENV)/.dev
	$(BIN)/python -m tests.simulation.run $(SEEDS)

# What it costs, beside a floor from the same run; needs wrk and a C compiler; see benchmarks/README.md.
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(SUBJECTS)

# Batches on a real server that nobody here wrote; needs Python 3.12 for that server.
real-peers: $(VENV)/.dev
	$(BIN)/python -m tests.real_peers.run

# Thousands of waiters and streams on one real daemon: what they cost, and that a change reaches each of them.
crowd: $(VENV)/.dev
	$(BIN)/python -m tests.crowd.run

# The process killed at every commit of every story, where `make test` draws some; needs a C compiler.
faults: $(VENV)/.dev
	FAULTS=all $(BIN)/python -m pytest -q tests/faults

# The unit in a container that is booted for it; needs root, mmdebstrap and systemd-nspawn.
systemd: $(VENV)/.dev
	$(BIN)/python -m tests.systemd.run

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.lock pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@ $(VENV)/.runtime

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
