#!/bin/bash
# The embedded checkpoint trained on by verified rows of both teachers, by BiC-RL after that, then scored. Stages, in one call or in several
# on the same machine (STAGES="rows sft", then STAGES=rl; what is between them lies in $W):
#   rows  ROWS_SECONDS (480) and half a minute: rows of both teachers by all cores, each verified on the GPU (VERIFY=cuda), into
#         $W/both.jsonl; says how many are dropped and why. $OUT/verified.xz is the list of what was found correct: with
#         VERIFIED=that file these rows are made again without being verified, and new ones join them; with VERIFY= too, only
#         these are made, at 60 ms of a core each. $W/test.jsonl: 208 held-out rows of the older teacher, the same as in the
#         checkpoint's card; $W/bodies.jsonl: held-out kernel bodies of the teacher of whole tasks
#   sft   SFT_SECONDS (330) on all GPUs by training/recipes/nano-both.toml, and about 60 s for reading the rows and compiling; the
#         checkpoint comes back in $OUT/nano/ (cat model.part.* > model.safetensors). MORE=1 goes on with the run that is in $W
#   eval  dice eval infill of both files, dice eval tasks $DEV (an evaluation's tasks; no row computes what one of them does)
#   rl    RL_SECONDS (240) of BiC-RL from $W/nano (RL_FROM) by training/recipes/rl-nano-both.toml: RL_INFILL (3) steps of verified
#         rows, then whole tasks, none of which computes what one of $DEV does. Both checkpoints answer $DEV (the first one's answers
#         are those of eval, where it ran); the better one comes back in $OUT/best/, RL's journal in $OUT/rl/. MORE=1 goes on
# TASKS, DEV: JSONL of PyTorch tasks. OLD (20000): at most so many rows of the older teacher. MORE_ROWS: files of verified rows made
# before (.jsonl, .xz). TINY=1: all of it in small on a CPU, 8 minutes on two cores.
set -u
export PYTHONPATH=engine:training:.:${PYTHONPATH:-} PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore OMP_NUM_THREADS=1
PY=${PY:-python3}; W=${W:-/tmp/nano_both}; OUT=${OUT:-$W/out}; STAGES=${STAGES:-rows sft eval rl}; TINY=${TINY:-}
TASKS=${TASKS:-/tmp/tasks_train.jsonl}; DEV=${DEV:-/tmp/tasks_dev.jsonl}; SFT_SECONDS=${SFT_SECONDS:-330}; ROWS_SECONDS=${ROWS_SECONDS:-480}
CORES=$(env -u OMP_NUM_THREADS nproc); GPUS=$(nvidia-smi -L 2>/dev/null | wc -l); OLD=${OLD:-20000}; COUNT=200000; TEST=208; LIMIT=
VERIFY=${VERIFY-cuda}; VERIFIED=${VERIFIED:-}; RL_SECONDS=${RL_SECONDS:-240}; RL_INFILL=${RL_INFILL:-3}; RL_FROM=${RL_FROM:-$W/nano}
[ -n "$TINY" ] && { OLD=8; COUNT=40; TEST=12; LIMIT="--limit 2"; ROWS_SECONDS=20; CORES=2; VERIFY=${VERIFY:+cpu}; RL_SECONDS=15; RL_INFILL=1; }
mkdir -p $W $OUT/nano
told() { echo "--- $1: $(( $(date +%s) - BEGAN )) s"; }
build() { # NAME WORKERS ARGUMENTS...
    local name=$1 workers=$2 quiet=(MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4000000000); shift 2
    # Memory that was freed is kept, and no GPU is asked for where none is used: both take long in a sandbox.
    [ "$VERIFY" = cuda ] || quiet+=(CUDA_VISIBLE_DEVICES=)
    cp $W/verified $W/$name.verified
    env "${quiet[@]}" $PY -m dice_training cuke build --out $W/$name.jsonl --workers $workers "$@" > $W/$name.log 2>&1
    tr '\r' '\n' < $W/$name.log | grep -a -- "->\|^error\|Error:" | tail -n 2
}
rows() {
    local part=$(( CORES > 5 ? CORES / 5 : 1 )) more=() checked=(--max-seconds $ROWS_SECONDS) against=()
    [ -f $DEV ] && against=(--against $DEV)
    [ -n "$VERIFY" ] && checked+=(--verify $VERIFY)
    rm -f $W/*.jsonl $W/*.verified
    if [ -n "$VERIFIED" ]; then xzcat -f $VERIFIED > $W/verified; else : > $W/verified; fi
    build test 1 --count $TEST --seed 2 --split test
    whole() { build $1 $part --count $COUNT "${against[@]}" "${checked[@]}" --verified $W/$1.verified "${@:2}"; }
    build old $part --count $OLD --seed 1 --split train "${checked[@]}" --verified $W/old.verified &
    whole modules --tasks $TASKS --seed 1 --kind module &
    whole tasks --tasks $TASKS --seed 2 &
    whole invented-1 --tasks invented --seed 3 --kind module &
    whole invented-2 --tasks invented --seed 4 &
    wait
    touch $W/{old,modules,tasks,invented-1,invented-2}.jsonl
    cat $W/*.verified | sort -u > $W/verified; xz -c $W/verified > $OUT/verified.xz
    echo "dropped:"; cat $W/*.log | tr '\r' '\n' | grep -ao ": \(mismatch\|build_error\|crash\|timeout\|no_plan\|infra_error\|unsafe\|deceptive\|unwritten\|not verified\|a duplicate\|an evaluation task\) " | sort | uniq -c | sort -rn
    for file in ${MORE_ROWS:-}; do xzcat -f $file > $W/more-${#more[@]}.jsonl && more+=($W/more-${#more[@]}.jsonl); done
    # The first rows of the test split are what is scored during training: some of each teacher's.
    { head -n 64 $W/test.jsonl; paste -d '\n' $W/{modules,tasks,invented-1,invented-2}.jsonl "${more[@]}" | grep .; cat $W/old.jsonl; } > $W/both.jsonl
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
tasks() { # CHECKPOINT WORKERS NAME
    $PY -m dice_training eval tasks $DEV -n 1 --checkpoint $1 $LIMIT --workers $2 --baseline ${BASELINE:-eager} --out $W/$3 2>$W/$3.err
    tail -n 2 $W/$3.err; rm -rf $OUT/$3; cp -r $W/$3 $OUT/$3
}
pass() { $PY -c 'import json, sys; print(json.load(open(sys.argv[1]))["pass@1"])' $W/$1/summary.json 2>/dev/null || echo -1; }
rl() {
    local n=$(( GPUS > 1 ? GPUS : 1 )) more=() tiny=() best=$RL_FROM
    [ -n "${MORE:-}" ] && more=(--resume)
    [ -n "$TINY" ] && tiny=(-e 's/^tasks = .*/tasks = 2\nworkers = 2/' -e 's/^replies = .*/replies = 2/' -e 's/^max_new_tokens = .*/max_new_tokens = 700/' \
        -e 's/^row_length = .*/row_length = 2048/' -e 's/^batch_rows = .*/batch_rows = 1/' -e 's/^overlap = .*/overlap = false/' -e 's/^steps = 1000.*/steps = 1/')
    paste -d '\n' $W/{modules,tasks,invented-1,invented-2}.jsonl | grep '"split": "train"' | head -n 4000 > $W/rl-rows.jsonl
    $PY - $TASKS $DEV > $W/rl-tasks.jsonl <<'P'
import json, sys
from pathlib import Path
from dice_training.cuke.forward_form import Contamination
from dice_training.tasks import read_tasks
tasks, against = map(Path, sys.argv[1:])
known = Contamination([against] if against.is_file() else [])
for row in read_tasks(tasks):
    if row not in known:
        print(json.dumps({"id": row["id"], "pytorch_code": row["reference"]}))
P
    wc -l $W/rl-rows.jsonl $W/rl-tasks.jsonl
    sed -e "s|^init = .*|init = \"$RL_FROM\"|" -e "s|^output = .*|output = \"$W/nano-rl\"|" -e "s|^data = \"runs/|data = \"$W/|" \
        -e "s|^steps = 3$|steps = $RL_INFILL|" "${tiny[@]}" training/recipes/rl-nano-both.toml > $W/rl.toml
    NCCL_NVLS_ENABLE=0 timeout -s TERM -k 60 $(( RL_SECONDS + 150 )) $PY -m torch.distributed.run --standalone --nproc-per-node $n \
        -m dice_training train rl $W/rl.toml --stop-after $(awk "BEGIN { printf \"%.2f\", $RL_SECONDS / 60 }") "${more[@]}" 2>&1 | grep -v "Warn\|^W[0-9]" | cut -c1-240 | tee $OUT/rl.txt
    rm -rf $OUT/rl; mkdir -p $OUT/rl; cp $W/nano-rl/{metrics.jsonl,curves.png} $W/rl.toml $OUT/rl/
    [ -f $W/dev/summary.json ] || tasks $RL_FROM $CORES dev > $OUT/tasks.txt 2>&1
    rm -rf $W/dev-rl; tasks $W/nano-rl $CORES dev-rl > $OUT/tasks-rl.txt 2>&1; cat $OUT/tasks-rl.txt
    awk "BEGIN { exit !($(pass dev-rl) > $(pass dev)) }" && best=$W/nano-rl
    echo "pass@1 of tasks before $(pass dev), after $(pass dev-rl): kept is $best"
    rm -rf $OUT/best; mkdir -p $OUT/best; cp $best/{config.json,tokenizer.json} $OUT/best/; split -b 14m $best/model.safetensors $OUT/best/model.part.
}
scores() {
    rm -rf $W/dev
    if [ $GPUS -gt 1 ]; then
        CUDA_VISIBLE_DEVICES=1 infills $(( CORES / 3 )) > $OUT/infill.txt 2>&1 &
        CUDA_VISIBLE_DEVICES=0 tasks $W/nano $(( CORES * 2 / 3 )) dev > $OUT/tasks.txt 2>&1; wait
    else
        infills $CORES > $OUT/infill.txt 2>&1; tasks $W/nano $CORES dev > $OUT/tasks.txt 2>&1
    fi
    cat $OUT/tasks.txt $OUT/infill.txt
}
BEGAN=$(date +%s)
case " $STAGES " in *" rows "*) rows; told rows;; esac
case " $STAGES " in *" sft "*) sft; told sft;; esac
case " $STAGES " in *" eval "*) scores; told eval;; esac
case " $STAGES " in *" rl "*) rl; told rl;; esac
