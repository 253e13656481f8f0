# Everything needs only Python 3.11+, git, make and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench lock clean venv parts

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

venv: $(VENV)/.ready

demo: venv
	$(BIN)/ratchet demo

# What pip cannot bring (sshd, busybox, chromium), and the demo's server and model.
parts: venv
	$(BIN)/python -m tests.install_parts

test: parts
	$(BIN)/python -m pytest

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: venv
	$(BIN)/python -m benchmarks

lock:
	$(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet uv
	.lock-venv/bin/uv pip compile pyproject.toml --all-extras --universal --generate-hashes \
		--python-version 3.11 --no-header --no-emit-index-url --no-annotate --quiet -o requirements.lock
	.lock-venv/bin/uv pip compile requirements-demo.in --no-deps --universal --generate-hashes \
		--python-version 3.11 --no-header --no-emit-index-url --no-annotate --quiet -o requirements-demo.lock
	rm -rf .lock-venv

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
