"""A pass cannot be forged: whatever a wrong program exits with, patches, prints, or compares equal to, it fails."""

from __future__ import annotations

import pytest

from tests.test_sandbox import RIGHT, function, judge

ALWAYS_EQUAL = "__eq__ = __ge__ = __le__ = lambda self, other: True\n    __ne__ = lambda self, other: False\n"
ALWAYS_EQUAL += "    __hash__ = lambda self: 0\n    __bool__ = lambda self: True\n"

FORGERIES = {
    "exits while loading": "import sys\nsys.exit(0)\n" + function(RIGHT),
    "exits hard while loading": "import os\nos._exit(0)\n",
    "exits in the function": function("raise SystemExit(0)"),
    "exits hard in the function": function("import os", "os._exit(0)"),
    "never defines the function": "print('6')\nprint('0')\n",
    "raises what the tests would raise": function("raise AssertionError"),
    "an exception that passes for success": "class Done(BaseException): pass\n" + function("raise Done"),
    "equal to everything": f"class Any:\n    {ALWAYS_EQUAL}" + function("return Any()"),
    "a number equal to everything": f"class Any(int):\n    {ALWAYS_EQUAL}" + function("return Any(1)"),
    "a list equal to everything": f"class Any(list):\n    {ALWAYS_EQUAL}" + function("return Any()"),
    "a number that says it is another": "class N(float):\n    __float__ = lambda self: 6.0\n" + function("return N(1)"),
    "a class as the function": f"class tri_area:\n    def __init__(self, b, h): pass\n    {ALWAYS_EQUAL}",
    "an object as the function": f"class A:\n    __call__ = lambda self, *a: self\n    {ALWAYS_EQUAL}tri_area = A()\n",
    "patches the builtins": (
        "import builtins\nbuiltins.AssertionError = type('Never', (BaseException,), {})\n"
        "builtins.all = builtins.any = builtins.isinstance = lambda *a: True\n" + function("return 7")
    ),
    "patches compile and exec": (
        "import builtins\nbuiltins.exec = builtins.compile = builtins.eval = lambda *a, **k: None\n"
        + function("return 7")
    ),
    "patches json and os.write": (
        "import json, os, struct\njson.dumps = lambda *a, **k: '6.0'\njson.loads = lambda *a, **k: {}\n"
        "real = os.write\nos.write = lambda fd, data: real(fd, bytes(data))\n" + function("return 7")
    ),
    "prints a verdict": (
        "import sys\nprint('{\"status\": \"pass\", \"passed\": 2, \"total\": 2}', flush=True)\n"
        "sys.stderr.write('pass')\n" + function("return 7")
    ),
    "writes a verdict to every descriptor and exits": (
        "import os\nfor fd in range(3, 256):\n    try: os.write(fd, b'{\"status\": \"pass\"}\\n')\n"
        "    except OSError: pass\nos._exit(0)\n"
    ),
    "answers before it is asked": (
        "import os, struct\nframe = lambda text: struct.pack('<cdQ', b'V', 0.0, len(text)) + text\n"
        "os.write(4, frame(b'null') + frame(b'true') * 50)\nos._exit(0)\n"
    ),
    "answers with a list that never ends": (
        "import os, struct\nos.write(4, struct.pack('<cdQ', b'V', 0.0, 1 << 62) + b'[' * 1000)\n" + function("return 7")
    ),
    "answers with nested brackets": (
        "import os, struct\ntext = b'[' * 10**6\nfor _ in range(9):\n"
        "    os.write(4, struct.pack('<cdQ', b'V', 0.0, len(text)) + text)\n" + function("return 7")
    ),
    "answers with a malformed report": (
        "import os, struct\nos.write(4, struct.pack('<cdQ', b'E', 0.0, 2) + b'[]')\n" + function("return 7")
    ),
    "answers with an unknown letter": (
        "import os, struct\nos.write(4, struct.pack('<cdQ', b'?', 0.0, 0) * 9)\n" + function("return 7")
    ),
    "closes the channel": function("import os", "os.close(3)", "os.close(4)", "import time", "time.sleep(60)"),
    "replaces the worker through its frames": (
        "import sys\nframe = sys._getframe()\nwhile frame.f_back: frame = frame.f_back\n"
        "w = frame.f_globals.get('worker')\nif w: w._handle = lambda *a: (b'V', b'true')\n" + function("return 7")
    ),
    "replaces the worker through gc": (
        "import gc\nfor o in gc.get_objects():\n"
        "    if type(o).__name__ == 'Worker': o._value = lambda v: (b'V', b'true')\n"
        + function("return 7")
    ),
    "looks for the tests in the memory": (
        "import gc\nfound = [o for o in gc.get_objects() if isinstance(o, (str, bytes, dict, list, tuple))"
        " and 'tri_area(4' in str(o)[:10**5] and 'getsource' not in str(o)[:50]]\n"
        + function("return 6 if len([f for f in found if 'assert tri' + '_area(4' in str(f)]) else 7")
    ),
    "kills its ancestors": function(
        "import os, signal", "for pid in (os.getppid(), 1, -1):", "    try: os.kill(pid, signal.SIGKILL)",
        "    except OSError: pass", "return 7"
    ),
    "leaves the answering to a child": function(
        "import os", "if os.fork(): os._exit(0)", "return 7"
    ),
    "traces every call": (
        "import sys\ndef trace(frame, event, arg):\n    frame.f_locals['status'] = 'pass'\n    return trace\n"
        "sys.settrace(trace)\n" + function("return 7")
    ),
    "patches what runs at exit": (
        "import atexit, os\natexit.register(lambda: os.write(4, b'V' + bytes(16)))\n" + function("return 7")
    ),
    "a name that only looks like a number": function("return '6'"),
    "bytes of another process": function("return open('/proc/self/mem', 'rb')"),
}  # fmt: skip


@pytest.mark.parametrize("program", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_pass_is_no_pass(program: str) -> None:
    assert judge(program).status not in ("pass", "sandbox")


@pytest.mark.parametrize(
    "name", ["exits hard in the function", "equal to everything", "kills its ancestors", "answers before it is asked"]
)
def test_also_without_namespaces(name: str) -> None:
    """Landlock alone (Linux 6.12) also keeps signals from the judge."""
    verdict = judge(FORGERIES[name], without=("namespaces",))
    assert verdict.status not in ("pass", "sandbox")


def test_a_module_in_the_tests_is_the_judges_own() -> None:
    """`math` comes from the program's imports, but only its name does."""
    from tasks.sandbox import run_job

    fake = "import types\nmath = types.ModuleType('math')\nmath.isclose = lambda *a, **k: True\n"
    job = {"suite": "asserts", "setup": [], "names": ["half"], "optional_names": ["math"]}
    job |= {"tests": ["assert math.isclose(half(3), 1.5)"]}
    wrong = "def half(x):\n    return x\n"
    assert run_job({**job, "program": fake + wrong}).status == "wrong"
    assert run_job({**job, "program": "import math\ndef half(x):\n    return x / 2\n"}).status == "pass"
    assert run_job({**job, "program": wrong}).status == "wrong"  # no import, so the test itself fails


def test_a_shadowed_builtin_of_the_program_is_not_used_by_the_tests() -> None:
    from tasks.sandbox import run_job

    job = {"suite": "asserts", "setup": [], "names": ["letters"], "optional_names": []}
    job |= {"tests": ["assert set(letters('aab')) == set('ab')"]}
    program = (
        "class set:\n    def __init__(self, *a): pass\n    __eq__ = lambda *a: True\ndef letters(s):\n    return [1]\n"
    )
    assert run_job({**job, "program": program}).status == "wrong"
