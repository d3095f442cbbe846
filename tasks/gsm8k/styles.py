"""How a word problem is put: ours, those of lm_eval and OpenCompass, and those of publications (docs/protocols.md)."""

from __future__ import annotations

from tasks.gsm8k import lm_eval, opencompass
from tasks.prompts import Style, asked_without_examples

FRAME = "Question: {question}\nAnswer:"
FRAME_COT = "Q: {question}\nA:"
FRAME_COT_ZERO_SHOT = FRAME_COT + " Let's think step by step."  # lm_eval's gsm8k_cot_zeroshot
# A chat model without examples cannot know the format; the embedded models have learned it.
FRAME_ZERO_SHOT = '{question}\n\nReason step by step. End with a last line of the form "#### <number>".'
FRAME_EMBEDDED = "{question}"
# Fast-dLLM v2 puts this in place of lm_eval's "Answer:", with braces that stand twice (v2/eval.py).
FRAME_V2 = "Question: {question}\nPlease reason step by step, and put your final answer within \\boxed{{}}."

STOP = ("\n\nQuestion:", "</s>", "<|im_end|>")

STYLES = {
    "chat": Style(FRAME, STOP, "turns"),
    "plain": Style(FRAME, STOP),
    "lm_eval": Style(FRAME, lm_eval.STOP),
    "lm_eval_turn": Style(FRAME, lm_eval.STOP, "turn"),
    "lm_eval_turns": Style(FRAME, lm_eval.STOP, "turns"),
    "lm_eval_cot": Style(FRAME_COT, lm_eval.STOP_COT, "text", lm_eval.COT_SHOTS),
    "lm_eval_cot_turns": Style(FRAME_COT, lm_eval.STOP_COT, "turns", lm_eval.COT_SHOTS),
    "lm_eval_cot_zeroshot": Style(FRAME_COT_ZERO_SHOT, lm_eval.STOP_COT, "text", ()),
    "lm_eval_cot_zeroshot_turn": Style(FRAME_COT_ZERO_SHOT, lm_eval.STOP_COT, "turn", ()),
    "opencompass": Style(opencompass.FRAME, (), "turns", opencompass.SHOTS),
    "dinfer": Style(opencompass.FRAME, lm_eval.STOP, "turn", opencompass.DINFER_SHOTS),
    **asked_without_examples(FRAME_V2, lm_eval.STOP),
}
COT_STYLES = tuple(name for name in STYLES if name.startswith("lm_eval_cot"))
