"""Autoregressive decoding of any causal checkpoint through `transformers`: one token a forward, with a KV cache.

The baseline of every "times faster than the AR model" claim, with the same clock, step records and token counts as the
decoders of masked positions. One text at a time, as the article's batch-1 protocol has it.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decoders.types import Generation, Readout, Step
from lopa_bench.backends.outcome import Outcome
from lopa_bench.backends.readout import read_out
from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.checkpoint.tensors import check_numbers
from lopa_bench.models.device import pick_device, pick_dtype, set_threads
from lopa_bench.models.kept import Keep, anew
from lopa_bench.models.text.ends import end_ids
from lopa_bench.models.text.tokenizers import Codec, codec_for, load_tokenizer
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.model import ModelSettings

CAUSAL = "AutoModelForCausalLM"


@dataclass
class CausalModel:
    """A loaded checkpoint; `end_ids` are all ids that end a text, `forwards` those that were begun so far."""

    network: Any
    codec: Codec
    end_ids: tuple[int, ...]
    cache_name: str  # of the argument, which transformers renamed
    device: torch.device
    dtype: torch.dtype
    forwards: int = 0


def load_causal(model: ModelSettings, backend: LocalSettings, kind: str = CAUSAL, keep: Keep = anew) -> CausalModel:
    """A checkpoint as configured, of a class of transformers; no code of it is run. Its network as `keep` says. Raises
    CheckpointError.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    assert model.path is not None
    device = pick_device(backend.device)
    dtype = pick_dtype(model.dtype, device)
    folder = locate(model.path, model.revision)
    if model.lora is not None:
        raise CheckpointError(
            f"model.lora={model.lora} is not supported for model.layout={model.layout}; merge it beforehand"
        )
    tokenizer = load_tokenizer(folder)
    network = keep(lambda: _load(folder, dtype, kind).to(device).eval().requires_grad_(False))
    set_threads(network, backend.threads)
    size = network.get_input_embeddings().num_embeddings
    codec = codec_for(model, tokenizer, network.config.get_text_config().bos_token_id, size)
    ends = end_ids(model.end_ids, _configured_ends(network), codec, size, folder)
    cache_name = "cache" if "cache" in inspect.signature(network.forward).parameters else "past_key_values"
    if backend.compile == "compile":
        network.compile(dynamic=True)
    return CausalModel(network, codec, tuple(ends), cache_name, device, dtype)


def _load(folder: Path, dtype: torch.dtype, kind: str) -> Any:
    """The network of a folder, all of it from the files: what is missing there, transformers draws at random."""
    import transformers

    found = getattr(transformers, kind, None)
    if found is None:
        raise CheckpointError(f"transformers {transformers.__version__} has no {kind}; allowed: a newer version")
    what = "causal" if kind == CAUSAL else kind
    try:
        network, info = found.from_pretrained(
            folder, dtype=dtype, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
    except Exception as error:  # of every kind, from JSON that is broken to shapes that do not fit
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"{folder} is no {what} checkpoint that transformers can load: {reason}") from None
    if missing := sorted(map(str, info["missing_keys"])):
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise CheckpointError(f"{folder} does not fit its config.json: missing: {missing[0]}{more}")
    check_numbers(network.state_dict(), str(folder))
    return network


def _configured_ends(network: Any) -> list[int]:
    found: list[int] = []
    for ids in (network.config.get_text_config().eos_token_id, network.generation_config.eos_token_id):
        found += ids if isinstance(ids, list) else [] if ids is None else [ids]
    return found


@torch.inference_mode()
def decode_text(model: CausalModel, prompt: Sequence[int], length: int, temperature: float, seed: int) -> Outcome:
    """Up to `length` tokens behind the prompt; the end token ends the text and is its last id.

    The first forward reads the prompt and predicts the first token; each further one reads the token before.
    """
    import transformers

    began = time.perf_counter()
    readout = Readout(temperature=temperature, seed=seed if temperature else 0)
    cache = transformers.DynamicCache(config=model.network.config)
    fed, past = list(prompt), 0
    steps: list[Step] = []
    seconds: list[float] = []
    while len(steps) < length and not (steps and steps[-1].tokens[0] in model.end_ids):
        step_began = time.perf_counter()
        token, prob = _next(model, fed, cache, readout, len(steps))
        if not math.isfinite(prob):
            return Outcome(None, "non_finite", error="the model's logits are not finite")
        steps.append(_step(past + len(fed), token, prob, length - len(steps) - 1, past, len(fed)))
        past, fed = past + len(fed), [token]
        seconds.append(time.perf_counter() - step_began)
    ids = tuple(step.tokens[0] for step in steps)
    reason = "eos" if ids[-1] in model.end_ids else "length"
    generation = Generation(ids, reason, len(ids), tuple(steps))
    total = time.perf_counter() - began
    return Outcome(generation, reason, 0, seconds, seconds[0], total)


def _next(model: CausalModel, fed: list[int], cache: Any, readout: Readout, number: int) -> tuple[int, float]:
    model.forwards += 1
    tokens_1T = torch.tensor([fed], device=model.device)
    output = model.network(input_ids=tokens_1T, **{model.cache_name: cache}, use_cache=True, logits_to_keep=1)
    logits_1V: Tensor = output.logits[:, -1]
    values = read_out(logits_1V, readout, None, number)
    return int(values["token"][0]), float(values["prob"][0])


def _step(position: int, token: int, prob: float, left: int, cached: int, processed: int) -> Step:
    """One forward as a step record: a window of one position, which is filled. There is no branch but the anchor."""
    return Step(
        window_start=position, window_width=1, branches=1, winner=0, scores=(prob,), lookahead_positions=(),
        lookahead_tokens=(), positions=(position,), tokens=(token,), probs=(prob,), masks_left=left, cached=cached,
        tokens_processed=processed, kept=None,
    )  # fmt: skip
