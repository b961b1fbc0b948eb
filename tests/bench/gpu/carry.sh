#!/bin/bash
# For a GPU machine without a registry: what it lacks, as wheels for its Python, into the folder WHEELS (default .whl, 40 MB). It has
# torch, numpy, transformers, tokenizers, safetensors, triton and ninja. The other half is setup.sh.
set -eu
cd "$(dirname "$0")/../../.."
WHEELS=${1:-.whl} PYTHON_VERSION=${PYTHON_VERSION:-3.12}
mkdir -p "$WHEELS"
for package in "pygls>=2.1,<3" lsprotocol cattrs attrs typing-extensions tree-sitter tree-sitter-cuda tree-sitter-python watchdog msgpack \
    diskcache platformdirs rich markdown-it-py mdurl pygments nvidia-ml-py cuda-bindings cuda-pathfinder pytest pytest-asyncio pytest-lsp \
    pytest-timeout pytest-xdist execnet iniconfig pluggy packaging hypothesis sortedcontainers peft; do
    python3 -m pip download -q --no-deps --only-binary=:all: --dest "$WHEELS" --python-version "$PYTHON_VERSION" \
        --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 "$package"
done
du -sh "$WHEELS"
