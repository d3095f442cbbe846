"""Runs made up for the tests of `analysis`: written by the application's own store, the same each time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from decoders import make_decoder
from decoders.config import DecoderConfig, ScoreConfig
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.records.reading import read_samples
from lopa_bench.records.schema import COLUMNS, schema
from lopa_bench.records.writing import RunStore
from tests.test_records import run_row, sample, step

HOST = {"processor": "Test CPU", "cpus": 2, "gpu": None}


def write_run(
    root: Path,
    run_id: str,
    settings: dict[str, Any] | None = None,
    samples: list[tuple[dict[str, Any], list[dict[str, Any]]]] | None = None,
    **row: Any,
) -> Path:
    """One run of given rows. `settings` are those of DecoderConfig, resolved as a run resolves them; `row` are columns
    of run.parquet that are not what follows from them.
    """
    decoder = make_decoder(DecoderConfig(**({"gen_length": 128, "block_size": 16} | (settings or {})))).config
    folder = root / "runs" / run_id
    with RunStore(folder) as store:
        for one, steps in samples or []:
            store.add(one | {"run_id": run_id}, steps)
    totals = aggregate(read_samples(folder))
    facts = {
        "run_id": run_id, "status": "finished", "decoder": decoder.name, "base": decoder.base,
        "k": str(decoder.k), "attention": decoder.attention, "config": {"decoder": asdict(decoder)},
        "host": HOST, "aggregates": totals, "n": totals["n"], "model_path": "embedded:mini",
        "limit": len(samples or []),
    }  # fmt: skip
    with RunStore(folder) as store:
        store.write_run(run_row(**(facts | row)))
    return folder


def config_of(settings: dict[str, Any]) -> dict[str, Any]:
    """The configuration that `write_run` records for these settings."""
    decoder = make_decoder(DecoderConfig(**({"gen_length": 128, "block_size": 16} | settings))).config
    return {"decoder": asdict(decoder)}


def sweep(root: Path, task: str = "gsm8k", n: int = 12, ks: tuple[int, ...] = (0, 1, 3, 7), **row: Any) -> None:
    """Runs over k and thresholds that behave as the real ones do: more branches and lower thresholds fill more."""
    for k in ks:
        decoded = simulate(n, k, 0.9, seed=k)
        write_run(root, f"{task}-lopa-k{k:02}", {"name": "lopa", "k": k}, decoded, task=task, **row)
    for tau in (0.95, 0.7):
        for k in (3, 7):
            name = f"{task}-lopa-k{k:02}-t{tau}"
            settings = {"name": "lopa", "k": k, "tau_conf": tau, "tau_act": tau}
            write_run(root, name, settings, simulate(n, k, tau, seed=k), task=task, **row)
    for name, gain in (("greedy", 0.0), ("fast_dllm", 1.4), ("d2f", 2.0)):
        write_run(root, f"{task}-{name}", {"name": name}, simulate(n, 0, 0.9, seed=50, gain=gain), task=task, **row)


def report_runs(root: Path) -> Path:
    """What tables and figures need: sweeps over k and thresholds, two values of every ablation, one stopped run."""
    sweep(root, n=10)
    sweep(root, n=6, task="mbpp", ks=(0, 3, 7))
    ablations: list[dict[str, Any]] = [
        {"score": ScoreConfig(kind="next_fill")}, {"confidence": "prob"}, {"forced": "global"},
        {"attention": "block_causal"}, {"block_size": 32}, {"floor": 0.4},
    ]  # fmt: skip
    for index, changes in enumerate(ablations):
        write_run(root, f"ablation-{index}", {"name": "lopa", "k": 3} | changes, simulate(10, 3, 0.9, seed=20 + index))
    write_run(root, "stopped", {"name": "d2f"}, simulate(2, 0, 0.9, seed=9), status="interrupted")
    return root


def simulate(
    n: int, k: int, tau: float, seed: int, gain: float = 2.0
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Samples with their steps. `gain`: how many positions beyond the first one a step fills on average."""
    return [_decode(index, np.random.default_rng((seed, index)), k, tau, gain) for index in range(n)]


def _decode(
    index: int, random: np.random.Generator, k: int, tau: float, gain: float
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    prompt, length = 20 + index % 5, int(40 + 8 * (index % 7))
    open_positions, steps, ids = list(range(prompt, prompt + length)), [], {}
    branches: list[int] = []
    more = gain * (1 + 0.9 * np.log1p(k) + 3 * (0.9 - tau))
    while open_positions:
        score = -float(random.gamma(2, 0.4))
        winner = int(random.integers(0, len(branches) + 1)) if branches else 0
        taken = [branches[winner - 1]] if winner else []
        rest = [p for p in open_positions if p not in taken]
        fill = rest[: 1 + int(random.poisson(max(0.0, more * (1 + 0.4 * score))))] if gain else rest[:1]
        scores = [score - 0.1 * abs(j - winner) for j in range(len(branches) + 1)]
        open_positions = [p for p in rest if p not in fill]
        ids |= {p: 100 + p for p in [*taken, *fill]}
        width = len(rest) + (prompt if not steps else 8)
        steps.append(
            step(
                len(steps), window_start=0 if not steps else prompt, window_width=width, branches=len(scores),
                winner=winner, winner_score=scores[winner], anchor_score=scores[0], scores=scores,
                lookahead_positions=branches, lookahead_tokens=[100 + p for p in branches], positions=fill,
                tokens=[100 + p for p in fill], probs=[float(x) for x in random.uniform(0.7, 1.0, len(fill))],
                masks_left=len(open_positions), cached=0 if not steps else prompt,
                tokens_processed=len(scores) * width, seconds=0.01,
            )
        )  # fmt: skip
        branches = [int(p) for p in open_positions[:k]]
    calls, rows = len(steps), sum(row["branches"] for row in steps)
    right = bool(random.random() < 0.92 - 0.015 * k)
    seconds = 0.004 * calls + 0.0006 * rows
    one = sample(
        index, prompt_tokens=prompt, window_tokens=length, eos_tokens=length, content_tokens=length - 1,
        rounds=calls, forwards=calls, rows=rows, tokens_processed=sum(row["tokens_processed"] for row in steps),
        prefill_s=0.004, decode_s=seconds - 0.004, total_s=seconds, correct=right,
        token_ids=[ids[p] for p in sorted(ids)],
    )  # fmt: skip
    return one, steps


def many_runs(root: Path, runs: int = 100, samples: int = 1319, steps: int = 60) -> None:
    """A large sweep as files: rows of one run, made in columns, in one part as a finished run leaves them; the other
    runs are hard links to them under settings of their own.
    """
    first = root / "runs" / "big-000"
    _write_part(first, np.arange(samples), steps)
    for index in range(runs):
        folder = root / "runs" / f"big-{index:03}"
        if index:
            for part in first.glob("*/*.parquet"):
                target = folder / part.relative_to(first)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.hardlink_to(part)
        settings = {"name": "lopa", "k": index % 15, "tau_conf": round(0.95 - 0.05 * (index // 15), 2)}
        decoder = make_decoder(DecoderConfig(**({"gen_length": 512, "block_size": 32} | settings))).config
        row = run_row(
            run_id=folder.name, status="finished", k=str(decoder.k), n=samples, host=HOST, aggregates={},
            config={"decoder": asdict(decoder)},
        )  # fmt: skip
        with RunStore(folder) as store:
            store.write_run(row)


def _write_part(folder: Path, index: np.ndarray, steps: int) -> None:
    random = np.random.default_rng(0)
    n = len(index)
    prototype = sample(0, eos_tokens=240, window_tokens=256, rounds=steps, forwards=steps, rows=steps * 9)
    columns = {name: [prototype.get(name)] * n for name in COLUMNS["samples"]}
    seconds = random.gamma(20, 0.1, n)
    columns |= {
        "run_id": ["big"] * n,
        "problem_id": [f"p{i}" for i in index], "problem_index": index, "content_tokens": random.integers(80, 240, n),
        "total_s": seconds, "decode_s": seconds * 0.9, "correct": random.random(n) < 0.7,
        "score_details": ["{}"] * n, "prompt": ["words " * 200] * n, "token_ids": [list(range(240))] * n,
    }  # fmt: skip
    m = n * steps
    fills = random.integers(1, 8, m)
    ends = np.concatenate([[0], np.cumsum(fills)]).astype(np.int32)
    nine = np.arange(0, 9 * m + 1, 9, dtype=np.int32)
    eight = np.arange(0, 8 * m + 1, 8, dtype=np.int32)
    scores = random.normal(-1, 0.3, 9 * m).astype(np.float32)
    lists = {
        "positions": (ends, np.int32), "tokens": (ends, np.int32), "probs": (ends, np.float32),
        "lookahead_positions": (eight, np.int32), "lookahead_tokens": (eight, np.int32),
    }  # fmt: skip
    winner = scores.reshape(m, 9).argmax(axis=1)
    row = step()
    table = {name: [row.get(name)] * m for name in COLUMNS["steps"]}
    table |= {
        "run_id": ["big"] * m, "problem_id": np.repeat(columns["problem_id"], steps),
        "sample_index": np.zeros(m, int),
        "step": np.tile(np.arange(steps), n), "branches": np.full(m, 9), "winner": winner,
        "winner_score": scores.reshape(m, 9).max(axis=1), "scores": pa.ListArray.from_arrays(nine, scores),
    }  # fmt: skip
    for name, (offsets, kind) in lists.items():
        values = random.integers(0, 1000, offsets[-1]).astype(kind)
        table[name] = pa.ListArray.from_arrays(offsets, values)
    for name, data in (("steps", table), ("samples", columns)):
        path = folder / name / "part-000001-1-a.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({key: pa.array(data[key]).cast(schema(name).field(key).type) for key in data}), path)
