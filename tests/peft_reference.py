"""Records what PEFT makes of adapter settings: `python -m tests.peft_reference` (needs the package peft).

For each case a random tiny Qwen2 model and a random adapter are saved, loaded and merged by PEFT. Kept in
tests/golden/adapters.json are the settings as PEFT wrote them, for every matrix that PEFT changed the rank and the
scale that it multiplied B A by, and, of whole modules that it saved, the names of the tensors that it put in the place
of the model's.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

GOLDEN = Path(__file__).parent / "golden" / "adapters.json"
SIZES = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 32, "tie_word_embeddings": False,
}  # fmt: skip
ENDS = ["q_proj", "v_proj", "down_proj"]
CASES: dict[str, dict[str, Any]] = {
    "plain": {"r": 4, "lora_alpha": 16, "target_modules": ENDS},
    "alpha_is_no_integer": {"r": 4, "lora_alpha": 2.5, "target_modules": ["k_proj"]},
    "rslora": {"r": 4, "lora_alpha": 16, "target_modules": ENDS, "use_rslora": True},
    "rank_pattern": {"r": 4, "lora_alpha": 16, "target_modules": ENDS, "rank_pattern": {"q_proj": 2}},
    "rank_pattern_under_rslora": {
        "r": 4, "lora_alpha": 16, "target_modules": ENDS, "rank_pattern": {"q_proj": 2}, "use_rslora": True,
    },
    "alpha_pattern": {"r": 4, "lora_alpha": 16, "target_modules": ENDS, "alpha_pattern": {"v_proj": 3, "proj": 99}},
    "patterns_are_expressions": {
        "r": 4, "lora_alpha": 16, "target_modules": ENDS, "rank_pattern": {r"layers\.[01]\.self_attn\.q_proj": 3},
        "alpha_pattern": {r"model\.layers\.\d\.mlp\..*": 32},
    },
    "the_first_pattern_wins": {
        "r": 4, "lora_alpha": 16, "target_modules": ENDS, "alpha_pattern": {".*_proj": 8, "q_proj": 1},
    },
    "a_pattern_needs_a_dot_before_it": {
        "r": 4, "lora_alpha": 16, "target_modules": ["q_proj"], "alpha_pattern": {"_proj": 8, "attn.q_proj": 1},
    },
    "all_linear": {"r": 2, "lora_alpha": 4, "target_modules": "all-linear"},
    "all_linear_in_capitals": {"r": 2, "lora_alpha": 4, "target_modules": "ALL-linear"},
    "all_linear_but_some": {"r": 2, "lora_alpha": 4, "target_modules": "all-linear", "exclude_modules": ["up_proj"]},
    "one_expression": {"r": 2, "lora_alpha": 4, "target_modules": r".*\.[02]\.self_attn\.[qk]_proj"},
    "a_whole_name": {"r": 2, "lora_alpha": 4, "target_modules": ["model.layers.1.mlp.gate_proj", "o_proj"]},
    "excluded_by_expression": {
        "r": 2, "lora_alpha": 4, "target_modules": ENDS, "exclude_modules": r".*layers\.1\..*",
    },
    "some_layers": {"r": 2, "lora_alpha": 4, "target_modules": ENDS, "layers_to_transform": [0, 2]},
    "one_layer": {"r": 2, "lora_alpha": 4, "target_modules": ENDS, "layers_to_transform": 1},
    "layers_by_pattern": {
        "r": 2, "lora_alpha": 4, "target_modules": ENDS, "layers_to_transform": [1], "layers_pattern": "layers",
    },
    "the_head": {"r": 2, "lora_alpha": 4, "target_modules": ["lm_head", "q_proj"]},
    "fan_in_fan_out": {"r": 2, "lora_alpha": 4, "target_modules": ENDS, "fan_in_fan_out": True},
    "gaussian": {"r": 2, "lora_alpha": 4, "target_modules": ENDS, "init_lora_weights": "gaussian"},
    "not_initialised": {"r": 2, "lora_alpha": 4, "target_modules": ENDS, "init_lora_weights": False},
    "a_saved_head": {"r": 2, "lora_alpha": 4, "target_modules": ENDS, "modules_to_save": ["lm_head"]},
    "saved_modules_get_no_lora": {
        "r": 2, "lora_alpha": 4, "target_modules": [*ENDS, "lm_head"],
        "modules_to_save": ["mlp", "input_layernorm", "model.norm", "0.self_attn.q_proj", "embed_tokens", "lm_head"],
    },
    "saved_under_all_linear": {
        "r": 2, "lora_alpha": 4, "target_modules": "all-linear", "modules_to_save": ["self_attn.o_proj"],
    },
    "a_saved_end_of_a_name": {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "modules_to_save": ["n_proj"]},
    "a_tie_that_is_kept": {
        "r": 2, "lora_alpha": 4, "target_modules": ENDS, "modules_to_save": ["lm_head"], "ensure_weight_tying": True,
    },
    "orthogonal": {"r": 2, "lora_alpha": 4, "target_modules": ENDS, "init_lora_weights": "orthogonal"},
}  # fmt: skip


def record(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Settings as saved, module -> scale, and the names of saved tensors; the merged weights are proved to be
    W + scale B A, or those of the file. A model whose tie the settings keep has one.
    """
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from safetensors.torch import load_file
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    sizes = {**SIZES, "tie_word_embeddings": settings.get("ensure_weight_tying", False)}
    base = Qwen2ForCausalLM(Qwen2Config(**sizes))
    before = {name: value.clone() for name, value in base.state_dict().items()}
    model = get_peft_model(base, LoraConfig(**settings))
    for name, value in model.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            torch.nn.init.normal_(value)
    model.save_pretrained(folder, save_embedding_layers=False)
    parts = load_file(folder / "adapter_model.safetensors")
    replaced = {key.removeprefix("base_model.model."): value for key, value in parts.items() if "lora_" not in key}
    fresh = Qwen2ForCausalLM(Qwen2Config(**sizes))
    fresh.load_state_dict(before)
    loaded = PeftModel.from_pretrained(fresh, folder)
    layers = {name: module for name, module in loaded.base_model.model.named_modules() if hasattr(module, "lora_A")}
    deltas = {}
    for name, module in layers.items():
        product = module.lora_B["default"].weight @ module.lora_A["default"].weight
        deltas[name] = module.scaling["default"] * product
    merged = loaded.merge_and_unload().state_dict()
    for name, value in merged.items():
        expected = replaced.get(name, before[name]) + deltas.get(name.removesuffix(".weight"), 0)
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-5)
    scales = {name: [module.r["default"], module.scaling["default"]] for name, module in layers.items()}
    saved = json.loads((folder / "adapter_config.json").read_text())
    return {"settings": saved, "modules": scales} | ({"saved": sorted(replaced)} if replaced else {})


def main() -> None:
    found = {}
    for name, settings in CASES.items():
        with TemporaryDirectory() as folder:
            found[name] = record(settings, Path(folder))
            targets = found[name]["settings"]["target_modules"]
            if isinstance(targets, list):
                targets.sort()  # PEFT writes a set in the order of the moment
    GOLDEN.write_text(
        "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)) + "\n}\n"
    )


if __name__ == "__main__":
    main()
