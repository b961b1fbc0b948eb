"""The pool of several machines: nodes that die, runs that are stopped, verdicts that are known already."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import small_tasks
from dice_training.judging import Case, JudgePool, Options, open_pool
from dice_training.pool import PoolError
from faults import ENDLESS, ORIGINAL, command, descendants

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # before Ray is imported
ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'dice-ls[scale]'")
pytestmark = [
    pytest.mark.skipif(platform.system() != "Linux", reason="the CPU backend needs Linux"),
    pytest.mark.timeout(600),
]

OPTIONS = Options("cpu", budget=0.0, timeout=20.0)
ROW = small_tasks.kernel_row("scale")
RIGHT, WRONG = ROW["core"], small_tasks.kernel_row("scale", right=False)["core"]
FAST_TO_NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 10,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores, and two nodes with one each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": FAST_TO_NOTICE})
    made.nodes = [made.add_node(num_cpus=1), made.add_node(num_cpus=1)]  # type: ignore[attr-defined]
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = made.address or ""
    yield made
    os.environ.pop("RAY_ADDRESS") if before is None else os.environ.update(RAY_ADDRESS=before)
    ray.shutdown()
    made.shutdown()


def pool() -> JudgePool:
    return open_pool("ray", OPTIONS, 0)


def ready(opened: Any, count: int) -> None:
    until = time.monotonic() + 100
    while sum(slot.about is not None for slot in opened._state.slots) < count:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_node_that_dies_in_the_middle_costs_no_verdict(cluster: Any) -> None:
    cores = [(RIGHT if number % 3 else WRONG) + f"// {number}\n" for number in range(8)]
    with pool() as opened:
        ready(opened, 2)
        pending = {opened.submit(Case(ROW, [core])).jobs[0][1]: core for core in cores}
        done = as_completed(pending)
        next(done)
        cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
        for job in pending:
            (judged,) = job.result(timeout=120)
            wanted = "correct_unmeasured" if "2.0f" in pending[job] else "mismatch"
            assert (judged.verdict.verdict, judged.verdict.device) == (wanted, "cpu"), judged
        assert opened.losses >= 1  # type: ignore[attr-defined]


def test_what_one_run_has_judged_the_next_one_knows(cluster: Any) -> None:
    case = Case(ROW, [RIGHT + "// known\n", WRONG + "// known\n"])
    found = []
    for _ in range(2):
        with pool() as opened:
            found.append([judged.verdict for judged in opened.submit(case).result()])
    assert [verdict.verdict for verdict in found[0]] == ["correct_unmeasured", "mismatch"]
    assert found[0] == found[1]  # to the millisecond that it took


def test_work_waits_for_a_node_and_is_ours_when_none_comes(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dice_training.pool import cluster as module

    monkeypatch.setattr(module, "_EMPTY_SECONDS", 1.0)
    with pool() as opened:
        ready(opened, 1)
        cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
        (judged,) = opened.submit(Case(ROW, [RIGHT + "// lost\n"])).result()
        assert judged.verdict.verdict == "infra_error" and "no node" in judged.verdict.reason
        monkeypatch.setattr(module, "_EMPTY_SECONDS", 100.0)
        cluster.nodes.append(cluster.add_node(num_cpus=1))
        (judged,) = opened.submit(Case(ROW, [RIGHT + "// late\n"])).result()
        assert judged.correct


def test_what_is_no_pool_is_one_line() -> None:
    with pytest.raises(PoolError, match="'there' is no pool: local, ray, or ray://HOST:PORT"):
        open_pool("there", OPTIONS, 0)


def port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@dataclass
class Home:
    """A user's machine: ``dice`` runs a command there, ``start`` a pool, at ``place``."""

    folder: Path
    environment: dict[str, str]
    start: subprocess.Popen[str]
    place: str
    address: str

    def dice(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DICE, *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=200,
        )


DICE = [sys.executable, "-m", "dice_training"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    environment = {**os.environ, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    for name in ("RAY_AUTH_MODE", "RAY_ADDRESS"):
        environment.pop(name, None)
    ports = ["--host", "127.0.0.1", "--port", str(port()), "--client-port", str(port()), "--cpus", "1"]
    command = [*DICE, "verify-pool", "start", *ports]
    start = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert start.stdout is not None
    place = start.stdout.readline().split()[4].rstrip(":")
    made = Home(tmp_path, environment, start, place, start.stdout.readline().split()[-1])
    try:
        until = time.monotonic() + 100
        while (status := made.dice("verify-pool", "status", made.place)).returncode:
            assert "no pool answers there" in status.stderr and time.monotonic() < until, status.stderr
            time.sleep(1)
        yield made
    finally:
        start.send_signal(signal.SIGINT)
        start.wait(120)


def test_the_commands_from_start_to_ctrl_c(home: Home) -> None:
    (node,) = json.loads(home.dice("verify-pool", "status", home.place, "--json").stdout)["nodes"]
    assert (node["cpus"], node["gpus"]) == (1.0, 0.0)
    assert (home.folder / ".ray" / "auth_token").stat().st_mode & 0o77 == 0
    ray_status = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", home.address]
    for mode, code in (("token", 0), ("disabled", 1)):  # who has no token gets no answer
        asked = subprocess.run(
            ray_status, env={**home.environment, "RAY_AUTH_MODE": mode}, capture_output=True
        )
        assert min(1, asked.returncode) == code, asked.stderr

    row = {**ROW, "split": "test"}
    rows = small_tasks.write(home.folder / "rows.jsonl", [row])
    decoded = small_tasks.write(home.folder / "decoded.jsonl", [{"id": row["id"], "cores": [RIGHT, WRONG]}])
    evaluation = ["eval", "infill", str(rows), "--candidates", str(decoded), "-n", "2", "--device", "cpu"]
    evaluation += ["--pool", home.place, "--json"]
    scores = home.dice(*evaluation)
    assert json.loads(scores.stdout)["verdicts"] == {"correct_unmeasured": 1, "mismatch": 1}, scores.stderr

    endless = {**row, "kernel": "axpb", "prefix": "", "suffix": "", "original": ORIGINAL}
    small_tasks.write(rows, [endless])
    small_tasks.write(decoded, [{"id": row["id"], "cores": [ENDLESS, ENDLESS + "//"]}])
    before = set(descendants(home.start.pid))  # the last evaluation's may not be gone yet
    stopped = subprocess.Popen([*DICE, *evaluation], env=home.environment)
    until = time.monotonic() + 100
    while not any("verify.zygote" in words(pid) for pid in set(descendants(home.start.pid)) - before):
        assert time.monotonic() < until and stopped.poll() is None
        time.sleep(0.1)
    judging = [pid for pid in descendants(home.start.pid) if JUDGES.search(words(pid))]
    assert len(judging) >= 2
    stopped.send_signal(signal.SIGINT)
    assert stopped.wait(100) == 1
    gone(judging, 30)

    everything = descendants(home.start.pid)
    home.start.send_signal(signal.SIGINT)
    home.start.wait(120)
    gone(everything, 30)


JUDGES = re.compile("spawn_main|verify.zygote")


def words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def gone(pids: list[int], seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := [pid for pid in pids if words(pid)]) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left, [command(pid) for pid in left]
