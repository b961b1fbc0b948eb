# The two commands a newcomer needs: `make demo` and `make test`. Both create .venv themselves.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip install -q --disable-pip-version-check
# A machine without an NVIDIA driver gets the CPU wheel of torch that the tests are pinned to.
TORCH := torch==2.13.0

.PHONY: demo test lint clean

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) "$(TORCH)" numpy
	$(PIP) -e ".[engine]"
	touch $@

$(VENV)/.test: $(VENV)/.base
	$(PIP) -e ".[test]"
	touch $@

demo: $(VENV)/.base
	$(VENV)/bin/python examples/demo.py

lint: $(VENV)/.test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright
	$(VENV)/bin/lint-imports

test: lint
	$(VENV)/bin/pytest -n 2 --dist loadfile tests

clean:
	rm -rf $(VENV) build dist
