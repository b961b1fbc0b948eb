# Sourced: a folder with room, data in nano's tokens, and a driver that logs every step.
set -u
export PYTHONPATH=engine:training:${PYTHONPATH:-} PYTHONUNBUFFERED=1
G=tests/bench/gpu; PY=${PY:-python3}
free() { df -k --output=avail $1 2>/dev/null | tail -1; }
B=/tmp; [ "$(free /dev/shm)" -gt 90000000 ] && B=/dev/shm
W=$(mktemp -d -p $B); echo "in $W, $(free $B) KiB free"; nvidia-smi -L 2>/dev/null
$PY -m dice_training cuke build --out $W/cuke.jsonl --count ${COUNT:-3000} --seed 1 --split train --workers 8 2>&1 | tail -1
cat > $W/run.py <<'P'
import sys
import dice_training.trainer as trainer
trainer.LOG_EVERY = 1
from dice_training.train_cli import main
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
P
recipe() { # recipe RECIPE NAME KEY=VALUE...
  local from=$1 name=$2; shift 2
  $PY $G/scale_recipe.py training/recipes/$from.toml $W/$name.toml data="\"$W/cuke.jsonl\"" output="\"$W/$name\"" tokenizer='"engine/dice_engine/checkpoints/nano"' "$@"
}
told() { # the log of a run: speed without the steps that compile
  $PY - $W/$1/log.jsonl <<'P'
import json, statistics, sys
e = [l for l in map(json.loads, open(sys.argv[1])) if "loss" in l]
late = [l for l in e if l["step"] >= 5]
print({"steps": len(e), "first_loss": e[0]["loss"], "last_loss": e[-1]["loss"], "positions_per_s": round(statistics.median(l["positions_per_s"] for l in late)),
       "mfu": statistics.median(l.get("mfu", 0) for l in late), "peak_GiB": max(l.get("gpu_bytes", 0) for l in e) / 2**30})
P
}
