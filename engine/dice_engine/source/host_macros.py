"""The preprocessor: conditionals decided and the file's own macros expanded, line for line.

Only macros defined in the text itself are expanded (``TORCH_CHECK`` and the like keep their names). Includes are not
followed, so a name that only a header could define counts as undefined, as the host compiler's first pass would see it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dice_engine.source.expressions import ExpressionError, evaluate
from dice_engine.source.host_lex import Token, matching, plain_text, split_commas, tokenize, untokenize

_PREDEFINED = {
    "__CUDACC__": "1",
    "__NVCC__": "1",
    "__cplusplus": "201703",
    "CUDA_VERSION": "13000",
    "CUDART_VERSION": "13000",
    "__CUDACC_VER_MAJOR__": "13",
    "__CUDACC_VER_MINOR__": "0",
    "TORCH_VERSION_MAJOR": "2",
    "TORCH_VERSION_MINOR": "11",
}
_EXPANSION_LIMIT = 200_000
"""Tokens that macros may produce in one file; beyond it names stay as they are (a macro bomb, not a kernel)."""


@dataclass(frozen=True)
class Macro:
    name: str
    params: tuple[str, ...] | None
    """None for an object-like macro."""
    variadic: bool
    body: tuple[Token, ...]


def preprocess(text: str) -> str:
    """``text`` with directives blanked, inactive branches removed and macros expanded; line numbers are kept."""
    return untokenize(_Preprocessor().run(tokenize(text)))


class _Preprocessor:
    def __init__(self) -> None:
        self.macros: dict[str, Macro] = {}
        self.budget = _EXPANSION_LIMIT
        self.branches: list[tuple[bool, bool, bool]] = []
        """One entry an open #if: (this branch is active, some branch was taken, the surroundings are active)."""

    def run(self, tokens: list[Token]) -> list[Token]:
        out: list[Token] = []
        pending: list[Token] = []
        owed = ""
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if token.text == "#" and token.first and token.kind == "punct":
                end = index + 1
                while end < len(tokens) - 1 and not tokens[end].first:
                    end += 1
                out += self._flush(pending)
                pending = []
                owed += token.lead + "".join(
                    "\n" * t.lead.count("\n") + _newlines(t) for t in tokens[index + 1 : end]
                )
                self._directive(tokens[index + 1 : end])
                index = end
                continue
            if self.branches and not all(self.branches[-1][::2]) and token.kind != "end":
                owed += "\n" * token.lead.count("\n") + _newlines(token)
            else:
                pending.append(token.led_by(owed + token.lead) if owed else token)
                owed = ""
            index += 1
        return out + self._flush(pending)

    def _flush(self, tokens: list[Token]) -> list[Token]:
        return self.expand(tokens, frozenset())

    def _directive(self, tokens: list[Token]) -> None:
        if not tokens:
            return
        name, rest = tokens[0].text, tokens[1:]
        active = not self.branches or all(self.branches[-1][::2])
        if name in ("if", "ifdef", "ifndef"):
            if name == "if":
                taken = active and self._condition(rest)
            else:
                known = bool(rest) and (rest[0].text in self.macros or rest[0].text in _PREDEFINED)
                taken = active and known == (name == "ifdef")
            self.branches.append((taken, taken, active))
        elif name in ("elif", "else") and self.branches:
            _, done, outer = self.branches[-1]
            taken = outer and not done and (name == "else" or self._condition(rest))
            self.branches[-1] = (taken, done or taken, outer)
        elif name == "endif" and self.branches:
            self.branches.pop()
        elif name == "define" and active and rest and rest[0].kind == "name":
            self._define(rest)
        elif name == "undef" and active and rest:
            self.macros.pop(rest[0].text, None)

    def _define(self, tokens: list[Token]) -> None:
        name, body = tokens[0].text, tokens[1:]
        params: tuple[str, ...] | None = None
        variadic = False
        if body and body[0].text == "(" and not body[0].lead:
            close = matching(body, 0)
            if close is None:
                return
            names = [plain_text(part) for part in split_commas(body[1:close])]
            variadic = bool(names) and names[-1].endswith("...")
            if variadic:
                names[-1] = names[-1][:-3] or "__VA_ARGS__"
            params, body = tuple(names), body[close + 1 :]
        flat = tuple(t.led_by(" " if t.lead and i else "") for i, t in enumerate(body))
        self.macros[name] = Macro(name, params, variadic, flat)

    def _condition(self, tokens: list[Token]) -> bool:
        """The value of an ``#if`` line; a line we cannot read counts as false."""
        resolved: list[Token] = []
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if token.text in ("defined", "__has_include"):
                end = index + 1
                if end < len(tokens) and tokens[end].text == "(":
                    end = matching(tokens, end) or len(tokens) - 1
                names = {t.text for t in tokens[index : end + 1]}
                known = token.text == "defined" and bool(names & (set(self.macros) | set(_PREDEFINED)))
                resolved.append(Token("number", str(int(known)), " ", token.line))
                index = end + 1
            else:
                resolved.append(token)
                index += 1
        expanded = self.expand(resolved, frozenset())
        text = " ".join(
            _PREDEFINED.get(t.text, "0" if t.text != "true" else "1")
            if t.kind == "name"
            else t.text.rstrip("uUlL")
            for t in expanded
        )
        try:
            return bool(evaluate(text, {}))
        except ExpressionError:
            return False

    def expand(self, tokens: list[Token], hidden: frozenset[str]) -> list[Token]:
        out: list[Token] = []
        index = 0
        while index < len(tokens):
            token = tokens[index]
            macro = self.macros.get(token.text) if token.kind == "name" and token.text not in hidden else None
            if macro is None or self.budget <= 0:
                out.append(token)
                index += 1
                continue
            end = index
            args: list[list[Token]] = []
            if macro.params is not None:
                if index + 1 >= len(tokens) or tokens[index + 1].text != "(":
                    out.append(token)
                    index += 1
                    continue
                close = matching(tokens, index + 1)
                if close is None:
                    out.append(token)
                    index += 1
                    continue
                args, end = _macro_args(tokens[index + 2 : close]), close
            body = self._substitute(macro, args, hidden)
            self.budget -= len(body) + 1
            produced = self.expand(body, hidden | {macro.name})
            lost = "\n" * sum(
                t.lead.count("\n") + _newlines(t).count("\n") for t in tokens[index + 1 : end + 1]
            )
            produced = [t.led_by(" " if t.lead else "") for t in produced] or [
                Token("punct", "", "", token.line)
            ]
            out.append(produced[0].led_by(token.lead or " "))
            out += produced[1:]
            if lost:
                out.append(Token("punct", "", lost, token.line))
            index = end + 1
        return out

    def _substitute(self, macro: Macro, args: list[list[Token]], hidden: frozenset[str]) -> list[Token]:
        """The body with parameters replaced, ``#`` and ``##`` done."""
        if macro.params is None:
            return list(macro.body)
        names = macro.params
        if macro.variadic:
            fixed = len(names) - 1
            rest: list[Token] = []
            for position, arg in enumerate(args[fixed:]):
                rest += [Token("punct", ",", "", arg[0].line if arg else 0)] * bool(position) + arg
            args = [*args[:fixed], rest]
        given = {name: args[i] if i < len(args) else [] for i, name in enumerate(names)}
        out: list[Token] = []
        body = macro.body
        index = 0
        while index < len(body):
            token = body[index]
            following = body[index + 1] if index + 1 < len(body) else None
            if token.text == "#" and following is not None and following.text in given:
                quoted = plain_spaced(given[following.text]).replace("\\", "\\\\").replace('"', '\\"')
                out.append(Token("string", f'"{quoted}"', " ", token.line))
                index += 2
                continue
            if token.text == "##" and following is not None and out:
                raw = list(given[following.text]) if following.text in given else [following]
                if out[-1].text == "," and not raw:
                    out.pop()
                elif out[-1].text == "," and following.text in given:
                    out += raw
                elif raw:
                    glued = tokenize(out.pop().text + raw[0].text)[:-1]
                    out += [t.led_by(" " if i == 0 else "") for i, t in enumerate(glued)] + raw[1:]
                index += 2
                continue
            if token.text in given:
                pasted = following is not None and following.text == "##"
                arg = given[token.text]
                arg = arg if pasted else self.expand(arg, hidden)
                out += [t.led_by(token.lead or t.lead) if i == 0 else t for i, t in enumerate(arg)]
                if pasted and not arg:
                    out.append(Token("punct", "", token.lead, token.line))
            else:
                out.append(token)
            index += 1
        return out


def _macro_args(tokens: list[Token]) -> list[list[Token]]:
    """Macro arguments: template brackets do not hide commas from the preprocessor."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _newlines(token: Token) -> str:
    return "\n" * token.text.count("\n")


def plain_spaced(tokens: list[Token]) -> str:
    return "".join((" " if t.lead and i else "") + t.text for i, t in enumerate(tokens))
