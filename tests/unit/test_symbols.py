"""What compiled code asks of the system is seen in its symbols, however the source hides it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from dice_engine.verify.build.cpu import build_cpu
from dice_engine.verify.build.device_source import split
from dice_engine.verify.build.symbols import UnsafeCode, listing, refuse_system_calls, static_bytes

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def built(folder: Path, text: str) -> str:
    source, compiled = folder / "x.cpp", folder / "x.o"
    source.write_text(text)
    subprocess.run(["g++", "-O1", "-fPIC", "-c", source, "-o", compiled], check=True, timeout=60)
    return listing(compiled)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('#include <cstdlib>\nint f() { int (*call)(const char*) = system; return call("true"); }', "system"),
        ('#include <cstdlib>\n#define J(a, b) a##b\nint f() { return J(sys, tem)("true"); }', "system"),
        ("#include <unistd.h>\nint f() { return fork(); }", "fork"),
        ("#include <dlfcn.h>\nvoid* f() { return dlsym(nullptr, \"system\"); }", "dlsym"),
        ('#include <fstream>\nvoid f() { std::ofstream("x") << 1; }', "basic_f"),
        ('#include <stdio.h>\nvoid f() { fclose(fopen("x", "w")); }', "fopen"),
        ("#include <unistd.h>\n#include <sys/syscall.h>\nlong f() { return syscall(39); }", "syscall"),
        ("#include <signal.h>\nint f() { return kill(1, 9); }", "kill"),
        ("#include <unistd.h>\n__attribute__((constructor)) void f() { _exit(0); }", "_exit"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, text: str, name: str) -> None:
    with pytest.raises(UnsafeCode, match=name):
        refuse_system_calls(built(tmp_path, text))


def test_ordinary_code_is_not(tmp_path: Path) -> None:
    text = (
        "#include <map>\n#include <string>\n#include <vector>\n"
        "#include <cmath>\n#include <cstdio>\n#include <cstdlib>\n#include <stdexcept>\n"
        "struct Opens { int open(int x) { return x; } int remove = 0; };\n"
        'int f(int n) { std::map<int, std::string> m; m[n] = "x"; std::printf("%d", n);\n'
        "Opens o; std::vector<int> v(n);\n"
        'if (n < -1) exit(1); if (n < 0) throw std::runtime_error("n");\n'
        "return o.open(n) + o.remove + int(std::exp(n)) + int(v.size()); }"
    )
    refuse_system_calls(built(tmp_path, text))


def test_bytes_of_static_variables_by_function(tmp_path: Path) -> None:
    text = (
        "int f(int i) { static float room[100]; static int more[10]; return int(room[i] += 1) + more[i]++; }"
    )
    assert static_bytes(built(tmp_path, text)) == {"f(int)": 440}


def test_what_linked_archives_ask_for_is_not_the_sources_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some systems link parts of the C++ library statically; here the compiler does it on every call."""
    opens_files = "_ZNSt12__basic_fileIcE4openEPKcSt13_Ios_Openmodei"
    stand_in = tmp_path / "bin" / "g++"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f'#!/bin/sh\nexec {shutil.which("g++")} "$@" -static-libstdc++ -Wl,-u,{opens_files}\n'
    )
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    built = build_cpu(split("__global__ void fill(float* x) { x[0] = 1; }"), tmp_path / "work")
    assert "fopen" in listing(next((tmp_path / "work").rglob("*.so")))
    built.launch("fill", (), (1, 1, 1), (1, 1, 1), 0, [torch.zeros(1).data_ptr()])
