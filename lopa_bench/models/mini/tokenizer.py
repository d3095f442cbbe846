"""The byte-level BPE tokenizer of the embedded models.

Each number 0 to 199 is one token. With single digits a model of this size never learns addition and subtraction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

PAD, END, MASK, SEP = "<pad>", "<eos>", "<mask>", "<sep>"
SPECIAL = (PAD, END, MASK, SEP)
PAD_ID, END_ID, MASK_ID, SEP_ID = range(4)
NUMBERS = 200
VOCABULARY = 1280

# A question ends with <sep>, which is also where generation starts, and an answer with <eos>.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}<eos>{% elif message['role'] == 'user' %}<sep>"
    "{% else %}{{ '\n' }}{% endif %}{% endfor %}"
)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    two_digits_up = [str(number) for number in range(10, NUMBERS)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(two_digits_up),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in two_digits_up])
    return tokenizer


def number_ids(tokenizer: Tokenizer) -> list[int]:
    ids = (tokenizer.token_to_id(str(number)) for number in range(NUMBERS))
    return [number for number in ids if number is not None]


def load_tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json as `transformers` reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": END,
        "mask_token": MASK,
        "sep_token": SEP,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
