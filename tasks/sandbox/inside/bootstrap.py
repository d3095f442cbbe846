"""The first lines of the sandboxed interpreter: the rest of the worker arrives as source text over the pipe.

The interpreter cannot import this project (its folder is not there), and need not be able to.
"""

from __future__ import annotations

from pathlib import Path

# Runs with -c. Descriptor 3 brings requests, 4 takes replies. The modules of the worker are taken out of sys.modules
# before the solution runs, which is tidiness and not a protection.
SOURCE = """
import json, os, sys, types
sys.path[:] = [p for p in sys.path if p]
def read(n):
    parts = b""
    while len(parts) < n:
        parts += os.read(3, n - len(parts))
    return parts
files = json.loads(read(int(read(10))))
names = ["tasks", "tasks.sandbox", "tasks.sandbox.inside", *files]
for name in names:
    sys.modules[name] = types.ModuleType(name)
for name, text in files.items():
    exec(compile(text, name, "exec"), sys.modules[name].__dict__)
    setattr(sys.modules["tasks.sandbox.inside"], name.rpartition(".")[2], sys.modules[name])
worker = sys.modules["tasks.sandbox.inside.worker"].Worker(3, 4)
for name in names:
    del sys.modules[name]
worker.serve()
"""
MODULES = ("wire", "codec", "worker")


def payload() -> bytes:
    """What the judge writes first: ten digits of length, then the files as JSON."""
    import json

    folder = Path(__file__).parent
    files = {f"tasks.sandbox.inside.{name}": (folder / f"{name}.py").read_text(encoding="utf-8") for name in MODULES}
    data = json.dumps(files).encode()
    return b"%010d" % len(data) + data
