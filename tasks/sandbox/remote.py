"""What the tests of a data set see of the solution: stand-ins in the judge whose calls run in the sandbox."""

from __future__ import annotations

import builtins
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from tasks.sandbox.ended import Ended
from tasks.sandbox.inside import codec, wire
from tasks.sandbox.session import Session

# Iterators take the first two for an ordinary end: `all(map(candidate, inputs))` would hold without its inputs.
SILENT = (StopIteration, StopAsyncIteration, Exception)


class SolutionError(Exception):
    """An exception that the solution raised. It is also of the built-in class of that name, if there is one."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show it in quotes


class Missing(Exception):
    """The solution does not define the name."""


class Remote:
    """An object of the solution. It can be called and handed back; it is equal to nothing but itself."""

    def __init__(self, link: Link, target: str | int, name: str, truth: bool = True) -> None:
        self._link, self._target, self._name, self._truth = link, target, name, truth

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._link.call(self._target, arguments, keywords)

    def __bool__(self) -> bool:
        return self._truth

    def __repr__(self) -> str:
        return f"<{self._name} of the solution>"


class Link:
    """Asks the worker and turns its replies into values and exceptions."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.seconds = 0.0  # CPU time of the last call, as the worker says

    def load(self, code: str, setup: bool = False) -> None:
        kind, payload, _ = self.session.ask(wire.SETUP if setup else wire.LOAD, code.encode(errors="surrogatepass"))
        self._value(kind, payload)

    def get(self, name: str) -> Any:
        """The value of a global name of the solution; functions, classes and modules become stand-ins."""
        kind, payload, _ = self.session.ask(wire.GET, name.encode())
        if kind == wire.MODULE:
            return Remote(self, name, f"module {name}")
        if kind == wire.ERROR and Report.of(payload).type == "KeyError":
            raise Missing(f"the solution does not define {name!r}")
        return self._value(kind, payload)

    def call(self, target: str | int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        plain = {"f": target, "a": self._plain(list(arguments)), "k": self._plain(keywords), "cpu": None}
        kind, payload, _ = self.session.ask(wire.CALL, json.dumps(plain).encode())
        return self._value(kind, payload)

    def _plain(self, value: Any) -> Any:
        return json.loads(codec.encode(value, _handle_of))

    def _value(self, kind: bytes, payload: bytes) -> Any:
        if kind == wire.VALUE:
            return codec.decode(payload, lambda number, name, truth: Remote(self, number, name, truth))
        if kind == wire.DIGEST:
            raise Ended("error", "the result is too large to be sent")
        if kind == wire.ERROR:
            raise Report.of(payload).exception()
        raise codec.BadValue(f"an unknown reply {kind!r}")


def _handle_of(value: Any) -> int:
    if isinstance(value, Remote) and isinstance(value._target, int):
        return value._target
    raise TypeError(f"a test hands the solution a {type(value).__name__}, which cannot be sent")


@dataclass(frozen=True)
class Report:
    """What the worker says about an exception. It may be forged, so every part is made to be a text first."""

    type: str
    text: str
    stage: str
    bases: tuple[str, ...]

    @classmethod
    def of(cls, payload: bytes) -> Report:
        try:
            given = json.loads(payload)
            kind, text, stage = (str(given[key])[:500] for key in ("type", "text", "stage"))
            return cls(kind, text, stage, tuple(str(name)[:100] for name in given["bases"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise codec.BadValue(f"a malformed report: {type(error).__name__}") from None

    def exception(self, where: str = "") -> BaseException:
        """The tests may catch what the solution raised, so the stand-in has the same built-in class."""
        text = ": ".join(part for part in (where, self.type, self.text) if part)
        if self.type == "MemoryError":
            return Ended("memory", text)
        if self.stage == "compile":
            return Ended("syntax", text)
        for name in self.bases:
            known = getattr(builtins, name, None)
            if isinstance(known, type) and issubclass(known, Exception) and known not in SILENT:
                with contextlib.suppress(TypeError):  # a few classes do not take a single text
                    return type(name, (SolutionError, known), {})(text)
        return SolutionError(text)
