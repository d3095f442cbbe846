"""The two protocols that servers speak: SGLang's /generate and OpenAI's /v1. Requests out, replies in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lopa_bench.backends.outcome import Arrival, Reply
from lopa_bench.backends.server.fields import FILTERED, count, ending, mapping, seconds, text_of
from lopa_bench.backends.server.http import Answer, Failure
from lopa_bench.settings.backend import ServerSettings


@dataclass(frozen=True)
class Ask:
    """One request. `prompt`: ids, text, or chat messages."""

    prompt: Sequence[int] | str | tuple[Mapping[str, str], ...]
    max_tokens: int
    temperature: float
    seed: int
    stop: tuple[str, ...] = ()


# What a message may have instead of text, and the status of its sample.
INSTEAD = {"refusal": "refusal", "tool_calls": "tool_call", "function_call": "tool_call"}


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
        what is not of this protocol, Failure for a reply that came to no end.
        """

    def reply(self, answer: Answer) -> Reply:
        """Raises Failure: invalid_reply, or server_error. A reply without text has a reason why it cannot be judged."""
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
        meta, (text, thinking) = last["meta_info"], text_of(last["text"])
        finish = meta.get("finish_reason")
        if finish is None:
            raise Failure("invalid_reply", "the stream broke off before its end")
        ended = ending(finish)
        tokens, ids = count(meta.get("completion_tokens")), last.get("output_ids")
        arrivals = [Arrival(at, count(event["meta_info"].get("completion_tokens"))) for at, event in events]
        reply = Reply(
            text=text,
            finish_reason=ended,
            thinking=thinking,
            ids=tuple(ids) if ids and len(ids) == tokens else None,
            ended_by=_ended_by(mapping(finish).get("matched")) if ended == "stop" else None,
            prompt_tokens=count(meta.get("prompt_tokens")),
            completion_tokens=tokens,
            cached_tokens=count(meta.get("cached_tokens")),
            forwards=count(meta.get("nfe")),
            server_s=seconds(meta.get("e2e_latency")),
            arrivals=tuple(arrivals) if self.settings.stream else (),
        )
        return _told_apart(reply, finish, {})


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
        finish, matched = None, None
        usage: Mapping[str, Any] = {}
        instead: dict[str, Any] = {}
        choices = 0
        for at, event in events:
            usage = mapping(event.get("usage")) or usage
            for choice in (event.get("choices") or [])[:1]:
                choices += 1
                message = choice if "text" in choice else choice.get("delta") or choice.get("message") or {}
                piece, inside = text_of(message.get("content") if message.get("text") is None else message["text"])
                thought = "".join(text_of(message.get("reasoning_content") or message.get("reasoning"))) + inside
                text, thinking = text + piece, thinking + thought
                instead |= {name: message[name] for name in INSTEAD if message.get(name)}
                if piece or thought:
                    arrivals.append(Arrival(at, count(mapping(event.get("usage")).get("completion_tokens"))))
                finish = choice.get("finish_reason") or finish
                matched = choice.get("matched_stop", choice.get("stop_reason")) or matched
        if not choices:
            raise Failure("invalid_reply", "no choices")
        if finish is None:
            raise Failure("invalid_reply", "no finish_reason: the stream broke off before its end")
        ended = ending(finish)
        reply = Reply(
            text=text,
            finish_reason=ended,
            thinking=thinking,
            ended_by=self._ended_by(matched) if ended == "stop" else None,
            prompt_tokens=count(usage.get("prompt_tokens")),
            completion_tokens=count(usage.get("completion_tokens")),
            cached_tokens=count(mapping(usage.get("prompt_tokens_details")).get("cached_tokens")),
            forwards=count(usage.get("nfe")),
            arrivals=tuple(arrivals) if self.settings.stream else (),
        )
        return _told_apart(reply, finish, instead)

    def _ended_by(self, matched: Any) -> str | None:
        """Without a stop string in the request it can only have been an end token."""
        if matched is None:
            return None if self.settings.stop else "token"
        return _ended_by(matched)


def _told_apart(reply: Reply, finish: Any, instead: Mapping[str, Any]) -> Reply:
    """The reply, and if it has no text or only a part of one, why it is neither right nor wrong."""
    if FILTERED in (finish, mapping(finish).get("type")):
        return replace(reply, unjudged="filtered", error="the server filtered the reply")
    if reply.text.strip():
        odd = reply.finish_reason == "other"
        return replace(reply, error=f"finish_reason {finish!r} is not known") if odd else reply
    for name, value in instead.items():
        status = INSTEAD[name]
        return replace(reply, unjudged=status, error=f"the reply has no text but a {status}: {value!r:.200}")
    if reply.thinking.strip():
        return replace(reply, unjudged="no_text", error="the reply has no text but reasoning")
    if reply.finish_reason == "length":
        return replace(reply, unjudged="no_text", error="the reply has no text and was cut by its length")
    return replace(reply, finish_reason="empty", ended_by=None, unjudged="not_decoded", error="the reply has no text")


def _ended_by(matched: Any) -> str:
    return "string" if isinstance(matched, str) else "token"


PROTOCOLS: dict[str, type[Protocol]] = {"sglang": SGLang, "openai": OpenAI}
