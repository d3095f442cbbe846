"""`python -m lopa_bench.run.workers.benchmark`: samples a second of several workers beside one, one CPU thread each.

Both sets of workers are there all the time, with their models loaded, and decode the same problems in turn: first the
one, then the several. So the ratio of a pair holds on a machine whose speed changes. Loading, scoring and writing are
outside; what the process that leads them does to hand out problems and take rows is inside.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import asdict
from pathlib import Path

from decoders.config import DecoderConfig
from lopa_bench.plan.plan import Plan, make_plan
from lopa_bench.plan.units import Unit
from lopa_bench.run.workers.places import THREADS, Place
from lopa_bench.run.workers.pool import Pool
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config, RunSettings
from lopa_bench.settings.model import ModelSettings
from tasks.types import TaskConfig


def plan_of(model: str, k: int, samples: int, batch: int) -> Plan:
    config = Config(
        decoder=DecoderConfig(name="lopa", k=k, gen_length=128, block_size=16, attention="block_causal"),
        task=TaskConfig(name="gsm8k", source="embedded", limit=samples),
        model=ModelSettings(name="mini", path=model, max_length=512, toy=True),
        backend=LocalSettings(device="cpu", threads=1),
        run=RunSettings(batch=batch),
    )
    return make_plan(config, asdict(config))


def seconds(pool: Pool, units: list[Unit]) -> float:
    began = time.perf_counter()
    found = list(pool.rows(units))
    taken = time.perf_counter() - began
    assert len(found) == len(units)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded:mini", help="checkpoint folder (default: the embedded model)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--k", type=int, default=4, help="lookahead branches")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1)
    args = parser.parse_args()
    for name in ("workers", "samples", "repeats", "batch"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} {getattr(args, name)} is not allowed; allowed: from 1")
    plan = plan_of(args.model, args.k, args.samples, args.batch)
    place = Place("cpu", {THREADS: "1"})
    with (
        Pool(plan, Path(), "benchmark", [place]) as one,
        Pool(plan, Path(), "benchmark", [place] * args.workers) as several,
    ):
        for pool in (one, several):  # until every model is loaded and warm
            while not pool.all_ready:
                time.sleep(0.05)
            seconds(pool, plan.units[: 2 * args.workers])
        pairs = [(seconds(one, plan.units), seconds(several, plan.units)) for _ in range(args.repeats)]
    ratios = sorted(alone / shared for alone, shared in pairs)
    print(
        f"k={args.k}, batch {args.batch}, {len(plan.units)} samples, pairs: {args.repeats}; one worker "
        f"{len(plan.units) / statistics.median(alone for alone, _ in pairs):.2f} samples/s, {args.workers} workers "
        f"{len(plan.units) / statistics.median(shared for _, shared in pairs):.2f}: "
        f"{statistics.median(ratios):.2f} times as many ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


if __name__ == "__main__":
    main()
