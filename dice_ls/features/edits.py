"""Suggestions as workspace edits, right to the byte for the document as it is at this moment."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from dice_engine.source.hole import Hole
from lsprotocol import types
from pygls.capabilities import get_capability

from dice_ls.documents import Document
from dice_ls.language_server import DiceServer
from dice_ls.suggestions import module_forms, wording
from dice_ls.suggestions.store import Candidate, HoleId, Record, context_digest
from dice_ls.uris import path_of

_ANNOTATION = "dice"
_COMMENT_BYTES = 4096
"""How far above a kernel its annotation is looked for."""


class NoStub(Exception):
    """No annotation can be written for this hole; the message says what to do instead."""


def offers(
    server: DiceServer, document: Document, hole_id: HoleId, hole: Hole
) -> tuple[Record | None, list[Candidate]]:
    """The record of a hole and those of its results that still apply to the document's present text."""
    record = server.store.get(document.uri, hole_id)
    if record is None:
        return None, []
    candidates = record.offers()
    if hole.kind == "module":
        # Inserting leaves the class itself as it was, so what is inserted already must be recognised here.
        candidates = [
            item for item in candidates if item.core.strip() not in hole.suffix.replace("\r\n", "\n")
        ]
    return record, candidates


Form = Literal["core", "replace", "file"]
"""Where a rewrite goes: between the user's own bytes; for a module also in the class's place or into a new file."""


def forms(server: DiceServer, document: Document, hole: Hole) -> list[tuple[Form, str]]:
    """The forms that this client can apply to a hole, and what to add to the title of each."""
    if hole.kind != "module":
        return [("core", "")]
    found: list[tuple[Form, str]] = [("core", ""), ("replace", f", in place of `{hole.name}`")]
    operations = get_capability(
        server.client_capabilities, "workspace.workspace_edit.resource_operations", None
    )
    if types.ResourceOperationKind.Create in (operations or []) and path_of(document.uri):
        found.append(("file", f", in the new file {module_forms.file_name(document.path, hole.name)}"))
    return found


def form(server: DiceServer, document: Document, hole: Hole, wanted: object) -> Form:
    """The form that a client asks for, where it can have it; else between the user's own bytes."""
    known: list[Form] = [known for known, _ in forms(server, document, hole) if known == wanted]
    return known[0] if known else "core"


def rewrite(
    server: DiceServer,
    document: Document,
    record: Record,
    hole: Hole,
    candidate: Candidate,
    form: Form = "core",
) -> types.WorkspaceEdit:
    """The edit that writes ``candidate``."""
    from dice_engine.source.holes import edit

    assert candidate.verdict is not None
    moved = record.context != context_digest(document.text, hole)
    description = wording.evidence(candidate.verdict)
    if moved:
        description += "; the file was changed outside this code since the check"
    annotation = types.ChangeAnnotation(
        label=wording.offer_title(candidate.verdict), needs_confirmation=moved, description=description
    )
    if form == "file":
        return _new_file(server, document, hole, candidate, annotation)
    if form == "replace":
        start, end = hole.anchor[0], hole.end_byte
        source = document.positions.data[start:end].decode("utf-8", "surrogatepass")
        core = candidate.core.replace("\r\n", "\n")
        if hole.signature is not None:
            kept, core = module_forms.replacing_function(hole, source, core)
        else:
            kept, core = module_forms.replacing(hole.name, source, core)
        change = types.TextEdit(document.positions.range(start, end), kept + edit(hole, core))
    else:
        change = types.TextEdit(
            document.positions.range(hole.start_byte, hole.end_byte), edit(hole, candidate.core)
        )
    return workspace_edit(server, document, change, annotation)


def _new_file(
    server: DiceServer,
    document: Document,
    hole: Hole,
    candidate: Candidate,
    annotation: types.ChangeAnnotation,
) -> types.WorkspaceEdit:
    uri = document.uri.rpartition("/")[0] + "/" + module_forms.file_name(document.path, hole.name)
    stem = PurePosixPath(document.path).stem
    text = module_forms.new_file(hole, candidate.core, document.text, stem)
    start = types.Position(0, 0)
    change: types.TextEdit | types.AnnotatedTextEdit = types.TextEdit(types.Range(start, start), text)
    annotations = None
    if server.supports("workspace.workspace_edit.change_annotation_support"):
        change = types.AnnotatedTextEdit(_ANNOTATION, change.range, change.new_text)
        annotations = {_ANNOTATION: annotation}
    target = types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=None)
    return types.WorkspaceEdit(
        document_changes=[
            types.CreateFile(uri, options=types.CreateFileOptions(ignore_if_exists=False)),
            types.TextDocumentEdit(target, [change]),
        ],
        change_annotations=annotations,
    )


def workspace_edit(
    server: DiceServer,
    document: Document,
    change: types.TextEdit,
    annotation: types.ChangeAnnotation | None = None,
) -> types.WorkspaceEdit:
    """The richest form of one change that the client understands: versioned, and annotated where it can be."""
    if not server.supports("workspace.workspace_edit.document_changes"):
        return types.WorkspaceEdit(changes={document.uri: [change]})
    annotate = annotation is not None and server.supports(
        "workspace.workspace_edit.change_annotation_support"
    )
    target = types.OptionalVersionedTextDocumentIdentifier(uri=document.uri, version=document.version)
    if not annotate or annotation is None:
        return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(target, [change])])
    annotated = types.AnnotatedTextEdit(_ANNOTATION, change.range, change.new_text)
    return types.WorkspaceEdit(
        document_changes=[types.TextDocumentEdit(target, [annotated])],
        change_annotations={_ANNOTATION: annotation},
    )


def can_annotate(hole: Hole) -> bool:
    """Whether a new annotation would help: not where one stands already and has a fault."""
    return not hole.plan.runnable and hole.kind != "load_inline_core" and not annotated(hole)


def annotated(hole: Hole) -> bool:
    """Whether a comment directly above the kernel or class holds a ``@dice`` line."""
    above = hole.data[max(0, hole.anchor[0] - _COMMENT_BYTES) : hole.anchor[0]].decode("utf-8-sig", "replace")
    for line in reversed(above.rstrip(" \t").splitlines()):
        if not line.strip().startswith(("//", "#", "/*", "*")) and not line.rstrip().endswith("*/"):
            return False
        if "@dice" in line:
            return True
    return False


def stub(server: DiceServer, document: Document, hole: Hole) -> types.WorkspaceEdit:
    """The edit that inserts a filled ``@dice`` annotation above a kernel or class. Raises NoStub."""
    line = document.positions.position(hole.anchor[0]).line
    above = document.positions.line(line)
    indent = above[: len(above) - len(above.lstrip())]
    newline = "\r\n" if "\r\n" in document.text else "\n"
    text = "".join(indent + one + newline for one in _stub_text(document, hole).splitlines())
    at = types.Position(line, 0)
    return workspace_edit(server, document, types.TextEdit(types.Range(at, at), text))


def _stub_text(document: Document, hole: Hole) -> str:
    from dice_engine.source import pytorch
    from dice_engine.source.holes import decode
    from dice_engine.source.plans import stub as kernel_stub

    if hole.kind == "module":
        file = pytorch.parse(document.positions.data)
        known = [*pytorch.module_classes(file), *pytorch.plain_functions(file)]
        inputs = next((one.inputs for one in known if one.name == hole.name), ())
        return f"# @dice inputs({', '.join(f'{name}=randn(64, 1024)' for name in inputs)}) init()"
    if hole.kind == "load_inline_core":
        raise NoStub("annotate the kernels inside the string, or add get_inputs() to the file")
    decoded = decode(hole)
    try:
        return kernel_stub(decoded.prefix + decoded.core + decoded.suffix, hole.name)
    except KeyError:
        raise NoStub(f"the signature of `{hole.name}` cannot be read; write the annotation by hand") from None
