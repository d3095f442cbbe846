"""How runs, models and settings are called in tables and figures."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.runs import Run

TASKS = {
    "gsm8k": "GSM8K",
    "math": "MATH",
    "math500": "MATH-500",
    "mbpp": "MBPP",
    "mbpp_plus": "MBPP+",
    "humaneval": "HumanEval",
    "humaneval_plus": "HumanEval+",
}
BASES = {"greedy": "greedy", "fast_dllm": "Fast-dLLM", "d2f": "D2F", "dream": "Dream", "llada": "LLaDA"}
MODELS = {
    "dream_instruct": "Dream",
    "d2f_dream": "D2F-Dream",
    "d2f_dream_base": "D2F-Dream-Base",
    "diffucoder": "DiffuCoder",
    "d2f_diffucoder": "D2F-DiffuCoder",
}


def task_name(task: str) -> str:
    return TASKS.get(task, task)


def task_of(run: Run) -> str:
    """The task, and that it is not the benchmark itself where the problems are this project's own."""
    return task_name(run.task) + (" format, embedded" if run.row["source_kind"] == "embedded" else "")


def model_of(run: Run) -> str:
    return MODELS.get(run.model, run.model) + (" (toy)" if run.toy else "")


def base_name(base: str) -> str:
    return BASES.get(base, base)


def decoding(run: Run) -> str:
    """The decoder in a few words: "D2F", "LoPA on D2F, k = 8"."""
    if run.is_server:
        return "autoregressive server"
    if run.row["decoder"] != "lopa":
        return base_name(run.base)
    k = run.row["k"] if run.k is None else run.k
    return f"LoPA on {base_name(run.base)}, k = {k}"


def source_of(run: Run) -> str:
    return str(run.row["source_name"])


def hardware(run: Run) -> str:
    """Device and dtype, with the name of the processor or accelerator where the host told it."""
    name = run.host.get("gpu") if run.device.startswith("cuda") else run.host.get("processor")
    return " ".join(filter(None, [run.device, str(run.row["dtype"]), f"({name})" if name else None]))


def describe(run: Run, n: int, preset: str | None = None) -> str:
    """One line about where a number comes from."""
    parts = [
        run.id,
        f"model {model_of(run)}",
        f"{decoding(run)}",
        f"{source_of(run)}, n = {n}",
        f"{run.row['backend']} on {hardware(run)}",
    ]
    return "; ".join(parts + ([f"counting {preset}"] if preset else []))


def shared(values: Sequence[str]) -> str:
    """The value that all share, or all of them."""
    return " / ".join(dict.fromkeys(values))


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
