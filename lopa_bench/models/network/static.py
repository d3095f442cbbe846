"""Steps of static shape: calls filled up to a few sizes, so that each size is compiled, or captured as a graph, once.

A decode makes hundreds of small calls, each of another shape: the window grows and shrinks, the cached prefix grows,
the last branches are fewer. Launching their kernels one by one takes longer than the kernels. Here rows, window and
cached prefix are filled up to the next size; what was added is hidden by masks and thrown away. Filling up changes no
number but by the order of sums, so ids are the same up to ties that rounding decides.

Calls of several samples, and calls wider than WIDEST (a prompt, a whole canvas), run as they are.

Shape suffixes as in segments.py; a bucket's R, W and P are those that were filled up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lopa_bench.errors import BackendError
from lopa_bench.models.config import ModelConfig
from lopa_bench.models.network.attention import attend
from lopa_bench.models.network.feed_forward import has_grouped
from lopa_bench.models.network.segments import KVCache, Segment
from lopa_bench.models.network.transformer import Layer, Transformer

WIDEST = 255  # positions of a row: below what attention hands to its fused kernel
ROWS, WINDOW, PAST = 4, 32, 256  # sizes are 1 row or a multiple of these
MOST_SHAPES = 512  # that a compiler may make of one function, instead of its 8

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
Outputs = tuple[Tensor, Tensor, Tensor]
Run = Callable[..., Outputs]


@dataclass(frozen=True)
class Bucket:
    """The shape of a call: rows, positions of a row, cached positions."""

    rows: int
    window: int
    past: int


def bucket_of(segment: Segment) -> Bucket:
    """The smallest bucket that holds a call."""
    R, W = segment.tokens_RW.shape
    past = 0
    if segment.cache is not None:
        past = segment.start if segment.suffix is None else max(segment.start, segment.suffix[1])
        past = min(_up(past, PAST), segment.cache.max_length)
    return Bucket(1 if R == 1 else _up(R, ROWS), _up(W, WINDOW), past)


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def filled_up(segment: Segment, bucket: Bucket, mask_id: int, dtype: torch.dtype) -> Inputs:
    """Tokens [R, W], positions [W], an additive mask [P] over what is cached and one [R, W, W] over the own window.

    What was added is mask tokens that nobody sees and that see what is there, so that no softmax is empty.
    """
    tokens_RW, device = segment.tokens_RW, segment.tokens_RW.device
    rows, width = tokens_RW.shape
    filled_RW = torch.full((bucket.rows, bucket.window), mask_id, dtype=tokens_RW.dtype, device=device)
    filled_RW[:rows, :width] = tokens_RW
    position_W = torch.zeros(bucket.window, dtype=torch.int64, device=device)
    position_W[:width] = segment.positions()
    past_P = torch.full((bucket.past,), -torch.inf, dtype=dtype, device=device)
    past_P[: segment.start] = 0
    if segment.suffix is not None:
        past_P[segment.suffix[0] : segment.suffix[1]] = 0
    own_RWW = torch.zeros(bucket.rows, bucket.window, bucket.window, dtype=dtype, device=device)
    own_RWW[:, :, width:] = -torch.inf
    if segment.mask is not None:
        own_RWW[:rows, :width, :width] = segment.mask
    return filled_RW, position_W, past_P, own_RWW


def step(
    model: Transformer,
    tokens_RW: Tensor,
    position_W: Tensor,
    past_P: Tensor,
    own_RWW: Tensor,
    k_LKPE: Tensor,
    v_LKPE: Tensor,
) -> Outputs:
    """What Transformer.forward computes for one segment: hidden states [T, D], and the own keys and values of all
    layers [L, R, K, W, E]. Only tensors come in, and none of its shapes depends on what they hold.
    """
    R, W = tokens_RW.shape
    x_TD, cos_TS, sin_TS = model.enter(tokens_RW.reshape(-1), position_W.repeat(R))
    ks, vs = [], []
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        q_RKGWE, k_RKWE, v_RKWE = layer.attention.heads(layer.attention_norm(x_TD), cos_TS, sin_TS, R)
        past = (k_LKPE[number], v_LKPE[number]) if past_P.shape[0] else None
        out_RKGWE = attend(q_RKGWE, k_RKWE, v_RKWE, past, own_RWW, past_P)
        x_TD = x_TD + layer.attention.o_proj(out_RKGWE.permute(0, 3, 1, 2, 4).reshape(R * W, -1))
        x_TD = x_TD + layer.mlp(layer.mlp_norm(x_TD))
        ks.append(k_RKWE)
        vs.append(v_RKWE)
    return model.norm(x_TD), torch.stack(ks), torch.stack(vs)


class StaticSteps(nn.Module):
    """A network whose small calls have few shapes; in the place of a Transformer.

    `how`: "compile" hands the step to torch.compile, "graphs" captures it as CUDA graphs, "plain" runs it as it is (to
    tell what filling up does from what a compiler does). Raises BackendError where this machine cannot.
    """

    def __init__(self, network: Transformer, how: str, compiler: str = "inductor"):
        super().__init__()
        self.network, self.config, self.embed, self.how = network, network.config, network.embed, how
        self.run: Run = step
        self.graphs: dict[tuple[Bucket, int], Graph] = {}
        self.pool: Any = None
        weight = network.embed.weight
        if how == "graphs":
            _check_graphs(network.config, weight)
            self.pool = torch.cuda.graph_pool_handle()  # one for all, since only one of them runs at a time
        elif how == "compile":
            self.run = compiled(weight.device, compiler)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.network.logits(hidden)

    def forward(self, segments: list[Segment], keep: bool = False) -> Tensor:
        """As Transformer.forward."""
        segment = segments[0]
        R, W = segment.tokens_RW.shape
        if len(segments) > 1 or W > WIDEST:
            hidden_TD: Tensor = self.network(segments, keep)
            return hidden_TD
        bucket = bucket_of(segment)
        inputs = filled_up(segment, bucket, self.config.mask_id, self.embed.weight.dtype)
        hidden_TD, k_LRKWE, v_LRKWE = self._outputs(bucket, inputs, segment.cache)
        if keep:
            own = slice(None), slice(R), slice(None), slice(W)
            segment.window = list(zip(k_LRKWE[own], v_LRKWE[own]))
        return hidden_TD.view(bucket.rows, bucket.window, -1)[:R, :W].reshape(R * W, -1)

    def _outputs(self, bucket: Bucket, inputs: Inputs, cache: KVCache | None) -> Outputs:
        none = self.embed.weight.new_empty(0)
        past = (none, none) if cache is None else (cache.k_LKPE[:, :, : bucket.past], cache.v_LKPE[:, :, : bucket.past])
        if self.how != "graphs":
            return self.run(self.network, *inputs, *past)
        key = bucket, id(cache)
        if key not in self.graphs:
            self.graphs[key] = Graph(self.network, inputs, past, cache, self.pool)
        return self.graphs[key](inputs)


Network = Transformer | StaticSteps


class Graph:
    """A captured step: it reads `inputs` from where they stood, and the cache, whose buffers never move."""

    def __init__(
        self, network: Transformer, inputs: Inputs, past: tuple[Tensor, Tensor], cache: KVCache | None, pool: Any
    ):
        self.cache = cache  # held, so that no other cache gets its place
        tokens_RW, position_W, past_P, own_RWW = inputs
        self.inputs = tokens_RW.clone(), position_W.clone(), past_P.clone(), own_RWW.clone()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # what kernels set up when they first run cannot be captured
            for _ in range(2):
                step(network, *self.inputs, *past)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.outputs = step(network, *self.inputs, *past)

    def __call__(self, inputs: Inputs) -> Outputs:
        for place, value in zip(self.inputs, inputs, strict=True):
            place.copy_(value)
        self.graph.replay()
        return self.outputs


def _check_graphs(config: ModelConfig, weight: Tensor) -> None:
    """Raises BackendError where no graph can be captured."""
    kind = weight.device.type
    if kind != "cuda":
        raise BackendError(
            f"backend.compile=graphs captures CUDA graphs, and the device is {kind}; allowed here: none, compile"
        )
    if config.experts is not None and not has_grouped(kind, weight.dtype):
        raise BackendError(
            f"backend.compile=graphs: torch has no grouped product in {weight.dtype} on {kind}, and without one the "
            "tokens of each expert are counted on the host; allowed here: none, compile"
        )


def compiled(device: torch.device, compiler: str = "inductor") -> Run:
    """The step as torch.compile makes it, one version for each shape. Raises BackendError where it cannot compile."""
    import torch._dynamo.config as limits

    limits.recompile_limit = max(limits.recompile_limit, MOST_SHAPES)
    limits.accumulated_recompile_limit = max(limits.accumulated_recompile_limit, MOST_SHAPES)
    try:
        torch.compile(lambda x: x * 2 + 1, fullgraph=True, backend=compiler)(torch.ones(3, device=device))
    except Exception as error:  # a compiler that is missing shows in many ways
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise BackendError(
            f"backend.compile=compile: torch.compile does not work here: {reason}; allowed: none, or (on a CPU) a C++ "
            "compiler"
        ) from None
    return torch.compile(step, dynamic=False, fullgraph=True, backend=compiler)
