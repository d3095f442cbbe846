"""The two protocols that servers speak: SGLang's /generate and OpenAI's /v1. Requests out, replies in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lopa_bench.backends.config import ServerSettings
from lopa_bench.backends.outcome import Arrival, Reply
from lopa_bench.backends.server.http import Answer, Failure

NO_TEXT = "the reply has no text"


@dataclass(frozen=True)
class Ask:
    """One request. `prompt`: ids, text, or chat messages."""

    prompt: Sequence[int] | str | tuple[Mapping[str, str], ...]
    max_tokens: int
    temperature: float
    seed: int
    stop: tuple[str, ...] = ()


class Protocol(ABC):
    """What differs between servers."""

    def __init__(self, settings: ServerSettings, model: str, template: Mapping[str, Any]) -> None:
        self.settings = settings
        self.model = model
        self.template = dict(template)

    @property
    @abstractmethod
    def path(self) -> str: ...

    @abstractmethod
    def body(self, ask: Ask) -> dict[str, Any]:
        """The request's JSON."""

    @abstractmethod
    def parse(self, events: Sequence[tuple[float, Mapping[str, Any]]]) -> Reply:
        """The reply of one event, or of a stream of them. Raises KeyError, TypeError, IndexError or AttributeError for
        what is not of this protocol, Failure("empty") for a reply without text.
        """

    def reply(self, answer: Answer) -> Reply:
        """Raises Failure: invalid_reply, or empty."""
        if not answer.events:
            raise Failure("invalid_reply", "an empty stream")
        try:
            return self.parse(answer.events)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            raise Failure("invalid_reply", f"not of the protocol ({type(error).__name__}: {error})") from None


class SGLang(Protocol):
    """/generate (docs.sglang.io, Native APIs and Sampling Parameters). A stream repeats the text so far."""

    path = "/generate"

    def body(self, ask: Ask) -> dict[str, Any]:
        sampling: dict[str, Any] = {"temperature": ask.temperature, "max_new_tokens": ask.max_tokens}
        if ask.stop:
            sampling["stop"] = list(ask.stop)
        if ask.temperature:
            sampling["sampling_seed"] = ask.seed % 2**31
        extra = dict(self.settings.body)
        sampling |= extra.pop("sampling_params", {})
        prompt = {"text": ask.prompt} if isinstance(ask.prompt, str) else {"input_ids": list(ask.prompt)}
        return {**prompt, "sampling_params": sampling, "stream": self.settings.stream, **extra}

    def parse(self, events: Sequence[tuple[float, Mapping[str, Any]]]) -> Reply:
        last = events[-1][1]
        meta, text = last["meta_info"], last["text"]
        finish = meta.get("finish_reason")
        if finish is None:
            raise Failure("invalid_reply", "the stream broke off before its end")
        if finish["type"] == "abort":
            raise Failure("server_error", f"the server aborted the request: {finish.get('message', 'no reason given')}")
        if not text or not text.strip():
            raise Failure("empty", NO_TEXT)
        arrivals = [Arrival(seconds, event["meta_info"].get("completion_tokens")) for seconds, event in events]
        ids = last.get("output_ids")
        return Reply(
            text=text,
            finish_reason="length" if finish["type"] == "length" else "stop",
            ids=tuple(ids) if ids and len(ids) == meta["completion_tokens"] else None,
            ended_by=_ended_by(finish.get("matched")) if finish["type"] == "stop" else None,
            prompt_tokens=meta.get("prompt_tokens"),
            completion_tokens=meta.get("completion_tokens"),
            cached_tokens=meta.get("cached_tokens"),
            forwards=meta.get("nfe"),
            server_s=meta.get("e2e_latency"),
            arrivals=tuple(arrivals) if self.settings.stream else (),
        )


class OpenAI(Protocol):
    """/v1/completions and /v1/chat/completions, with the fields that SGLang, vLLM and LMDeploy add."""

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.settings.api == "chat" else "/v1/completions"

    def body(self, ask: Ask) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "temperature": ask.temperature, "max_tokens": ask.max_tokens}
        if self.settings.api != "chat":
            body["prompt"] = ask.prompt if isinstance(ask.prompt, str) else list(ask.prompt)
        else:
            assert not isinstance(ask.prompt, str)
            body["messages"] = list(ask.prompt)
            if self.template:
                body["chat_template_kwargs"] = self.template
            if body["messages"][-1]["role"] == "assistant":  # the beginning of the answer is given
                body |= {"add_generation_prompt": False, "continue_final_message": True}
        if ask.stop:
            body["stop"] = list(ask.stop)
        if ask.temperature:
            body["seed"] = ask.seed % 2**31
        if self.settings.stream:
            body["stream"] = True
            if self.settings.stream_usage:
                body["stream_options"] = {"include_usage": True}
        return body | self.settings.body

    def parse(self, events: Sequence[tuple[float, Mapping[str, Any]]]) -> Reply:
        text, thinking, arrivals = "", "", []
        finish, matched, usage = None, None, None
        for seconds, event in events:
            usage = event.get("usage") or usage
            for choice in event["choices"][:1]:
                message = choice if "text" in choice else choice.get("delta") or choice.get("message") or {}
                piece = message.get("text") or message.get("content") or ""
                thought = message.get("reasoning_content") or message.get("reasoning") or ""
                text, thinking = text + piece, thinking + thought
                if piece or thought:
                    arrivals.append(Arrival(seconds, (event.get("usage") or {}).get("completion_tokens")))
                finish = choice.get("finish_reason") or finish
                matched = choice.get("matched_stop", choice.get("stop_reason")) or matched
        if not text.strip() and not thinking:
            raise Failure("empty", NO_TEXT)
        if finish is None:
            raise Failure("invalid_reply", "no finish_reason: the stream broke off before its end")
        usage = usage or {}
        return Reply(
            text=text,
            finish_reason="length" if finish == "length" else "stop",
            thinking=thinking,
            ended_by=self._ended_by(matched) if finish == "stop" else None,
            prompt_tokens=usage.get("prompt_tokens"),
            completion_tokens=usage.get("completion_tokens"),
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            forwards=usage.get("nfe"),
            arrivals=tuple(arrivals) if self.settings.stream else (),
        )

    def _ended_by(self, matched: Any) -> str | None:
        """Without a stop string in the request it can only have been an end token."""
        if matched is None:
            return None if self.settings.stop else "token"
        return _ended_by(matched)


def _ended_by(matched: Any) -> str:
    return "string" if isinstance(matched, str) else "token"


PROTOCOLS: dict[str, type[Protocol]] = {"sglang": SGLang, "openai": OpenAI}
