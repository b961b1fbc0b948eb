"""What compiled code contains, as the linker sees it: no macro, pointer or pasted word hides a call from here."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

from dice_engine.verify.build.interface import BuildError, InfraError
from dice_engine.verify.build.process import run_compiler

_LIMIT_S = 60
_SYSTEM = re.compile(
    r"system|popen|exec[lv]p?e?|execvpe|fexecve|v?fork|clone[3]?|posix_spawnp?|dlm?open|dlsym|socket(?:pair)?|connect"
    r"|bind|listen|accept4?|sendto|sendmsg|f?open(?:at)?(?:64)?|freopen(?:64)?|creat(?:64)?|unlink(?:at)?|remove|rename(?:at2?)?"
    r"|mkdir(?:at)?|rmdir|f?chmod|f?chown|link|symlink|truncate(?:64)?|kill|tgkill|ptrace|process_vm_\w+|prctl|syscall"
    r"|shm_open|memfd_create|(?:un|set|put)env|clearenv|pthread_create|_exit|_Exit|quick_exit|sigaction|signal"
    r"|setjmp|_setjmp|longjmp|__longjmp_chk|PyRun_\w+|Py_Exit|PyEval_\w*Code\w*|PyImport_\w+"
    r"|basic_[io]?fstream.*|basic_filebuf.*|filesystem::.*|thread::.*"
)
_BINDING = re.compile(r"PyImport_(?:ImportModule|AddModule\w*|GetModuleDict)|PyEval_\w+")
"""What pybind11's own glue needs: allowed in whole-source builds."""
_LOCAL_STATIC = re.compile(r"^[0-9a-f]+ ([0-9a-f]+) [bBuVdD] (.*\))::\w+$", re.MULTILINE)


_WORLD = re.compile(
    r"(?:secure_)?getenv|clock_gettime|gettimeofday|time|s?rand|s?random|[dlm]rand48|getrandom|arc4random"
    r"|chrono::(?:_V2::)?\w+::now|random_device::.*|getppid|gethostname"
)
"""What an answer must not depend on."""


class UnsafeCode(BuildError):
    """The built code reaches for the system; nothing of it was run."""


def listing(compiled: Path) -> str:
    """``nm`` of an object file or library: its symbols with sizes, and those that it asks others for (``U``).

    What the source asks for stands in its object file; a library also has what linked archives ask for (some systems
    link parts of the C++ library that way).
    """
    lister = shutil.which("nm")
    if lister is None:
        raise InfraError("nm is missing: install binutils")
    status, listed = run_compiler([lister, "-SC", compiled.resolve()], compiled.parent, _LIMIT_S, "nm")
    if status != 0:
        raise InfraError(f"nm does not read {compiled.name}")
    return listed


def refuse_system_calls(listed: str, pybind: bool = False) -> None:
    """UnsafeCode where ``listed`` asks for functions that reach for files, processes, the network or the interpreter.

    ``listed``: of an object file. ``pybind``: it binds itself by pybind11.
    """
    for name in re.findall(r"^\s+U (\S+)", listed, re.MULTILINE):
        plain = name.partition("@")[0].partition("(")[0].removeprefix("std::")
        if _SYSTEM.fullmatch(plain) and not (pybind and _BINDING.fullmatch(plain)):
            raise UnsafeCode(f"its compiled code calls {plain}")
        if not pybind and _WORLD.fullmatch(plain):
            raise UnsafeCode(f"its compiled code asks {plain}: its answer may depend on that")


def static_bytes(listed: str) -> Counter[str]:
    """Bytes of the variables with static storage inside each function."""
    sizes: Counter[str] = Counter()
    for size, function in _LOCAL_STATIC.findall(listed):
        sizes[function] += int(size, 16)
    return sizes
