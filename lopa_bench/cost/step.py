"""How long a step of a decode takes at least: the bytes and operations of its model call on the heaviest rank, held
against what a device can do, and the bytes that ranks send each other.

Every group of operations takes the longer of its bytes over the memory's bandwidth and its operations over the
device's rate; groups and links follow each other. What is counted is what lopa_bench/models/network does: all rows of a
rank go through one packed call, rows share the cached prefix, the head is read at masked positions alone. Everything
that no data sheet has (launching kernels, Python, the decoder) is `overhead_s`, and 0 unless it is told: a step is
never faster than what stands here, and may be much slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from lopa_bench.cost.devices import COLLECTIVE_S, Device
from lopa_bench.errors import ConfigError
from lopa_bench.models.config import ModelConfig
from lopa_bench.models.memory import cache_bytes

ACTIVATION = 2  # bytes of a number between layers, and of keys and values: bfloat16, whatever the weights are
FLOAT32 = 4
WEIGHT = {"bfloat16": 2, "w8a8": 1}  # bytes of a number of a layer's matrices; embedding and head stay bfloat16
RATE = {"bfloat16": "bfloat16", "w8a8": "int8"}  # the device's rate for products with these matrices
RECORD = 3 * 4  # bytes of a masked position between ranks: its id, probability and one confidence
READ_LOGITS = 3 * FLOAT32  # bytes that softmax and arg max move for a logit, in float32


@dataclass(frozen=True)
class Workload:
    """What a step feeds on average: `rows` (the anchor and k branches) of `window` positions, `masked` of them masked,
    on `cached` ones; `committed` positions a step enter the cache.
    """

    rows: int
    window: float
    masked: float
    cached: float
    committed: float


@dataclass(frozen=True)
class Setup:
    """What runs where. `branch_ranks` share the rows of a step, `tensor_ranks` the matrices of each; `dtype` is one of
    WEIGHT. `protocol`: two_phase sends a winner's keys and values to all, single_phase does not. `gather`: ranks send
    each other "records" of masked positions, or "logits" of all positions in bfloat16, as the released program does.
    """

    device: Device
    branch_ranks: int = 1
    tensor_ranks: int = 1
    dtype: str = "bfloat16"
    protocol: str = "two_phase"
    gather: str = "records"
    overhead_s: float = 0.0


@dataclass(frozen=True)
class Step:
    """Seconds of a step by what they are spent on, and the bytes that the heaviest rank receives."""

    layers: float
    attention: float
    head: float
    branch_link: float
    tensor_link: float
    overhead: float
    link_bytes: float

    @property
    def seconds(self) -> float:
        return self.layers + self.attention + self.head + self.branch_link + self.tensor_link + self.overhead


def step(config: ModelConfig, work: Workload, setup: Setup) -> Step:
    """The step of a decode. Raises BackendError for matrices that cannot be shared, ConfigError for what does not fit
    the device.
    """
    _check(config, work, setup)
    rows = ceil(work.rows / setup.branch_ranks)
    branch_s, branch_bytes = _branch_link(config, work, rows, setup)
    tensor_s, tensor_bytes = _tensor_link(config, rows * work.window, setup)
    return Step(
        layers=_layers(config, rows * work.window, setup),
        attention=_attention(config, work, rows, setup),
        head=_head(config, rows * work.masked, setup),
        branch_link=branch_s,
        tensor_link=tensor_s,
        overhead=setup.overhead_s,
        link_bytes=branch_bytes + tensor_bytes,
    )


def weight_bytes(config: ModelConfig, setup: Setup) -> float:
    """Of one rank: its part of the layers, the whole embedding and head."""
    layers = sum(_matrices(config, layer, None)[0] for layer in range(config.layers))
    outer = config.vocab_size * config.hidden_size * (1 if config.tied else 2)
    return layers * WEIGHT[setup.dtype] / setup.tensor_ranks + outer * ACTIVATION


def _check(config: ModelConfig, work: Workload, setup: Setup) -> None:
    config.check_shares(setup.tensor_ranks, "tensor")
    rows = ceil(work.rows / setup.branch_ranks)
    kept = cache_bytes(config, ceil(work.cached + rows * work.window), ACTIVATION)
    needed = weight_bytes(config, setup) + kept / setup.tensor_ranks
    if needed > setup.device.memory:
        raise ConfigError(
            f"weights and caches take {needed / 1e9:.0f} GB of each device, and device={setup.device.name} has "
            f"{setup.device.memory / 1e9:.0f}; allowed: more tensor ranks (tensor=), dtype=w8a8, or another device"
        )


def _matrices(config: ModelConfig, layer: int, tokens: float | None) -> tuple[float, float]:
    """Numbers of a layer's matrices that a call of so many tokens reads (None: all there are), and those that a token
    is multiplied with. Of N experts with K a token, T tokens that choose evenly meet N (1 - (1 - K / N)^T).
    """
    D, E = config.hidden_size, config.head_dim
    attention = D * (config.heads + 2 * config.kv_heads) * E + config.heads * E * D
    if not config.has_experts(layer):
        dense = attention + 3 * D * config.intermediate_size
        return dense, dense
    e = config.experts
    assert e is not None
    always = attention + D * e.count + 3 * D * e.shared_size
    met = e.count if tokens is None else e.count * (1 - (1 - e.per_token / e.count) ** tokens)
    return always + 3 * D * e.size * met, always + 3 * D * e.size * e.per_token


def _layers(config: ModelConfig, tokens: float, setup: Setup) -> float:
    """Seconds of everything in the layers but the attention itself: matrices, norms, rotation, gates."""
    device, ranks = setup.device, setup.tensor_ranks
    D, H, K, E = config.hidden_size, config.heads, config.kv_heads, config.head_dim
    seconds = 0.0
    for layer in range(config.layers):
        read, used = _matrices(config, layer, tokens)
        inner = config.intermediate_size
        if config.has_experts(layer):
            assert config.experts is not None
            inner = config.experts.per_token * config.experts.size + config.experts.shared_size
        whole = 12 * D  # two norms and two sums, inputs and outputs of the matrices
        shared = (H + 2 * K) * E + 2 * (H + K) * E + H * E + 6 * inner  # heads rotated; gates read and written
        moved = read / ranks * WEIGHT[setup.dtype] + tokens * (whole + shared / ranks) * ACTIVATION
        operations = 2 * tokens * used / ranks
        seconds += max(moved / device.bandwidth, operations / device.flops[RATE[setup.dtype]])
    return seconds


def _attention(config: ModelConfig, work: Workload, rows: int, setup: Setup) -> float:
    """Seconds of the scores, their softmax in float32 and the sums: the shared prefix is read once for all rows."""
    device, ranks = setup.device, setup.tensor_ranks
    seen = work.cached + work.window
    scores = rows * work.window * config.heads * seen
    kept = cache_bytes(config, 1, ACTIVATION) * (work.cached + 2 * rows * work.window) / ranks
    moved = kept + config.layers * scores * 2 * (ACTIVATION + FLOAT32) / ranks
    operations = 4 * config.layers * scores * config.head_dim / ranks
    return max(moved / device.bandwidth, operations / device.flops["bfloat16"])


def _head(config: ModelConfig, positions: float, setup: Setup) -> float:
    """Seconds of the logits of so many positions, whole on every rank, and of what is read from them."""
    device, numbers = setup.device, config.vocab_size * config.hidden_size
    moved = numbers * ACTIVATION + positions * config.vocab_size * (2 * ACTIVATION + READ_LOGITS)
    return max(moved / device.bandwidth, 2 * positions * numbers / device.flops["bfloat16"])


def _branch_link(config: ModelConfig, work: Workload, rows: int, setup: Setup) -> tuple[float, float]:
    """Seconds and received bytes of what branch ranks tell each other."""
    if setup.branch_ranks == 1:
        return 0.0, 0.0
    others = work.rows - min(rows, work.rows)
    if setup.gather == "logits":
        received = others * work.window * config.vocab_size * ACTIVATION
    else:
        received = others * work.masked * RECORD
    collectives = 1
    if setup.protocol == "two_phase":
        received += cache_bytes(config, 1, ACTIVATION) * work.committed / setup.tensor_ranks
        collectives += 1
    return collectives * COLLECTIVE_S + received / setup.device.link, received


def _tensor_link(config: ModelConfig, tokens: float, setup: Setup) -> tuple[float, float]:
    """Seconds and bytes of two all-reduces a layer, in which every rank receives 2 (T - 1) / T of the sum's bytes."""
    ranks = setup.tensor_ranks
    if ranks == 1:
        return 0.0, 0.0
    received = 2 * config.layers * 2 * (ranks - 1) / ranks * tokens * config.hidden_size * ACTIVATION
    return 2 * config.layers * COLLECTIVE_S + received / setup.device.link, received
