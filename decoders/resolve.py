"""From settings to a decoder: defaults are filled in, and what nothing would read is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from decoders.allowed import shown
from decoders.config import (
    SCORE_FIELDS,
    DecoderConfig,
    DecoderError,
    check_choice,
    fill_in,
    refusal,
    settings,
    validate,
)
from decoders.families.unmasked import UNMASKED
from decoders.lookahead import SELECTS, ByScore, Select
from decoders.lookahead.auto import AUTO, AUTO_UNREAD
from decoders.parts.fills import Fill
from decoders.parts.scores import SCORES, Score
from decoders.reuse import with_cache
from decoders.sampling import SAMPLING, check_drawn, check_sampling
from decoders.spec import Base, Decoder
from decoders.targets import load_target

LOPA = "lopa"
# Settings that every decoder reads.
COMMON = ("name", "target", "gen_length", "grid", "k", "decode_tail", "mask_logit", *SAMPLING)
# Settings of lookahead, read when branches are tried: whatever chooses among them, and by one choice or another.
LOOKAHEAD: dict[str, Any] = {"attention": "full", "select": "score"}
CHOOSING: dict[str, Any] = {name: value for select in SELECTS.values() for name, value in select.reads.items()}
USUAL = settings(DecoderConfig())


def resolve(config: DecoderConfig, bases: Mapping[str, Base], default: Base) -> Decoder:
    """The decoder that `config` describes; `default` is LoPA's base if none is named. Raises DecoderError for an
    unknown name, a value that is not allowed, or a setting that nothing would read.
    """
    validate(config)
    lookahead = config.name == LOPA
    base = _base(config, bases, default)
    scorer = _scorer(config)
    _refuse_unknown(config, base, scorer)
    check_choice("fill", base.readable["fill"] if config.fill is None else config.fill, base.fills, base.name)
    if lookahead and config.k == "auto":
        config = _auto(config)
    resolved = _with_defaults(config, base, scorer)
    _refuse_unread(config, base, base.readers(resolved.fill or ""))
    select: type[Select] = ByScore
    if lookahead and config.k != 0:  # with k = 0 they are let be: a sweep over k begins there
        select = SELECTS[resolved.select or ""]
        _refuse_unread_select(config, select)
        _refuse_unread_score(config, scorer)
        _check_lookahead(resolved, select)
    resolved = with_cache(resolved, base)
    _check_together(resolved, base)
    validate(resolved)  # the defaults of a base of one's own
    return Decoder(resolved, base.window, base.fills[resolved.fill or ""], scorer, select)


def _base(config: DecoderConfig, bases: Mapping[str, Base], default: Base) -> Base:
    """The decoder itself, or what LoPA looks ahead over."""
    outside = None if config.target is None else _outside(config.target, bases)
    known = dict(bases) if outside is None else {**bases, outside.name: outside}
    if config.name == LOPA:
        setting, name = "decoder.base", config.base or (outside or default).name
    else:
        setting, name = "decoder", config.name
        if config.base is not None:
            raise DecoderError(f"decoder.base={config.base} has no meaning for decoder={name}; only lopa has a base")
    if name not in known:
        allowed = [*known] if setting == "decoder.base" else [*known, LOPA, *UNMASKED]
        raise DecoderError(f"{setting}={shown(name)} is unknown; allowed: {', '.join(allowed)}")
    if outside is not None and outside is not known[name]:
        raise DecoderError(
            f"decoder.target={config.target} has no meaning with {setting}={name}; allowed: {setting}={outside.name}"
        )
    return known[name]


def _outside(target: str, bases: Mapping[str, Base]) -> Base:
    base = load_target("target", target)
    if not isinstance(base, Base):
        raise DecoderError(f"decoder.target={target} is a {type(base).__name__}; allowed: a decoders.Base")
    if bases.get(base.name, base) is not base or base.name in (LOPA, *UNMASKED):
        raise DecoderError(f"decoder.target={target} is called {base.name}; allowed: a name that no other decoder has")
    return base


def _scorer(config: DecoderConfig) -> type[Score]:
    """The class of the branch score: one of ours by its kind, or that of `score.target`."""
    kind, target = config.score.kind, config.score.target
    if target is None:
        if kind not in SCORES:
            raise refusal("score.kind", kind, f"{', '.join(SCORES)}, or one's own by decoder.score.target")
        return SCORES[kind]
    found = load_target("score.target", target)
    if not isinstance(found, type) or not issubclass(found, Score):
        raise DecoderError(f"decoder.score.target={target} is no class of scores; allowed: a decoders.Score")
    name = vars(found).get("name")
    if not isinstance(name, str) or not name.isidentifier() or SCORES.get(name, found) is not found:
        raise DecoderError(
            f"decoder.score.target={target} has the name {shown(name)}; allowed: a `name` of letters, digits and "
            f"underscores other than {', '.join(SCORES)}"
        )
    if kind not in (name, USUAL["score.kind"]):
        raise DecoderError(f"decoder.score.kind={kind} has no meaning with decoder.score.target; allowed: {name}")
    return found


def _refuse_unknown(config: DecoderConfig, base: Base, scorer: type[Score]) -> None:
    """Settings that this decoder reads under no choice."""
    plain = {*COMMON, *base.readable}
    if config.name == LOPA:
        plain |= {"base", "fill_confidence", *LOOKAHEAD, *CHOOSING}
        plain |= {name for name in scorer.reads if name not in SCORE_FIELDS}
        plain |= {f"score.{name}" for name in SCORE_FIELDS}
    elif config.fill_confidence == (config.confidence or base.readable["confidence"]):
        plain.add("fill_confidence")  # as resolved settings hold it
    ranking = "fill_confidence" if config.name == LOPA else "confidence"
    if not base.ranks and getattr(config, ranking) != base.readable["confidence"]:
        plain -= {ranking}  # what resolved settings hold says that nothing is ranked by another
    readable = {name if name in USUAL else f"own.{name}" for name in plain}
    for name, value in settings(config).items():
        if name not in readable and not (name in USUAL and value == USUAL[name]):
            who = f"decoder.base={base.name}" if config.name == LOPA else f"decoder={base.name}"
            allowed = ", ".join(sorted(readable - {"name"}))
            if name in USUAL:
                allowed = f"{shown(USUAL[name])}; its settings: {allowed}"
            raise DecoderError(f"decoder.{name}={shown(value)} has no meaning for {who}; allowed: {allowed}")


def _with_defaults(config: DecoderConfig, base: Base, scorer: type[Score]) -> DecoderConfig:
    """The settings with nothing left open, but for what depends on several of them. A copy."""
    resolved = replace(config, score=replace(config.score, kind=scorer.name))
    if config.name == LOPA:
        own = {name: value for name, value in scorer.reads.items() if name not in SCORE_FIELDS}
        ahead = LOOKAHEAD if base.caches_under("full") else {**LOOKAHEAD, "attention": base.readable["attention"]}
        resolved = fill_in(resolved, {**ahead, **own, "base": base.name})
        resolved = fill_in(resolved, SELECTS[resolved.select or ""].reads if config.k != 0 else ByScore.reads)
        resolved = fill_in(resolved, {"fill_confidence": base.readable["confidence"]})
        readable = {name: value for name, value in base.readable.items() if name not in ("cache", "confidence")}
        return fill_in(resolved, readable)
    resolved = fill_in(resolved, {name: value for name, value in base.readable.items() if name != "cache"})
    return replace(resolved, fill_confidence=resolved.confidence, k=0)


def _refuse_unread(config: DecoderConfig, base: Base, readers: Mapping[str, tuple[str, ...]]) -> None:
    """Settings that the chosen fill rule leaves unread; `readers` has the rules that would read them.

    What it is by default a setting may be: files that name every setting stay right when the rule is changed.
    """
    for name, rules in readers.items():
        usual = [None, base.readable[name]]
        dotted = name if name in USUAL else f"own.{name}"
        if name == "confidence":
            usual.append("prob")  # by which rules without a ranking go; it costs nothing
            dotted = "fill_confidence" if config.name == LOPA else name
        value = settings(config).get(dotted)
        if value not in usual:
            fill = config.fill or base.readable["fill"]
            raise DecoderError(
                f"decoder.{dotted}={shown(value)} has no meaning with decoder.fill={fill}; "
                f"allowed: decoder.fill={' or '.join(rules)}, which read it"
            )


def _auto(config: DecoderConfig) -> DecoderConfig:
    """k=auto stands for several settings, which may be written out (as resolved settings are) and not be others."""
    for name, value in AUTO.items():
        if getattr(config, name) not in (None, value):
            raise DecoderError(
                f"decoder.{name}={shown(getattr(config, name))} has no meaning with decoder.k=auto, which is "
                f"decoder.{name}={shown(value)}; allowed: a number for k"
            )
    for name in AUTO_UNREAD:
        if getattr(config, name) is not None:
            raise DecoderError(
                f"decoder.{name}={shown(getattr(config, name))} has no meaning with decoder.k=auto; "
                "allowed: a number for k"
            )
    return fill_in(config, AUTO)


def _refuse_unread_select(config: DecoderConfig, select: type[Select]) -> None:
    """Settings that another choice among the branches would read."""
    values = settings(config)
    unread = {name: default for name, default in CHOOSING.items() if name not in select.reads}
    if not select.scored:
        unread |= {f"score.{name}": USUAL[f"score.{name}"] for name in SCORE_FIELDS}
    for name, default in unread.items():
        if values[name] in (None, default):
            continue
        of_score = name.startswith("score.")
        readers = [way for way, one in SELECTS.items() if (one.scored if of_score else name in one.reads)]
        raise DecoderError(
            f"decoder.{name}={shown(values[name])} has no meaning with decoder.select={select.name}; "
            f"allowed: decoder.select={' or '.join(readers)}, which {'read' if len(readers) > 1 else 'reads'} it"
        )


def _check_lookahead(config: DecoderConfig, select: type[Select]) -> None:
    """What a choice among the branches cannot go with."""
    if select is ByScore:
        return
    check_drawn(config, select.name)
    if select.name == "exact" and config.empty_steps == "run":
        raise DecoderError(
            "decoder.empty_steps=run is not supported by decoder.select=exact, which spends no forward on nothing; "
            "allowed: skip"
        )
    if config.confirm_best and config.confirm is None:
        raise DecoderError("decoder.confirm_best=true has no meaning without decoder.confirm; allowed: a number for it")


def _refuse_unread_score(config: DecoderConfig, scorer: type[Score]) -> None:
    for name in SCORE_FIELDS:
        value = getattr(config.score, name)
        if name in ("kind", "target", *scorer.reads) or value == USUAL[f"score.{name}"]:
            continue
        readers = [kind for kind, score in SCORES.items() if name in score.reads]
        raise DecoderError(
            f"decoder.score.{name}={shown(value)} has no meaning with decoder.score.kind={scorer.name}; "
            f"allowed: decoder.score.kind={' or '.join(readers)}, which reads it"
        )


def _check_together(config: DecoderConfig, base: Base) -> None:
    """Values that are allowed one by one and wrong together. Fills in what depends on other settings."""
    rule = base.fills[config.fill or ""]
    if "block_size" in base.window.reads and config.block_size is None:
        config.block_size = min(32, config.gen_length)
    _check_inside(config, base, rule)
    check_sampling(config, [name for name, part in base.fills.items() if part.timed])
    if config.early_stop and config.decode_tail:
        raise DecoderError(
            "decoder.early_stop=true has no meaning with decoder.decode_tail=true, which fills what lies behind the "
            "end token; allowed: false"
        )
    config.grid = config.grid or "prompt"
    if config.grid not in base.window.grids:
        raise DecoderError(
            f"decoder.grid={config.grid} is not supported by {base.name}, which has no blocks to count; "
            f"allowed: {', '.join(base.window.grids)}"
        )
    if config.score.window is not None and config.score.bottom < 1.0:
        both = f"decoder.score.window={config.score.window} and decoder.score.bottom={config.score.bottom}"
        raise DecoderError(f"{both} exclude each other; allowed: one of them")
    if config.first_position == "unconditional" and not rule.follows_first:
        follow = {name: part for name, part in base.fills.items() if part.follows_first}
        check_choice("fill", config.fill, follow, "first_position=unconditional")
    if rule.reads is None or "steps" in rule.reads:
        _check_steps(config, -(-config.gen_length // base.window.block_size(config)))


def _check_inside(config: DecoderConfig, base: Base, rule: type[Fill]) -> None:
    """What divides a block: steps of it and sub-blocks in it. By default one step a position and sub-blocks of 8."""
    block = config.block_size or config.gen_length
    if rule.reads is not None and "denoising_steps" in rule.reads:
        config.denoising_steps = config.denoising_steps or block
        if config.denoising_steps > block:
            raise refusal("denoising_steps", config.denoising_steps, f"1 to decoder.block_size={block}")
    if "sub_block_size" in base.window.reads:
        config.sub_block_size = config.sub_block_size or next(size for size in (8, 4, 2, 1) if block % size == 0)
        if block % config.sub_block_size:
            raise refusal("sub_block_size", config.sub_block_size, f"divisors of decoder.block_size={block}")


def _check_steps(config: DecoderConfig, blocks: int) -> None:
    """A schedule needs whole steps in each block; by default it has one a position."""
    if config.steps is None:
        config.steps = blocks * (config.block_size or 1) if blocks > 1 else config.gen_length
    if config.steps % blocks:
        raise DecoderError(f"decoder.steps={config.steps} is not allowed; allowed: multiples of the {blocks} blocks")
    if config.fill == "budget" and config.gen_length % config.steps:
        raise DecoderError(
            f"decoder.steps={config.steps} is not allowed; allowed: divisors of gen_length={config.gen_length}"
        )
