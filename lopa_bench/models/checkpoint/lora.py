"""LoRA adapters in PEFT's folder layout, merged into the weights at load: W + scale B A, and in the place of W what it
saved of a whole module.

An adapter's tensors must be those of exactly the modules that its settings take.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path

from torch import Tensor

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint import saved
from lopa_bench.models.checkpoint.adapters import Adapter, key_of, read_adapter
from lopa_bench.models.checkpoint.files import FLOATS, Header, adapter_file, read_tensors
from lopa_bench.models.checkpoint.keys import shown
from lopa_bench.models.checkpoint.tensors import check_numbers, rows_of

NAMED = 4


class Merge:
    """An adapter that fits a checkpoint: what becomes of the rows of each of its weights.

    `modules`: name -> kind of the checkpoint's modules; `headers`: its tensors; `tied`: the table and the output matrix
    of a model that has one for both. Sums and products are computed in float32. Raises CheckpointError for an adapter
    of another kind, or one whose tensors do not fit.
    """

    def __init__(
        self,
        folder: Path,
        modules: Mapping[str, str],
        headers: Mapping[str, Header],
        tied: tuple[str, str] | None = None,
    ) -> None:
        adapter = read_adapter(folder)
        file = adapter_file(folder)
        parts = read_tensors(file)
        pairs = {module: [key_of(module, "A"), key_of(module, "B")] for module in adapter.targeted(modules, parts)}
        whole = saved.find(adapter, parts, modules, headers, tied)
        if both := [name for name in pairs if whole.holds(name)]:
            raise CheckpointError(
                f"{adapter.where}: modules_to_save={shown(list(adapter.saved))} takes {both[0]}, which target_modules "
                "changes as well; allowed: one of them"
            )
        faults = _faults(adapter, parts, pairs, headers, whole.keys) + whole.faults
        if faults or not pairs:
            more = f"; {len(faults) - NAMED} more" if len(faults) > NAMED else ""
            beside = " beside those of modules_to_save" if adapter.saved else ""
            none = f"target_modules={shown(adapter.targets)} takes no module of it{beside}"
            reason = "; ".join(faults[:NAMED]) + more or none
            raise CheckpointError(f"{file} does not fit the checkpoint: {reason}")
        check_numbers(parts, str(file))
        self.file = file
        self._replaced = whole.tensors
        self._added = {
            f"{module}.weight": (adapter.scale_of(module), parts[down].float(), parts[up].float())
            for module, (down, up) in pairs.items()
        }

    def rows(self, name: str, first: int, weight: Tensor) -> Tensor:
        """`weight`, the rows from `first` on of the tensor `name`, with what the adapter adds to them, in float32; the
        adapter's own rows if it replaces this tensor, and the same if it leaves it alone.
        """
        if name in self._replaced:
            return rows_of(self._replaced[name])[first : first + len(weight)]
        if name not in self._added:
            return weight
        scale, down, up = self._added[name]
        return weight.float() + scale * (up[first : first + len(weight)] @ down)

    def replaces(self, name: str) -> bool:
        """Whether nothing of the checkpoint's tensor `name` is left."""
        return name in self._replaced


def _faults(
    adapter: Adapter,
    parts: Mapping[str, Tensor],
    pairs: Mapping[str, list[str]],
    headers: Mapping[str, Header],
    saved_keys: Set[str],
) -> list[str]:
    wanted = {name for pair in pairs.values() for name in pair}
    faults = [f"missing: {name}" for name in sorted(wanted - set(parts))]
    wanted |= saved_keys
    faults += [f"not understood: {name}" for name in sorted(set(parts) - wanted)]
    for module, pair in pairs.items():
        weight = headers.get(f"{module}.weight")
        if weight is None:
            faults.append(f"{module}.weight is missing in the checkpoint")
        elif set(pair) <= set(parts):
            down, up = (parts[name] for name in pair)
            if fault := _misfit(module, weight, down, up, adapter.rank_of(module)):
                faults.append(fault)
    return faults


def _misfit(module: str, weight: Header, down: Tensor, up: Tensor, rank: int) -> str | None:
    found = f"{module}: lora_A {tuple(down.shape)} {down.dtype}, lora_B {tuple(up.shape)} {up.dtype}"
    if not (down.is_floating_point() and up.is_floating_point() and weight.dtype in FLOATS):
        return f"{found} on {weight.dtype} are no plain numbers"
    if len(weight.shape) == 2 and (down.shape, up.shape) == ((rank, weight.shape[1]), (weight.shape[0], rank)):
        return None
    return f"{found} do not make rank {rank} for {weight.shape}"
