"""`python -m lopa_bench.run.benchmark`: what a decode costs beside the bare model calls that it needs.

The same decodes are timed whole, and as nothing but their model calls (network and head on recorded inputs), in turn
and in one process, so that the ratio holds on a noisy machine. Then: samples per second, one by one and packed, with
the CPU threads that a run takes by default. With `--against-base` instead: CPU time beside that of k = 0, in pairs.
With `--ar`: autoregressive decoding of the embedded twin, its bare model calls, and what `transformers` itself takes
for the same texts. With `--experts N`: one layer of a mixture of N experts beside the products of its experts, and
beside a dense network of the width that a token passes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from decoders import Decoder, DecoderConfig, Request, decode, make_decoder
from decoders.types import Decode
from lopa_bench.backends.local import LocalBackend, Pending
from lopa_bench.backends.session import Session
from lopa_bench.models.config import Experts
from lopa_bench.models.device import set_threads
from lopa_bench.models.loaded import load
from lopa_bench.models.network.feed_forward import MLP, MixtureOfExperts
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.model import ModelSettings
from tasks.registry import make_task
from tasks.types import TaskConfig


def recorded(steps: Decode, log: list[Request]) -> Decode:
    """Passes a decode through and notes its requests."""
    request = next(steps)
    while True:
        log.append(request)
        prediction = yield request
        try:
            request = steps.send(prediction)
        except StopIteration as stop:
            return stop.value


@torch.inference_mode()
def bare(backend: LocalBackend, requests: list[Request]) -> None:
    """The model calls of a decode and nothing else: no masks to choose, no decoder, no records."""
    session = Session(backend.new_cache(), backend.config.shifted, backend.config.mask_id)
    for request in requests:
        segment = session.open(request, backend.device)
        session.last = (request.start, {})
        rows, columns = session.needed()
        hidden_TD = backend.model([segment], keep=True)
        index = torch.from_numpy(rows * request.ids.shape[1] + columns)
        backend.model.logits(hidden_TD[index.to(hidden_TD.device)]).sum().item()


def overhead(
    backend: LocalBackend, decoder: Decoder, prompts: list[list[int]], vocab: Any, repeats: int
) -> dict[str, float]:
    """Median seconds of a pass over the prompts, whole and bare, alternating."""
    logs: list[list[Request]] = []
    for prompt in prompts:
        logs.append([])
        backend.decode(recorded(decode(decoder, prompt, vocab), logs[-1]))

    def whole() -> None:
        for prompt in prompts:
            backend.decode(decode(decoder, prompt, vocab))

    def calls() -> None:
        for log in logs:
            bare(backend, log)

    times = _in_turn(repeats, whole, calls)
    return {
        "whole_s": _median(times, 0),
        "bare_s": _median(times, 1),
        "ratio": _median(times, 0, 1),
        "forwards": sum(len(log) for log in logs),
    }


def against_base(
    backend: LocalBackend, decoder: Decoder, base: Decoder, prompts: list[list[int]], vocab: Any, repeats: int
) -> dict[str, float]:
    """CPU time of a pass over the prompts, one by one, beside that of the base decoder: median of pairs in turn."""

    def cpu_s(one: Decoder) -> float:
        began = time.process_time()
        for prompt in prompts:
            backend.decode(decode(one, prompt, vocab))
        return time.process_time() - began

    cpu_s(decoder), cpu_s(base)
    pairs = [(cpu_s(decoder), cpu_s(base)) for _ in range(repeats)]
    ratios = sorted(pair[0] / pair[1] for pair in pairs)
    return {"cpu_ratio": statistics.median(ratios), "lowest": ratios[0], "highest": ratios[-1]}


def packing(
    backend: LocalBackend,
    decoder: Decoder,
    prompts: list[list[int]],
    vocab: Any,
    batch: int,
    repeats: int,
    threads: int | None,
) -> dict[str, float]:
    """Samples per second decoded one by one and `batch` at a time, and whether the ids are the same."""
    waiting = [Pending(prompt, partial(decode, decoder, prompt, vocab)) for prompt in prompts]
    results: dict[int, list[Any]] = {}

    def run(size: int) -> Callable[[], None]:
        def go() -> None:
            set_threads(backend.model, threads, size)
            outcomes = dict(backend.stream(waiting, batch=size))
            results[size] = [outcome.generation.ids for _, outcome in sorted(outcomes.items()) if outcome.generation]

        return go

    times = _in_turn(repeats, run(1), run(batch))
    return {
        "single_per_s": len(prompts) / _median(times, 0),
        "packed_per_s": len(prompts) / _median(times, 1),
        "ratio": _median(times, 0, 1),
        "same_ids": float(results[1] == results[batch]),
    }


def autoregressive(samples: int, repeats: int, threads: int | None) -> dict[str, float]:
    """Median seconds of greedy decodes: ours, their bare model calls, and `generate`, in turn."""
    from lopa_bench.backends.autoregressive import decode_text, load_causal

    settings = ModelSettings(path="embedded:mini_ar", layout="causal")
    model = load_causal(settings, LocalSettings(device="cpu", threads=threads))
    task = make_task(TaskConfig(source="embedded", limit=samples), embedded_default=True)
    prompts = [model.codec.encode(task.prompt(problem)) for problem in task.problems]
    texts = [decode_text(model, prompt, 128, 0.0, 0).generation for prompt in prompts]

    def whole() -> None:
        for prompt in prompts:
            decode_text(model, prompt, 128, 0.0, 0)

    @torch.inference_mode()
    def calls() -> None:
        import transformers

        for prompt, text in zip(prompts, texts):
            cache = transformers.DynamicCache(config=model.network.config)
            assert text is not None
            for fed in [prompt, *([token] for token in text.ids[:-1])]:
                arguments = {model.cache_name: cache, "use_cache": True, "logits_to_keep": 1}
                model.network(input_ids=torch.tensor([fed]), **arguments)

    def generate() -> None:
        for prompt in prompts:
            model.network.generate(torch.tensor([prompt]), max_new_tokens=128, do_sample=False)

    times = _in_turn(repeats, whole, calls, generate)
    return {
        "whole_s": _median(times, 0),
        "bare_s": _median(times, 1),
        "ratio": _median(times, 0, 1),
        "generate_ratio": _median(times, 2, 1),
    }


@torch.inference_mode()
def mixture(count: int, repeats: int, threads: int | None) -> dict[str, float]:
    """Median seconds of a layer of `count` experts at 288 tokens, 8 experts a token; of the bare products of each
    expert with the tokens that it gets, one by one; and of those of a dense network as wide as 8 experts. In turn.
    """
    tokens, width, size = 288, 1024, 512
    if threads is not None:
        torch.set_num_threads(threads)
    settings = Experts(count, 8, size, (True,), "sigmoid", normalised=True, scale=2.5, bias="choice")
    layer = MixtureOfExperts(width, settings)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    x_TD, dense = torch.randn(tokens, width), MLP(width, 8 * size)
    expert_TK = layer.router(x_TD)[1]
    fed = [x_TD[(expert_TK == number).any(1)] for number in range(count)]
    inner = [torch.randn(len(rows), size) for rows in fed]

    def products() -> None:
        for number in range(count):
            torch.mm(fed[number], layer.experts.gate_up_proj[number].t())
            torch.mm(inner[number], layer.experts.down_proj[number].t())

    def wide() -> None:
        torch.mm(x_TD, dense.gate_up_proj.weight.t())
        torch.mm(x_TD.repeat(1, 8 * size // width), dense.down_proj.weight.t())

    calls: list[Callable[[], object]] = [lambda: layer(x_TD), products, wide]
    _in_turn(1, *calls)
    times = _in_turn(repeats, *calls)
    return {
        "layer_s": _median(times, 0),
        "products_s": _median(times, 1),
        "dense_s": _median(times, 2),
        "ratio": _median(times, 0, 1),
        "dense_ratio": _median(times, 0, 2),
    }


def _in_turn(repeats: int, *actions: Callable[[], object]) -> list[list[float]]:
    """Seconds of each action, one after the other, in every round."""

    def seconds(action: Callable[[], object]) -> float:
        began = time.perf_counter()
        action()
        return time.perf_counter() - began

    return [[seconds(action) for action in actions] for _ in range(repeats)]


def _median(rounds: Sequence[Sequence[float]], one: int, other: int | None = None) -> float:
    """Over the rounds, of the seconds of an action, or of their ratio to those of another."""
    return statistics.median(times[one] / (1.0 if other is None else times[other]) for times in rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded:mini", help="checkpoint folder (default: the embedded model)")
    parser.add_argument("--k", type=int, nargs="+", default=[0, 4, 8], help="lookahead branches")
    parser.add_argument("--select", default="score", help="score, gate, confirm or exact")
    parser.add_argument("--confirm", type=float, default=None, help="threshold of select=confirm")
    parser.add_argument("--against-base", action="store_true", help="CPU time beside k = 0 instead")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--ar", action="store_true", help="the autoregressive twin instead")
    parser.add_argument("--experts", type=int, default=None, help="a layer of so many experts instead (8 at least)")
    args = parser.parse_args()
    if args.experts is not None:
        if args.experts < 8:
            parser.error(f"--experts {args.experts} is not allowed; allowed: 8 or more, of which a token takes 8")
        _print(f"{args.experts} experts", mixture(args.experts, args.repeats, args.threads))
        return
    if args.ar:
        _print("ar", autoregressive(args.samples, args.repeats, args.threads))
        return
    settings = ModelSettings(path=args.model, max_length=512)
    loaded = load(settings, LocalSettings(threads=args.threads))
    backend = LocalBackend(loaded.network, 512)
    task = make_task(TaskConfig(source="embedded", limit=args.samples), embedded_default=True)
    prompts = [loaded.encode(task.prompt(problem)) for problem in task.problems]
    for k in args.k:
        config = DecoderConfig(k=k, gen_length=128, block_size=16, attention="block_causal")
        base = make_decoder(replace(config, k=0))
        decoder = make_decoder(replace(config, select=args.select, confirm=args.confirm)) if k else base
        label = f"lopa k={k}" + (f" {args.select}" if k and args.select != "score" else "")
        if args.against_base:
            numbers = against_base(backend, decoder, base, prompts, loaded.vocabulary, args.repeats)
            _print(f"{label} beside k=0", numbers)
            continue
        numbers = overhead(backend, decoder, prompts, loaded.vocabulary, args.repeats)
        _print(label, numbers)
        numbers = packing(backend, decoder, prompts, loaded.vocabulary, args.batch, args.repeats, args.threads)
        _print(f"{label}, batch {args.batch}", numbers)


def _print(label: str, numbers: dict[str, float]) -> None:
    print(f"{label}: " + ", ".join(f"{name} {value:.3f}" for name, value in numbers.items()))


if __name__ == "__main__":
    main()
