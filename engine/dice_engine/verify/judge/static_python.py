"""What Python has no business with in a kernel's file: the system, the interpreter's inside, torch's dispatcher."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LIBRARY = words(
    """
    __future__ abc argparse array base64 binascii bisect cmath collections contextlib copy dataclasses datetime
    decimal enum errno fractions functools hashlib heapq itertools json locale logging math numbers operator os
    pathlib platform pprint queue random re statistics string struct sys tempfile textwrap time traceback types
    typing uuid warnings weakref zlib
    """
)
"""Of Python's own library, what a kernel's file may import; ``os`` and ``sys`` only in part."""
_REFUSED = words(
    """
    cffi requests cloudpickle dill joblib psutil pynvml dice_engine dice_ls dice_training
    """
)
_OS_ALLOWED = words(
    """
    environ path getenv cpu_count sep linesep name
    """
)
_SYS_ALLOWED = words(
    """
    version version_info platform maxsize float_info byteorder
    """
)
_NAMES = words(
    """
    exec eval __import__
    """
)
_CALLS = words(
    """
    compile open globals locals vars breakpoint input
    """
)
"""Flagged where they are called: ``input`` is also what every second ``forward`` calls its tensor."""
_ATTRIBUTES = words(
    """
    __globals__ __builtins__ __subclasses__ __code__ __closure__ __getattribute__ f_back f_globals f_locals
    gi_frame tb_frame _getframe load_library __loader__ __spec__ ctypeslib memmap fromfile tofile unlink
    rmtree write_text write_bytes read_text read_bytes __self__ __reduce__ __setstate__ _exit CodeType
    FunctionType load_state_dict_from_url extract_stack walk_stack format_stack print_stack StackSummary
    """
)
_FOREIGN = words(
    """
    os sys subprocess socket ctypes importlib inspect gc builtins threading _thread shutil signal
    """
)
"""Modules of the system, when they are reached as an attribute of another module (``torch.os``)."""
BEHIND_TORCH = words(
    """
    _C _disable_current_modes _DisableTorchDispatch DisableTorchFunction DisableTorchFunctionSubclass
    _python_dispatch no_dispatch _pop_mode _push_mode _ExcludeDispatchKeyGuard _IncludeDispatchKeyGuard
    TorchDispatchMode TorchFunctionMode __torch_dispatch__ __torch_function__ _len_torch_dispatch_stack
    _AutoDispatchBelowAutograd _DisableFuncTorch
    """
)
"""Names that take operators out of sight of whoever watches them; no kernel needs one."""
BEHIND = "it goes behind torch's dispatcher with "
_REGISTERS = words(
    """
    torch.library.Library torch.library.impl torch.library.define torch.library.register_kernel
    torch.library.register_torch_dispatch torch._library
    """
)
"""Puts code behind an operator's name. (``custom_op`` may stay: what it calls is traced.)"""
_TORCH_CALLS = words(
    """
    torch.load torch.save torch.hub.load torch.ops.load_library torch.classes.load_library numpy.load
    np.load numpy.save np.save torch.multiprocessing.spawn
    """
)
_WORLD = words(
    """
    time datetime random uuid platform secrets os.environ os.getenv
    """
)
_BUILD_SETTINGS = re.compile(r"CUDA_(?:HOME|PATH)|TORCH_\w+|CUTLASS\w*|MAX_JOBS|CXX|CC")
"""Variables that say how to build, not what to answer."""
_BUILDERS = frozenset(("load_inline", "load"))
_GETTERS = frozenset(("operator.attrgetter", "operator.methodcaller"))
_OWN = frozenset(("self", "cls", "ctx"))


def python_dangers(tree: ast.AST, class_name: str) -> list[tuple[str, int]]:
    """What is wrong in each place of a Python text, in words, and its line.

    ``class_name``: the class that is judged; what its answer may depend on is held to more.
    """
    found: list[tuple[str, int]] = []
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                root = item.name.split(".")[0]
                aliases[item.asname or root] = item.name if item.asname else root
                if _refused(root):
                    found.append((f"it imports {item.name}", node.lineno))
                behind = [part for part in item.name.split(".") if part in BEHIND_TORCH]
                found += [(BEHIND + part, node.lineno) for part in behind]
        elif isinstance(node, ast.ImportFrom):
            root = (node.module or "").split(".")[0]
            if _refused(root) or node.level:
                found.append((f"it imports from {node.module or '.'}", node.lineno))
            parts = [*(node.module or "").split("."), *(item.name for item in node.names)]
            found += [(BEHIND + part, node.lineno) for part in parts if part in BEHIND_TORCH]
            for item in node.names:
                aliases[item.asname or item.name] = f"{node.module}.{item.name}"
                if f"{node.module}.{item.name}" in _REGISTERS:
                    found.append((BEHIND + item.name, node.lineno))
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
            elif node.attr in BEHIND_TORCH:
                found.append((BEHIND + node.attr, node.lineno))
            elif node.attr in _FOREIGN and not (isinstance(node.value, ast.Name) and node.value.id in _OWN):
                found.append((f"it reaches {node.attr} through another module", node.lineno))
            elif dotted in _REGISTERS:
                found.append((BEHIND + dotted, node.lineno))
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
        if isinstance(node, ast.Call) and _dotted(node.func, aliases) in _GETTERS:
            names = [arg.value if isinstance(arg, ast.Constant) else "" for arg in node.args[:1]]
            if any(part in _ATTRIBUTES | BEHIND_TORCH for name in names for part in str(name).split(".")):
                found.append((f"it reaches for {names[0]}", node.lineno))
    if isinstance(tree, ast.Module):
        found += _of_the_world(tree, class_name, aliases)
    return sorted(found, key=lambda entry: entry[1])


def _refused(module: str) -> bool:
    return module in _REFUSED or (module in sys.stdlib_module_names and module not in _LIBRARY)


def _of_the_world(tree: ast.Module, class_name: str, aliases: dict[str, str]) -> list[tuple[str, int]]:
    """Where code that the class reaches by name asks the clock, chance or the environment: what it answers may then
    depend on that."""
    made: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for name in _defined(statement):
            made.setdefault(name, []).append(statement)
    found, reached, wanted = [], set[str](), [class_name]
    while wanted:
        name = wanted.pop()
        if name in reached:
            continue
        reached.add(name)
        for node in (part for statement in made.get(name, []) for part in _walk_but_builds(statement)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                wanted.append(node.id)
            if isinstance(node, ast.Name | ast.Attribute) and (asked := _asks(node, aliases)):
                found.append((f"{class_name} asks {asked}: its answer may depend on that", node.lineno))
    return list(dict.fromkeys(found))


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = (
        statement.targets
        if isinstance(statement, ast.Assign)
        else [statement.target]
        if isinstance(statement, ast.AnnAssign | ast.AugAssign)
        else []
    )
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]


def _walk_but_builds(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below, but for the arguments of builds and variables that only say how to build."""
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in _BUILDERS or any(_is_setting(argument) for argument in node.args[:1]):
            return
    if isinstance(node, ast.Subscript) and (_is_setting(node.slice) or isinstance(node.ctx, ast.Store)):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk_but_builds(child)


def _is_setting(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _BUILD_SETTINGS.fullmatch(node.value) is not None
    )


def _asks(node: ast.Name | ast.Attribute, aliases: dict[str, str]) -> str | None:
    dotted = _dotted(node, aliases)
    plain = isinstance(node, ast.Name)
    if plain and aliases.get(node.id, node.id) == node.id:
        return None  # the module alone, or a name of the file's own
    if dotted == "time.sleep":
        return None
    root = dotted.split(".")[0]
    asked = any(dotted == way or dotted.startswith(f"{way}.") or (root == way and plain) for way in _WORLD)
    return dotted if asked else None


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
        if name.value in BEHIND_TORCH:
            return BEHIND + name.value
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
