"""The cost model beside the article's table 4: predicted and published tokens a second, the error whatever it is."""

from __future__ import annotations

from statistics import mean
from typing import Any

from analysis.labels import task_name
from analysis.tables import published
from analysis.tables.model import Head, Table
from analysis.text import typeset
from lopa_bench.console.numbers import fixed, rate, signed
from lopa_bench.cost.devices import device
from lopa_bench.cost.predict import assumed
from lopa_bench.cost.sizes import sized
from lopa_bench.cost.step import Setup, step

NVIDIA = "LoPA-Dist-NV"  # of which the article does not name the device
DEVICES = {NVIDIA: "h200", "LoPA-Dist-Ascend": "910c"}
BASELINE = "HuggingFace CUDA"
NAMES = ("model", "platform", "setting", "task")
DIGITS = {  # of the numbers of a row, as a person reads them
    "published_tps": 1, "published_tpf": 2, "published_step_ms": 1, "step_ms": 2, "tps": 0, "error": 0,
    "step_ms_with_overhead": 1, "tps_with_overhead": 0, "error_with_overhead": 0, "implied_tpf": 1,
}  # fmt: skip
ERRORS = {"error": "from the data sheet alone", "error_with_overhead": "with the software's time"}
KEYS = (*NAMES, *DIGITS)
Record = dict[str, Any]  # a value or None for each of KEYS
HEADS = (
    Head("model", is_words=True),
    Head("platform", is_words=True),
    Head("setting", is_words=True),
    Head("task", is_words=True),
    Head("published", ("TPS", "TPF", "step ms")),
    Head("data sheet alone", ("step ms", "TPS", "error %")),
    Head("with software", ("step ms", "TPS", "error %")),
    Head("TPF implied"),
)


def comparison() -> Table:
    """Every row of table 4.

    A row can be tested where table 3 publishes its TPF: those of S12 and S18. Of the others stands the TPF that their
    TPS would mean if the model with the software's time were right.
    """
    software = overhead_s()
    records = [_record(row, software) for row in published.rows("table4_ablation")]
    tested = [record for record in records if record["published_tpf"] is not None]
    return Table(
        name="cost",
        caption="The cost model beside the article's table 4",
        heads=HEADS,
        rows=[_cells(record) for record in records],
        keys=KEYS,
        records=[[record[key] for key in KEYS] for record in records],
        labels=4,
        notes=(*_errors(tested), *_notes(software)),
    )


def overhead_s() -> float:
    """Seconds of a step beyond the model's, of the software that table 7 measures: D2F alone on one NVIDIA device."""
    rows = [row for row in published.rows("table7_baselines") if row["engine"] == BASELINE]
    model = sized("d2f_dream")
    alone = step(model.config, assumed(model, 0), Setup(device(DEVICES[NVIDIA]), protocol="single_phase")).seconds
    return mean(float(row["tpf"]) / float(row["avg_tps"]) - alone for row in rows)


def _record(row: published.Row, software: float) -> Record:
    settings = next(one for one in published.rows("table6_settings") if one["setting"] == row["setting"])
    ranks, tensor = int(settings["bp_size"]), int(settings["tp_size"])
    model = sized(published.MODELS[row["model"]])
    tps, tpf = float(row["avg_tps"]), _tpf(row)
    # The NVIDIA program gathers all logits and commits the winner's cache. That of Ascend is not released; by the
    # article it has block-causal attention and no commit.
    setup = Setup(
        device(DEVICES[row["platform"]]),
        ranks,
        tensor,
        settings["precision"].lower().replace("bf16", "bfloat16"),
        "two_phase" if row["platform"] == NVIDIA else "single_phase",
        "logits",
    )
    alone = step(model.config, assumed(model, ranks - 1, tpf), setup).seconds
    whole = alone + software
    record: Record = dict.fromkeys(KEYS) | {name: row[name] for name in NAMES}
    record |= {"published_tps": tps, "step_ms": 1e3 * alone, "step_ms_with_overhead": 1e3 * whole}
    if tpf is None:
        return record | {"implied_tpf": tps * whole}
    return record | {
        "published_tpf": tpf, "published_step_ms": 1e3 * tpf / tps,
        "tps": tpf / alone, "error": tpf / alone / tps - 1,
        "tps_with_overhead": tpf / whole, "error_with_overhead": tpf / whole / tps - 1,
    }  # fmt: skip


def _tpf(row: published.Row) -> float | None:
    """Of the run of table 3 that has the same speed."""
    same = ("model", "platform", "task", "avg_tps")
    return next(
        (float(one["tpf"]) for one in published.rows("table3_system") if all(one[key] == row[key] for key in same)),
        None,
    )


def _cells(record: Record) -> list[str]:
    names = [task_name(record[name]) if name == "task" else record[name] for name in NAMES]
    return [*names, *(typeset(_number(record[name], name)) for name in DIGITS)]


def _number(value: float | None, name: str) -> str:
    """Errors as differences in percent."""
    if name in ERRORS:
        return signed(None if value is None else 100 * value, DIGITS[name])
    return fixed(value, DIGITS[name])


def _errors(tested: list[Record]) -> list[str]:
    found = []
    for column, words in ERRORS.items():
        for platform in DEVICES:
            errors = [one[column] for one in tested if one["platform"] == platform]
            low, high, size = rate(min(errors)), rate(max(errors)), rate(mean(map(abs, errors)))
            found.append(
                f"{platform}, {words}: error {typeset(low)} to {typeset(high)} %, mean size {size} % (n={len(errors)})"
            )
    return found


def _notes(software: float) -> list[str]:
    return [
        f"the article does not name its NVIDIA device: {device(DEVICES[NVIDIA]).title} is assumed; of Ascend, one die "
        "a rank",
        f"software: {1e3 * software:.1f} ms a step, what the four D2F rows of table 7 ({BASELINE}, one device, no "
        "lookahead) take beyond the model's step; no row of table 4 is in it. No baseline of Ascend is published, so "
        "the same number stands there",
        "the window is assumed to be three blocks of 32, half of it masked, on 900 cached positions: no publication "
        "says them",
        "TPF is published for S12 and S18 alone (table 3); for the others stands the TPF that their TPS would mean",
    ]
