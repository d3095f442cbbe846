"""What a server says of itself, and whether it is the one that was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lopa_bench.backends.server.http import Client, Failure
from lopa_bench.errors import BackendError
from lopa_bench.settings.backend import ServerSettings

# Of SGLang's server information, which holds keys too: only what a reader of the numbers must know.
KEPT = (
    "version", "model_path", "served_model_name", "dtype", "quantization", "kv_cache_dtype", "device", "tp_size",
    "dp_size", "pp_size", "attention_backend", "disable_radix_cache", "disable_cuda_graph", "speculative_algorithm",
    "dllm_algorithm", "max_running_requests", "context_length", "stream_output", "incremental_streaming_output",
)  # fmt: skip


def ask_server(client: Client, settings: ServerSettings) -> dict[str, Any]:
    """Its own words, by the names it uses. Raises BackendError if nothing answers there."""
    try:
        return _sglang(client) if settings.name == "sglang" else _openai(client)
    except Failure as failure:
        raise BackendError(
            f"backend.url={client.url} does not answer ({failure}); allowed: the address of a running server, or "
            "backend.launch=true to start one"
        ) from None


def _sglang(client: Client) -> dict[str, Any]:
    model = client.get("/model_info") or client.get("/get_model_info") or {}
    info = client.get("/server_info") or client.get("/get_server_info") or {}
    return {name: value for name, value in {**info, **model}.items() if name in KEPT and _is_plain(value)}


def _openai(client: Client) -> dict[str, Any]:
    models = (client.get("/v1/models") or {}).get("data") or []
    version = client.get("/version")
    facts = {"models": [model.get("id") for model in models if isinstance(model, dict)]}
    return facts | ({"version": version.get("version")} if isinstance(version, dict) else {})


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def check_server(facts: Mapping[str, Any], settings: ServerSettings, model: str, decoder: str) -> None:
    """Raises BackendError for a server with another model, or one that does not decode as the run would record."""
    found = facts.get("model_path")
    if found is not None and _last(found) != _last(model) and _last(facts.get("served_model_name")) != _last(model):
        raise BackendError(
            f"the server at hand has the model {found}, the run asks for {model}; allowed: the model's own server, or "
            f"backend.model_name={found}"
        )
    if "dllm_algorithm" in facts and (decoder == "served") != (facts["dllm_algorithm"] is not None):
        algorithm = facts["dllm_algorithm"]
        right = "ar" if algorithm is None else "served"
        raise BackendError(
            f"the server's dllm_algorithm is {algorithm}: decoder={decoder} would be a wrong label; allowed: {right}"
        )
    if settings.stream and (facts.get("stream_output") or facts.get("incremental_streaming_output")):
        raise BackendError(
            "the server streams pieces (--stream-output); allowed: backend.stream=false, or a server without"
        )


def notes(facts: Mapping[str, Any], settings: ServerSettings) -> list[str]:
    """What a reader should know before believing the times."""
    said = []
    if facts.get("disable_radix_cache") is False and not settings.flush_cache:
        said.append(
            "the server keeps prompts in its radix cache: prefill may look faster than it is (backend.flush_cache=true)"
        )
    if facts.get("speculative_algorithm"):
        said.append(f"the server decodes speculatively ({facts['speculative_algorithm']}): not one token a forward")
    return said


def _last(path: Any) -> str | None:
    return None if path is None else str(path).rstrip("/").rpartition("/")[2].lower()
