"""Settings of the backends, one class each, and which decoders and models each of them can run. No torch here."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field
from typing import Any

from decoders.allowed import choice, number, refused
from lopa_bench.errors import BackendError
from lopa_bench.settings.values import check_values

SERVERS = ("sglang", "openai")
APIS = {"sglang": ("generate",), "openai": ("completions", "chat")}
PLACEHOLDERS = ("python", "model", "host", "port", "dtype", "max_length", "algorithm")


@dataclass
class BackendSettings:
    """What every backend has."""

    name: str = choice("local", "local", *SERVERS)

    def check(self) -> None:
        """Raises BackendError for the first value that is not allowed."""
        check_values("backend", self, BackendError)
        allowed = [name for name, kind in SETTINGS.items() if isinstance(self, kind)]
        if self.name not in allowed:
            raise BackendError(
                f"{refused('backend.name', self.name, ' or '.join(allowed))} with these settings; "
                f"backend={self.name} has others"
            )


@dataclass
class LocalSettings(BackendSettings):
    """This process. `threads`: CPU threads of torch; null: 1 for a small model, else torch's choice.

    `attention`: explicit products, torch's fused kernel, or each where it is faster (auto; they round differently).
    `compile`: steps of static shape for torch.compile ("compile") or captured as CUDA graphs ("graphs").
    `prefix_reuse`: off; exact (an equal prompt again, block-causal attention); approximate (the longest common prefix
    with the request before, whose values have seen the rest of that prompt: rows are marked).
    `branch_ranks`: processes that share the rows of each forward (docs/parallel.md); `branch_protocol`: how their
    caches are kept alike: two_phase, the winner's rank sends what is kept; single_phase, each keeps its own
    (block-causal attention); `branch_check`: compare the caches of all ranks behind every commit; `tensor_ranks`:
    processes in the place of each of these, which share its matrices; `link`: what carries tensors, auto: by the
    device; `rank_timeout_s`: how long a rank is waited for before the decode ends.
    """

    device: str = choice("auto", "auto", "cpu", "cuda", "mps", "npu", numbered=True)
    threads: int | None = number(None, 1, 4096)
    attention: str = choice("auto", "auto", "products", "fused")
    compile: str = choice("none", "none", "graphs", "compile")
    prefix_reuse: str = choice("off", "off", "exact", "approximate")
    branch_ranks: int = number(1, 1, 1024)
    tensor_ranks: int = number(1, 1, 1024)
    branch_protocol: str = choice("two_phase", "two_phase", "single_phase")
    branch_check: bool = False
    link: str = choice("auto", "auto", "gloo", "nccl", "hccl")
    rank_timeout_s: float = number(20.0, 0, 3600, above=True)

    @property
    def ranks(self) -> int:
        """Processes that one decode takes."""
        return self.branch_ranks * self.tensor_ranks


@dataclass
class ServerSettings(BackendSettings):
    """A server, found at `url`; or, if `launch`, started with `command` + `args`, and `env` added to the environment
    (docs/baselines.md).

    Which requests: `api` generate (SGLang's own), completions or chat; `prompt` as token ids or text (a chat request
    has messages); `model_name` as the server calls the model, null: model.path; `body`: further fields of a request;
    `stop`: send the task's stop strings (false: a text ends with its end token or decoder.gen_length, as with every
    local decoder, and is cut afterwards); `stream` for the time to the first token; `stream_usage`: ask for a usage
    record at the end of a stream. The key is read from the environment variable `key_env` and never stored.
    How they are sent: `concurrency` at once at most, `rate` a second on average (Poisson arrivals; null: as fast as
    they are answered), `timeout_s` each, `retries` after 429, 5xx and broken connections, first after `backoff_s`,
    then twice as long each time. `flush_cache`: empty the server's prefix cache before each request (SGLang).
    `slo_s`, `slo_ttft_s`: what a request may take to count as good (goodput). `algorithm`: of decoder=served.
    """

    url: str | None = None
    launch: bool = False
    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    startup_s: float = number(1800.0, 0, above=True)
    model_name: str | None = None
    algorithm: str | None = None
    api: str = choice("completions", *APIS["sglang"], *APIS["openai"])
    prompt: str = choice("ids", "ids", "text")
    body: dict[str, Any] = field(default_factory=dict)
    stop: bool = False
    stream: bool = False
    stream_usage: bool = True
    flush_cache: bool = False
    key_env: str = "OPENAI_API_KEY"
    timeout_s: float = number(600.0, 0, above=True)
    retries: int = number(4, 0, 65536)
    backoff_s: float = number(0.5, 0, above=True)
    concurrency: int = number(1, 1, 65536)
    rate: float | None = number(None, 0, above=True)
    slo_s: float | None = number(None, 0, above=True)
    slo_ttft_s: float | None = number(None, 0, above=True)

    def check(self) -> None:
        if self.api not in APIS.get(self.name, (self.api,)):
            raise BackendError(refused("backend.api", self.api, ", ".join(APIS[self.name])))
        super().check()
        self._check_start()
        if self.flush_cache and (self.name != "sglang" or self.concurrency > 1):
            raise BackendError(
                "backend.flush_cache=true needs backend.name=sglang and backend.concurrency=1: a cache in use cannot "
                "be emptied; allowed here: false"
            )
        if self.slo_ttft_s is not None and not self.stream:
            raise BackendError(f"backend.slo_ttft_s={self.slo_ttft_s} needs backend.stream=true")

    def _check_start(self) -> None:
        """How the server is found, or started."""
        if self.url is None and not self.launch:
            raise BackendError(
                "backend.url is not set; allowed: http://HOST:PORT of a running server, or backend.launch=true to "
                "start one"
            )
        if self.url is not None and not re.fullmatch(r"https?://[^/\s]+(/[^\s?#]*)?", self.url):
            raise BackendError(f"backend.url={self.url} is not allowed; allowed: http://HOST:PORT or https://HOST:PORT")
        if self.launch and not self.command:
            raise BackendError(
                "backend.launch=true needs backend.command; allowed: backend=sglang, vllm, lmdeploy or "
                "transformers_serve, which have one, or a list of words"
            )
        for word in (*self.command, *self.args) if self.launch else ():
            names = [name for _, name, _, _ in string.Formatter().parse(word) if name is not None]
            if wrong := [name for name in names if name not in PLACEHOLDERS]:
                raise BackendError(f"backend.command: {{{wrong[0]}}} is unknown; allowed: {', '.join(PLACEHOLDERS)}")


SETTINGS: dict[str, type[BackendSettings]] = {"local": LocalSettings} | dict.fromkeys(SERVERS, ServerSettings)


def check_together(settings: BackendSettings, decoder: str, model: str, layout: str | None) -> None:
    """Whether this backend can run the decoder with a model of this layout. Raises BackendError."""
    is_causal = layout == "causal"
    if settings.name in SERVERS and decoder not in ("ar", "served"):
        allowed = "ar" if is_causal else "served"
        raise BackendError(
            f"decoder={decoder} cannot run on backend={settings.name}, which decodes by itself; allowed: "
            f"decoder={allowed} with model={model}, or backend=local"
        )
    if settings.name == "local" and decoder == "served":
        raise BackendError(f"decoder=served needs a server; allowed: backend={', '.join(SERVERS)}")
    if decoder == "ar" and not is_causal:
        raise BackendError(
            f"decoder=ar needs an autoregressive model; allowed: model=mini_ar, qwen3_8b, causal, not model={model} "
            f"(model.layout={layout})"
        )
    if isinstance(settings, LocalSettings) and settings.compile == "graphs" and decoder in ("ar", "diffusion_gemma"):
        raise BackendError(
            f"backend.compile=graphs captures steps of networks of this project, and decoder={decoder} runs one of "
            "transformers; allowed here: none, compile"
        )
    if (decoder == "diffusion_gemma") != (layout == "diffusion_gemma") and decoder != "served":
        right = "decoder=diffusion_gemma" if layout == "diffusion_gemma" else "model=diffusion_gemma"
        raise BackendError(
            f"decoder={decoder} cannot run model={model} (model.layout={layout}): DiffusionGemma has no masks to fill, "
            f"and its sampler fits no other model; allowed: {right}"
        )
    if decoder != "ar" and is_causal:
        raise BackendError(f"model={model} is autoregressive: decoder={decoder} cannot run it; allowed: decoder=ar")
