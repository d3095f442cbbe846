"""A race as a moving picture: several runs on one problem by the clock, all slowed down alike, as GIF or MP4.

Frames are drawn with Pillow, which matplotlib brings along, in the font that it brings along too. Nothing is
interpolated: a token appears when the call that filled it was over, by the time that was recorded for the call.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from analysis.text import clipped, plain

WIDTH, MARGIN, LINE = 960, 24, 24  # pixels
MOST_LANES = 6
SECONDS = 7.0  # from the start until the slowest is done
FRAME_MS = 70  # of a frame; a GIF counts in hundredths of a second and drops what is over
HELD_SECONDS = 3.0  # of the last frame
INK, SOFT, MASK, PAPER, DONE = "#16181d", "#565d6b", "#dfe3e8", "#ffffff", "#1b5ea8"
FILLED, FRESH = "#bfe3d6", "#ffd27f"
FRESH_FRAMES = 3  # how long a token stands out
MP4 = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart")


@dataclass
class Lane:
    """One run: where its tokens stand, and when each was filled."""

    trace: Mapping[str, Any]
    about: str
    boxes: list[tuple[int, int, int, str]] = field(default_factory=list)  # of each token: left, line, width, text
    filled_at: dict[int, float] = field(default_factory=dict)  # position -> seconds

    def __post_init__(self) -> None:
        left = line = 0
        for token in self.trace["tokens"]:
            text = clipped(plain(token["text"].replace("\n", "\u21b5")))
            width = max(6, round(_font(15).getlength(text)))
            if left + width > WIDTH - 2 * MARGIN:
                left, line = 0, line + 1
            self.boxes.append((left, line, width, text))
            left += width + 1
            if "\n" in token["text"]:
                left, line = 0, line + 1
        for step in self.trace["steps"]:
            for position in [
                *([] if step["extra"] is None else [step["extra"]]),
                *(place for place, _ in step["fill"]),
                *(place for place, _, behind in step.get("edits", ()) if behind is not None),  # its last form counts
            ]:
                self.filled_at[position] = step["done"]

    @property
    def finish(self) -> float:
        return float(self.trace["steps"][-1]["done"])

    @property
    def height(self) -> int:
        return 34 + LINE * (1 + max((line for _, line, _, _ in self.boxes), default=0)) + 22


def film(traces: Sequence[Mapping[str, Any]], abouts: Sequence[str], caption: str, path: Path) -> float:
    """Writes the race to `path` (.gif or .mp4); returns how many times slower than real it is shown.

    Raises ValueError for more lanes than fit, for a run without a time for each call, and for an MP4 without ffmpeg.
    """
    if len(traces) > MOST_LANES:
        raise ValueError(f"a race shows up to {MOST_LANES} runs, not {len(traces)}")
    if path.suffix not in (".gif", ".mp4"):
        raise ValueError(f"{path}: a race is written as .gif or .mp4")
    if path.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise ValueError(f"{path}: an MP4 needs ffmpeg on the PATH; a .gif needs nothing")
    for trace in traces:
        if any(step["done"] is None for step in trace["steps"]):
            raise ValueError(
                f"{trace['run']} has no time for each call (it was decoded in a batch): run.batch=1 records it"
            )
    lanes = [Lane(trace, about) for trace, about in zip(traces, abouts, strict=True)]
    slower = SECONDS / max(lane.finish for lane in lanes)
    frames = list(_frames(lanes, f"{caption} Shown {_times(slower)}.", slower))
    path.parent.mkdir(parents=True, exist_ok=True)
    (_write_gif if path.suffix == ".gif" else _write_mp4)(frames, path)
    return slower


def _times(slower: float) -> str:
    return f"{slower:.3g} times slower than real" if slower > 1 else f"{1 / slower:.3g} times faster than real"


@lru_cache
def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    from matplotlib.font_manager import FontProperties, findfont

    name = FontProperties(family="DejaVu Sans Mono", weight="bold" if bold else "normal")
    return ImageFont.truetype(findfont(name), size)


def _frames(lanes: Sequence[Lane], caption: str, slower: float) -> Iterator[Image.Image]:
    order = sorted({lane.finish for lane in lanes})
    question = _wrapped(lanes[0].trace["prompt"].strip()[-400:], 14)
    foot = _wrapped(caption, 12)
    height = MARGIN + 20 * len(question) + 12 + sum(lane.height + 14 for lane in lanes) + 17 * len(foot) + MARGIN
    height += height % 2  # what a video needs
    frame = FRAME_MS / 1000 / slower  # seconds of the race
    for number in range(round(1000 * SECONDS / FRAME_MS) + 2):
        now = number * frame
        image = Image.new("RGB", (WIDTH, height), PAPER)
        draw = ImageDraw.Draw(image)
        top = MARGIN
        for text in question:
            draw.text((MARGIN, top), text, fill=INK, font=_font(14))
            top += 20
        top += 12
        for lane in lanes:
            _draw_lane(draw, lane, top, now, FRESH_FRAMES * frame, order.index(lane.finish))
            top += lane.height + 14
        for text in foot:
            draw.text((MARGIN, top), text, fill=SOFT, font=_font(12))
            top += 17
        yield image


def _draw_lane(draw: ImageDraw.ImageDraw, lane: Lane, top: int, now: float, fresh: float, rank: int) -> None:
    calls = sum(step["call"] and step["done"] <= now for step in lane.trace["steps"])
    is_done = now >= lane.finish
    clock = f"{min(now, lane.finish):.3f} s  {calls:>3} calls"
    draw.text((MARGIN, top), clipped(lane.trace["title"]), fill=INK, font=_font(15, bold=True))
    name = _font(15, bold=True).getlength(clipped(lane.trace["title"]))
    draw.text((MARGIN + name + 14, top + 2), lane.about, fill=SOFT, font=_font(12))
    end = f"{clock}  {'place ' + str(rank + 1) if is_done else '       '}"
    draw.text((WIDTH - MARGIN, top), end, fill=DONE if is_done else INK, font=_font(13, bold=is_done), anchor="ra")
    share = sum(at <= now for at in lane.filled_at.values()) / max(1, len(lane.filled_at))
    right = WIDTH - MARGIN
    draw.rectangle((MARGIN, top + 22, right, top + 27), fill=MASK)
    draw.rectangle(
        (MARGIN, top + 22, MARGIN + round(share * (right - MARGIN)), top + 27), fill=DONE if is_done else SOFT
    )
    draw.rectangle((right - 2, top + 19, right, top + 30), fill=INK)
    for position, (left, line, width, text) in enumerate(lane.boxes):
        at = lane.filled_at.get(position)
        x, y = MARGIN + left, top + 34 + LINE * line
        is_here = at is not None and at <= now
        colour = (FRESH if now - at < fresh and not is_done else FILLED) if at is not None and is_here else MASK
        draw.rectangle((x, y, x + width - 1, y + LINE - 4), fill=colour)
        if is_here:
            behind = lane.trace["tokens"][position]["behind"]
            draw.text((x, y + 1), text, fill=SOFT if behind else INK, font=_font(15))
    if is_done:
        draw.text((MARGIN, top + lane.height - 20), lane.trace["verdict"], fill=SOFT, font=_font(13))


def _wrapped(text: str, size: int) -> list[str]:
    """Lines that fit the width, broken between words."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        lines.append("")
        for word in paragraph.split(" "):
            longer = f"{lines[-1]} {word}".strip()
            if lines[-1] and _font(size).getlength(longer) > WIDTH - 2 * MARGIN:
                lines.append(word)
            else:
                lines[-1] = longer
    return lines


def _write_gif(frames: Sequence[Image.Image], path: Path) -> None:
    """In one palette, so that only what changes is stored."""
    every = Image.new("RGB", (WIDTH, 4 * frames[0].height))
    for quarter in range(4):
        every.paste(frames[(quarter + 1) * (len(frames) - 1) // 4], (0, quarter * frames[0].height))
    palette = every.quantize(48, dither=Image.Dither.NONE)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    durations = [FRAME_MS] * (len(small) - 1) + [round(1000 * HELD_SECONDS)]
    small[0].save(path, save_all=True, append_images=small[1:], duration=durations, loop=0, optimize=False)


def _write_mp4(frames: Sequence[Image.Image], path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        held = [frames[-1]] * round(1000 * HELD_SECONDS / FRAME_MS)
        for number, frame in enumerate([*frames, *held]):
            frame.save(Path(folder) / f"{number:05}.png")
        read = ["-nostdin", "-y", "-loglevel", "error", "-framerate", f"1000/{FRAME_MS}", "-i", f"{folder}/%05d.png"]
        written = f"file:{path}"  # else a colon in its name would be read as a protocol
        done = subprocess.run(["ffmpeg", *read, *MP4, written], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"ffmpeg could not write {path}: {done.stderr.strip()[-300:]}")
