"""The program in a completion: prose and fences go, everything that the function needs stays, nothing is repaired."""

from __future__ import annotations

import threading

import pytest

from tasks.code_extract import extract, parse, preamble

PROMPT = 'def tri_area(b, h):\n    """Area of a triangle."""\n'
WHOLE = "def tri_area(b, h):\n    return b * h / 2\n"


def run(program: str) -> object:
    """What tri_area(4, 3) gives, or the name of the exception; only for the harmless programs of this file."""
    scope: dict[str, object] = {"__name__": "solution"}
    try:
        exec(program, scope)
        return scope["tri_area"](4, 3)  # type: ignore[operator]
    except Exception as error:
        return type(error).__name__


def humaneval(completion: str, open_fence: bool = False) -> object:
    return run(extract(completion, ("tri_area",), PROMPT, open_fence).program)


def mbpp(completion: str, open_fence: bool = False) -> object:
    return run(extract(completion, ("tri_area",), None, open_fence).program)


@pytest.mark.parametrize(
    "completion",
    [
        WHOLE,
        f"Here is the function:\n\n```python\n{WHOLE}```\nIt halves the product.",
        f"```py\n{WHOLE}```",
        f"```Python\n{WHOLE}```",
        f"```\n{WHOLE}```",
        f"``` python title=x\n{WHOLE}```",
        f"~~~python\n{WHOLE}~~~",
        f"```python\r\n{WHOLE}```\r\n".replace("\n", "\r\n").replace("\r\r", "\r"),
        f"```python\n{WHOLE}",
        "1. Write it:\n\n   ```python\n   def tri_area(b, h):\n       return b * h / 2\n   ```\n",
        f"Sure! The formula is b*h/2.\n\n{WHOLE}\nThis works because of geometry.\nIt's easy.",
        f"<think>\n```python\ndef tri_area(b, h):\n    return 0\n```\n</think>\n```python\n{WHOLE}```",
        f"```bash\npip install numpy\n```\n```python\n{WHOLE}```\n```text\n6.0\n```",
        f"First the usage:\n```python\nprint(tri_area(2, 2))\n```\nand the function\n```python\n{WHOLE}```",
        f"```python\n{WHOLE}```\nA worse way:\n```python\ndef tri_area(b, h):\n    return 0\n```",
        f"{WHOLE}\nif __name__ == '__main__':\n    print(tri_area(int(input()), 2))\n",
        f"{WHOLE}```\nThe function above",
        f"```python\n{WHOLE}\ndef unfinished(x):\n    return (x +",
        "```python\nimport math\nD = 2\n```\n```python\ndef tri_area(b, h):\n    return math.prod([b, h]) / D\n```",
        "```python\ndef half(x):\n    return x / 2\n```\n```python\ndef tri_area(b, h):\n    return half(b * h)\n```",
        "tri_area = lambda b, h: b * h / 2\n",
        "from __future__ import annotations\n" + WHOLE,
        "@staticmethod\ndef tri_area(b, h):\n    return b * h / 2\n",
        "def gen():\n    yield 2\nfor d in gen():\n    a, c = 1, 2\ndef tri_area(b, h):\n    return b * h / d * a\n",
    ],
)
def test_the_function_is_found(completion: str) -> None:
    assert mbpp(completion) == 6.0
    assert humaneval(completion) == 6.0


@pytest.mark.parametrize(
    "completion",
    [
        "    return b * h / 2",
        "    return b * h / 2\n\n\nprint(tri_area(1, 2))\n",
        "\n    return b * h / 2\n",
        "    return half(b * h)\n\ndef half(x):\n    return x / 2\n",
        "```python\n    return b * h / 2\n```",
        "    return b * h / 2\n```\nThis function returns the area.\n",
        "    return b * h / 2\n\nThis function returns the area. It's simple.\n",
        "    return b * h / 2\n\ndef next_one(x):\n    return (x",
    ],
)
def test_a_body_continues_the_prompt(completion: str) -> None:
    assert humaneval(completion) == 6.0


@pytest.mark.parametrize(
    "completion",
    [
        "     return b * h / 2",
        "\treturn b * h / 2",
        "    x = b\n\treturn x * h / 2",
        "return b * h / 2",
        "    return (b * h / 2",
        "```python\ndef tri_area(b, h):\nreturn b * h / 2\n```",
        "```python\ndef tri_area(b, h):\n    return b * h / 2\n  x = 1\n```",
    ],
)
def test_wrong_code_is_not_repaired(completion: str) -> None:
    assert humaneval(completion) in ("SyntaxError", "IndentationError", "TabError")


def test_a_docstring_only_is_a_program_that_returns_nothing() -> None:
    assert humaneval('    """Area."""\n') is None


@pytest.mark.parametrize("completion", ["", " \n\t\n", "<think>endless", "<think>x</think>\n"])
def test_an_empty_completion_is_empty(completion: str) -> None:
    assert extract(completion, ("tri_area",), PROMPT).how == "empty"


def test_where_a_program_was_found_is_recorded() -> None:
    assert extract(WHOLE, ("tri_area",)).how == "text"
    assert extract(f"So:\n{WHOLE}", ("tri_area",)).how == "trimmed text"
    assert extract(f"```\n{WHOLE}```", ("tri_area",)).how == "fence"


def test_an_open_fence_of_the_prompt_is_closed_by_the_completion() -> None:
    for completion in (WHOLE, f"{WHOLE}```\nThis is it:\n```python\ndef tri_area(b, h):\n    return 0\n```\n"):
        assert mbpp(completion, open_fence=True) == 6.0
        assert humaneval(completion, open_fence=True) == 6.0
    assert humaneval("    return b * h / 2\n```\nDone.", open_fence=True) == 6.0
    assert mbpp(f"```python\n{WHOLE}```", open_fence=True) == 6.0


def test_the_prompts_imports_and_helpers_come_before_a_whole_function() -> None:
    prompt = "import math\n\ndef double(x):\n    return 2 * x\n\n\ndef tri_area(b, h):\n    '''Area.'''\n"
    assert preamble(prompt, "tri_area") == "import math\n\ndef double(x):\n    return 2 * x\n\n\n"
    completion = "```python\ndef tri_area(b, h):\n    return math.prod([b, h]) / double(1)\n```"
    assert run(extract(completion, ("tri_area",), prompt).program) == 6.0


def test_several_names_may_be_wanted() -> None:
    completion = "```python\nclass Pair:\n    pass\n```\n```python\ndef chain(pairs):\n    return 1\n```"
    scope: dict[str, object] = {}
    exec(extract(completion, ("chain", "Pair")).program, scope)
    assert {"Pair", "chain"} <= set(scope)


HOSTILE = [
    *("(" * 5000, "-" * 50_000 + "1", "a" + ".a" * 40_000, "[" * 50_000, "not " * 20_000 + "1", "1+" * 40_000 + "1"),
    *("x=" * 30_000 + "1", "lambda:" * 10_000 + "1", "\0", "'" * 1001, "def f():\n" * 3000, "```\n" * 5000),
    *("\ud800", "f'{" * 200, "x" * 300_000, "\\\n" * 3000, "```python" * 3000, "a\n" * 20_000),
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
    thread.join(20)
    assert done
