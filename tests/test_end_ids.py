"""Which ids end a text and which one starts it: config, generation config, tokenizer and chat template together."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.errors import CheckpointError
from lopa_bench.models.loaded import Opened, check_room, open_checkpoint
from lopa_bench.models.text.tokenizers import load_tokenizer
from lopa_bench.settings.model import ModelSettings
from tasks.types import Prompt

PAD, EOS, MASK, SEP = range(4)  # of the tiny tokenizer
CHATML = (
    "{% for m in messages %}<sep>{{ m['role'] }}\n{{ m['content'] }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<sep>assistant\n{% endif %}"
)
PLAIN = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n\n{% endfor %}"
ABSENT: Any = object()


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny checkpoint, naming no end token anywhere and without a chat template."""
    copy = shutil.copytree(tiny_model, tmp_path / "model")
    change(copy, "config.json", eos_token_id=None)
    change(copy, "tokenizer_config.json", eos_token=ABSENT, chat_template=ABSENT)
    return copy


def change(folder: Path, file: str, **values: Any) -> None:
    path = folder / file
    found = (json.loads(path.read_text()) if path.exists() else {}) | values
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not ABSENT}))


def opened(folder: Path, **settings: Any) -> Opened:
    return open_checkpoint(ModelSettings(path=str(folder), **settings))


def ends(folder: Path, **settings: Any) -> tuple[int, ...]:
    return opened(folder, **settings).vocabulary.end_ids


def refusal(folder: Path, **settings: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        opened(folder, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_each_of_the_four_places_is_enough(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=EOS)
    assert ends(folder) == (EOS,)
    change(folder, "config.json", eos_token_id=None)
    change(folder, "generation_config.json", eos_token_id=[EOS])
    assert ends(folder) == (EOS,)
    (folder / "generation_config.json").unlink()
    change(folder, "tokenizer_config.json", eos_token="<eos>")
    assert ends(folder) == (EOS,)
    change(folder, "tokenizer_config.json", eos_token=None, chat_template=CHATML)
    assert ends(folder) == (EOS,)


def test_all_four_places_count_together(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=SEP)
    change(folder, "generation_config.json", eos_token_id=[SEP, PAD])
    change(folder, "tokenizer_config.json", eos_token="<eos>", chat_template=CHATML)
    assert ends(folder) == (SEP, PAD, EOS)
    change(folder, "tokenizer_config.json", chat_template=CHATML.replace("<eos>", "<pad>"))
    change(folder, "generation_config.json", eos_token_id=SEP)
    assert ends(folder) == (SEP, EOS, PAD)


def added(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "tokenizer.json").read_text())["added_tokens"]


def token(number: int, text: str) -> dict[str, Any]:
    vocabulary_wide = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": text} | vocabulary_wide


@pytest.mark.parametrize("spelling", ["<eos>", {"content": "<eos>", "__type": "AddedToken", "special": True}])
def test_the_tokenizer_may_spell_its_end_token_both_ways(folder: Path, spelling: Any) -> None:
    change(folder, "tokenizer_config.json", eos_token=spelling)
    assert ends(folder) == (EOS,)


def test_special_tokens_map_counts_as_the_tokenizers_own(folder: Path) -> None:
    change(folder, "special_tokens_map.json", eos_token="<eos>")
    expected = load_tokenizer(folder).eos_token_id
    if expected is None:  # transformers reads this file only where tokenizer_config.json says nothing
        assert "names no end token" in refusal(folder)
    else:
        assert ends(folder) == (EOS,)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHATML, (SEP, EOS)),
        (CHATML.replace("<eos>\n", "<eos>"), (SEP, EOS)),
        (CHATML.replace("<eos>\n", "\n<eos>\n"), (SEP, EOS)),
        (CHATML.replace("m['content'] }}", "m['content'] | trim }}"), (SEP, EOS)),
        (PLAIN, (SEP,)),
        (PLAIN.replace("{% endfor %}", "{% endfor %}{% if add_generation_prompt %}<pad>{% endif %}"), (SEP,)),
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", (SEP,)),
        ("{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}<eos>{% endif %}{% endfor %}", (SEP,)),
        ("{% for m in messages %}{{ m['content'] }} stop <eos>{% endfor %}", (SEP,)),
    ],
)
def test_the_closing_token_is_the_special_one_right_behind_an_answer(
    folder: Path, template: str, expected: tuple[int, ...]
) -> None:
    change(folder, "config.json", eos_token_id=SEP)
    change(folder, "tokenizer_config.json", chat_template=template)
    assert ends(folder) == expected


def test_a_template_in_its_own_file_counts(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(CHATML)
    assert ends(folder) == (EOS,)


def test_variables_of_the_template_reach_it(folder: Path) -> None:
    closing = "{% if wide %}<sep>{% else %}<eos>{% endif %}"
    template = "{% for m in messages %}{{ m['content'] }}" + closing + "{% endfor %}"
    change(
        folder,
        "tokenizer_config.json",
        chat_template=template,
    )
    assert ends(folder) == (EOS,)
    assert ends(folder, chat_template_kwargs={"wide": True}) == (SEP,)


def test_a_model_without_any_end_token_is_refused_unless_told(folder: Path) -> None:
    assert "names no end token" in refusal(folder)
    assert "allowed: model.end_ids=[ID]" in refusal(folder)
    assert ends(folder, end_ids=[EOS, SEP, EOS]) == (EOS, SEP)


def test_what_is_told_replaces_what_the_files_name(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=EOS)
    assert ends(folder, end_ids=[SEP]) == (SEP,)


@pytest.mark.parametrize("told", [[], [-1], [320], [EOS, 100000]])
def test_told_ids_are_inside_the_vocabulary(folder: Path, told: list[int]) -> None:
    assert f"model.end_ids={told} is not allowed" in refusal(folder, end_ids=told)


def test_the_mask_cannot_be_told_to_end_a_text(folder: Path) -> None:
    assert f"the mask token {MASK} ends a text" in refusal(folder, end_ids=[MASK])
    change(folder, "tokenizer_config.json", eos_token="<mask>")
    assert f"the mask token {MASK} ends a text" in refusal(folder)


def test_a_stale_id_that_is_ordinary_text_does_not_count_and_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letter = load_tokenizer(folder).encode("a")[0]
    change(folder, "config.json", eos_token_id=[letter, PAD])
    change(folder, "tokenizer_config.json", eos_token="<eos>")
    assert ends(folder) == (PAD, EOS)
    note = capsys.readouterr().err
    assert f"eos_token_id {letter} is 'a', ordinary text" in note
    assert note.count("note:") == 1
    assert ends(folder, end_ids=[letter]) == (letter,)


def test_an_ordinary_piece_counts_where_nothing_else_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    letter = load_tokenizer(folder).encode("a")[0]
    change(folder, "config.json", eos_token_id=letter)
    assert ends(folder) == (letter,)
    assert capsys.readouterr().err == ""


def test_an_end_token_of_the_tokenizer_outside_the_model_is_refused(folder: Path) -> None:
    change(folder, "tokenizer.json", added_tokens=[*added(folder), token(5000, "<far>")])
    change(folder, "tokenizer_config.json", eos_token="<far>")
    assert "is outside the vocabulary; allowed: 0 to 319" in refusal(folder)


CHAT = Prompt("Hi", ({"role": "user", "content": "Hi"},))


def test_add_bos_puts_the_tokenizers_start_token_in_front_once(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=EOS, bos_token_id=SEP)
    text = load_tokenizer(folder).encode("Hi")
    assert opened(folder).codec.encode(Prompt("Hi")) == text
    assert opened(folder, add_bos=True).codec.encode(Prompt("Hi")) == [SEP, *text]
    change(folder, "tokenizer_config.json", bos_token="<pad>")
    assert opened(folder, add_bos=True).codec.encode(Prompt("Hi")) == [PAD, *text]
    assert opened(folder, add_bos=True).codec.encode(Prompt("<pad>Hi")) == [PAD, *text]
    assert opened(folder, add_bos=False).codec.encode(Prompt("Hi")) == text


def test_what_a_tokenizer_adds_by_itself_is_left_out(folder: Path) -> None:
    """The chat template writes every special token that belongs there; a second one would be another prompt."""
    change(folder, "config.json", eos_token_id=EOS)
    text = opened(folder).codec.encode(Prompt("Hi"))
    whole, start = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<sep>", "type_id": 0}}
    named = {"<sep>": {"id": "<sep>", "ids": [SEP], "tokens": ["<sep>"]}}
    adding = {"type": "TemplateProcessing", "single": [start, whole], "pair": [whole, whole], "special_tokens": named}
    change(folder, "tokenizer.json", post_processor=adding)
    assert load_tokenizer(folder).encode("Hi") == [SEP, *text]
    assert opened(folder).codec.encode(Prompt("Hi")) == text


def test_add_bos_without_a_start_token_is_refused(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=EOS, bos_token_id=None)
    assert "model.add_bos=true" in refusal(folder, add_bos=True)
    assert "allowed: false" in refusal(folder, add_bos=True)


def test_a_chat_prompt_needs_a_chat_template(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=EOS)
    codec = opened(folder).codec
    assert codec.encode(Prompt("Hi"))
    with pytest.raises(CheckpointError, match=r"has no chat template.*allowed: a task\.prompt_style of plain text"):
        codec.encode(CHAT)


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no system turns') }}",
        "{% for %}",
        "{{ messages.x.y }}",
        "{{ 1 / 0 }}",
        "{{ messages[9].a }}",
    ],
)
def test_a_broken_chat_template_is_one_sentence(folder: Path, template: str) -> None:
    change(folder, "config.json", eos_token_id=EOS)
    change(folder, "tokenizer_config.json", chat_template=template)
    message = refusal(folder)
    assert message.startswith(f"the chat template of {folder} fails: ")


def test_prompts_with_ids_outside_the_model_are_refused(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=EOS)
    change(folder, "tokenizer.json", added_tokens=[*added(folder), token(320, "<new>")])
    codec = opened(folder).codec
    assert codec.encode(Prompt("Hi"))
    with pytest.raises(CheckpointError, match=r"gives the id 320, the model's vocab_size is 320"):
        codec.encode(Prompt("Hi<new>"))


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"model": 3, "added_tokens": 7}', b"null"])
def test_a_damaged_tokenizer_is_one_sentence(folder: Path, file: str, content: bytes) -> None:
    change(folder, "config.json", eos_token_id=EOS)
    if file == "tokenizer_config.json" and content.startswith(b'{"model'):
        content = b'{"eos_token": 7}'
    (folder / file).write_bytes(content)
    assert str(folder) in refusal(folder)


QWEN_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def test_vocab_and_merges_are_qwens_byte_level_pairs(folder: Path) -> None:
    """Dream ships these two files: the text in NFC, split by Qwen2's expression, merged byte by byte."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("\n".join(" ".join(pair) for pair in model["merges"]))
    (folder / "tokenizer.json").unlink()
    change(folder, "tokenizer_config.json", tokenizer_class="DreamTokenizer", eos_token="<eos>")
    theirs = Tokenizer(models.BPE(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]]))
    theirs.normalizer = normalizers.NFC()
    theirs.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_PIECES), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    ours = load_tokenizer(folder)
    for text in ("Jane has 12 apples, she'll eat 3.", " two  spaces\n\n and a line", "cafe\u0301 90-4=86", "x" * 50):
        assert ours.encode(text) == theirs.encode(text).ids
    assert ours.encode("a<eos>")[-1] == EOS


def test_the_checkpoints_positions_bound_what_can_be_generated(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=EOS)
    check_room(opened(folder), 511)
    with pytest.raises(CheckpointError, match=r"decoder\.gen_length=512 .* 512 positions of .*; allowed: at most 511"):
        check_room(opened(folder), 512)
