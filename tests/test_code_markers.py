"""Fences, tags and thinking: which of them are marks of a text, and which are text of a program."""

from __future__ import annotations

import threading

import pytest

from tasks.code.extraction.extract import extract
from tasks.code.extraction.trees import parse
from tests.test_code_extract import PROMPT, WHOLE, ZERO, humaneval, mbpp

DOCSTRING = '''def tri_area(b, h):
    """Area.

    Example:

    ```python
    tri_area(4, 3)
    ```

    And <think>not this</think>.
    """
    return b * h / 2
'''
QUOTING = '''def tri_area(b, h):
    text = "<think>x</think>" + '</think>'  # a <think> here, ``` there
    other = """
```
a fence
```
"""
    lone = "it's a </think>"
    return b * h / 2 if "<think>" in text and other.count("`") == 6 else 0
'''
COMMENTS = '''# strip <think> and </think>
def tri_area(b, h):
    # </think>
    sign = '# "no comment"</think>'
    other = r"""\\\\""" + f"<think>"
    last = b\'</think>\'
    return b * h / 2
'''
WITH_MARKERS = {
    "docstring": DOCSTRING,
    "docstring, untagged": DOCSTRING.replace("```python", "```"),
    "docstring, first column": DOCSTRING.replace("    ```", "```"),
    "docstring, tildes": DOCSTRING.replace('"""', "'''").replace("```", "~~~"),
    "docstring, function": DOCSTRING.replace("    tri_area(4, 3)\n", "    def tri_area(b, h):\n        return 0\n"),
    "strings": QUOTING,
    "comments": COMMENTS,
}
AROUND = {
    "text": "{}",
    "prose": "Here it is, don't worry:\n\n{}\nIt's easy, isn't it?",
    "fence": "```python\n{}```",
    "untagged fence": "Here it's:\n```\n{}```\nThat's it.",
    "tildes": "~~~py\n{}~~~",
    "four backticks": "````python\n{}````\n",
    "fences in Markdown": "````markdown\nIt's:\n```python\n{}```\n````\n",
    "equal fences in Markdown": "```markdown\n```python\n{}```\n```\n",
    "thinking": f"<think>It's <b>\n```python\n{ZERO}```\n</think>\n```python\n{{}}```",
    "thinking begun in the prompt": f"I'd say\n```python\n{ZERO}```\nThat's wrong.</think>\n```python\n{{}}```",
    "a fence left open in thinking": f"I'd say\n```python\n{ZERO}\nThat's wrong.\n</think>\n```python\n{{}}```",
    "thinking and text": "<think>\ndon't '\n</think>\n\nSo, it's:\n{}",
    "two": f"```python\n{{}}```\nA worse one:\n```python\n{ZERO}```",
    "no end": "```python\n{}",
    "a fence for another": "```python\n{}```python\nprint(tri_area(1, 2))\n```",
    "usage behind": "{}\nUsage:\n```python\nprint(tri_area(1, 2))\n```\n",
    "usage before": "```python\ntri_area(2, 2)\n```\n\n```python\n{}```\n",
    "lone fence": "{}```\nDone, it's fine",
    "fence behind a word": "Here: ```python\n{}```",
    "other languages": "```bash\npip install x\n```\n```python\n{}```\n```text\n6.0\n```",
    "quotes in prose": "Use \"\"\" for docs, it's '''great'''.\n```python\n{}```\n",
    "an error before": "```python\ndef broken(:\n    '''\n```\n```python\n{}```\n",
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("program", WITH_MARKERS)
def test_fences_and_tags_in_strings_and_comments_are_text(program: str, around: str) -> None:
    completion = AROUND[around].format(WITH_MARKERS[program])
    assert mbpp(completion) == 6.0
    assert humaneval(completion) == 6.0
    assert mbpp(completion.replace("\n", "\r\n")) == 6.0


@pytest.mark.parametrize("program", [name for name in WITH_MARKERS if name != "comments"])
def test_a_body_may_hold_markers_too(program: str) -> None:
    body = WITH_MARKERS[program].partition("\n")[2]
    for around in ("{}", "{}```\nDone, it's", "```python\n{}```", "{}It's done."):
        assert humaneval(around.format(body)) == 6.0, around
    assert humaneval(body + "```\nDone, it's", open_fence=True) == 6.0


def test_a_block_in_a_list_item_keeps_its_inner_fences() -> None:
    lines = "".join(f"   {line}\n" if line else "\n" for line in DOCSTRING.split("\n"))
    assert mbpp(f"1. So:\n\n   ```python\n{lines}   ```\n") == 6.0


def test_a_fence_behind_the_last_line_ends_a_block() -> None:
    assert mbpp(f"```python\n{WHOLE.rstrip()}```\nDone.") == 6.0
    assert mbpp(f"```python\n{WHOLE.rstrip()}  # ```\n```\nDone.") == 6.0


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        (f"```python\n{ZERO}```</think>\n{WHOLE}", 6.0),
        (f"{ZERO}</think>\n{WHOLE}", 6.0),
        (f"{ZERO}</think></think>{WHOLE}", 6.0),
        (f"{WHOLE}<think>or\n{ZERO}", 6.0),
        (f"<think>{ZERO}</think><think>{ZERO}</think>{WHOLE}", 6.0),
        (f"{WHOLE}</think>", "KeyError"),
    ],
)
def test_thinking_is_no_program(completion: str, value: object) -> None:
    assert mbpp(completion) == value


HOSTILE = [
    *("(" * 5000, "-" * 50_000 + "1", "a" + ".a" * 40_000, "[" * 50_000, "not " * 20_000 + "1", "1+" * 40_000 + "1"),
    *("x=" * 30_000 + "1", "lambda:" * 10_000 + "1", "\0", "'" * 1001, "def f():\n" * 3000, "```\n" * 5000),
    *("\ud800", "f'{" * 200, "x" * 300_000, "\\\n" * 3000, "```python" * 3000, "a\n" * 10_000, "9" * 5000),
    *(
        "'<think>'" * 10_000,
        "</think>" * 10_000,
        '"' * 60_000,
        "'''\n" * 10_000,
        "`" * 90_000,
        "```" + "x" * 90_000 + "`",
    ),
    *(
        "def tri_area(b, h):\n" * 4000,
        "```\nx = 1\n```\n" * 5000,
        "a = (\n" * 10_000,
        "```md\n" * 10_000,
        "@x\n" * 10_000,
    ),
    *(
        "".join(f"```\nx{i} = x{i + 1}\n```\n" for i in range(4000)),
        "~~~\n" * 10_000,
        "if x:\n" * 400,
        "for us:\n" * 9000 + " x = 1",
    ),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_harms_the_harness_even_in_a_thread(text: str) -> None:
    done = []

    def work() -> None:
        parse(text)
        extract(text, ("tri_area",), PROMPT)
        extract(text, ("tri_area",))
        done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)  # seconds that anything quadratic would exceed
    assert done
