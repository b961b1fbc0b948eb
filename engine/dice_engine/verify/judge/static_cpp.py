"""What C++ has no business with in a kernel's file: the system, the interpreter, files, code that runs by itself."""

from __future__ import annotations

import re
from itertools import pairwise

from dice_engine.source.cuda import find_kernels
from dice_engine.verify.build.device_source import split
from dice_engine.verify.build.lexer import live_tokens, tokenize
from dice_engine.verify.judge.static_python import BEHIND, words

_CPP_CALLS = words(
    """
    system popen execl execlp execle execv execvp execvpe fork vfork posix_spawn dlopen dlsym socket connect
    bind listen accept fopen freopen open openat creat unlink remove rename mkdir rmdir chmod chown kill
    ptrace prctl syscall mmap mprotect shm_open sigaction _exit _Exit quick_exit setenv putenv LoadLibrary
    PyRun_SimpleString PyRun_String Py_Exit longjmp setjmp pthread_create
    """
)
_CPP_TYPES = words(
    """
    ofstream ifstream fstream filesystem thread jthread
    """
)
_BY_ITSELF = re.compile(
    r"(?:__attribute(?:__)?\s*\(\s*\(|\[\s*\[)(?:[^()\[\]]|\([^()]*\))*?"
    r"\b_{0,2}(constructor|destructor|init_priority|ifunc|section|cleanup)_{0,2}\b"
)
"""Attributes that have functions called before, behind or instead of what the text says."""
_DISPATCHER = re.compile(
    r"\b(?:Exclude|Include)DispatchKeyGuard\b|\bAutoDispatchBelow\w+|\bTORCH_LIBRARY_IMPL\s*\(\s*(?:aten|_)\b"
)
_ASKS_BUILDER = re.compile(
    r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b[^\n]*?"
    r"(\b__CUDACC_RTC__|\b__OPTIMIZE__|\bDICE_\w+|__has_include\W+dice\b)"
    r"|\b(dice\s*::)",
    re.MULTILINE,
)
_ASKS_MACHINE = re.compile(
    r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b[^\n]*?"
    r"\b(__GNU[CG]__|__clang__|__x86_64__|__aarch64__|__linux__|__unix__|__ELF__|__SSE\w*__|__has_include)\b",
    re.MULTILINE,
)
"""In a kernel: none of these differs between GPUs, only between a GPU and what stands in for one."""
ASKS = "its code depends on who builds it: "
_ASSEMBLY = frozenset(("asm", "__asm__", "__asm"))
_TRAPS = re.compile(r"\b(?:syscall|sysenter|int\s*\$?0x80|svc)\b")


def cpp_dangers(text: str) -> list[tuple[str, int]]:
    """What is wrong in each place of a C++ text, in words, and its line."""
    found = []
    stripped = strip_cpp(text)
    joined = _joined(text)
    own = set(re.findall(r"[\w>&*]\s+[&*]?\s*(\w+)\s*\([^;{}()]*\)\s*(?:const\s*)?\{", stripped))
    for match in re.finditer(r"\b(\w+)\s*\(", stripped):
        word = match.group(1)
        before = stripped[: match.start()].rstrip()
        member = before.endswith((".", "->"))
        declares = re.search(r"[\w>&*]\s*$", before) and not re.search(r"\b(return|else|do|case)\s*$", before)
        if word in _CPP_CALLS and word not in own and not member and not declares:
            found.append((f"it calls {word}()", stripped.count("\n", 0, match.start()) + 1))
    for match in re.finditer(r"\bstd\s*::\s*(\w+)", stripped):
        if match.group(1) in _CPP_TYPES:
            found.append((f"it uses std::{match.group(1)}", stripped.count("\n", 0, match.start()) + 1))
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]*)[">]', text, re.MULTILINE):
        if match.group(1).startswith(("/", "~")) or ".." in match.group(1):
            found.append((f"it includes {match.group(1)}", text.count("\n", 0, match.start()) + 1))
    for match in re.finditer(r"^[ \t]*#[ \t]*(?:include|embed)\b(?![ \t]*[\"<])", joined, re.MULTILINE):
        found.append(("it includes a file whose name is computed", joined.count("\n", 0, match.start()) + 1))
    for match in _BY_ITSELF.finditer(stripped):
        said = f"it has code that runs by itself ({match[1]})"
        found.append((said, stripped.count("\n", 0, match.start()) + 1))
    found += _builder_asked(joined)
    found += _host_assembly(text)
    for match in _DISPATCHER.finditer(stripped):
        found.append((BEHIND + match.group(), stripped.count("\n", 0, match.start()) + 1))
    for match in re.finditer(
        r"\bPy(?:Run|Import|Object|Eval|Sys|Gen|Frame)_\w+|\bpy\s*::\s*(?:exec|eval|module_)\b", stripped
    ):
        found.append((f"it uses {match.group()}", stripped.count("\n", 0, match.start()) + 1))
    return found


def _builder_asked(text: str) -> list[tuple[str, int]]:
    found = [(match, match[1] or match[2]) for match in _ASKS_BUILDER.finditer(text)]
    kernels = [(span.body_start, span.body_end) for span in find_kernels(text)] if "#" in text else []
    for match in _ASKS_MACHINE.finditer(text):
        at = len(text[: match.start()].encode())
        if any(start <= at < end for start, end in kernels):
            found.append((match, match[1]))
    return [(ASKS + said, text.count("\n", 0, match.start()) + 1) for match, said in found]


def strip_cpp(text: str) -> str:
    """C++ text with comments, strings and character literals blanked and split words joined; line numbers stay."""
    return _CPP_NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), _joined(text))


def _joined(text: str) -> str:
    """The text with lines that end in a backslash joined, word by word."""
    return re.sub(r"\\[ \t]*\r?\n(\w*)", r"\1\n", text)


_CPP_NOISE = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)


def _host_assembly(text: str) -> list[tuple[str, int]]:
    """Inline assembly outside device code, and system calls by assembly wherever they stand."""
    if not any(word in text for word in _ASSEMBLY):
        return []
    unix = text.replace("\r\n", "\n").replace("\r", "\n")
    tokens, device = live_tokens(tokenize(unix)), split(unix).text
    whole = "__global__" in text or "torch::" in text  # else a piece: nobody knows where it will stand
    found = []
    for token, following in pairwise([*tokens, *tokens[-1:]]):
        line = unix.count("\n", 0, token.start) + 1
        outside = whole and device[token.start : token.end] != token.text
        if outside and token.kind == "id" and token.text in _ASSEMBLY:
            found.append(("it has assembly in host code", line))
            continue
        operand = token.kind in ("str", "raw") and following.text in (":", ")")
        macro = token.kind == "pp" and any(word in token.text for word in _ASSEMBLY)
        if (operand or macro) and _TRAPS.search(token.text):
            found.append(("it calls the system by assembly", line))
    return found
