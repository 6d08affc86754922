"""The page as HTML that loads nothing, and as a file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from curvflow.flows.report.gather import Content, gather, open_basis
from curvflow.flows.report.request import ReportRequest
from curvflow.flows.results.outputs import replace_file
from curvflow.schemas.words import printable

FOLDER = resources.files("curvflow.flows.report") / "page"
SUPERSCRIPTS = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)

# Signs next to colours and words.
SIGNS = {
    "good": "\u2713",
    "bad": "\u2715",
    "doubt": "\u25b3",
    "plain": "\u2013",
    "ok": "\u2713",
    "agrees": "\u2713",
    "contradicted": "\u2715",
    "differs_in_mean": "\u25b3",
    "undecided": "\u25b3",
    "not measured": "\u25cb",
    "failed": "\u2715",
    "diverged": "\u25b3",
    "missing": "\u25cb",
    "removed": "\u2013",
    "unreadable": "\u2715",
    "changed code": "\u25b3",
}


def render(content: Content, *, version: str | None = None) -> str:
    """Write the page.

    Args:
        content: of the page.
        version: of a served page, which polls its own server for a later one;
            None for a file, which connects to nothing.

    Returns:
        Self-contained HTML, with scripts and figures.
    """
    is_served = version is not None
    return _template().render(
        page=content,
        style=_read("page.css"),
        script=_script(),
        live=_read("live.js") if is_served else "",
        version=version,
        policy=policy_of(is_served=is_served),
    )


def policy_of(*, is_served: bool) -> str:
    """Return the Content-Security-Policy: parts of the page alone, by hash."""
    scripts = [_script(), _read("live.js")] if is_served else [_script()]
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(map(_hashed, scripts)),
        "style-src": _hashed(_read("page.css")),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    if is_served:
        rules["connect-src"] = "'self'"
    return "; ".join(f"{name} {value}" for name, value in rules.items())


@cache
def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _script() -> str:
    return _read("latex.js") + _read("page.js")


def _hashed(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _filters()
    return environment.get_template("page.html")


def _printable(value: Any) -> Any:
    """Escape a text of the page; markup is the template's own, or made of such."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return printable(value)
    return value


def _printable_rows(rows: Iterable[Iterable[str]]) -> list[list[str]]:
    return [list(map(printable, row)) for row in rows]


def _filters() -> Mapping[str, Any]:
    return {
        "printable_rows": _printable_rows,
        "sign": lambda word: SIGNS.get(word, ""),
        "raised": lambda text: re.sub(
            r"\^(-?\d+)", lambda match: match[1].translate(SUPERSCRIPTS), text
        ),
        "parts": lambda name: re.split(r"(?<=[\[,=_.])", name),
        "minute": lambda when: when.strftime("%Y-%m-%d %H:%M UTC"),
    }


def write_report(
    request: ReportRequest, output: Path | None = None
) -> tuple[Path, list[str]]:
    """Write the page of a study.

    Args:
        request: the study and its options.
        output: the file; by default `report.html` in the study's folder of results, of
            an earlier run `report-run-N.html`.

    Returns:
        The file, and a line for each result that could not be read.

    Raises:
        RequestError: the study or the store cannot be read, or has no such run.
        StoreError: the file cannot be written.
    """
    basis = open_basis(request)
    content = gather(basis)
    file = output or basis.opened.folder / default_name(request.run)
    replace_file(file, render(content).encode())
    return file, list(content.unreadable)


def default_name(run: int | None) -> str:
    """Return the name of the file, by the run reported."""
    return "report.html" if run is None else f"report-run-{run}.html"
