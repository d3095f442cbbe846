"""The program in a completion: prose and fences go, everything that the function needs stays, nothing is repaired."""

from __future__ import annotations

import pytest

from tasks.code.extraction.extract import extract, preamble

PROMPT = 'def tri_area(b, h):\n    """Area of a triangle."""\n'
WHOLE = "def tri_area(b, h):\n    return b * h / 2\n"
ZERO = "def tri_area(b, h):\n    return 0\n"


def run(program: str) -> object:
    """What tri_area(4, 3) gives, or the name of the exception; only for the harmless programs of this file."""
    scope: dict[str, object] = {"__name__": "solution"}
    try:
        exec(program, scope)
        return scope["tri_area"](4, 3)
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


PROSE = [
    *("[BEGIN]", "[DONE]", "[PYTHON]", "[/PYTHON]", "Solution", "Solution:", "Answer: 5", "Answer: five", "Note: this"),
    *("python", "Python", "python3", "Sure!", "Ok", "Hello, world", "(below)", "not sure", "a is b", "see tri_area"),
    *(
        "Here is the code:",
        "Here is the code",
        "### Code:",
        "**Solution**",
        "---",
        "***",
        "...",
        "1",
        "1. Write it",
        "[1]",
    ),
    *("- item", "* item", "- O(n)", "Complexity: O(n)", "'Quoted'", '"""Doc"""', "It's easy.", "`tri_area`", "</code>"),
    *("That's 'it', isn't it?", ">>> tri_area(4, 3)", "%%time", "6.0", "\u00a0"),
]
PLACES = [
    "{line}\n{code}", "{line}\n\n{code}", "{code}{line}\n", "{code}\n{line}", "{line}\n{code}{line}",
    "```python\n{line}\n{code}```", "```\n{code}\n{line}\n```", "```\n{code}```\n{line}",
    "{line}\n```python\n{code}```",
]  # fmt: skip


@pytest.mark.parametrize("line", PROSE)
def test_a_line_of_prose_is_none_of_the_program_even_where_it_is_python(line: str) -> None:
    for place in PLACES:
        assert mbpp(place.format(line=line, code=WHOLE)) == 6.0, place
        assert humaneval(place.format(line=line, code=WHOLE)) == 6.0, place
    for place in ("{line}\n{code}", "{code}\n{line}\n", "```python\n{line}\n{code}```"):
        assert humaneval(place.format(line=line, code="    return b * h / 2\n")) == 6.0, place


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (f"{WHOLE}tri_area(1, 0 / 1)\nmissing(1)\n", "NameError"),  # a call is code, whatever it calls
        (f"{WHOLE}x = missing\n", "NameError"),
        (f"table = []\n[table.append(i) for i in range(3)]\n{WHOLE.replace('2', 'table[2]')}", 6.0),
        (f"(half := 2)\n{WHOLE.replace('2', 'half')}", 6.0),
        (f"{WHOLE}assert missing\n", "NameError"),
        (f"```python\n{WHOLE}\ndef broken(:\n    pass\n```", "SyntaxError"),
        (f"```python\n{WHOLE}x = (1,\n```", "SyntaxError"),
        (f"```python\nif broken\n{WHOLE}```", "SyntaxError"),
    ],
)
def test_what_could_be_code_is_never_dropped(code: str, value: object) -> None:
    assert mbpp(code) == value


def test_a_header_is_no_prose_in_front_of_a_body() -> None:
    for header in ("if missing:", "else:", "return 0", "x = 5", "import this_is_none"):
        assert humaneval(f"{header}\n    return b * h / 2\n") != 6.0, header
    for header in (
        "try:",
        "finally:",
        "if b < 2",
        "for i in (1, 2)",
        "@cache",
        "with open(b)",
        "import missing",
        "O(n)",
    ):
        assert humaneval(f"{header}\n    return b * h / 2\n") != 6.0, header


KEYWORDS = [
    *("pass", "for example:", "For example:", "if needed", "import the module", "in short:", "with care", "from here"),
    *("and so on", "try it:", "def it", "return the area", "None of this", "True.", "is it?", "while it's true,"),
]


@pytest.mark.parametrize("line", KEYWORDS)
def test_a_line_of_prose_may_begin_with_a_keyword(line: str) -> None:
    body = "    return b * h / 2\n"
    for place in ("{line}\n{body}", "So:\n\n{line}\n\n{body}", "{body}{line}\n", "{body}\n{line}\nand more\n"):
        assert humaneval(place.format(line=line, body=body)) == 6.0, place
    for place in ("{line}\n{code}", "{code}{line}\n", "{line}\n```python\n{code}```\n{line}"):
        assert humaneval(place.format(line=line, code=WHOLE)) == 6.0, place
        assert mbpp(place.format(line=line, code=WHOLE)) == 6.0, place


def test_a_function_may_be_defined_inside_a_statement() -> None:
    inner = "    def tri_area(b, h):\n        return b * h / 2\n"
    for code in (
        f"try:\n{inner}except ValueError:\n    pass\n",
        f"if True:\n{inner}",
        f"with open('/dev/null'):\n{inner}",
    ):
        assert humaneval(code) == 6.0, code


def test_a_stub_in_front_of_the_function_is_not_taken_for_it() -> None:
    for stub in ("pass", "...", '"""Area."""', '"""Area."""\n    pass  # to do'):
        first = f"Its head:\n```python\ndef tri_area(b, h):\n    {stub}\n```\n"
        assert mbpp(f"{first}So:\n```python\n{WHOLE}```\n") == 6.0, stub
        assert humaneval(f"{first}So:\n```python\n{WHOLE}```\n") == 6.0, stub
        assert mbpp(first) is None, "none but the stub"


def test_in_a_block_such_a_line_is_code_with_an_error() -> None:
    for line in ("if needed", "for example:"):
        assert humaneval(f"```python\n{line}\n    return b * h / 2\n```") != 6.0, line


def test_a_block_of_markdown_is_opened() -> None:
    inner = f"```python\n{WHOLE}```\nA worse way:\n```python\n{ZERO}```\n"
    assert mbpp(f"````markdown\n{inner}````\n") == 6.0
    assert humaneval(f"````md\n{inner}````\n") == 6.0


def test_lines_keep_their_numbers() -> None:
    program = extract(f"[BEGIN]\n\n{WHOLE}", ("tri_area",)).program
    assert program == f"\n\n{WHOLE}"
    assert extract(f"[BEGIN]; x = 1\n{WHOLE}", ("tri_area",)).program.startswith("[BEGIN]; x = 1")
