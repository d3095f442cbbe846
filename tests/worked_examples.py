"""The worked examples of docs/decoders.md: one toy model, each decoder's first five forwards as text.

python -m tests.worked_examples        prints the blocks that the page holds
"""

from __future__ import annotations

from functools import partial

import numpy as np

from decoders import DecoderConfig, Step
from tests.toy import END, MASK, VOCAB, run

WORDS = ["<q>", "So", "Jane", "has", "86", "stickers", ".", "####", "<end>", "_"]
TEXT = [1, 2, 3, 4, 5, 6, 7, 4, END, END, END, END]
ALONE = [0.95, 0.70, 0.93, 0.30, 0.80, 0.92, 0.85, 0.35, 0.60, 0.75, 0.80, 0.80]
MISREAD = {1: 4, 5: 5}  # what stands for a position's word as long as its left neighbour is a mask
HELP = 0.12  # what a filled neighbour adds to the confidence of a position

EXAMPLES = {
    "greedy": DecoderConfig(name="greedy", gen_length=12, block_size=6),
    "llada": DecoderConfig(name="llada", gen_length=12, block_size=6, steps=6),
    "dream": DecoderConfig(name="dream", gen_length=12, steps=5),
    "fast_dllm": DecoderConfig(name="fast_dllm", gen_length=12, block_size=6),
    "eb": DecoderConfig(name="eb", gen_length=12, block_size=6, gamma=0.6),
    "frechet": DecoderConfig(name="frechet", gen_length=12, block_size=6),
    "entropy": DecoderConfig(name="entropy", gen_length=12, block_size=6),
    "klass": DecoderConfig(name="klass", gen_length=12, block_size=6, tau_kl=0.05),
    "d2f": DecoderConfig(name="d2f", gen_length=12, block_size=6),
    "sdar": DecoderConfig(name="sdar", gen_length=12, block_size=4, denoising_steps=2, grid="absolute"),
    "fast_dllm_v2": DecoderConfig(name="fast_dllm_v2", gen_length=12, block_size=4, sub_block_size=2, grid="absolute"),
    "llada2": DecoderConfig(name="llada2", gen_length=12, block_size=4, tau_conf=0.9, grid="absolute"),
    "multibd": DecoderConfig(name="multibd", gen_length=12, block_size=4, buffer_size=2, tau_conf=0.9, grid="absolute"),
    "d3llm": DecoderConfig(name="d3llm", gen_length=12, block_size=4),
    "joint_threshold": DecoderConfig(name="joint_threshold", gen_length=12, block_size=6, tau_conf=0.4, tau_edit=0.5),
    "wino": DecoderConfig(name="wino", gen_length=12, block_size=12, tau_conf=0.5, tau_back=0.5),
    "saber": DecoderConfig(name="saber", gen_length=12, block_size=6),
    "lopa": DecoderConfig(name="lopa", k=2, gen_length=12, block_size=6),
}


EDITING = ("joint_threshold", "wino", "saber")


def logits(ids: np.ndarray, start: int, shift: int = 0, misreads: bool = False) -> np.ndarray:
    """Knows the text; is surer of a position the more of its neighbours are filled. A shifted model says at a position
    what it thinks of the next one. One that misreads has something to be edited.
    """
    out = np.full((*ids.shape, VOCAB.size), -40.0)
    for row, tokens in enumerate(ids):
        for column in range(len(tokens)):
            i = start + column - 1
            if not 0 <= i < len(TEXT):
                continue
            place = column + shift
            beside = [n for n in (place - 1, place + 1) if 0 <= n < len(tokens) and start - shift + n > 0]
            prob = min(0.99, ALONE[i] + HELP * sum(tokens[n] != MASK for n in beside))
            out[row, column, :MASK] = np.log((1 - prob) / (MASK - 1))
            is_misread = misreads and i in MISREAD and tokens[place - 1] == MASK
            out[row, column, MISREAD[i] if is_misread else TEXT[i]] = np.log(prob)
    return out


def render(config: DecoderConfig) -> str:
    """The first five forwards: what the anchor or the winner held, what was filled with which probability."""
    shifted = config.name == "fast_dllm_v2"
    model = partial(logits, shift=int(shifted), misreads=config.name in EDITING)
    generation = run(model, config, shifted=shifted)
    text = ["_"] * len(TEXT)
    lines = []
    for number, step in enumerate(generation.steps, 1):
        if step.winner:
            _put(text, (step.lookahead_positions[step.winner - 1],), (step.lookahead_tokens[step.winner - 1],))
        if number <= 5:
            lines.append(_line(number, step, text))
        _put(text, step.positions, step.tokens)
        for edit in step.edits or ():
            _put(text, (edit.position,), (edit.new,))
    end = f"{generation.forwards} forwards, {generation.rows} rows, {len(generation.ids)} tokens up to <end>"
    return "\n".join([*lines, f"{'' if generation.forwards <= 5 else '... '}{end}"])


def _line(number: int, step: Step, text: list[str]) -> str:
    filled = ", ".join(
        f"{WORDS[token]}@{position - 1} {prob:.2f}"
        for position, token, prob in zip(step.positions, step.tokens, step.probs)
    )
    branches = ""
    if step.branches > 1:
        scores = " ".join(f"{score:.2f}" for score in step.scores)
        extras = " ".join(f"+{WORDS[t]}@{p - 1}" for p, t in zip(step.lookahead_positions, step.lookahead_tokens))
        branches = f"\n   branches: anchor {extras}; scores {scores}; winner {step.winner}"
    made = f"fills {filled}" if filled else "fills nothing"
    edited = [f"{WORDS[edit.old]}@{edit.position - 1} to {WORDS[edit.new]}" for edit in step.edits or ()]
    made += f", edits {', '.join(edited)}" if edited else ""
    if step.kept and not (filled and step.window_width > step.kept[1] - step.kept[0]):
        made += ", stores the block"
    return f"{number}. {' '.join(text)}{branches}\n   {made}"


def _put(text: list[str], positions: tuple[int, ...], tokens: tuple[int, ...]) -> None:
    for position, token in zip(positions, tokens):
        text[position - 1] = WORDS[token]


if __name__ == "__main__":
    for name, config in EXAMPLES.items():
        print(f"### {name}\n\n```text worked:{name}\n{render(config)}\n```\n")
