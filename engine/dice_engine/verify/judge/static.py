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

from dice_engine.source.cuda import find_kernels
from dice_engine.verify.build.lexer import live_tokens, tokenize
from dice_engine.verify.judge.static_cpp import ASKS, cpp_dangers
from dice_engine.verify.judge.static_python import BEHIND, python_dangers
from dice_engine.verify.verdict import VerdictName

_STORES = re.compile(
    r"(?<![=!<>])=(?!=)|\+\+|--|\b(?!(?:if|for|while|switch|return|sizeof)\b)\w+\s*(?:<[^;{}]*>\s*)?\("
)


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
    known = Counter(text for text, _ in python_dangers(_parsed(reference), reference_class))
    for text, line in python_dangers(tree, candidate_class):
        if known[text] > 0:
            known[text] -= 1
            continue
        if text.startswith(BEHIND):
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
    known = Counter(text for text, _ in cpp_dangers(reference))
    for text, line in cpp_dangers(candidate):
        if known[text] > 0:
            known[text] -= 1
            continue
        where = f"{text} (line {line} of the CUDA source)"
        return (
            Finding("deceptive", "tampering", where)
            if text.startswith((BEHIND, ASKS))
            else Finding("unsafe", None, where)
        )
    return None


def check_kernel(candidate: str, original: str, kernel: str) -> Finding | None:
    """The first rule that a CUDA text breaks which has another ``kernel`` than ``original``."""
    finding = check_cpp(candidate, original)
    span = next((span for span in find_kernels(candidate) if span.name == kernel), None)
    if finding is not None or span is None:
        return finding
    return check_body(candidate.encode()[span.body_start : span.body_end].decode(errors="replace"), kernel)


def class_names(text: str) -> set[str]:
    """Names of the classes at the top level of a Python text; empty when it does not parse."""
    return {node.name for node in _parsed(text).body if isinstance(node, ast.ClassDef)}


def check_body(body: str, kernel: str) -> Finding | None:
    """``empty_core``: nothing in a kernel's body stores or calls anything once comments and strings are gone."""
    text = body.replace("\r\n", "\n")
    live = [token for token in live_tokens(tokenize(text)) if token.kind in ("id", "num", "punct")]
    gaps = [" " * (following.start > token.end) for token, following in pairwise(live)]
    if _STORES.search("".join(token.text + gap for token, gap in zip(live, [*gaps, ""], strict=False))):
        return None
    return Finding("deceptive", "empty_core", f"the body of {kernel} stores nothing")


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


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
