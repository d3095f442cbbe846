"""`python -m analysis.against_base OUTPUTS [--chosen-on N]`: lookahead beside its base decoder, problem by problem.

Each finished run of lopa stands beside the run with k = 0 of the same task, model, base, dtype and problems: accuracy,
TPF, forwards, rows, problems lost and won with the exact McNemar p, and in how many samples the ids, and the steps of
the base, are the same. The last is what `select=exact` promises in exact arithmetic: what differs are flips of
rounding, as bfloat16 has them. `--chosen-on N`: the first N problems, on which settings were chosen, and the others
apart.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.compute as pc

from analysis.labels import base_name
from lopa_bench.console.numbers import percent
from lopa_bench.errors import RunError
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.metrics.comparable import shared
from lopa_bench.metrics.paired import compare
from lopa_bench.records.finding import find_runs
from lopa_bench.records.integrity import Key, keys_of
from lopa_bench.records.reading import read_samples
from lopa_bench.records.runs import Run

SHOWN = ("select", "confirm", "confirm_best", "gate", "floor", "tau_conf")
STEPS = ("problem_id", "sample_index", "step", "positions", "tokens", "taken_positions", "taken_tokens", "base_fills")
Row = dict[str, Any]
Steps = list[tuple[list[int], list[int]]]


def base_steps(run: Run) -> dict[Key, Steps]:
    """Positions and tokens of each step of the base, by sample; a forward that says nothing else took one."""
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in run.steps(STEPS).to_pylist():
        found[row["problem_id"], row["sample_index"]].append(row)
    return {key: list(_split(sorted(rows, key=lambda row: row["step"]))) for key, rows in found.items()}


def _split(rows: list[Row]) -> Iterator[tuple[list[int], list[int]]]:
    for row in rows:
        positions = [*(row["taken_positions"] or ()), *row["positions"]]
        tokens = [*(row["taken_tokens"] or ()), *row["tokens"]]
        for count in row["base_fills"] or [len(positions)]:
            yield positions[:count], tokens[:count]
            positions, tokens = positions[count:], tokens[count:]


def comparison(run: Run, base: Run, among: pc.Expression) -> str | None:
    """The line of a run: on the samples that both decoded and `among` takes. None if there are none."""
    theirs, mine = shared([read_samples(one.folders).filter(among) for one in (base, run)])
    if not mine.num_rows:
        return None
    numbers, paired = aggregate(mine), compare(theirs, mine)
    cells = [f"n {paired.pairs}", f"TPF {numbers['tpf']:.2f}"]
    cells += [f"forwards {numbers['forwards']}", f"rows {numbers['rows']}"]
    if paired.mcnemar_p is not None:
        cells.insert(1, f"accuracy {percent(numbers['accuracy'])}")
        cells.append(f"lost {paired.only_a_correct} won {paired.only_b_correct} (p {paired.mcnemar_p:.2g})")
    equal = zip(theirs["token_ids"].to_pylist(), mine["token_ids"].to_pylist(), strict=True)
    cells.append(f"ids equal {sum(one == other for one, other in equal)}")
    if run.select == "exact" or run is base:
        steps = base_steps(run), base_steps(base)
        cells.append(f"steps equal {sum(steps[0].get(key) == steps[1].get(key) for key in keys_of(mine))}")
    return ", ".join(cells)


def label(run: Run) -> str:
    settings = [f"{name}={run.settings[name]}" for name in SHOWN if run.settings.get(name) is not None]
    return f"{run.task}, {base_name(run.base)}, {run.dtype}, k={run.k_as_set} {' '.join(settings)}"


def lines(runs: Sequence[Run], chosen_on: int | None) -> Iterator[str]:
    """One line a run and part of its problems; the run with k = 0 that has the base's usual settings comes first."""
    index = pc.field("problem_index")
    parts = {"all": index >= 0}
    if chosen_on is not None:
        parts = {f"problems 1-{chosen_on}": index < chosen_on, f"from {chosen_on + 1} on": index >= chosen_on}
    places: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.created):
        if run.decoder == "lopa" and run.status == "finished":
            names = ("task", "model", "model_sha256", "base", "dtype", "source_sha256")
            places[tuple(run.row[name] for name in names)].append(run)
    for group in places.values():
        plain = [run for run in group if run.k == 0]
        if not plain:
            continue
        base = min(plain, key=lambda run: len(run.overrides))  # the first of those that were told least
        for run in [base, *(run for run in group if run is not base)]:
            for name, among in parts.items():
                found = comparison(run, base, among)
                if found:
                    yield f"{label(run)} | {name}: {found}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs", help="the folder that runs were written to")
    parser.add_argument("--chosen-on", type=int, default=None, metavar="N", help="show the first N problems apart")
    args = parser.parse_args(arguments)
    if args.chosen_on is not None and args.chosen_on < 1:
        parser.error(f"--chosen-on {args.chosen_on} is not allowed; allowed: an integer from 1")
    try:
        found = list(lines(find_runs(args.outputs), args.chosen_on))
    except RunError as error:
        parser.error(str(error))
    if not found:
        parser.error(f"no finished run of lopa with k = 0 is in {args.outputs}, which the others would stand beside")
    print("\n".join(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
