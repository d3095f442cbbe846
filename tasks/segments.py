"""Which part of a completion may hold the answer: after the thinking, before a run-on next question."""

from __future__ import annotations

import re

THINKING = re.compile(r"<(think|thinking)>.*?</\1>", re.DOTALL | re.IGNORECASE)
OPENER = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
CLOSER = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
# Anchored at a blank line, or at the line after a "####" answer, so that "Restating the Question:" stays.
NEXT_QUESTION = re.compile(r"(?:\n[ \t\r]*\n|####[^\n]*\n)[ \t]*(?:Question|Problem|Q):")
BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")


def answer_segment(completion: str) -> str | None:
    """The part that is judged, or None if the completion never left its thinking."""
    text = visible_text(completion)
    if not text.strip():
        return None
    return cut_next_question(text)


def visible_text(completion: str) -> str:
    """Without thinking: neither closed blocks, nor what precedes a lone closing tag, nor what follows an open one."""
    text = THINKING.sub("", completion)
    if closers := list(CLOSER.finditer(text)):  # the opening tag was part of the prompt
        text = text[closers[-1].end() :]
    if opener := OPENER.search(text):
        text = text[: opener.start()]
    return text


def cut_next_question(text: str) -> str:
    """Cuts a question that the model asked itself after it had answered; one it begins with is a restatement."""
    start = len(text) - len(text.lstrip())
    match = NEXT_QUESTION.search(text, start)
    if match is None:
        return text
    return text[: match.start()] + match.group().partition("\n")[0]  # keeps the line of a "####" answer


def last_box(text: str) -> str | None:
    """What the last \\boxed{...} with balanced braces holds. A box that is never closed does not count."""
    for box in reversed(list(BOX.finditer(text))):
        depth = 1
        for brace in re.finditer(r"\\.|[{}]", text[box.end() :]):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if depth == 0:
                return text[box.end() : box.end() + brace.start()]
    return None
