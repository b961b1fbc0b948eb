# The two commands a newcomer needs: `make demo` and `make test`. Both create .venv themselves.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip install -q --disable-pip-version-check

# Which torch. Without an NVIDIA driver: the CPU build that the tests are pinned to, never the default one, which brings
# gigabytes of CUDA along (PyTorch's own index has it where the configured ones do not). With a driver: the default one,
# which is for CUDA; but where the system's Python has a torch that sees the GPU, that one is used in place: somebody
# chose it for this driver, and a second one would be 5 GB more.
CPU_TORCH := 2.13.0
CPU_INDEX := https://download.pytorch.org/whl/cpu
HAS_DRIVER := command -v nvidia-smi >/dev/null
SYSTEM_TORCH := $(PYTHON) -c 'import torch; assert torch.cuda.is_available() and torch.__version__ >= "2.9"' 2>/dev/null

.PHONY: install demo test test-editors vsix lint clean

$(VENV)/.base: pyproject.toml
	@echo "== $(VENV): dice and its engine (some minutes the first time)"
	@if $(HAS_DRIVER) && $(SYSTEM_TORCH); then \
	  $(PYTHON) -m venv --system-site-packages $(VENV); else $(PYTHON) -m venv $(VENV); fi
	@if $(HAS_DRIVER); then $(PIP) "torch>=2.9" numpy; \
	  else $(PIP) "torch==$(CPU_TORCH)+cpu" numpy 2>/dev/null \
	    || { $(PIP) --index-url $(CPU_INDEX) "torch==$(CPU_TORCH)" && $(PIP) numpy; }; fi
	$(PIP) -e ".[engine]"
	@touch $@

$(VENV)/.test: $(VENV)/.base
	@echo "== $(VENV): what the tests need"
	$(PIP) -e ".[test]"
	@touch $@

# What editors need: .venv/bin/dice-ls and its engine.
install: $(VENV)/.base

demo: $(VENV)/.base
	$(VENV)/bin/python examples/demo.py

lint: $(VENV)/.test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright
	$(VENV)/bin/lint-imports

# Files in the order of their names: the long ones (integration) come before the many short ones, so no worker idles last.
test: lint
	$(VENV)/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder --ignore=tests/editors tests

# The scenarios in real editors: Neovim, Emacs and VS Code (some minutes to install them the first time).
# What was skipped or failed is said once more at the end, a line each.
test-editors: $(VENV)/.test
	$(VENV)/bin/python editors/generate.py --check
	tests/editors/install.sh
	$(VENV)/bin/pytest -n 2 --dist loadfile -rsfE tests/editors

# editors/vscode/dice.vsix; once its packages are installed this needs no network.
vsix:
	cd editors/vscode && { [ -d node_modules ] || npm ci; } && npm run --silent package

clean:
	rm -rf $(VENV) build dist
