"""What a problem of the embedded model is, and how problems are kept out of training.

Three kinds are asked in the embedded sets: `word` (GSM8K style), `function` (MBPP style) and `completion` (HumanEval
style). `drill` lists bare arithmetic and only serves training.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

HELD_OUT_ONE_IN = 10


@dataclass(frozen=True)
class Problem:
    """A question with its gold answer.

    `key` names what must be new in a held-out problem: (template, operands) of a word problem, (family, constant) of
    a function. `tests` are asserts on `function`; `facts` the arithmetic of the answer, such as "6*7=42".
    """

    kind: str
    key: str
    question: str
    answer: str
    facts: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    function: str = ""
    task: str = ""  # what the function does, without the first assert

    @property
    def code(self) -> str:
        """The whole gold function; a completion continues its question."""
        return self.question + self.answer if self.kind == "completion" else self.answer

    @property
    def held_out(self) -> bool:
        """Whether the key belongs to the held-out tenth. A stable hash: the same in every run and on every machine."""
        digest = hashlib.sha256(self.key.encode()).digest()
        return self.kind != "drill" and int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0
