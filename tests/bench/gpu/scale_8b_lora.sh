# One GPU: LoRA of the 8B shape, random weights in bf16, 20 steps: positions/s, MFU, peak memory (within 139 GiB), beside what the plan says.
# 20 steps of 2 x 6144 positions.
. tests/bench/gpu/scale_common.sh
recipe scale-8b-lora lora accumulate=1
$PY -m dice_training train plan $W/lora.toml --gpu H200
timeout -s TERM -k 60 ${LIMIT:-400} $PY $W/run.py sft $W/lora.toml 2>&1 | grep -v Warn | cut -c1-160
told lora; du -sh $W/lora/* | sort -h | tail -3
rm -rf $W
