"""Kernels that only ``main()`` launches: the part of it that leads to the launch, as a function that can be called.

Its parameters are the buffers that ``main`` allocates and the numbers that say how long these are; what else leads to
the launch stands in it as ``main`` has it. Where anything of this is in doubt, there is no such function.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dice_engine.source import host_types as types
from dice_engine.source.host import HostProgram, KernelDecl, Unsupported
from dice_engine.source.host_tree import Node
from dice_engine.source.host_types import parse_type

_ALLOCATIONS = frozenset({"cudaMalloc", "cudaMallocManaged", "cudaMallocAsync"})
_CONTROL = frozenset(
    {"for_statement", "while_statement", "do_statement", "for_range_loop", "switch_statement"}
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_SIZEOF = re.compile(r"\bsizeof\s*\(\s*([\w ]+?)\s*\)")
_CAST = re.compile(
    r"\((?:std::)?(?:size_t|u?int(?:64|32)_t|(?:unsigned )?(?:long|int)(?: long)?)\)|\bstatic_cast<[\w: ]+>"
)
_SYMBOLS = re.compile(r"\bcudaMemcpyToSymbol(?:Async)?\b")


class Declined(Exception):
    """The launch cannot be followed; the message says why."""


@dataclass(frozen=True)
class Slice:
    """A function made of ``main``. ``line``: of the launch; ``sizes``: what ``main`` has for the numbers it takes;
    ``allocated``: the bytes of each buffer as an expression over these numbers, where there is one."""

    name: str
    source: str
    line: int
    sizes: dict[str, str]
    allocated: dict[str, str]


class MainProgram:
    """A source whose ``main`` launches kernels, with a function for each of these kernels below its own text."""

    def __init__(self, text: str, program: HostProgram) -> None:
        self.slices: dict[str, Slice] = {}
        self.reasons: dict[str, str] = {}
        """Why a kernel has no such function."""
        for kernel in program.kernels:
            if any(function.name == "main" for function in program.launchers(kernel)):
                try:
                    self.slices[kernel] = slice_of(program, kernel)
                except (Declined, Unsupported) as error:
                    self.reasons[kernel] = str(error)
                except RecursionError:
                    self.reasons[kernel] = "main() is nested too deeply"
        self.program = HostProgram("\n".join([text, *(one.source for one in self.slices.values())]))


_READERS = (
    "atoi",
    "atol",
    "atoll",
    "stoi",
    "stol",
    "stoul",
    "strtol",
    "strtoul",
    "strtoull",
    "nullptr",
    "NULL",
)
_ARGUMENTS = {"argc", "argv", "std", *_READERS, *(f"std::{name}" for name in _READERS)}
"""What reads a number from the program's arguments: ``argc > 1 ? atoi(argv[1]) : 512``."""


@dataclass
class _Variable:
    """A variable of ``main``: its type as written, its declarator's text, what it is initialised with."""

    ctype: str
    text: str
    value: Node | None
    line: int


@dataclass
class _Facts:
    """What the statements before the launch say."""

    variables: dict[str, _Variable] = field(default_factory=dict)
    sizes: dict[str, Node] = field(default_factory=dict)
    """By pointer: the bytes that are allocated for it."""
    read: set[str] = field(default_factory=set)
    """Variables that the program's arguments or its input decide."""
    changed: dict[str, int] = field(default_factory=dict)
    """Variables that a loop or branch changes, and the line."""
    assigned: dict[str, list[Node]] = field(default_factory=dict)


def slice_of(program: HostProgram, kernel: str) -> Slice:
    """The part of ``main`` that leads to the first launch of ``kernel``. Raises Declined, and Unsupported for a body
    that cannot be read."""
    body = program.body(program.functions["main"])
    if _SYMBOLS.search(body.text):
        raise Declined("main() fills constant memory before it")
    path = _path(body, kernel)
    if path is None:
        raise Declined("main() launches it through something else than <<<...>>>")
    call, before = path[-1], list(_before(path))
    syntax = next(part for part in call.children if part.type == "kernel_call_syntax")
    geometry = syntax.named_children[:3]
    arguments = next(part for part in call.named_children if part.type == "argument_list").named_children
    declared = program.kernels[kernel]
    if len(geometry) < 2 or len(arguments) != len(declared.params):
        raise Declined("its launch does not fit its parameters")
    facts = _facts(before)
    pointers = _pointers(declared, arguments, facts)
    lengths = _closure([facts.sizes[name] for name in pointers] + geometry[:1], facts)
    fixed = _closure(geometry[1:2], facts)
    sizes = [name for name in facts.variables if name in lengths - fixed and _is_size(name, facts)]
    values = [a.text for a in arguments if a.type == "identifier" and _is_value(a.text, facts)]
    if not sizes:
        raise Declined("no number of main() tells how long its buffers are")
    free = {*pointers, *sizes, *values}
    lines = _kept(before, _closure([*geometry, *arguments], facts, stop=free) - free, facts, call.line)
    taken = [f"{ctype} {name}" for name, ctype in pointers.items()]
    taken += [f"{facts.variables[name].ctype} {name}" for name in dict.fromkeys([*sizes, *values])]
    dims = ", ".join(part.text for part in geometry)
    given = ", ".join(part.text for part in arguments)
    called = call.text[: call.text.index("<<<")].strip()
    name = f"dice_main_{kernel}"
    source = "\n".join(
        [f"void {name}({', '.join(taken)}) {{", *lines, f"  {called}<<<{dims}>>>({given});", "}\n"]
    )
    known = {name: made.value.text for name in sizes if (made := facts.variables[name]).value is not None}
    bytes_of = {pointer: _written_out(facts.sizes[pointer].text, facts, free) for pointer in pointers}
    allocated = {pointer: text for pointer, text in bytes_of.items() if text is not None}
    return Slice(name, source, call.line, known, allocated)


def _path(node: Node, kernel: str) -> list[Node] | None:
    """The nodes from ``node`` down to the first launch of ``kernel``."""
    if any(part.type == "kernel_call_syntax" for part in node.children):
        function = node.field("function")
        if function is not None and re.match(rf"(?:\w+::)*{kernel}\b", function.text):
            return [node]
    for part in node.named_children:
        below = _path(part, kernel) if part.type != "lambda_expression" else None
        if below is not None:
            return [node, *below]
    return None


def _before(path: list[Node]) -> Iterator[Node]:
    """The statements that come before the launch, outermost blocks first. Loops around it are run once."""
    for node, inner in itertools.pairwise(path):
        if node.type == "compound_statement":
            for statement in node.named_children:
                if statement is inner:
                    break
                yield statement
        elif node.type in _CONTROL:
            started = node.field("initializer")
            if started is not None and _names(path[-1]) & _declared_in(started):
                raise Declined(f"the loop on line {node.line} decides how it is launched")


def _facts(statements: Iterable[Node]) -> _Facts:
    facts = _Facts()
    for statement in statements:
        if statement.type == "declaration":
            _declare(statement, facts)
        _allocations(statement, facts)
        _writes(statement, facts)
    return facts


def _declare(statement: Node, facts: _Facts) -> None:
    kind = statement.field("type")
    for declarator in statement.fields("declarator"):
        value = declarator.field("value") if declarator.type == "init_declarator" else None
        named = declarator.field("declarator") if declarator.type == "init_declarator" else declarator
        stars = 0
        while named is not None and named.type in ("pointer_declarator", "function_declarator"):
            if named.type == "function_declarator":  # ``dim3 grid(a, b)`` reads like one
                value = named.field("parameters")
            stars += named.type == "pointer_declarator"
            named = named.field("declarator")
        if kind is not None and named is not None and named.type == "identifier":
            made = _Variable(kind.text + "*" * stars, declarator.text, value, statement.line)
            facts.variables[named.text] = made


def _allocations(statement: Node, facts: _Facts) -> None:
    for node in _all(statement):
        function, arguments = node.field("function"), node.field("arguments")
        if node.type != "call_expression" or function is None or arguments is None:
            continue
        if function.text in _ALLOCATIONS and len(arguments.named_children) > 1:
            for target in _names(arguments.named_children[0]):
                facts.sizes[target] = arguments.named_children[1]


def _writes(statement: Node, facts: _Facts) -> None:
    """Note what a statement changes: at once, under a condition, or by what the program is given."""
    given = bool(re.search(r"\b(?:argc|argv|cin|scanf|sscanf|atoi|stoi|getenv)\b", statement.text))
    plain = statement.type == "expression_statement"
    for node in _all(statement):
        left = None
        if node.type == "assignment_expression":
            left = node.field("left")
        elif node.type == "update_expression":
            left = node.field("argument")
        elif node.type == "pointer_expression" and node.children[0].text == "&":
            left = node.field("argument")
            if left is not None and left.text in facts.sizes:
                continue  # allocated here
        elif (
            node.type == "binary_expression"
            and "cin" in node.text
            and node.text.startswith(("std::cin", "cin"))
        ):
            left = node.field("right")
        for name in sorted(_names(left)) if left is not None else ():
            if given:
                facts.read.add(name)
            elif plain and node.type == "assignment_expression":
                facts.assigned.setdefault(name, []).append(statement)
            elif left is not None and left.type in ("identifier", "field_expression"):
                facts.changed.setdefault(name, node.line)


def _pointers(kernel: KernelDecl, arguments: list[Node], facts: _Facts) -> dict[str, str]:
    """The buffers among the arguments, by name, with the type that the function takes them as."""
    found: dict[str, str] = {}
    for param, argument in zip(kernel.params, arguments, strict=True):
        if not param.pointer:
            continue
        name = argument.text
        variable = facts.variables.get(name)
        if argument.type != "identifier" or variable is None or name not in facts.sizes:
            raise Declined(f"where main() has {name[:40]} from is not known")
        const = "const " if param.const and found.get(name, "const ").startswith("const ") else ""
        found[name] = const + variable.ctype.removeprefix("const ")
    return found


def _is_size(name: str, facts: _Facts) -> bool:
    """Whether a variable is a whole number that nothing but itself decides."""
    variable = facts.variables[name]
    kind = types.KINDS.get(str(parse_type(variable.ctype)))
    if kind is None or types.is_float(kind) or kind == "bool":
        return False
    value = variable.value
    if name in facts.changed:
        return False
    if name in facts.read:
        return True
    return value is not None and name not in facts.assigned and _names(value) <= _ARGUMENTS


def _is_value(name: str, facts: _Facts) -> bool:
    """Whether a variable is a floating-point number that ``main`` gives as it is: 0 and 1 would hide faults."""
    variable = facts.variables.get(name)
    kind = types.KINDS.get(str(parse_type(variable.ctype))) if variable is not None else None
    return kind is not None and types.is_float(kind) and name not in facts.assigned


def _closure(nodes: Iterable[Node], facts: _Facts, stop: Iterable[str] = ()) -> set[str]:
    """All names that these expressions depend on."""
    found: set[str] = set()
    waiting = [name for node in nodes for name in _names(node)]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        variable = facts.variables.get(name)
        if name not in stop and variable is not None:
            waiting += _names(variable.value) if variable.value is not None else ()
            waiting += [other for statement in facts.assigned.get(name, ()) for other in _names(statement)]
    return found


def _kept(statements: list[Node], needed: set[str], facts: _Facts, launch: int) -> list[str]:
    """The statements that the launch needs, as they stand in ``main``."""
    lines = []
    for name in sorted(needed & facts.variables.keys()):
        if name in facts.changed or name in facts.read:
            line = facts.changed.get(name, facts.variables[name].line)
            raise Declined(f"what main() does with {name} on line {line} is not followed")
        if facts.variables[name].ctype.endswith("*"):
            raise Declined(f"where main() has {name} from is not known")
    if needed & {"argc", "argv"}:
        raise Declined(f"the program's arguments decide the launch on line {launch}")
    for statement in statements:
        if statement.type == "declaration":
            one = _Facts()
            _declare(statement, one)
            for name, variable in one.variables.items():
                if name in needed:
                    head = "const " if re.match(r"(?:static\s+)?const(?:expr)?\b", statement.text) else ""
                    lines.append(f"  {head}{variable.ctype.rstrip('*')} {variable.text};")
        elif statement.type == "expression_statement" and any(
            statement in facts.assigned.get(name, ()) for name in needed
        ):
            lines.append(f"  {statement.text}")
    return lines


def _written_out(text: str, facts: _Facts, free: set[str]) -> str | None:
    """An expression with the values of variables in their places, down to the numbers that stay ``free``."""
    for _ in range(8):
        bound = set(_NAME.findall(_SIZEOF.sub("", text))) & facts.variables.keys() - free
        if not bound:
            return _CAST.sub("", _SIZEOF.sub(lambda match: str(types.size_of(match[1])), text))
        for name in bound:
            value = facts.variables[name].value
            if value is None or name in facts.assigned or name in facts.changed:
                return None
            text = re.sub(rf"\b{name}\b", lambda _, put=value.text: f"({put})", text)
    return None


def _declared_in(node: Node) -> set[str]:
    one = _Facts()
    if node.type == "declaration":
        _declare(node, one)
    return set(one.variables)


def _all(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(current.named_children)


def _names(node: Node) -> set[str]:
    return {part.text for part in _all(node) if part.type == "identifier"}
