"""Finding the final answer of a MATH completion or solution, as LaTeX text."""

from __future__ import annotations

import re

from tasks.segments import answer_segment, last_box

# Minerva's closing sentence (Lewkowycz et al. 2022, appendix D) and its relatives, for a completion without any box.
PHRASE = re.compile(r"answer(?:\s+is\s*:?|\s*:)\s*", re.IGNORECASE)
INLINE = re.compile(r"\$(?P<dollar>[^$\n]+)\$|\\\((?P<paren>(?:(?!\\\))[^\n])+)\\\)")
END = re.compile(r"[.,]\s|\.?\s*\Z")  # of a sentence, or of the line
BARE_BOX = re.compile(r"\\boxed\s+([^\s$.,\\{}]+)")  # "\boxed 2", as some solutions of MATH have it
TEXT = re.compile(r"\\(?:text|mathrm|textbf|mbox|textrm)\s*\{([^{}]*)\}")
DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))


def final_answer(completion: str) -> str | None:
    """What the last balanced \\boxed{} holds; else what follows the last "answer is"; else None.

    A box that was opened and never closed is no answer, and the text in it is not looked at. A last box that holds
    nothing gives nothing, whatever stands before it.
    """
    segment = answer_segment(completion)
    if segment is None:
        return None
    boxed = last_box(segment)
    if boxed is not None:
        return tidy(boxed) or None
    last = None
    for last in PHRASE.finditer(segment):  # noqa: B007  # the last one is wanted
        pass
    if last is None:
        return None
    answer = _sentence(segment[last.end() :].partition("\n")[0].rstrip())
    return None if "\\boxed" in answer else tidy(answer) or None


def _sentence(line: str) -> str:
    """What follows "answer is": a formula between delimiters, or the line up to a full stop or comma before a space."""
    if (formula := INLINE.match(line)) and END.match(line, formula.end()):
        return formula["dollar"] or formula["paren"]
    end = re.search(r"[.,]\s", line)
    return line[: end.start()] if end else line.removesuffix(".")


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
    """Spaces between digits are kept: "1 2 3" is not 123."""
    text = re.sub(r"(?<=\d)\s+(?=\d)", "\0", TEXT.sub(r"\1", tidy(answer)))
    return re.sub(r"\s+", "", text)
