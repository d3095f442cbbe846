"""A page as one file: its head, styles and scripts inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.text import html

WEB = Path(__file__).parent


def document(title: str, body: str, styles: Sequence[str], scripts: Sequence[str], head: str = "") -> str:
    """`body` and `head` are HTML; styles are CSS, scripts JavaScript, as text."""
    code = "".join(f"<script>{script}</script>" for script in scripts)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"{head}<style>{''.join(styles)}</style></head><body>"
        f'<a class="skip" href="#content">Skip to the content</a><main id="content">{body}</main>{code}</body></html>\n'
    )


def files(label: str, links: Sequence[tuple[str, str]]) -> str:
    """Links to what lies beside the page: (text, address)."""
    found = " · ".join(f'<a href="{html(address)}" download>{html(text)}</a>' for text, address in links)
    return f'<p class="files">{html(label)} {found}</p>'


def facts_list(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<div><dt>{html(name)}</dt><dd>{html(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{rows}</dl>'


def styles(*names: str) -> list[str]:
    return [_asset(f"{name}.css") for name in names]


def scripts(*names: str) -> list[str]:
    return [_asset(f"{name}.js") for name in names]


def _asset(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")
