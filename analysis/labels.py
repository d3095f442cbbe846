"""How runs, models and settings are called in tables and figures."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.text import plain, setting
from lopa_bench.records.runs import Run

TASKS = {
    "gsm8k": "GSM8K",
    "math": "MATH",
    "math500": "MATH-500",
    "mbpp": "MBPP",
    "mbpp_plus": "MBPP+",
    "humaneval": "HumanEval",
    "humaneval_plus": "HumanEval+",
}
SELECTS = {"score": "LoPA", "gate": "LoPA, gated,", "confirm": "confirmed drafts", "exact": "exact lookahead"}
BASES = {"greedy": "greedy", "fast_dllm": "Fast-dLLM", "d2f": "D2F", "dream": "Dream", "llada": "LLaDA", "sdar": "SDAR",
         "fast_dllm_v2": "Fast-dLLM v2", "llada2": "LLaDA2", "eb": "EB", "frechet": "Fréchet",
         "entropy": "entropy", "klass": "KLASS", "multibd": "MultiBD", "d3llm": "d3LLM",
         "joint_threshold": "joint threshold", "wino": "WINO", "saber": "Saber"}  # fmt: skip
MODELS = {
    "dream_instruct": "Dream",
    "d2f_dream": "D2F-Dream",
    "d2f_dream_base": "D2F-Dream-Base",
    "diffucoder": "DiffuCoder",
    "d2f_diffucoder": "D2F-DiffuCoder",
}


def task_name(task: str) -> str:
    return TASKS.get(task) or plain(task)


def task_of(run: Run) -> str:
    """The task, and that it is not the benchmark itself where the problems are this project's own."""
    return task_name(run.task) + (" format, embedded" if run.source_kind == "embedded" else "")


def model_of(run: Run) -> str:
    return (MODELS.get(run.model) or plain(run.model)) + (" (toy)" if run.toy else "")


def base_name(base: str) -> str:
    return BASES.get(base) or plain(base)


def decoding(run: Run) -> str:
    """The decoder in a few words: "D2F", "LoPA on D2F, k = 8"."""
    if run.is_autoregressive:
        return "autoregressive"
    if run.is_imported:
        return f"{plain(run.decoder)} (imported from {plain((run.config.get('imported') or {}).get('tool'))})"
    if run.is_server:
        algorithm = (run.config.get("backend") or {}).get("algorithm")
        return f"{plain(algorithm)}, the server's" if algorithm else "the server's decoder"
    if run.decoder != "lopa":
        return base_name(run.base)
    k = run.k_as_set if run.k is None else run.k
    return f"{SELECTS.get(run.select) or plain(run.select)} on {base_name(run.base)}, k = {plain(k)}"


def varied(run: Run, among: Sequence[Run]) -> str:
    """All settings in which the runs of the same model, task and decoder differ, with the values that this run has,
    without those that it has not set; k stands beside.
    """

    def kind(one: Run) -> tuple[object, ...]:
        return one.model, one.task, one.decoder, one.base

    alike = [other for other in among if kind(other) == kind(run)]
    found = []
    for name, value in run.overrides.items():
        if value is not None and any(other.overrides[name] != value for other in alike if name in other.overrides):
            found.append(f"{name} {setting(value)}")
    return plain(", ".join(found))


def source_of(run: Run) -> str:
    return plain(run.source_name)


def hardware(run: Run) -> str:
    """Device and dtype, with the name of the processor or accelerator where the host told it."""
    name = run.host.get("gpu") if run.device.startswith("cuda") else run.host.get("processor")
    return plain(" ".join(filter(None, [run.device, run.dtype, f"({name})" if name else None])))


def facts(run: Run, n: int) -> tuple[str, ...]:
    """Model, decoding, problems, their number, and where it ran."""
    return model_of(run), decoding(run), source_of(run), str(n), f"{plain(run.backend)} on {hardware(run)}"


def describe(run: Run, n: int, preset: str | None = None) -> str:
    """One line about where a number comes from."""
    model, how, source, number_of_samples, where = facts(run, n)
    parts = [plain(run.id), f"model {model}", how, f"{source}, n = {number_of_samples}", where]
    return "; ".join(parts + ([f"counting {preset}"] if preset else []))


def shared(values: Sequence[str]) -> str:
    """The value that all share, or all of them."""
    return " / ".join(dict.fromkeys(values))
