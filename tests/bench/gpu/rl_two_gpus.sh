# BiC-RL on one and two GPUs. Needs 2 GPUs for the second and fourth part (skipped with one); parts by name, all by default:
#   bash tests/bench/gpu/rl_two_gpus.sh nano1 | nano2 | overlap1 | big1 | big2      (about 80 s each; big2 100 s)
# nano*: nano, 64 tasks x 16 replies, two steps, real verdicts. overlap1: the same on one GPU, three steps, decoding ahead.
# big*: the 1.7B shape (random weights), 8 tasks x 4 replies, two steps: real judges work, but the rewards that are learnt
# from are made up (parity of the bytes), since nonsense is never right and would teach nothing.
# TINY=1: the same script on a CPU with a tiny model (a dry run).
set -u
W=${W:-$(mktemp -d)}; R=$PWD; G=$(python3 -c 'import torch; print(torch.cuda.device_count())')
cat > $W/step.py <<'P'
import json, os, sys, time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.model.weights import load_model
from dice_engine.verify.verdict import Verdict
from dice_training.judging import Judgement, Options, cores
from dice_training.pool.local import LocalPool
from dice_training.ranks import joined
from dice_training.rl.curriculum import Curriculum
from dice_training.rl.policy import Policy
from dice_training.rl.recipe import Phase, RlRecipe
from dice_training.rl.rollout import Sampler
from dice_training.rl.tasks import load_tasks
from dice_training.rl.train import BUDGET, BUILD_TIMEOUT, DEADLINE, TIMEOUT, Run

class MadeUp(LocalPool):
    """Really judges; then what has an even number of bytes is called right."""
    def run(self, work):
        real, made = super().run(work), Future()
        def done(_):
            self.real = getattr(self, "real", []) + [j.verdict.verdict for j in real.result()]
            made.set_result([Judgement(Verdict("mismatch" if len(c.encode()) % 2 else "correct_unmeasured")) for c in work.items])
        real.add_done_callback(done)
        return made

class Ended(Sampler):
    def _rollouts(self, task, job):
        return [replace(r, complete=True) for r in super()._rollouts(task, job)]

def main():
    tiny = bool(os.environ.get("TINY"))
    nano, data, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    cuda = torch.cuda.is_available()
    base = SdarConfig.load(nano)
    big = dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=True)
    if tiny:
        big = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
    plan = Phase("infill", data, 2)
    recipe = RlRecipe(str(nano), str(out), (plan,), tasks=2 if tiny else 8, replies=4, max_new_tokens=16 if tiny else 512, row_length=4096, batch_rows=1)
    with joined() as ranks:
        device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
        with device:
            model = SdarModel(replace(base, **big))
        model.reset_parameters(torch.Generator(device).manual_seed(1))
        tokenizer = DiceTokenizer.load(nano)
        found, _ = load_tasks(plan, tokenizer, format=base.format, context=base.max_position_embeddings, max_new_tokens=recipe.max_new_tokens)
        tasks = {t.id: t for t in found}
        policy = Policy(model, recipe, ranks=ranks)
        judges = MadeUp(Options("cuda" if cuda else "cpu", budget=BUDGET, timeout=TIMEOUT, build_timeout=BUILD_TIMEOUT), cores(), deadline=DEADLINE) if ranks.first else None
        run = Run(recipe, policy, Ended(model, tokenizer, 1.0, 0.9), ranks)
        run._save = lambda place: None
        started = time.monotonic()
        import dice_training.rl.train as t
        t.save_state = lambda *a: None
        run.go([tasks], [Curriculum(list(tasks), 0)], 0, judges, lambda: False, lambda line: print(line, flush=True))
        peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0
        print(f"rank {ranks.rank}: {sum(p.numel() for p in model.parameters()) / 1e9:.2f} B, {time.monotonic() - started:.1f} s, peak {peak:.1f} GiB", flush=True)
        if judges:
            from collections import Counter
            print("real verdicts", Counter(judges.real))
            judges.close()

if __name__ == "__main__":  # the judges start anew and import this file
    main()
P
[ -f $W/cuke.jsonl ] || python3 -m dice_training cuke build --out $W/cuke.jsonl --count ${ROWS:-400} --seed 7 --split train --workers 8 | tail -1
NANO=$R/engine/dice_engine/checkpoints/nano
show() { python3 - $1 <<'P'
import json, sys
from pathlib import Path
f = Path(sys.argv[1]) / "metrics.jsonl"
for l in f.read_text().splitlines() if f.exists() else []:
    e = json.loads(l)
    print({k: e[k] for k in ("step", "lag", "rollout_seconds", "judge_seconds", "update_seconds", "pass_rate", "groups", "tokens", "trained_tokens", "excluded", "clipped", "norm")}, e["verdicts"])
P
}
nano() { # name, processes, overlap, steps
  cat > $W/$1.toml <<T
init = "$NANO"
output = "$W/$1"
learning_rate = 1e-5
kl = 0.01
seed = 1
overlap = $3
${SMALL:-}
[[phase]]
kind = "infill"
data = "$W/cuke.jsonl"
steps = $4
T
  echo "== $1"
  timeout -k 8 ${LIMIT:-90} python3 -m torch.distributed.run --standalone --nproc-per-node $2 -m dice_training train rl $W/$1.toml 2>&1 | grep -v "^W\|^\*\*\*" | tail -8
  show $W/$1
}
big() { # name, processes
  echo "== $1"
  timeout -k 8 ${LIMIT:-120} python3 -m torch.distributed.run --standalone --nproc-per-node $2 $W/step.py $NANO $W/cuke.jsonl $W/$1 2>&1 | grep -v "^W\|^\*\*\*" | tail -12
  show $W/$1
}
if [ -n "${TINY:-}" ]; then SMALL="tasks = 3
replies = 3
max_new_tokens = 48
row_length = 2048
batch_rows = 1
workers = 1"; G=2; fi
for part in ${*:-nano1 nano2 overlap1 big1 big2}; do
  case $part in
    nano1) nano nano1 1 false 2 ;;
    nano2) [ $G -ge 2 ] && nano nano2 2 false 2 || echo "nano2: one GPU" ;;
    overlap1) nano overlap1 1 true 3 ;;
    big1) big big1 1 ;;
    big2) [ $G -ge 2 ] && big big2 2 || echo "big2: one GPU" ;;
  esac
done
[ $G -ge 2 ] && python3 - $W <<'P'
import json, sys
from pathlib import Path
def read(name):
    return {(e["task"], e["seed"]): e["tokens"] for f in sorted(Path(sys.argv[1], name, "rollouts").glob("00000.jsonl")) for e in map(json.loads, f.open())}
one, two = read("nano1"), read("nano2")
if one and two:
    same = sum(one[k] == two.get(k) for k in one)
    print(f"first step: {same} of {len(one)} replies are the same on one GPU and on two (bf16 batches round differently)")
P
