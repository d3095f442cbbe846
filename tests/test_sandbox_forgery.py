"""A pass cannot be forged: whatever a wrong program exits with, patches, prints, or compares equal to, it fails."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.sandbox import Limits, run_job
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
    "audits every event": (
        "import sys\ndef hook(event, arguments):\n    if event == 'object.__getattr__': raise SystemExit(0)\n"
        "sys.addaudithook(hook)\nsys.setprofile(lambda *a: None)\nsys.excepthook = sys.unraisablehook = print\n"
        + function("return 7")
    ),
    "changes numbers through ctypes": function(
        "import ctypes, sys", "ctypes.c_uint.from_address(id(7) + sys.getsizeof(0) - 4).value = 6", "return 7"
    ),
    "looks into other processes through ctypes": (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "seized = [pid for pid in {os.getppid(), 1} - {0} if libc.ptrace(0x4206, pid, 0, 0) == 0]\n"  # PTRACE_SEIZE
        "for pid in {os.getppid(), 1}:\n    try: seized.append(open(f'/proc/{pid}/mem', 'rb'))\n"
        "    except OSError: pass\n" + function("return {4: 6, 0: 0}[b] if seized else 7")
    ),
    "has a descriptor of the harness": (
        "import os\nextra = []\nfor fd in range(5, 256):\n    try: extra.append((os.fstat(fd), fd))\n"
        "    except OSError: pass\n" + function("return {4: 6, 0: 0}[b] if extra else 7")
    ),
    "answers from a thread": (
        "import os, struct, threading\nframe = struct.pack('<cdQ', b'V', 0.0, 4) + b'true'\n"
        "threading.Thread(target=lambda: [os.write(4, frame) for _ in range(99)], daemon=True).start()\n"
        + function("return 7")
    ),
    "a class whose metaclass is equal to everything": (
        f"class Meta(type):\n    {ALWAYS_EQUAL}class A(metaclass=Meta): pass\n" + function("return A")
    ),
    "an object that says it is a number": (
        f"class A:\n    __class__ = int\n    {ALWAYS_EQUAL}" + function("return A()")
    ),
    "an object that says it is NumPy's": (
        f"class A:\n    __module__ = 'numpy'\n    ndim = 0\n    item = lambda self: self\n    {ALWAYS_EQUAL}"
        + function("return A()")
    ),
    "a text equal to everything": f"class A(str):\n    {ALWAYS_EQUAL}" + function("return A()"),
    "a dictionary that has every key": (
        "class A(dict):\n    __missing__ = lambda self, key: 6\n    " + ALWAYS_EQUAL + function("return A()")
    ),
    "a set whose members all collide": function(
        "import os, struct", "m = 2**61 - 1",
        "text = ('{\"s\":[' + ','.join('{\"i\":\"%x\"}' % (n * m) for n in range(1, 3000)) + ']}').encode()",
        "os.write(4, struct.pack('<cdQ', b'V', 0.0, len(text)) + text)", "return 7"
    ),
    "stops itself": function("import os, signal", "os.kill(os.getpid(), signal.SIGSTOP)", "return 7"),
    "a name that only looks like a number": function("return '6'"),
    "bytes of another process": function("return open('/proc/self/mem', 'rb')"),
}  # fmt: skip


@pytest.mark.parametrize("program", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_pass_is_no_pass(program: str) -> None:
    assert judge(program).status not in ("pass", "sandbox")


@pytest.mark.parametrize(
    "name",
    [
        "exits hard in the function", "equal to everything", "kills its ancestors", "answers before it is asked",
        "looks into other processes through ctypes", "has a descriptor of the harness",
    ],
)  # fmt: skip
def test_also_without_namespaces(name: str) -> None:
    """Landlock alone (Linux 6.12) also keeps signals from the judge."""
    verdict = judge(FORGERIES[name], without=("namespaces",))
    assert verdict.status not in ("pass", "sandbox")


HALF = {"suite": "asserts", "setup": [], "names": ["half"], "optional_names": [], "gold": ""}
WRONG_HALF = "def half(x):\n    return x\n"


def half(program: str, test: str, **changes: Any) -> str:
    return run_job({**HALF, "program": program, "tests": [test], **changes}).status


@pytest.mark.parametrize(
    ("imports", "name", "test"),
    [
        ("import math", "math", "assert math.isclose(half(3), 1.5)"),
        ("from math import isclose", "isclose", "assert isclose(half(3), 1.5)"),
        ("from math import *", "isclose", "assert isclose(half(3), 1.5)"),
    ],
)
@pytest.mark.parametrize("given", ["gold", "setup", "optional"])
def test_what_the_tests_import_is_the_judges_own(imports: str, name: str, test: str, given: str) -> None:
    """Of the program it need only have the name, be it a module, a function, or something else."""
    job = {"gold": imports, "setup": [imports] if given == "setup" else []}
    job |= {"names": ["half"], "optional_names": [name]} if given == "optional" else {"names": ["half", name]}
    fakes = "import types\nmath = types.ModuleType('math')\nmath.isclose = isclose = lambda *a, **k: True\n"
    assert half(fakes + WRONG_HALF, test, **job) == "wrong"
    assert half(f"{imports}\ndef half(x):\n    return x / 2\n", test, **job) == "pass"
    lacking = {"gold": "missing", "setup": "wrong", "optional": "wrong"}  # the setup brings the import itself
    assert half(WRONG_HALF, test, **job) == lacking[given]


@pytest.mark.parametrize("module", ["this", "antigravity", "unittest.__main__", "math"])
def test_a_program_makes_the_judge_import_nothing(module: str) -> None:
    program = f"import types\nmath = types.ModuleType({module!r})\n{WRONG_HALF}"
    assert half(program, "assert math.isclose(half(3), 1.5)", names=["half", "math"]) == "wrong"


@pytest.mark.parametrize("error", ["StopIteration", "StopAsyncIteration", "GeneratorExit"])
@pytest.mark.parametrize(
    "test",
    [
        "assert all(map(lambda x: half(x) == x / 2, [1, 2]))",
        "assert all(half(x) == x / 2 for x in [1, 2])",
        "for y in map(half, [1, 2]): assert y in (0.5, 1)",
    ],
)
def test_an_exception_does_not_end_a_test_early(error: str, test: str) -> None:
    """An iterator takes StopIteration for its ordinary end, so a stand-in of that class would skip what is left."""
    assert half(f"def half(x):\n    raise {error}\n", test) == "error"


def test_a_test_may_print() -> None:
    assert half("def half(x):\n    return x / 2\n", "print('half'); assert half(3) == 1.5") == "pass"


def test_a_comparison_that_takes_the_judge_too_long_is_a_timeout() -> None:
    """One call into C code, which no alarm interrupts: the limit of the judge's own CPU time ends it."""
    limits = Limits(cpu_s=1, wall_s=0.25)
    endless = run_job(
        {**HALF, "program": "def half(x):\n    return range(10**11)\n", "tests": ["sum(half(1))"]}, limits
    )
    assert endless.status == "timeout"


def test_a_shadowed_builtin_of_the_program_is_not_used_by_the_tests() -> None:
    job = {**HALF, "names": ["letters"], "tests": ["assert set(letters('aab')) == set('ab')"]}
    program = (
        "class set:\n    def __init__(self, *a): pass\n    __eq__ = lambda *a: True\ndef letters(s):\n    return [1]\n"
    )
    assert run_job({**job, "program": program}).status == "wrong"
