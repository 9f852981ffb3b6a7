# `make estimate` and `make test` do all the set-up themselves.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := test
.PHONY: estimate test format clean

estimate: .venv/installed
	$(BIN)/ringplan estimate --model llama-3.1-70b --hardware h100-sxm-80gb --seq-len 1M --cp 16 --tp 8

test: .venv/tested
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

format: .venv/tested
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ringplan needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "no venv module: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/tested: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	touch $@
