"""The replay as a fragment for any page, and as a page of its own; styles, code and data are inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.text import html, script_json
from analysis.web.document import document, scripts, styles

ASKED = 600  # characters of a prompt's end, where its question is
IDS_ONLY = "No tokenizer of this model was found on the machine that wrote this page: tokens are shown as their ids."


def fragment(traces: Sequence[dict[str, Any]], keys: str = "inside") -> str:
    """The replay as one element. `keys`: "inside" listens while the focus is in it, "page" everywhere."""
    data = script_json({"runs": list(traces)})
    notes = "" if all(one["decoded"] for one in traces) else f'<p class="note">{IDS_ONLY}</p>'
    whole = traces[0]["prompt"].strip()
    asked = whole if len(whole) <= ASKED else f"… {whole[-ASKED:]}"
    prompt, question = ("\n".join(map(html, text.split("\n"))) for text in (whole, asked))
    details = "" if asked == whole else f"<details><summary>The whole prompt</summary><pre>{prompt}</pre></details>"
    return (
        f'<section class="replay" data-replay data-keys="{keys}" aria-label="Replay of {html(traces[0]["problem"])}">'
        f'{notes}<p class="question">{question}</p>{details}'
        "<noscript><p>The replay needs JavaScript.</p></noscript>"
        f'<script type="application/json">{data}</script></section>'
    )


def page(traces: Sequence[dict[str, Any]]) -> str:
    """A whole page with one replay of up to four runs."""
    title = f"Replay of {traces[0]['problem']}: " + ", ".join(one["title"] for one in traces)
    about = "".join(
        f"<li>{html(one['title'])}: {html(one['model'])}, run {html(one['run'])}. {html(one['facts'])}</li>"
        for one in traces
    )
    body = f"<h1>{html(title)}</h1><ul>{about}</ul>{fragment(traces, 'page')}"
    return document(title, body, styles("page", "replay"), scripts("replay"))
