"""Pieces of Markdown that both GitHub and the site show alike."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 138
_SPAN = re.compile(r"(`+[^`]+`+)")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table. A column in which no row has anything is left out; empty if there are no rows."""
    cells = [[cell(one) for one in row] for row in rows]
    kept = [index for index in range(len(header)) if any(row[index] for row in cells)]
    if not cells:
        return []
    lines = [[header[index] for index in kept], ["---"] * len(kept), *([row[index] for index in kept] for row in cells)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def cell(text: str) -> str:
    """`text` in one line, with its pipes escaped. Raises `ValueError` for a pipe in code, which the site would show with its escape."""
    if any("|" in span for span in _SPAN.findall(text)):
        raise ValueError(f"a pipe in code cannot be in a table: {text}")
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`"


def escape(text: str) -> str:
    """`text` so that Markdown shows it as it is, but for code in backticks."""
    return "".join(part if part.startswith("`") else _escaped(part) for part in _SPAN.split(text))


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([*\[\]`]|(?<!\w)_|_(?!\w)|__)", r"\\\1", text)


def paragraphs(text: str) -> list[str]:
    """Lines of `text`, with its paragraphs wrapped to the usual width. Code stays on one line. For text without lists and blocks."""
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        words = _SPAN.sub(lambda span: span[0].replace(" ", "\0"), " ".join(paragraph.split()))
        wrapped = textwrap.wrap(words, WIDTH, break_long_words=False, break_on_hyphens=False)
        lines += [*(line.replace("\0", " ") for line in wrapped), ""]
    return lines[:-1]


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def sentence(text: str) -> str:
    """The first sentence of `text`, with its full stop."""
    text = " ".join(text.split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`\[])", text, maxsplit=1)[0]


def as_sentence(text: str) -> str:
    """`text` with a capital letter and a full stop."""
    text = text.strip()
    return text and (text[0].upper() + text[1:] + ("" if text[-1] in ".:!?" else "."))
