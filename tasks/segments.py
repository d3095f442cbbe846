"""Which part of a completion may hold the answer: after the thinking, before a run-on next question.

Everything here takes time in proportion to the length of the text, whatever a model wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable

TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
ASKED = re.compile(r"^[ \t]*(?:Question|Problem|Q):", re.MULTILINE)
BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
BRACE = re.compile(r"\\.|[{}]")


def answer_segment(completion: str) -> str | None:
    """The part that is judged, or None if the completion never left its thinking."""
    text = visible_text(completion)
    if not text.strip():
        return None
    return cut_next_question(text)


def visible_text(completion: str, is_text: Callable[[int], bool] = lambda position: False) -> str:
    """Without thinking: neither closed passages, nor what precedes a lone closing tag, nor what follows an open one.

    `is_text` says of a tag's position that it only quotes one, as a string of a program can.
    """
    parts: list[str] = []
    start, inside = 0, False
    for tag in TAG.finditer(completion):
        if is_text(tag.start()):
            continue
        if tag[1]:
            if not inside:  # the opening tag was part of the prompt
                parts.clear()
            start, inside = tag.end(), False
        elif not inside:
            parts.append(completion[start : tag.start()])
            inside = True
    return "".join(parts) if inside else "".join([*parts, completion[start:]])


def cut_next_question(text: str) -> str:
    """Cuts a question that the model asked itself after it had answered; one it begins with is a restatement.

    It stands after a blank line, or after the line of a "####" answer, so that "Restating the Question:" stays.
    """
    begin = len(text) - len(text.lstrip())
    for asked in ASKED.finditer(text, begin):
        end = asked.start() - 1
        start = text.rfind("\n", 0, max(end, 0)) + 1
        line = text[max(start, begin) : max(end, 0)]
        if "####" in line:
            return text[:end]
        if not line.strip(" \t\r") and start > begin:
            return text[: start - 1]
    return text


def last_box(text: str) -> str | None:
    """What the last \\boxed{...} with balanced braces holds. A box that is never closed does not count."""
    boxes = {box.end() - 1 for box in BOX.finditer(text)}
    opened: list[int] = []
    last, end = -1, -1
    for brace in BRACE.finditer(text) if boxes else ():
        if brace.group() == "{":
            opened.append(brace.start())
        elif brace.group() == "}" and opened:
            start = opened.pop()
            if start in boxes and start > last:
                last, end = start, brace.start()
    return text[last + 1 : end] if last >= 0 else None
