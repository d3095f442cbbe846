"""Decoding by a server: requests one by one, several at once, or arriving at random. Loads no torch."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from lopa_bench.backends.outcome import Outcome
from lopa_bench.backends.server.facts import ask_server, check_server, notes
from lopa_bench.backends.server.http import Client, Failure
from lopa_bench.backends.server.launch import Launched
from lopa_bench.backends.server.protocols import PROTOCOLS, Ask
from lopa_bench.engines.base import Engine, Sample
from lopa_bench.errors import BackendError
from lopa_bench.models.checkpoint.folders import is_embedded, locate
from lopa_bench.models.checkpoint.keys import read_json
from lopa_bench.models.text.tokenizers import Codec, codec_for, load_tokenizer
from lopa_bench.plan.plan import Plan
from lopa_bench.plan.units import Unit
from lopa_bench.settings.backend import ServerSettings

LATE_S = 0.05


class ServerEngine(Engine):
    """A server and the requests of a plan. Raises BackendError for a server that is not there or not the right one."""

    device = "server"

    def __init__(self, plan: Plan, folder: Path) -> None:
        settings, model = plan.config.backend, plan.config.model
        assert isinstance(settings, ServerSettings)
        assert model.path is not None
        self.settings = settings
        if model.end_ids is not None:
            raise BackendError(
                f"model.end_ids={list(model.end_ids)} does not reach a server, which ends texts by itself; "
                "allowed: null, or the server's own field in backend.body"
            )
        if settings.api == "chat" and any(prompt.messages is None for prompt in plan.prompts.values()):
            raise BackendError(
                f"backend.api=chat sends messages, task.prompt_style={plan.config.task.prompt_style} is plain text: "
                "allowed: backend.api=completions, or a prompt style with messages"
            )
        self.codec = None if settings.api == "chat" else _codec(plan)
        encode = self.codec.encode if self.codec else None
        super().__init__(plan, {index: encode(prompt) for index, prompt in plan.prompts.items()} if encode else {})
        self.launched: Launched | None = None
        self._late: list[Unit] = []  # sent later than they arrived
        self.client: Client | None = None
        path = str(locate(model.path)) if is_embedded(model.path) else model.path
        name = settings.model_name or path
        self.protocol = PROTOCOLS[settings.name](settings, name, model.chat_template_kwargs)
        try:
            url = self._launch(path, folder) if settings.launch else settings.url
            assert url is not None
            self.client = Client(url, settings, os.environ.get(settings.key_env))
            self.server = ask_server(self.client, settings)
            check_server(self.server, settings, name, plan.config.decoder.name)
        except BaseException:
            self.close()
            raise
        self.dtype = str(self.server.get("dtype") or "unknown")
        for note in notes(self.server, settings):
            print(f"note: {note}", file=sys.stderr)

    def _launch(self, path: str, folder: Path) -> str:
        model = self.plan.config.model
        if model.lora or model.revision:
            name = "lora" if model.lora else "revision"
            raise BackendError(
                f"model.{name}={getattr(model, name)} would not reach a launched server; allowed: a merged checkpoint "
                "folder, or backend.url of a server that has it"
            )
        facts = {
            "model": path, "dtype": model.dtype, "max_length": str(model.max_length),
            "algorithm": str(self.settings.algorithm),
        }  # fmt: skip
        self.launched = Launched(self.settings, facts, folder)
        self.launched.wait(self.settings.startup_s)
        return self.launched.url

    def close(self) -> None:
        if self.client:
            self.client.close()
        if self.launched:
            self.launched.close()

    def facts(self) -> Mapping[str, Any]:
        place = {"launched": self.launched.command} if self.launched else {"url": self.settings.url}
        return {"server": self.server | place}

    def warm_up(self, unit: Unit) -> None:
        """Raises BackendError if the very first request is refused: so would all others be."""
        sample = self._ask(unit, None)
        if sample.outcome.status in ("refused", "unreachable"):
            raise BackendError(f"the server's answer to a first request: {sample.outcome.error}")

    def stream(self, units: Sequence[Unit]) -> Iterator[Sample]:
        """One request after the other, none while an answer is scored; or several under way at all times.

        Raises BackendError when the server is gone.
        """
        began = time.perf_counter()
        alone = self.settings.concurrency == 1 and self.settings.rate is None
        for sample in (self._ask(unit, began) for unit in units) if alone else self._under_load(units, began):
            yield sample
            self._check_alive(sample)
        self._say_if_late(len(units))

    def _under_load(self, units: Sequence[Unit], began: float) -> Iterator[Sample]:
        """Up to `concurrency` requests under way, each sent when it is due. The threads end with the process, whatever
        they wait for.
        """
        due = _arrivals(self.settings.rate, self.plan.config.run.seed)
        asked: SimpleQueue[tuple[Unit, float]] = SimpleQueue()
        for unit in units:
            asked.put((unit, began + next(due)))
        answered: SimpleQueue[tuple[float, Sample] | BaseException] = SimpleQueue()
        for _ in range(min(self.settings.concurrency, len(units))):
            threading.Thread(target=self._work, args=(asked, answered, began), daemon=True).start()
        last = began
        for _ in units:
            item = answered.get()
            if isinstance(item, BaseException):
                raise item
            finished, sample = item
            sample.wall_s, last = max(0.0, finished - last), max(finished, last)
            yield sample

    def _work(self, asked: SimpleQueue[Any], answered: SimpleQueue[Any], began: float) -> None:
        """One of the threads that ask."""
        try:
            while (item := _next(asked)) is not None:
                unit, due = item
                time.sleep(max(0.0, due - time.perf_counter()))
                if self.settings.rate is not None and time.perf_counter() - due > LATE_S:
                    self._late.append(unit)
                sample = self._ask(unit, began)
                answered.put((time.perf_counter(), sample))
        except BaseException as error:
            answered.put(error)

    def _say_if_late(self, requests: int) -> None:
        if self._late:
            print(
                f"note: {len(self._late)} of {requests} requests were sent late, as too many others were under way: "
                f"raise backend.concurrency={self.settings.concurrency}, or the latencies look better than they are",
                file=sys.stderr,
            )

    def _check_alive(self, sample: Sample) -> None:
        if sample.outcome.status != "unreachable":
            return
        assert self.client is not None
        gone = not self.launched.is_alive if self.launched else not self.client.is_there()
        if gone:
            raise BackendError(f"the server at {self.client.url} is gone: {sample.outcome.error}")

    def _ask(self, unit: Unit, began: float | None) -> Sample:
        assert self.client is not None
        decoder = self.plan.config.decoder
        stops = tuple(self.plan.task.stop) if self.settings.stop else ()
        ask = Ask(self._prompt(unit), decoder.gen_length, decoder.temperature, self._seed(unit), stops)
        sent = None if began is None else time.perf_counter() - began
        try:
            if self.settings.flush_cache:
                self.client.poke("/flush_cache")
            answer = self.client.post(self.protocol.path, self.protocol.body(ask))
            reply = replace(self.protocol.reply(answer), sent_s=sent, attempts=answer.attempts)
        except Failure as failure:
            return self._sample(unit, Outcome(None, failure.status, error=str(failure)))
        return self._sample(unit, Outcome(None, reply.finish_reason, total_s=answer.total_s, error=reply.error), reply)

    def _prompt(self, unit: Unit) -> Any:
        prompt = self.plan.prompts[unit.index]
        if self.settings.api == "chat":
            return prompt.messages
        if self.settings.prompt == "ids":
            return self.prompt_ids[unit.index]
        assert self.codec is not None
        return self.codec.text(prompt)


def _next(queue: SimpleQueue[Any]) -> Any:
    try:
        return queue.get_nowait()
    except Empty:
        return None


def _codec(plan: Plan) -> Codec:
    """The model's tokenizer, which makes the same prompts as for a model in this process. Raises CheckpointError."""
    model = plan.config.model
    assert model.path is not None
    folder = locate(model.path, model.revision, weights=False)
    tokenizer, config = load_tokenizer(folder), folder / "config.json"
    configured = read_json(config).get("bos_token_id") if model.add_bos and config.exists() else None
    return codec_for(model, tokenizer, configured)


def _arrivals(rate: float | None, seed: int) -> Iterator[float]:
    """When requests are sent, in seconds: at once, or a Poisson process of this rate (the same for the same seed)."""
    draw, seconds = random.Random(seed), 0.0
    while True:
        yield seconds
        seconds += draw.expovariate(rate) if rate else 0.0
