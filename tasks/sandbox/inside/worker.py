"""Runs in the sandbox beside the solution: loads it, calls it, and sends back what it returned.

Nothing here decides anything. The solution shares this interpreter and can do to it what it likes; all it gains is to
send other values, which the judge compares with answers that never come here. This file is sent as source text.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
import types
from typing import Any

from tasks.sandbox.inside import wire
from tasks.sandbox.inside.codec import build, encode_parts


class Worker:
    """References that the loop needs are kept here, so that a solution that patches a module breaks only itself."""

    def __init__(self, requests: int, replies: int) -> None:
        self.requests = requests
        self.replies = replies
        self.module = types.ModuleType("solution")
        self.handles: list[Any] = []
        self._timer, self._prof = signal.setitimer, signal.ITIMER_PROF
        self._clock = time.process_time
        self._sha256, self._dumps, self._loads = hashlib.sha256, json.dumps, json.loads
        self._exit = os._exit
        self._modules = sys.modules
        self._read_frame, self._write, self._pack = wire.read_frame, wire.write_all, wire.pack

    def serve(self) -> None:
        self._write(self.replies, self._pack(wire.READY, b""))
        while (frame := self._read_frame(self.requests)) is not None:
            self._write(self.replies, self._answer(*frame))
        self._exit(0)  # no exit handlers of the solution

    def _answer(self, kind: bytes, payload: bytes) -> bytes:
        self.stage, self.seconds = "run", 0.0
        try:
            kind, payload = self._handle(kind, payload)
            return self._pack(kind, payload, self.seconds)
        except BaseException as error:  # SystemExit and KeyboardInterrupt of the solution are errors like any other
            self._timer(self._prof, 0)
            return self._pack(wire.ERROR, self._describe(error))

    def _handle(self, kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
        if kind == wire.LOAD:
            self.module = types.ModuleType("solution")  # not __main__: a main block must not run
            self._modules["solution"] = self.module  # dataclasses and typing look their module up
        if kind in (wire.LOAD, wire.SETUP):
            self.stage = "compile"
            code = compile(payload.decode(errors="surrogatepass"), "solution.py", "exec", dont_inherit=True)
            self.stage = "load"
            exec(code, self.module.__dict__)
            return wire.VALUE, b"null"
        if kind == wire.GET:
            return self._get(payload.decode())
        return self._call(self._loads(payload))

    def _get(self, name: str) -> tuple[bytes, bytes]:
        value = self.module.__dict__[name]
        if type(value) is types.ModuleType:
            return wire.MODULE, value.__name__.encode()
        return self._value(value)

    def _call(self, request: dict[str, Any]) -> tuple[bytes, bytes]:
        target = request["f"]
        function = self.module.__dict__[target] if isinstance(target, str) else self.handles[target]
        arguments = build(request["a"], self._resolve)
        keywords = build(request["k"], self._resolve)
        if request["cpu"]:
            self._timer(self._prof, request["cpu"])  # its signal ends the process, whatever the solution catches
        start = self._clock()
        result = function(*arguments, **keywords)
        self.stage = "result"
        reply = self._value(result)
        self.seconds = self._clock() - start
        self._timer(self._prof, 0)
        return reply

    def _value(self, value: Any) -> tuple[bytes, bytes]:
        digest, kept, size = self._sha256(), [], 0
        for text in encode_parts(value, self._hold):
            part = text.encode("ascii")
            digest.update(part)
            size += len(part)
            if size <= wire.LARGE_VALUE:
                kept.append(part)
        if size <= wire.LARGE_VALUE:
            return wire.VALUE, b"".join(kept)
        return wire.DIGEST, digest.hexdigest().encode()

    def _hold(self, value: Any) -> int:
        self.handles.append(value)
        return len(self.handles) - 1

    def _resolve(self, number: int, _name: str, _truth: bool) -> Any:
        return self.handles[number]

    def _describe(self, error: BaseException) -> bytes:
        try:
            error.__traceback__ = None  # frees what the frames hold, which matters after a MemoryError
            kinds = [kind.__name__ for kind in type(error).__mro__]
            try:
                text = str(error)[:500]
            except BaseException:
                text = ""
            report = {"type": kinds[0], "bases": kinds, "text": text, "stage": self.stage}
            return self._dumps(report).encode()
        except MemoryError:
            self._exit(wire.OUT_OF_MEMORY)
            raise
