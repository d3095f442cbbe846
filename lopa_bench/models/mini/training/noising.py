"""Turns rows of tokens into training batches: causal ones, and masked ones for discrete diffusion forcing (D2F).

In every batch the logits at position i - 1 predict position i, as in Dream.
Shapes: B rows, P prompt tokens, N window tokens (a multiple of the block size), M = N / block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lopa_bench.models.mini.architecture import BLOCK
from lopa_bench.models.mini.tokenizer import MASK_ID
from lopa_bench.models.mini.training.batches import LONGEST_ANSWER, Bools, Rows
from lopa_bench.models.network.segments import block_causal_mask

Floats = npt.NDArray[np.float64]

RESULT_WEIGHT = 3.0  # sums and products are the hard part
PADDING_WEIGHT = 0.1  # end tokens after the first
PROMPT_WEIGHT = 0.1  # causal batches only
OPERAND_SPAN = 4  # the tokens "a", "+", "b", "=" before a result


@dataclass(frozen=True)
class NoiseConfig:
    """Shares of the kinds of noise.

    `bidirectional`: batches in which all positions see each other; the rest is block-causal.
    `ramp`: rows masked along a frontier, as decoding meets them; the rest has D2F's monotone ratios per block.
    `hide_result`: rows in which one result and all later numbers are masked while its operands are visible.
    """

    bidirectional: float = 0.25
    ramp: float = 0.6
    hide_result: float = 0.35


@dataclass(frozen=True)
class Batch:
    """`predict` [B, P + N] marks the positions of `targets` and `weights`; `attention` is additive, or None."""

    inputs: Tensor
    predict: Tensor
    targets: Tensor
    weights: Tensor
    attention: Tensor | None
    kind: str


def causal_batch(rows: Rows) -> Batch:
    """Next-token prediction of the answer, its first end token, and with a small weight the prompt."""
    position = np.arange(rows.tokens.shape[1])[None]
    predict = (position > 0) & (position < rows.prompt + rows.lengths[:, None])
    weights = np.where(position < rows.prompt, PROMPT_WEIGHT, 1.0) * np.ones_like(rows.tokens, float)
    weights[:, rows.prompt :][rows.result] = RESULT_WEIGHT
    length = rows.tokens.shape[1]
    attention = torch.full((length, length), -torch.inf).triu(1)
    return _batch(rows.tokens, rows.tokens, predict, weights, attention, "causal")


def diffusion_batch(rows: Rows, config: NoiseConfig, rng: np.random.Generator) -> Batch:
    """Masked tokens of the answers, to be predicted with block-causal or with full attention."""
    bidirectional = rng.random() < config.bidirectional
    if bidirectional:
        rows = rows.resize(BLOCK * _visible_blocks(rows.window // BLOCK, rng))
    count, window = len(rows.tokens), rows.window
    ratios = _uniform_ratios(rows, rng) if bidirectional else _monotone_ratios(rows, rng)
    ramp = rng.random((count, 1)) < (0.5 if bidirectional else config.ramp)
    masked = rng.random((count, window)) < np.where(ramp, _ramp_ratios(rows, rng), ratios)
    masked[np.arange(count), rng.integers(0, rows.lengths)] = True  # no row without a target
    hidden = _hide_results(rows, masked, config.hide_result, rng)
    weights = np.where(np.arange(window)[None] < rows.lengths[:, None], 1.0, PADDING_WEIGHT)
    weights[hidden | (rows.result & masked & _operands_visible(masked))] = RESULT_WEIGHT
    predict = _after_prompt(masked, rows.prompt)
    inputs = np.where(predict, MASK_ID, rows.tokens)
    attention = None if bidirectional else _block_causal(rows.prompt, window)
    kind = "bidirectional" if bidirectional else "block_causal"
    return _batch(inputs, rows.tokens, predict, _after_prompt(weights, rows.prompt), attention, kind)


def _visible_blocks(blocks: int, rng: np.random.Generator) -> int:
    """How long the window is in a bidirectional batch.

    With full attention it matters how many blocks are visible: a pipeline of blocks shows few of them at first, the
    other decoders show the whole canvas, far beyond the answer.
    """
    draw = rng.random()
    if draw < 0.3:
        return int(rng.integers(1, blocks + 1))
    if draw < 0.65:
        return int(rng.integers(blocks, LONGEST_ANSWER // BLOCK + 1))
    return blocks


def _uniform_ratios(rows: Rows, rng: np.random.Generator) -> Floats:
    """One ratio for the whole window, as in masked diffusion models."""
    return np.broadcast_to(rng.uniform(0.1, 1, (len(rows.tokens), 1)), (len(rows.tokens), rows.window))


def _monotone_ratios(rows: Rows, rng: np.random.Generator) -> Floats:
    """Ratios that grow from block to block; in half of the rows only two neighbouring blocks are partly masked."""
    count, blocks = len(rows.tokens), rows.window // BLOCK
    spread = np.sort(rng.random((count, blocks)), 1)
    block, first = np.arange(blocks)[None], rng.integers(0, blocks, (count, 1))
    pair = np.sort(rng.uniform(0.15, 1, (count, 2)), 1)
    staircase = np.where(block < first, 0.0, 1.0)
    staircase = np.where(block == first, pair[:, :1], staircase)
    staircase = np.where(block == first + 1, pair[:, 1:], staircase)
    ratios = np.where(rng.random((count, 1)) < 0.5, staircase, spread)
    return np.repeat(ratios, BLOCK, 1)


def _ramp_ratios(rows: Rows, rng: np.random.Generator) -> Floats:
    """Few masks left of a frontier, many right of it, a linear ramp of 1 to 16 positions between; then all masked."""
    shape = (len(rows.tokens), 1)
    distance = np.arange(rows.window)[None] - rng.uniform(-1, rows.lengths)[:, None]
    width = rng.choice([1.0, 4.0, 8.0, 16.0], shape)
    low, high = rng.choice([0.0, 0.0, 0.05, 0.1], shape), rng.uniform(0.75, 1, shape)
    ramp = low + (high - low) * np.clip(0.5 + distance / width, 0, 1)
    return np.where(distance > 1.5 * BLOCK, 1.0, ramp)


def _hide_results(rows: Rows, masked: Bools, share: float, rng: np.random.Generator) -> Bools:
    """In a share of the rows, masks one result and what could tell it, and shows its operands (changes `masked`).

    The text before it is mostly visible. Returns where those results are.
    """
    hidden = np.zeros_like(masked)
    for row in np.flatnonzero(rows.result.any(1) & (rng.random(len(masked)) < share)):
        at = int(rng.choice(np.flatnonzero(rows.result[row])))
        operands = max(0, at - OPERAND_SPAN)
        masked[row, :operands] = rng.random(operands) < rng.uniform(0, 0.4)
        masked[row, operands:at] = rng.random(at - operands) < 0.05
        masked[row, at] = hidden[row, at] = True
        later = rng.random(rows.window - at - 1) < rng.uniform(0.3, 1)
        masked[row, at + 1 :] = later | rows.number[row, at + 1 :]
    return hidden


def _operands_visible(masked: Bools) -> Bools:
    """Whether none of the OPERAND_SPAN positions before a position is masked."""
    padded = np.pad(masked, ((0, 0), (OPERAND_SPAN, 0)))
    window = masked.shape[1]
    return ~np.any([padded[:, shift : shift + window] for shift in range(OPERAND_SPAN)], axis=0)


def _after_prompt(values: npt.NDArray, prompt: int) -> npt.NDArray:
    return np.pad(values, ((0, 0), (prompt, 0)))


def _block_causal(prompt: int, window: int) -> Tensor:
    """The prompt is a block of its own, before those of the window."""
    block = torch.cat([torch.full((prompt,), -1), torch.arange(window) // BLOCK])
    return block_causal_mask(block)


def _batch(
    inputs: npt.NDArray, tokens: npt.NDArray, predict: Bools, weights: Floats, attention: Tensor | None, kind: str
) -> Batch:
    chosen = torch.from_numpy(predict)
    targets = torch.from_numpy(tokens)[chosen]
    return Batch(torch.from_numpy(inputs), chosen, targets, torch.from_numpy(weights)[chosen].float(), attention, kind)
