#!/bin/bash
# The embedded checkpoint trained on by rows of both teachers, then scored. Three stages, in one call or in several on the same machine
# (STAGES="rows sft", then STAGES=eval; what is between them lies in $W):
#   rows  60 s: rows of both teachers, not verified, by all cores, into $W/both.jsonl; $W/test.jsonl: 208 held-out rows of the older
#         teacher, the same as in the checkpoint's card; $W/bodies.jsonl: held-out kernel bodies of the teacher of whole tasks
#   sft   SFT_SECONDS (330) on all GPUs by training/recipes/nano-both.toml, and about 60 s for reading the rows and compiling; the
#         checkpoint comes back in $OUT/nano/ (cat model.part.* > model.safetensors). MORE=1 goes on with the run that is in $W
#   eval  dice eval infill of both files, dice eval tasks $DEV (an evaluation's tasks; no row computes what one of them does)
# TASKS, DEV: JSONL of PyTorch tasks. ROWS_SECONDS (46): of the teacher of whole tasks. MORE_ROWS: files of rows made before (.jsonl, .xz). TINY=1: all of it in small on a CPU, 3 minutes.
set -u
export PYTHONPATH=engine:training:.:${PYTHONPATH:-} PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore OMP_NUM_THREADS=1
PY=${PY:-python3}; W=${W:-/tmp/nano_both}; OUT=${OUT:-$W/out}; STAGES=${STAGES:-rows sft eval}; TINY=${TINY:-}
TASKS=${TASKS:-/tmp/tasks_train.jsonl}; DEV=${DEV:-/tmp/tasks_dev.jsonl}; SFT_SECONDS=${SFT_SECONDS:-330}; ROWS_SECONDS=${ROWS_SECONDS:-46}
CORES=$(env -u OMP_NUM_THREADS nproc); GPUS=$(nvidia-smi -L 2>/dev/null | wc -l); OLD=60000; COUNT=200000; TEST=208; LIMIT=
[ -n "$TINY" ] && { OLD=60; COUNT=40; TEST=12; LIMIT="--limit 2"; ROWS_SECONDS=20; CORES=1; }
mkdir -p $W $OUT/nano
told() { echo "--- $1: $(( $(date +%s) - BEGAN )) s"; }
build() { # NAME WORKERS ARGUMENTS...
    local name=$1 workers=$2; shift 2
    # No GPU is asked for, and memory that was freed is kept: both take long in a sandbox.
    CUDA_VISIBLE_DEVICES= MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4000000000 \
        $PY -m dice_training cuke build --out $W/$name.jsonl --workers $workers "$@" > $W/$name.log 2>&1
    tail -n 2 $W/$name.log | grep -a -- "->"
}
rows() {
    local part=$(( CORES > 4 ? CORES / 4 : 1 )) against=() whole=() olds=() more=()
    [ -f $DEV ] && against=(--against $DEV)
    rm -f $W/*.jsonl
    build test 1 --count $TEST --seed 2 --split test &
    for i in 0 1 2 3; do build old-$i $part --count $(( OLD / 4 )) --start $(( OLD / 4 * i )) --seed 1 --split train & olds+=($!); done
    wait ${olds[@]}
    whole=($part --count $COUNT --max-seconds $ROWS_SECONDS "${against[@]}")
    build modules "${whole[@]}" --tasks $TASKS --seed 1 --kind module &
    build tasks "${whole[@]}" --tasks $TASKS --seed 2 &
    build invented-1 "${whole[@]}" --tasks invented --seed 3 &
    build invented-2 "${whole[@]}" --tasks invented --seed 4 &
    wait
    for file in ${MORE_ROWS:-}; do xzcat -f $file > $W/more-${#more[@]}.jsonl && more+=($W/more-${#more[@]}.jsonl); done
    # The first rows of the test split are what is scored during training: some of each teacher's.
    { head -n 64 $W/test.jsonl; paste -d '\n' $W/{modules,tasks,invented-1,invented-2}.jsonl "${more[@]}" | grep .; cat $W/old-?.jsonl; } > $W/both.jsonl
    # By the head of a line: the fields of a row come in a fixed order.
    cat $W/{tasks,invented-1,invented-2}.jsonl "${more[@]}" | grep '"kind": "kernel_body"' | grep '"split": "test"' | head -n 300 > $W/bodies.jsonl
    wc -l $W/*.jsonl; ls -sh $W/both.jsonl
}
sft() {
    local n=$(( GPUS > 1 ? GPUS : 1 )) more=() tiny=()
    [ -n "${MORE:-}" ] && more=(--resume)
    [ -n "${STOP_AFTER:-}" ] && more+=(--stop-after $STOP_AFTER)
    [ -n "$TINY" ] && tiny=(-e 's/^steps = .*/steps = 2/' -e 's/^row_length = .*/row_length = 1024/' -e 's/^batch_rows = .*/batch_rows = 1/')
    sed -e "s|^data = .*|data = \"$W/both.jsonl\"|" -e "s|^output = .*|output = \"$W/nano\"|" \
        -e "s|^max_minutes = .*|max_minutes = $(awk "BEGIN { printf \"%.2f\", $SFT_SECONDS / 60 }")|" \
        -e "s|^accumulate = .*|accumulate = $(( n > 2 ? n : 2 ))|" "${tiny[@]}" training/recipes/nano-both.toml > $W/recipe.toml
    NCCL_NVLS_ENABLE=0 timeout -s TERM -k 60 $(( SFT_SECONDS + 180 )) $PY -m torch.distributed.run --standalone --nproc-per-node $n \
        -m dice_training train sft $W/recipe.toml "${more[@]}" 2>&1 | grep -v "Warn\|^W[0-9]" | cut -c1-160 | tee $OUT/sft.txt | awk 'NR < 12 || NR % 10 == 0 || !/ loss /'
    cp $W/nano/{config.json,tokenizer.json,log.jsonl,curves.png} $W/recipe.toml $OUT/nano/
    rm -f $OUT/nano/model.part.*; split -b 14m $W/nano/model.safetensors $OUT/nano/model.part.
    ls -l $W/nano/model.safetensors $OUT/nano
}
infills() {
    for name in test bodies; do
        echo "infill $name"; $PY -m dice_training eval infill $W/$name.jsonl -n 1 --checkpoint $W/nano $LIMIT --workers $1 --out $OUT/$name-cores.jsonl 2>$W/$name.err
        tail -n 2 $W/$name.err
    done
}
tasks() {
    $PY -m dice_training eval tasks $DEV -n 1 --checkpoint $W/nano $LIMIT --workers $1 --baseline ${BASELINE:-eager} --out $W/dev 2>$W/dev.err
    tail -n 2 $W/dev.err; rm -rf $OUT/dev; cp -r $W/dev $OUT/dev
}
scores() {
    rm -rf $W/dev
    if [ $GPUS -gt 1 ]; then
        CUDA_VISIBLE_DEVICES=1 infills $(( CORES / 3 )) > $OUT/infill.txt 2>&1 &
        CUDA_VISIBLE_DEVICES=0 tasks $(( CORES * 2 / 3 )) > $OUT/tasks.txt 2>&1; wait
    else
        infills $CORES > $OUT/infill.txt 2>&1; tasks $CORES > $OUT/tasks.txt 2>&1
    fi
    cat $OUT/tasks.txt $OUT/infill.txt
}
BEGAN=$(date +%s)
case " $STAGES " in *" rows "*) rows; told rows;; esac
case " $STAGES " in *" sft "*) sft; told sft;; esac
case " $STAGES " in *" eval "*) scores; told eval;; esac
