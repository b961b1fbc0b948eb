#!/bin/bash
# Same verdicts on the GPU and on the CPU backend? 220 rows of the teacher, then the tests' adversaries and the 401 candidates of redteam.jsonl.xz
# (cheats and honest programs that look like them); 85 s each. Prints each disagreement, each cheat that passes and each honest program that is
# refused; the last line of each part has the counts.
export OMP_NUM_THREADS=1 PYTHONPATH=engine:training:${PYTHONPATH:-}
compare() { python3 tests/bench/compare_backends.py --devices "${A:-cpu}" "${B:-cuda}" "$@" 2>&1 | cut -c1-500 | tail -60; }
python3 -c 'import lzma, sys; sys.stdout.buffer.write(lzma.open("tests/bench/gpu/redteam.jsonl.xz").read())' > /tmp/redteam.jsonl
compare --rows 220 --seconds 80
compare --rows 0 --tests --candidates /tmp/redteam.jsonl --seconds 85 --sessions 10 5
