"""Finding the final answer of a MATH completion or solution, as LaTeX text."""

from __future__ import annotations

import re

from tasks.segments import answer_segment, last_box

# Minerva's closing sentence (Lewkowycz et al. 2022, appendix D) and its relatives, for a completion without any box.
PHRASE = re.compile(
    r"(?:answer\s*:\s*(?:the\s+)?(?:final\s+)?)?answer(?:\s+is\s*:?|\s*:)\s*(?:\$(?P<dollar>[^$\n]+)\$|\\\((?P<paren>[^\n]+?)\\\)|(?P<bare>[^\n]+?))"
    r"(?=\.?\s*(?:\n|$)|\.\s|,\s)",
    re.IGNORECASE,
)
BARE_BOX = re.compile(r"\\boxed\s+([^\s$.,\\{}]+)")  # "\boxed 2", as some solutions of MATH have it
TEXT = re.compile(r"\\(?:text|mathrm|textbf|mbox|textrm)\s*\{([^{}]*)\}")
DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))


def final_answer(completion: str) -> str | None:
    """What the last balanced \\boxed{} holds; else what follows the last "answer is"; else None.

    A box that was opened and never closed is no answer, and the text in it is not looked at.
    """
    segment = answer_segment(completion)
    if segment is None:
        return None
    boxed = last_box(segment)
    if boxed is not None:
        return tidy(boxed) or None
    phrases = list(PHRASE.finditer(segment))
    if not phrases:
        return None
    answer = next(value for value in phrases[-1].groups() if value)
    return None if "\\boxed" in answer else tidy(answer) or None


def solution_answer(solution: str) -> str | None:
    """The gold answer of a MATH solution: its last box."""
    boxed = last_box(solution)
    if boxed is not None:
        return boxed
    bare = BARE_BOX.findall(solution)
    return bare[-1] if bare else None


def tidy(answer: str) -> str:
    """Without the signs around an answer that are no part of it: emphasis, dollar signs, the full stop."""
    answer = answer.strip().strip("*").strip().rstrip(".").strip()
    for opening, closing in DELIMITERS:
        inner = answer[len(opening) : -len(closing)]
        if answer.startswith(opening) and answer.endswith(closing) and inner and closing not in inner:
            return inner.strip()
    return answer


def same_text(left: str, right: str) -> bool:
    """Equal but for spaces and \\text{}: "\\text{June 20}" and "June 20", which are no formulas."""
    return _bare(left) == _bare(right) != ""


def _bare(answer: str) -> str:
    return re.sub(r"\s+", "", TEXT.sub(r"\1", tidy(answer)))
