"""SDAR and Fast-dLLM v2, block by block on the absolute grid, against step-by-step traces of the released programs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden_cases import Replay, block_config, cases_of, check_filled, check_masked, load, replay


def made_by_us(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The reference's steps without the model calls whose result it does not need: the first block's first forward also
    stores the prompt, unless the prompt's own says a token; and nothing reads what the last block would store.
    """
    steps = [step for step in case["steps"] if step["forward"] != "prefill" or step["commit"]["positions"]]
    return steps[:-1] if steps[-1]["forward"] == "store" else steps


def check_step(run: Replay, i: int, theirs: dict[str, Any]) -> None:
    assert run.generation is not None
    ours, request = run.generation.steps[i], run.requests[i]
    check_masked(run, i, theirs["masked"])
    check_filled(run, i, theirs["commit"])
    end = theirs["forward_start"] + theirs["forward_len"]
    assert request.start + request.ids.shape[1] == end
    assert request.start == (theirs["forward_start"] if i else 0)
    if theirs["forward"] in ("store", "commit"):
        assert ours.kept == (theirs["kv_commit"]["start"], end)
        assert not (request.ids == run.mask_id).any()


@pytest.mark.parametrize("name", cases_of("sdar", "fastdllm_v2"))
def test_golden_block_diffusion(name: str) -> None:
    case = load(name)
    run = replay(case, block_config(case))
    assert run.generation is not None
    steps = made_by_us(case)
    assert run.generation.forwards == len(steps)
    for i, theirs in enumerate(steps):
        check_step(run, i, theirs)
    final, end = case["final"]["generated_ids"], case["eos_token_id"]
    if case["decoder"] == "sdar":
        assert list(run.generation.ids) == [token for token in final if token != run.mask_id]
    else:  # it overwrites what stands behind the first end token
        assert len(run.generation.ids) == len(final)
        stop = final.index(end) + 1 if end in final else len(final)
        assert list(run.generation.ids[:stop]) == final[:stop]
        assert set(final[stop:]) <= {end}
