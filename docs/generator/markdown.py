"""Pieces of Markdown: cells, tables, links to papers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_PAPERS = (
    (re.compile(r"doi:(10\.\d+/[^\s,;]*[^\s,;.])"), r"[doi:\1](https://doi.org/\1)"),
    (re.compile(r"arXiv:(\d+\.\d+)"), r"[arXiv:\1](https://arxiv.org/abs/\1)"),
)


def prose(text: str) -> str:
    """Return text of which no sign is taken for Markdown or HTML; code stays code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*_|\[\]\\])", r"\\\1", part) for part in parts[::2]]
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def code(text: str) -> str:
    """Return text as code."""
    return f"`{text}`" if text else ""


def units(text: str) -> str:
    """Return a unit whose powers are raised."""
    return re.sub(r"\^(\w+)", r"<sup>\1</sup>", prose(text))


def papers(text: str) -> str:
    """Return prose whose DOIs and arXiv numbers are links."""
    return linked(prose(text))


def linked(text: str) -> str:
    """Return Markdown whose DOIs and arXiv numbers are links."""
    for pattern, link in _PAPERS:
        text = pattern.sub(link, text)
    return text


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def terms(entries: Iterable[tuple[str, str]]) -> str:
    """Return a list of terms, each with its text."""
    return "\n\n".join(f"{term}\n:   {text}" for term, text in entries)
