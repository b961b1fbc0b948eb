"""Rules that need no run: code that has no business in a kernel's file, and kernels without content.

These checks come before anything of a candidate is executed or built. They are a courtesy to the user and a filter,
not the boundary: that is the process (see ``sandbox``). What the reference's own text does already is not held
against the candidate, so a user's file may read files or look at its environment as before.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from dice_engine.verify.build.device_source import split
from dice_engine.verify.build.lexer import live_tokens, tokenize
from dice_engine.verify.verdict import VerdictName


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MODULES = _words(
    """
    subprocess socket ctypes cffi importlib imp inspect gc shutil multiprocessing threading _thread signal
    pickle marshal builtins urllib requests http ftplib smtplib telnetlib asyncio mmap resource pty fcntl
    code codeop concurrent webbrowser faulthandler tracemalloc runpy pkgutil site sysconfig dis cloudpickle
    dill joblib psutil pynvml dice_engine dice_ls dice_training
    """
)
_OS_ALLOWED = _words(
    """
    environ path getenv cpu_count sep linesep name
    """
)
_SYS_ALLOWED = _words(
    """
    version version_info platform maxsize float_info byteorder
    """
)
_NAMES = _words(
    """
    exec eval __import__
    """
)
_CALLS = _words(
    """
    compile open globals locals vars breakpoint input
    """
)
"""Flagged where they are called: ``input`` is also what every second ``forward`` calls its tensor."""
_ATTRIBUTES = _words(
    """
    __globals__ __builtins__ __subclasses__ __code__ __closure__ __getattribute__ f_back f_globals f_locals
    gi_frame tb_frame _getframe load_library __loader__ __spec__ ctypeslib memmap fromfile tofile unlink
    rmtree write_text write_bytes __self__ __reduce__ __setstate__ _exit load_state_dict_from_url
    """
)
_FOREIGN = _words(
    """
    os sys subprocess socket ctypes importlib inspect gc builtins threading _thread shutil signal
    """
)
"""Modules of the system, when they are reached as an attribute of another module (``torch.os``)."""
_BEHIND_TORCH = _words(
    """
    _C _disable_current_modes _DisableTorchDispatch DisableTorchFunction DisableTorchFunctionSubclass
    _python_dispatch no_dispatch _pop_mode _push_mode _ExcludeDispatchKeyGuard _IncludeDispatchKeyGuard
    TorchDispatchMode TorchFunctionMode __torch_dispatch__ __torch_function__ _len_torch_dispatch_stack
    _AutoDispatchBelowAutograd _DisableFuncTorch
    """
)
"""Names that take operators out of sight of whoever watches them; no kernel needs one."""
_BEHIND = "it goes behind torch's dispatcher with "
_TORCH_CALLS = _words(
    """
    torch.load torch.save torch.hub.load torch.ops.load_library torch.classes.load_library numpy.load
    np.load numpy.save np.save torch.multiprocessing.spawn
    """
)
_CPP_CALLS = _words(
    """
    system popen execl execlp execle execv execvp execvpe fork vfork posix_spawn dlopen dlsym socket connect
    bind listen accept fopen freopen open openat creat unlink remove rename mkdir rmdir chmod chown kill
    ptrace prctl syscall mmap mprotect shm_open sigaction _exit _Exit quick_exit setenv putenv LoadLibrary
    PyRun_SimpleString PyRun_String Py_Exit longjmp setjmp pthread_create
    """
)
_CPP_TYPES = _words(
    """
    ofstream ifstream fstream filesystem thread jthread
    """
)
_OWN = frozenset(("self", "cls", "ctx"))
_ASSEMBLY = frozenset(("asm", "__asm__", "__asm"))
_TRAPS = re.compile(r"\b(?:syscall|sysenter|int\s*\$?0x80|svc)\b")
_STORES = re.compile(r"(?<![=!<>])=(?!=)|\+\+|--|\b(?!(?:if|for|while|switch|return|sizeof)\b)\w+\s*\(")


@dataclass(frozen=True)
class Finding:
    """A broken rule, with the words for it and the piece of code that breaks it."""

    verdict: VerdictName
    rule: str | None
    reason: str


def check_python(
    candidate: str, reference: str, candidate_class: str, reference_class: str
) -> Finding | None:
    """The first rule that the candidate's Python (and the CUDA strings in it) breaks, None where it breaks none."""
    try:
        tree = ast.parse(candidate)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        where = f" (line {line})" if line else ""
        return Finding("build_error", None, f"not valid Python: {getattr(error, 'msg', error)}{where}")
    known = Counter(text for text, _ in _python_dangers(_parsed(reference)))
    for text, line in _python_dangers(tree):
        if known[text] > 0:
            known[text] -= 1
            continue
        if text.startswith(_BEHIND):
            return Finding("deceptive", "tampering", f"{text} (line {line})")
        return Finding("unsafe", None, f"{text} (line {line})")
    for source, line in _cuda_strings(tree):
        finding = check_cpp(source, "\n".join(text for text, _ in _cuda_strings(_parsed(reference))))
        if finding is not None:
            return Finding(finding.verdict, finding.rule, f"{finding.reason}, in the string of line {line}")
    if candidate_class != reference_class:
        return _inherits(tree, candidate_class, reference_class)
    return None


def check_cpp(candidate: str, reference: str = "") -> Finding | None:
    """The first call of C++ code that reaches for the system, None where there is none."""
    known = Counter(text for text, _ in _cpp_dangers(reference))
    for text, line in _cpp_dangers(candidate):
        if known[text] > 0:
            known[text] -= 1
            continue
        where = f"{text} (line {line} of the CUDA source)"
        return (
            Finding("deceptive", "tampering", where)
            if text.startswith(_BEHIND)
            else Finding("unsafe", None, where)
        )
    return None


def check_body(body: str, kernel: str) -> Finding | None:
    """``empty_core``: nothing in a kernel's body stores or calls anything once comments and strings are gone."""
    text = body.replace("\r\n", "\n")
    live = [token for token in live_tokens(tokenize(text)) if token.kind in ("id", "num", "punct")]
    gaps = [" " * (following.start > token.end) for token, following in pairwise(live)]
    if _STORES.search("".join(token.text + gap for token, gap in zip(live, [*gaps, ""], strict=False))):
        return None
    return Finding("deceptive", "empty_core", f"the body of {kernel} stores nothing")


def strip_cpp(text: str) -> str:
    """C++ text with comments, strings and character literals blanked and split words joined; line numbers stay."""
    joined = re.sub(r"\\[ \t]*\r?\n(\w*)", r"\1\n", text)
    return _CPP_NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), joined)


_CPP_NOISE = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _python_dangers(tree: ast.AST) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                root = item.name.split(".")[0]
                aliases[item.asname or root] = item.name if item.asname else root
                if root in _MODULES:
                    found.append((f"it imports {item.name}", node.lineno))
                behind = [part for part in item.name.split(".") if part in _BEHIND_TORCH]
                found += [(_BEHIND + part, node.lineno) for part in behind]
        elif isinstance(node, ast.ImportFrom):
            root = (node.module or "").split(".")[0]
            if root in _MODULES or node.level:
                found.append((f"it imports from {node.module or '.'}", node.lineno))
            parts = [*(node.module or "").split("."), *(item.name for item in node.names)]
            found += [(_BEHIND + part, node.lineno) for part in parts if part in _BEHIND_TORCH]
            for item in node.names:
                aliases[item.asname or item.name] = f"{node.module}.{item.name}"
                if (root == "os" and item.name not in _OS_ALLOWED) or (
                    root == "sys" and item.name not in _SYS_ALLOWED
                ):
                    found.append((f"it imports {item.name} from {root}", node.lineno))
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            dotted = _dotted(node, aliases)
            if node.attr in _ATTRIBUTES:
                found.append((f"it uses {node.attr}", node.lineno))
            elif node.attr in _BEHIND_TORCH:
                found.append((_BEHIND + node.attr, node.lineno))
            elif node.attr in _FOREIGN and not (isinstance(node.value, ast.Name) and node.value.id in _OWN):
                found.append((f"it reaches {node.attr} through another module", node.lineno))
            elif dotted in _TORCH_CALLS:
                found.append((f"it calls {dotted}", node.lineno))
            elif (dotted.startswith("os.") and dotted.split(".")[1] not in _OS_ALLOWED) or (
                dotted.startswith("sys.") and dotted.split(".")[1] not in _SYS_ALLOWED
            ):
                found.append((f"it uses {dotted}", node.lineno))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in _NAMES:
            found.append((f"it uses {node.id}()", node.lineno))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = node.func.id
            if called in _CALLS and called not in own:
                found.append((f"it calls {called}()", node.lineno))
            elif called in ("getattr", "setattr", "delattr") and (danger := _reflection(node, aliases)):
                found.append((danger, node.lineno))
    return sorted(found, key=lambda entry: entry[1])


def _reflection(node: ast.Call, aliases: dict[str, str]) -> str | None:
    """getattr and setattr on modules, or with a name that is computed."""
    assert isinstance(node.func, ast.Name)
    if len(node.args) < 2:
        return None
    owner, name = node.args[0], node.args[1]
    root = _dotted(owner, aliases).split(".")[0]
    on_module = root in {value.split(".")[0] for value in aliases.values()} and root != "self"
    if node.func.id in ("setattr", "delattr") and on_module:
        return f"it changes attributes of {_dotted(owner, aliases)}"
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        if name.value in _BEHIND_TORCH:
            return _BEHIND + name.value
        return f"it reaches for {name.value}" if name.value in _ATTRIBUTES | _CALLS | _NAMES else None
    return (
        f"it uses {node.func.id}() with a computed name on {_dotted(owner, aliases)}" if on_module else None
    )


def _dotted(node: ast.AST, aliases: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(aliases.get(node.id, node.id))
    return ".".join(reversed(parts))


def _cuda_strings(tree: ast.AST) -> list[tuple[str, int]]:
    """String constants that look like C++: they have a brace and a semicolon."""
    return [
        (node.value, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and "{" in node.value
        and ";" in node.value
    ]


def _cpp_dangers(text: str) -> list[tuple[str, int]]:
    found = []
    stripped = strip_cpp(text)
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
    found += _host_assembly(text)
    for match in re.finditer(r"\b(?:Exclude|Include)DispatchKeyGuard\b|\bAutoDispatchBelow\w+", stripped):
        found.append((_BEHIND + match.group(), stripped.count("\n", 0, match.start()) + 1))
    for match in re.finditer(
        r"\bPy(?:Run|Import|Object|Eval|Sys|Gen|Frame)_\w+|\bpy\s*::\s*(?:exec|eval|module_)\b", stripped
    ):
        found.append((f"it uses {match.group()}", stripped.count("\n", 0, match.start()) + 1))
    return found


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


def _inherits(tree: ast.Module, candidate_class: str, reference_class: str) -> Finding | None:
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name != candidate_class:
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id == reference_class:
                reason = f"{candidate_class} uses {reference_class} (line {inner.lineno})"
                return Finding("deceptive", "inherits_reference", reason)
        if all(isinstance(part, ast.Pass) or _is_docstring(part) for part in node.body):
            return Finding("deceptive", "empty_core", f"{candidate_class} has no content")
    return None


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
