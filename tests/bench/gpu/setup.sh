# For a GPU machine without a registry, from the root of the repository: `. tests/bench/gpu/setup.sh [WHEELS]`. Installs the wheels of
# carry.sh beside the machine's own packages, and lets `dice` and `python3 -m dice_training` be those of this tree.
WHEELS=${1:-.whl}
python3 -m pip install -q --no-index --no-deps --target /tmp/carried "$WHEELS"/*.whl
python3 -c 'import cuda.bindings' 2>/dev/null && rm -rf /tmp/carried/cuda  # the machine's own goes with its driver
mkdir -p /tmp/carried/bin
printf '#!/bin/sh\nexec python3 -m dice_ls.cli "$@"\n' > /tmp/carried/bin/dice
printf '#!/bin/sh\nexec python3 -m dice_ls.server "$@"\n' > /tmp/carried/bin/dice-ls
chmod +x /tmp/carried/bin/*
export PYTHONPATH=$PWD:$PWD/engine:$PWD/training:/tmp/carried PATH=/tmp/carried/bin:$PATH PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore
export DICE_RUNTIME_DIR=${DICE_RUNTIME_DIR:-/tmp/dice-runtime} DICE_CACHE_DIR=${DICE_CACHE_DIR:-/tmp/dice-cache}
