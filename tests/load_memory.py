"""Measures what loading a checkpoint takes of the host's memory: `python -m tests.load_memory [DTYPE] [SHARDS]`.

A random checkpoint of 2 GB (bfloat16, 1.0 billion parameters) is written to a temporary folder and loaded by a process
of its own. The peak is the kernel's (VmHWM), less what the process had before: libraries and nothing else.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

LAYERS = 16
CONFIG = {
    "model_type": "Dream", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": LAYERS, "num_attention_heads": 16, "num_key_value_heads": 16, "rope_theta": 1e6,
    "max_position_embeddings": 2048, "mask_token_id": 31999, "eos_token_id": 31998,
}  # fmt: skip
LOAD = """
import sys, torch
from pathlib import Path
from lopa_bench.models.checkpoint.loader import load_model

def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) * 1024

torch.aminmax(torch.zeros(1 << 20).bfloat16())
before = status("VmRSS")
model = load_model(Path(sys.argv[1]), getattr(torch, sys.argv[2]), torch.device("cpu"))
print(sum(p.nbytes for p in model.parameters()), status("VmHWM") - before)
"""


def write(folder: Path, shards: int) -> int:
    """The checkpoint; returns the size of its largest part in bytes."""
    import torch
    from safetensors.torch import save_file

    from lopa_bench.models.checkpoint.layouts import read_config
    from lopa_bench.models.network.transformer import Transformer

    (folder / "config.json").write_text(json.dumps(CONFIG))
    layout, config = read_config(folder)
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in Transformer(config).state_dict().items()}
    tensors = {}
    for ours, parts in layout.published(config).items():
        rows = shapes[ours][0] // len(parts)  # as many key-value heads as query heads
        tensors |= dict.fromkeys(parts, (rows, *shapes[ours][1:]))
    names, index = list(tensors), {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = names[number * len(names) // shards : (number + 1) * len(names) // shards]
        save_file({name: torch.rand(tensors[name]).bfloat16() for name in part}, folder / file)
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return max(path.stat().st_size for path in folder.glob("*.safetensors"))


def main() -> None:
    dtype = sys.argv[1] if sys.argv[1:] else "bfloat16"
    with TemporaryDirectory() as folder:
        shard = write(Path(folder), int(sys.argv[2]) if sys.argv[2:] else 4)
        done = subprocess.run([sys.executable, "-c", LOAD, folder, dtype], capture_output=True, text=True, check=True)
    model, peak = map(int, done.stdout.split())
    print(
        f"{dtype}: network {model / 1e9:.2f} GB, largest part {shard / 1e9:.2f} GB, peak {peak / 1e9:.2f} GB: ", end=""
    )
    print(f"{(peak - model) / 1e9:.2f} GB beside the network, {(peak - model) / shard:.2f} of a part")


if __name__ == "__main__":
    main()
