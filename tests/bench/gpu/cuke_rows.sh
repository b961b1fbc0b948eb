#!/bin/bash
# Rows of the teacher of whole tasks, checked and timed on the GPU, <= 240 s in all: tasks of a file (by default
# /tmp/tasks_train.jsonl) for 130 s, then invented ones for 70 s. What comes back, in $OUT (default /tmp/cuke_rows):
# tasks-NN.jsonl and invented-NN.jsonl, each below 15 MiB; tasks.log and invented.log (what was dropped and why).
# Merge them:  dice cuke merge CPU.jsonl tasks-*.jsonl invented-*.jsonl --out rows.jsonl --min-speedup 1.05
# Dry run:     VERIFY=cpu MEASURE= WORKERS=1 COUNT=4 TASKS=some.jsonl bash cuke_rows.sh
OUT=${OUT:-/tmp/cuke_rows}; TASKS=${TASKS:-/tmp/tasks_train.jsonl}; WORKERS=${WORKERS:-$(( $(nproc) < 32 ? $(nproc) : 32 ))}
VERIFY=${VERIFY:-cuda}; MEASURE=${MEASURE---measure}; COUNT=${COUNT:-40000}; SEED=${SEED:-1}
mkdir -p "$OUT"; work=$(mktemp -d); began=$(date +%s)
rows() {  # name, tasks, seconds
    timeout -s INT -k 15 $(( $3 + 20 )) python3 -m dice_training cuke build --tasks "$2" --out "$work/$1.jsonl" --count "$COUNT" \
        --seed "$SEED" --workers "$WORKERS" --verify "$VERIFY" $MEASURE --max-seconds "$3" > "$OUT/$1.log" 2>&1
    [ -f "$work/$1.jsonl" ] || mv "$work/$1.jsonl.part" "$work/$1.jsonl"
    tail -n 2 "$OUT/$1.log" | tr '\r' '\n' | tail -n 3
    tr '\r' '\n' < "$OUT/$1.log" | grep -E ": (mismatch|deceptive|build_error|crash|timeout|infra_error) " | cut -c1-300 | head -n 25
    python3 -m dice_training cuke stats "$work/$1.jsonl" | cut -c1-600
    split -C 14m -d --additional-suffix=.jsonl "$work/$1.jsonl" "$OUT/$1-"
}
rows tasks "$TASKS" "${TASK_SECONDS:-130}"
rows invented invented "${INVENTED_SECONDS:-70}"
python3 - "$work"/*.jsonl <<'P'
import collections, json, statistics, sys
kinds, ops = collections.defaultdict(list), collections.defaultdict(list)
for path in sys.argv[1:]:
    for line in open(path):
        row = json.loads(line)
        speed = (row.get("measurements") or {}).get("speedup")
        if speed:
            kinds[row["kind"], "torch keeps some" if row.get("kept") else "whole"].append(speed)
            for op in set(row["ops"]):
                ops[op].append(speed)
for kind, values in sorted(kinds.items()):
    faster = sum(v > 1.02 for v in values) / len(values)
    print(kind, f"{len(values)} timed, median {statistics.median(values):.2f}, faster {faster:.0%}, >= 2x {sum(v >= 2 for v in values) / len(values):.0%}")
slow = sorted((round(statistics.median(v), 2), op, len(v)) for op, v in ops.items() if len(v) >= 3)
print("slowest operators (median speedup, operator, rows):", slow[:30])
P
ls -l "$OUT"; echo "$(( $(date +%s) - began )) s"; rm -rf "$work"
