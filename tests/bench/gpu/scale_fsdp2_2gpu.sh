# Two GPUs (NP=4: four): the 1.7B shape, 50 steps under torchrun, against one GPU of the same machine and the same global batch: losses within
# 1e-2, positions/s (goal 1.8 x), peak memory. Meanwhile the state that all have saved is resumed by one, exported, and loaded by the engine.
# 4 to 5 minutes.
. tests/bench/gpu/scale_common.sh
recipe scale-1.7b all accumulate=${ACCUMULATE:-2}
recipe scale-1.7b one accumulate=${ACCUMULATE:-2}
NCCL_NVLS_ENABLE=0 timeout -s TERM -k 60 ${LIMIT:-240} $PY -m torch.distributed.run --standalone --nproc-per-node ${NP:-2} $W/run.py sft $W/all.toml 2>&1 \
  | grep -v "Warn\|^W[0-9]" | cut -c1-160 | awk 'NR<8 || /step .*[05]  loss/ || !/loss/'
told all
cp $W/all/log.jsonl $W/all.jsonl
CUDA_VISIBLE_DEVICES=0 timeout -s TERM -k 60 ${LIMIT:-240} $PY $W/run.py sft $W/one.toml > $W/one.txt 2>&1 &
ls -l $W/all/state/*
sed -i 's/^steps = .*/steps = 52/' $W/all.toml
export CUDA_VISIBLE_DEVICES=1
timeout -s TERM -k 60 ${LIMIT:-240} $PY $W/run.py sft $W/all.toml --resume 2>&1 | grep -v Warn | cut -c1-160
$PY - $W/all <<'P'
import sys, time
import torch, dice_engine
began = time.monotonic()
model = dice_engine.load(sys.argv[1], device="cuda" if torch.cuda.is_available() else "cpu")
print("the engine loads it:", f"{sum(p.numel() for p in model.parameters()) / 1e9:.3f} G weights, {time.monotonic() - began:.1f} s;",
      "decodes", model.generate(list(range(20, 40)), max_new_tokens=16, seed=0).tokens)
P
wait
grep -v Warn $W/one.txt | cut -c1-160 | awk 'NR<8 || !/loss/'
told one
$PY - $W <<'P'
import json, sys
def losses(n): return [l["loss"] for l in map(json.loads, open(f"{sys.argv[1]}/{n}.jsonl")) if "loss" in l]
one, two = losses("one/log"), losses("all")
print("largest difference of the losses", max(abs(a - b) for a, b in zip(one, two)), "relative", max(abs(a - b) / abs(a) for a, b in zip(one, two)), "of", len(one), len(two))
P
rm -rf $W
