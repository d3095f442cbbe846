"""Files are read and written in a named encoding: a locale such as de_DE.ISO-8859-1 changes no text."""

from __future__ import annotations

import ast

from tests.import_graph import ROOT, Graph

ENCODING_AT = {"read_text": 0, "write_text": 1}  # where the encoding stands if it has no keyword


def unnamed(tree: ast.AST) -> list[int]:
    """The lines that open a file as text without saying how it is encoded."""
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        keywords = {keyword.arg for keyword in call.keywords}
        if "encoding" in keywords:
            continue
        if isinstance(call.func, ast.Attribute) and call.func.attr in ENCODING_AT:
            if len(call.args) <= ENCODING_AT[call.func.attr]:
                found.append(call.lineno)
        elif isinstance(call.func, ast.Name) and call.func.id == "open":
            modes = [arg for arg in call.args[1:2] if isinstance(arg, ast.Constant) and "b" in str(arg.value)]
            if not modes:
                found.append(call.lineno)
    return found


def test_every_text_file_has_a_named_encoding() -> None:
    lines = {
        str(path.relative_to(ROOT)): found
        for path in Graph().files.values()
        if (found := unnamed(ast.parse(path.read_text("utf-8"))))
    }
    assert lines == {}


def test_a_file_without_one_is_seen() -> None:
    wrong = "path.read_text()\npath.write_text(text)\nopen(path)\nopen(path, 'w')\n"
    right = (
        "path.read_text('utf-8')\npath.write_text(text, encoding='ascii')\nopen(path, 'rb')\nopen(p, encoding='utf-8')"
    )
    assert unnamed(ast.parse(wrong + right)) == [1, 2, 3, 4]
