# One GPU: SFT of the 1.7B shape, random weights, 50 steps: positions/s, MFU, peak memory, beside what the plan says. About 90 s, of which the
# state (24 GB) and the checkpoint (4 GB) at the end take what the disk takes.
. tests/bench/gpu/scale_common.sh
recipe scale-1.7b one accumulate=2
$PY -m dice_training train plan $W/one.toml --gpu H200
timeout -s TERM -k 60 ${LIMIT:-240} $PY $W/run.py sft $W/one.toml 2>&1 | grep -v Warn | cut -c1-160 | awk 'NR<8 || /step .*[05]  loss/ || !/loss/'
told one; du -sh $W/one/* | sort -h | tail -3
rm -rf $W
