"""The page as HTML: one file that loads nothing and lets nothing out."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from curvflow.flows.report.gather import Content

FOLDER = resources.files("curvflow.flows.report") / "page"
SUPERSCRIPTS = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
# The signs that stand beside colours and words.
SIGNS = {
    "good": "\u2713",
    "bad": "\u2715",
    "doubt": "\u25b3",
    "plain": "\u2013",
    "ok": "\u2713",
    "agrees": "\u2713",
    "contradicted": "\u2715",
    "not measured": "\u25cb",
    "failed": "\u2715",
    "diverged": "\u25b3",
    "missing": "\u25cb",
    "removed": "\u2013",
    "unreadable": "\u2715",
}


def render(content: Content, *, version: int | None = None) -> str:
    """Write the page.

    Args:
        content: what it says.
        version: number of the page as served, which then asks its own server for a
            later one; None for a file, which may connect to nothing.

    Returns:
        HTML in which everything is, scripts and figures included.
    """
    style, script = _read("page.css"), _read("page.js")
    live = "" if version is None else _read("live.js")
    policy = {
        "default-src": "'none'",
        "script-src": " ".join(_hashed(one) for one in (script, live) if one),
        "style-src": _hashed(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    } | ({} if version is None else {"connect-src": "'self'"})
    return _template().render(
        page=content,
        style=style,
        script=script,
        live=live,
        version=version,
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
    )


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _hashed(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _filters()
    return environment.get_template("page.html")


def _filters() -> Mapping[str, Any]:
    return {
        "sign": lambda word: SIGNS.get(word, ""),
        "raised": lambda text: re.sub(
            r"\^(-?\d+)", lambda found: found[1].translate(SUPERSCRIPTS), text
        ),
        "minute": lambda when: when.strftime("%Y-%m-%d %H:%M UTC"),
    }
