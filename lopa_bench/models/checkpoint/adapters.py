"""Settings of a LoRA adapter in PEFT's folder layout: which modules it changes, with which rank and scale, and which it
replaces. No torch.

The scale is alpha / r, with use_rslora alpha / sqrt(r); r and alpha may differ from module to module. All of it is read
as PEFT reads it; what is no plain LoRA is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.files import ADAPTER_CONFIG
from lopa_bench.models.checkpoint.keys import Keys, read_json, shown

PREFIX = "base_model.model."  # what PEFT puts in front of the names of the model that it wraps
ROOTS = ("base_model", "base_model.model")  # the whole model, as PEFT calls it
NAME = re.compile(r"\w+(\.\w+)*", re.ASCII)
RANKS = 65536
# What the adapter belongs to and how it was trained. The *_config entries prepare the first weights of a training;
# those modes of init_lora_weights that change the model itself are refused. PEFT never transposes the layers that
# these models have, whatever fan_in_fan_out says.
IGNORED = {
    "auto_mapping", "base_model_name_or_path", "corda_config", "eva_config", "fan_in_fan_out",
    "inference_mode", "loftq_config", "lora_dropout", "lora_ga_config", "megatron_core", "peft_version",
    "qalora_group_size", "revision", "runtime_config", "task_type",
}  # fmt: skip
EMBEDDINGS = ("embed_tokens", "lm_head")  # the names that ensure_weight_tying looks for
FIRST_WEIGHTS = (True, False, "gaussian", "eva", "orthogonal")  # they are replaced by those of the file


@dataclass(frozen=True)
class Adapter:
    """Settings of one adapter: where it applies, with which rank and scale, and what it replaces.

    `saved`: ends of the names of the modules that it replaces; `keeps_tie`: whether it replaces both of two tied ones.
    """

    where: str
    rank: int
    alpha: float
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    by_root: bool  # rslora
    targets: str | tuple[str, ...] | None  # a pattern of whole names, "all-linear", ends of names, or not said
    excluded: str | tuple[str, ...]
    layers: tuple[int, ...] | None
    layers_patterns: tuple[str, ...]
    saved: tuple[str, ...]
    keeps_tie: bool

    def targeted(self, modules: Mapping[str, str], held: Container[str]) -> list[str]:
        """The modules that are changed, of `modules` (name -> kind); if the settings name none, those that the file
        has tensors for. Raises CheckpointError for one that cannot be changed.
        """
        if self.targets is None:
            names = [name for name in modules if key_of(name, "A") in held]
        else:
            names = [name for name, kind in modules.items() if self._takes(self.targets, name, kind)]
        for name in names:
            if modules[name] == "other":
                raise CheckpointError(
                    f"{self.where}: target_modules={shown(self.targets)} takes {name}, which is no linear layer; "
                    "allowed: linear layers"
                )
        return names

    def _takes(self, targets: str | tuple[str, ...], name: str, kind: str) -> bool:
        if self.excluded and _matches(self.excluded, name):
            return False
        if any(re.match(rf"(.*\.)?{re.escape(end)}($|\.)", name) for end in self.saved):
            return False
        if isinstance(targets, str) and targets.lower() == "all-linear":
            return kind == "linear"
        return _matches(targets, name) and (isinstance(targets, str) or self._in_layers(name))

    def _in_layers(self, name: str) -> bool:
        if self.layers is None:
            return True
        named = [rf"(?:^|.*?\.){pattern}\.(?P<at>\d+)\." for pattern in self.layers_patterns]
        patterns = named or [r".*?\.[^.]*\.(?P<at>\d+)\."]
        found = next((match for pattern in patterns if (match := re.match(pattern, name))), None)
        return found is not None and int(found["at"]) in self.layers

    def replaced(self, modules: Mapping[str, str]) -> list[str]:
        """The modules, of `modules`, that modules_to_save takes as a whole. An end of a name needs no dot before it,
        and PEFT's own prefix counts as a part of the name. Raises CheckpointError for what cannot be replaced.
        """
        found: dict[str, None] = {}
        for end in self.saved:
            taken = [name for name in modules if (PREFIX + name).endswith(end)]
            if not taken:
                self._refuse_saved(end, "takes no module of the checkpoint", "names of its modules")
            if any(root.endswith(end) for root in ROOTS):
                self._refuse_saved(end, "takes the whole model", "names of its modules")
            for name in taken:
                if f"{name}.0" in modules:
                    self._refuse_saved(end, f"takes {name}, which is a list of modules", "one module or more of them")
            found |= dict.fromkeys(taken)
        for name in found:
            if outer := next((other for other in found if name.startswith(f"{other}.")), None):
                self._refuse_saved(list(self.saved), f"takes {outer} and {name} in it", "one of them")
        return list(found)

    def _refuse_saved(self, value: Any, why: str, allowed: str) -> NoReturn:
        raise CheckpointError(f"{self.where}: modules_to_save={shown(value)} {why}; allowed: {allowed}")

    def rank_of(self, module: str) -> int:
        return _by_pattern(self.rank_pattern, module, self.rank)

    def scale_of(self, module: str) -> float:
        """What the product of a module's two matrices is multiplied by."""
        rank, alpha = self.rank_of(module), _by_pattern(self.alpha_pattern, module, self.alpha)
        return alpha / (math.sqrt(rank) if self.by_root else rank)


def saved_keys(module: str, tensor: str) -> list[str]:
    """The names that a tensor of a replaced module may have in the adapter's file: today's, and those of old files."""
    return [f"{PREFIX}{module}.{part}{tensor}" for part in ("", "modules_to_save.", "modules_to_save.default.")]


def key_of(module: str, side: str) -> str:
    """The name of a module's matrix A or B in the adapter's file."""
    return f"{PREFIX}{module}.lora_{side}.weight"


def read_adapter(folder: Path) -> Adapter:
    """The settings of an adapter. Raises CheckpointError for what is no plain LoRA, naming the key."""
    path = folder / ADAPTER_CONFIG
    keys = Keys(read_json(path), str(path))
    keys.only("peft_type", ("LORA",), None)
    keys.only("bias", ("none",), "none")
    keys.only("init_lora_weights", FIRST_WEIGHTS, True)
    rank = keys.count("r", 8, most=RANKS)
    layers = _layers(keys)
    adapter = Adapter(
        where=str(path),
        rank=rank,
        alpha=_number(keys, "lora_alpha", 8),
        rank_pattern=_pattern(keys, "rank_pattern", whole=True),
        alpha_pattern=_pattern(keys, "alpha_pattern", whole=False),
        by_root=keys.flag("use_rslora", False),
        targets=_names(keys, "target_modules"),
        excluded=_names(keys, "exclude_modules") or (),
        layers=layers,
        layers_patterns=_patterns_of_layers(keys),
        saved=(saved := _saved(keys)),
        keeps_tie=keys.flag("ensure_weight_tying", False) and any(end.split(".")[-1] in EMBEDDINGS for end in saved),
    )
    if adapter.targets is not None and not adapter.targets:
        keys.refuse("target_modules", 'null, a list of names, a pattern, or "all-linear"')
    if layers is not None and (adapter.targets is None or isinstance(adapter.targets, str)):
        keys.refuse("layers_to_transform", "null where target_modules is no list")
    off = {key for key, value in keys.raw.items() if value is False or value in ({}, [])}
    keys.finish(IGNORED | off, "only plain LoRA is supported; allowed: null, false or empty")
    return adapter


def _number(keys: Keys, key: str, default: float) -> float:
    value = keys.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        keys.refuse(key, "a finite number")
    return value


def _pattern(keys: Keys, key: str, whole: bool) -> dict[str, Any]:
    """rank_pattern or alpha_pattern: regular expressions for the ends of module names, each with a value."""
    found = keys.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(_compiles(pattern) for pattern in found):
        keys.refuse(key, "an object from patterns of module names to numbers")
    inner = Keys(found, f"{keys.where}: {key}")
    return {
        pattern: inner.count(pattern, most=RANKS) if whole else _number(inner, pattern, math.nan) for pattern in found
    }


def _by_pattern(patterns: Mapping[str, Any], module: str, default: Any) -> Any:
    """The value of the first pattern that matches the whole name, or its end behind a dot."""
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), default)


def _names(keys: Keys, key: str) -> str | tuple[str, ...] | None:
    """target_modules or exclude_modules: one pattern, or a list of names."""
    value = keys.get(key)
    if value is None or (isinstance(value, str) and _compiles(value)):
        return value
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        keys.refuse(key, "null, a list of names, or a pattern")
    return tuple(value)


def _saved(keys: Keys) -> tuple[str, ...]:
    """modules_to_save: names, none of them an expression."""
    value = keys.get("modules_to_save")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) and NAME.fullmatch(name) for name in value):
        keys.refuse("modules_to_save", "null or a list of names")
    return tuple(dict.fromkeys(value))


def _matches(names: str | tuple[str, ...], module: str) -> bool:
    if isinstance(names, str):
        return re.fullmatch(names, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in names)


def _layers(keys: Keys) -> tuple[int, ...] | None:
    value = keys.get("layers_to_transform")
    if value is None or value == []:
        return None
    numbers = value if isinstance(value, list) else [value]
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        keys.refuse("layers_to_transform", "null, a number, or a list of numbers")
    return tuple(numbers)


def _patterns_of_layers(keys: Keys) -> tuple[str, ...]:
    value = keys.get("layers_pattern")
    patterns = [value] if isinstance(value, str) else value or []
    if not isinstance(patterns, list) or not all(isinstance(one, str) and _compiles(one) for one in patterns):
        keys.refuse("layers_pattern", "null, a pattern, or a list of patterns")
    return tuple(pattern for pattern in patterns if pattern)


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
