"""The cost model beside the article's table 4: predicted and published tokens a second, the error whatever it is."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

from analysis.labels import task_name
from analysis.tables import published
from analysis.tables.model import Head, Table
from lopa_bench.console.numbers import fixed, rate
from lopa_bench.cost.devices import device
from lopa_bench.cost.predict import COMMITTED, assumed
from lopa_bench.cost.sizes import sized
from lopa_bench.cost.step import Setup, step

DEVICES = {"LoPA-Dist-NV": "h200", "LoPA-Dist-Ascend": "910c"}
BASELINE = "HuggingFace CUDA"
KEYS = (
    *("model", "platform", "setting", "task", "published_tps", "published_tpf", "published_step_ms", "step_ms", "tps"),
    *("error", "step_ms_with_overhead", "tps_with_overhead", "error_with_overhead", "implied_tpf"),
)
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


def comparison(nvidia: str = "h200") -> Table:
    """Every row of table 4. The article does not name its NVIDIA device. Raises ConfigError for one that is unknown.

    A row can be tested where table 3 publishes its TPF: those of S12 and S18. Of the others stands the TPF that their
    TPS would mean if the model with the software's time were right.
    """
    places = DEVICES | {"LoPA-Dist-NV": nvidia}
    software = overhead_s(nvidia)
    records = [_record(row, places, software) for row in published.rows("table4_ablation")]
    tested = [record for record in records if record[5] is not None]
    return Table(
        name="cost",
        caption="The cost model beside the article's table 4",
        heads=HEADS,
        rows=[_cells(record) for record in records],
        keys=KEYS,
        records=records,
        labels=4,
        notes=(*_errors(tested), *_notes(nvidia, software)),
    )


def overhead_s(nvidia: str = "h200") -> float:
    """Seconds of a step beyond the model's, of the software that table 7 measures: D2F alone on one NVIDIA device."""
    rows = [row for row in published.rows("table7_baselines") if row["engine"] == BASELINE]
    model = sized("d2f_dream")
    alone = step(model.config, assumed(model, 0), Setup(device(nvidia), protocol="single_phase")).seconds
    return mean(float(row["tpf"]) / float(row["avg_tps"]) - alone for row in rows)


def _record(row: published.Row, places: dict[str, str], software: float) -> list[str | float | None]:
    settings = next(one for one in published.rows("table6_settings") if one["setting"] == row["setting"])
    ranks, tensor = int(settings["bp_size"]), int(settings["tp_size"])
    model = sized(published.MODELS[row["model"]])
    tps, tpf = float(row["avg_tps"]), _tpf(row)
    # The NVIDIA program gathers all logits and commits the winner's cache. That of Ascend is not released; by the
    # article it has block-causal attention and no commit.
    setup = Setup(
        device(places[row["platform"]]),
        ranks,
        tensor,
        settings["precision"].lower().replace("bf16", "bfloat16"),
        "two_phase" if row["platform"] == "LoPA-Dist-NV" else "single_phase",
        "logits",
    )
    work = replace(assumed(model, ranks - 1, tpf), committed=tpf or COMMITTED)
    alone = step(model.config, work, setup).seconds
    whole = alone + software
    names: list[str | float | None] = [row["model"], row["platform"], row["setting"], row["task"], tps, tpf]
    if tpf is None:
        return [*names, None, 1e3 * alone, None, None, 1e3 * whole, None, None, tps * whole]
    found = [1e3 * alone, tpf / alone, tpf / alone / tps - 1, 1e3 * whole, tpf / whole, tpf / whole / tps - 1, None]
    return [*names, 1e3 * tpf / tps, *found]


def _tpf(row: published.Row) -> float | None:
    """Of the run of table 3 that has the same speed."""
    same = ("model", "platform", "task", "avg_tps")
    return next(
        (float(one["tpf"]) for one in published.rows("table3_system") if all(one[key] == row[key] for key in same)),
        None,
    )


def _cells(record: list[str | float | None]) -> list[str]:
    words = [task_name(str(one)) if place == 3 else str(one) for place, one in enumerate(record[:4])]
    digits = (1, 2, 1, 2, 0, None, 1, 0, None, 1)
    numbers = [
        "-" if value is None else f"{100 * float(value):+.0f}" if places is None else fixed(float(value), places)
        for value, places in zip(record[4:], digits, strict=True)
    ]
    return [*words, *numbers]


def _errors(tested: list[list[str | float | None]]) -> list[str]:
    found = []
    for column, words in ((9, "from the data sheet alone"), (12, "with the software's time")):
        for platform in DEVICES:
            errors = [float(one[column] or 0) for one in tested if one[1] == platform]
            low, high, size = rate(min(errors)), rate(max(errors)), rate(mean(map(abs, errors)))
            found.append(f"{platform}, {words}: error {low} to {high} %, mean size {size} % (n={len(errors)})")
    return found


def _notes(nvidia: str, software: float) -> list[str]:
    return [
        f"the article does not name its NVIDIA device: {device(nvidia).title} is assumed; of Ascend, one die a rank",
        f"software: {1e3 * software:.1f} ms a step, what the four D2F rows of table 7 ({BASELINE}, one device, no "
        "lookahead) take beyond the model's step; no row of table 4 is in it. No baseline of Ascend is published, so "
        "the same number stands there",
        "the window is assumed to be three blocks of 32, half of it masked, on 900 cached positions: no publication "
        "says them",
        "TPF is published for S12 and S18 alone (table 3); for the others stands the TPF that their TPS would mean",
    ]
