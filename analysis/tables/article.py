"""Tables 1 to 7 of the article, in its row order; below them the models that it does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from analysis.labels import decoding, hardware, model_of, task_name, task_of
from analysis.sides import Entrant, tuned_words
from analysis.study import Group, Study, preset_for
from analysis.tables import published
from analysis.tables.beside import ArticleTable, Column, Line, Read, article_table, quantity, setting
from analysis.tables.match import article_run, has_settings, others, plain_and_lopa, references, tuned_systems
from analysis.tables.published import Row, hyperparameters, rows, system_settings
from analysis.text import plain
from lopa_bench.records.runs import Run

DECODINGS = {"vanilla": "vanilla", "fast_dllm": "+ Fast-dLLM", "lopa": "+ LoPA"}
SLOW = ("greedy", "dream", "llada", "fast_dllm")  # no baselines of table 7, which is about fast systems
SYSTEMS = ("device", "batch", "counting")  # each row of a system table is a system of its own, which it names
SYSTEM = tuple(f"S{i}" for i in range(1, 13))  # S13 to S18 are S1 to S6 on other hardware


def table1(study: Study) -> ArticleTable:
    return _quality(study, "table1", "table1_dream", "Dream: TPF and score of LoPA", "lopa_dream")


def table2(study: Study) -> ArticleTable:
    return _quality(study, "table2", "table2_diffucoder", "DiffuCoder: TPF and score of LoPA", "lopa_diffucoder")


def table3(study: Study) -> ArticleTable:
    columns = (
        Column("avg_tps", "TPS, mean of samples", 1, quantity("tps", "lopa_dist")),
        Column("max_tps", "TPS, fastest sample", 1, quantity("tps_sample_max", "lopa_dist")),
        Column("tpf", "TPF", 2, quantity("tpf", "lopa_dist")),
        Column("latency_s", "latency (s)", 2, quantity("latency_s")),
    )
    lines = []
    for row in rows("table3_system"):
        setting_name = "S12" if row["platform"] == "LoPA-Dist-NV" else "S18"  # whose TPS table 3 repeats
        run = _system_run(study, row, setting_name)
        lines.append(_line(row, columns, (row["model"], row["platform"], task_name(row["task"])), run))
    for group in others(study, ("mbpp", "gsm8k")):
        lines += _fastest_lines(study, group)
    headers = ("model", "system", "task")
    return article_table(
        study, "table3", "System performance of the fastest setting", headers, columns, lines, "lopa_dist", SYSTEMS
    )


def _fastest_lines(study: Study, group: Group) -> list[Line]:
    """Every decoder at the fastest of the settings that all of them were tried on. Where there are no such settings
    nobody was tuned, and everybody stands at one.
    """
    entrants = [one for each in tuned_systems(study, group, "lopa_dist") for one in each]
    if not entrants:
        entrants = [Entrant(run) for run in plain_and_lopa(group, branches(group[0].task))]
    runs = [one.run for one in entrants]
    lines = []
    for one in entrants:
        how = f"fastest of {one.tried} settings" if one.tried > 1 else "not tuned"
        settings = tuned_words(one.run, group)
        system = ", ".join(part for part in (decoding(one.run), settings, how, plain(one.run.device)) if part)
        lines.append(Line((model_of(one.run), system, task_of(one.run)), {}, one.run, runs))
    return lines


def table4(study: Study) -> ArticleTable:
    columns = (
        Column("avg_tps", "TPS, mean of samples", 1, quantity("tps", "lopa_dist")),
        Column("max_tps", "TPS, fastest sample", 1, quantity("tps_sample_max", "lopa_dist")),
        Column("top10_tps", "TPS, ten fastest", 1, quantity("tps_top10_mean", "lopa_dist")),
        Column("score", "score (%)", 1, quantity("accuracy", factor=100)),
    )
    lines = []
    for row in rows("table4_ablation"):
        labels = (row["model"], row["platform"], row["setting"], _with_shots(row))
        lines.append(_line(row, columns, labels, _system_run(study, row, row["setting"])))
    lines += [
        Line((model_of(run), plain(run.device), f"{name} (k = {run.k})", task_of(run)), {}, run, among)
        for name, run, among in _own_system_runs(study)
    ]
    headers = ("model", "system", "setting", "task")
    return article_table(
        study, "table4", "TPS and score over the settings of table 6", headers, columns, lines, "lopa_dist", SYSTEMS
    )


def table5(study: Study) -> ArticleTable:
    names = {"block_size": 0, "tau_add": 2, "tau_act": 2, "tau_conf": 2}
    columns = (
        *(Column(name, name.replace("_", " "), digits, setting(name)) for name, digits in names.items()),
        Column("branches", "lookahead branches k", 0, setting("k")),
    )
    lines = []
    for row in rows("table5_hyperparameters"):
        wanted = hyperparameters(row["model"], row["task"])
        run = article_run(study, row["model"], row["task"], "lopa", wanted, shots=row["shots"])
        lines.append(_line(row, columns, (row["model"], _with_shots(row)), run))
    for group in others(study, task_order("table1_dream", "table2_diffucoder"), is_timed=False):
        found = [run for run in plain_and_lopa(group, branches(group[0].task)) if run.lookahead]
        lines += [Line((model_of(run), task_of(run)), {}, run, found) for run in found]
    return article_table(study, "table5", "Settings of tables 1 and 2", ("model", "task"), columns, lines, None)


def table6(study: Study) -> ArticleTable:
    columns = (
        Column("bp_size", "rows a call", 0, setting("k", lambda k: k + 1)),
        Column("block_size", "block size", 0, setting("block_size")),
        Column("seq_len", "length", 0, setting("gen_length")),
        *(Column(name, name.replace("_", " "), 2, setting(name)) for name in ("tau_add", "tau_act", "tau_conf")),
    )
    lines = []
    for row in rows("table6_settings"):
        models = [table4_row for table4_row in rows("table4_ablation") if table4_row["setting"] == row["setting"]]
        found = (_system_run(study, model, row["setting"]) for model in models)
        run = next((run for run in found if run is not None), None)
        labels = (row["setting"], row["platform"], f"{row['precision']}, TP{row['tp_size']} BP{row['bp_size']}")
        lines.append(_line(row, columns, labels, run))
    lines += [
        Line((f"{name}, {model_of(run)}", f"{task_of(run)}, {plain(run.backend)}", hardware(run)), {}, run, among)
        for name, run, among in _own_system_runs(study)
    ]
    return article_table(
        study, "table6", "Settings of table 4", ("setting", "system", "hardware"), columns, lines, None, SYSTEMS
    )


def table7(study: Study) -> ArticleTable:
    columns = (
        Column("avg_tps", "TPS, mean of samples", 1, _served("tps")),
        Column("tpf", "TPF", 2, _served("tpf")),
        Column("latency_s", "latency (s)", 2, quantity("latency_s")),
        Column("score", "score (%)", 1, quantity("accuracy", factor=100)),
    )
    lines = []
    for row in rows("table7_baselines"):
        kind = "vanilla" if row["model"].startswith("D2F") else "server"
        device = published.PLATFORMS.get(row["engine"], "")
        run = article_run(study, row["model"], row["task"], kind, device=device)
        lines.append(_line(row, columns, (row["model"], row["engine"] or "not said", task_name(row["task"])), run))
    for group in others(study, ("mbpp", "gsm8k")):
        plain_runs = (run for run in plain_and_lopa(group, branches(group[0].task)) if not run.lookahead)
        baselines = [*(run for run in plain_runs if run.base not in SLOW), *references(group)]
        lines += [
            Line((model_of(run), f"{decoding(run)}, {plain(run.backend)}", task_of(run)), {}, run, baselines)
            for run in baselines
        ]
    headers = ("model", "engine", "task")
    return article_table(
        study, "table7", "Baselines of the system tables", headers, columns, lines, "lopa_dist", SYSTEMS
    )


TABLES: dict[str, Callable[[Study], ArticleTable]] = {
    function.__name__: function for function in (table1, table2, table3, table4, table5, table6, table7)
}


def _quality(study: Study, name: str, file: str, title: str, preset: str) -> ArticleTable:
    columns = (
        Column("tpf", "TPF", 2, quantity("tpf", preset)),
        Column("score", "score (%)", 1, quantity("accuracy", factor=100)),
    )
    lines = []
    for row in rows(file):
        wanted = hyperparameters(row["model"], row["task"])
        run = article_run(study, row["model"], row["task"], row["decoding"], wanted, shots=row["shots"])
        lines.append(_line(row, columns, (row["model"], DECODINGS[row["decoding"]], _with_shots(row)), run))
    for group in others(study, task_order(file), is_timed=False):
        found = plain_and_lopa(group, branches(group[0].task))
        for run in found:
            settings = tuned_words(run, found)
            lines.append(
                Line((model_of(run), ", ".join(filter(None, (decoding(run), settings))), task_of(run)), {}, run, found)
            )
    return article_table(study, name, title, ("model", "decoding", "task"), columns, lines, preset)


def _line(row: Row, columns: tuple[Column, ...], labels: tuple[str, ...], run: Run | None) -> Line:
    return Line(labels, {column.key: row[column.key] for column in columns}, run)


def _with_shots(row: Row) -> str:
    return f"{task_name(row['task'])} ({row['shots']}-shot)"


def task_order(*files: str) -> list[str]:
    return list(dict.fromkeys(row["task"] for file in files for row in rows(file)))


def branches(task: str) -> int:
    """The article's k for a task; 8 where it has none."""
    return next((int(row["branches"]) for row in rows("table5_hyperparameters") if row["task"] == task), 8)


def _system_run(study: Study, row: Row, setting_name: str) -> Run | None:
    device = published.PLATFORMS[row["platform"]]
    wanted = system_settings(setting_name)
    return article_run(study, row["model"], row["task"], "lopa", wanted, device, row.get("shots", ""))


def _own_system_runs(study: Study) -> Iterator[tuple[str, Run, list[Run]]]:
    """Runs of other models whose k and thresholds are those of a setting, each with all of its group; block and length
    are the model's own.
    """
    for group in others(study, ("mbpp", "gsm8k")):
        found = []
        for name in SYSTEM:
            wanted = system_settings(name)
            fitting = [
                run for run in group if run.is_lopa and has_settings(run, wanted, but=("block_size", "gen_length"))
            ]
            if fitting:
                found.append((name, max(fitting, key=lambda run: (len(_system_series(study, run)), run.created))))
        yield from ((name, run, [one for _, one in found]) for name, run in found)


def _system_series(study: Study, run: Run) -> list[Run]:
    """The series over k and thresholds that a run belongs to: an ablation of something else is not meant."""
    return next((group for group in study.series("k", "tau_conf", "tau_act") if run in group), [])


def _served(name: str) -> Read:
    """A server's own token count where it was a server, else the system tables' rule."""
    return lambda study, run, among: study.value(run, name, preset_for(run, "lopa_dist"), among)
