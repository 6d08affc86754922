"""How to have the same numbers again, how to cite them, and the study itself."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from curvflow import __version__
from curvflow.flows.report.basis import Basis
from curvflow.schemas.explanations import explanations
from curvflow.schemas.keys import sha256
from curvflow.schemas.study.yaml_source import SourceNode, parse, to_yaml

TITLE = "curvflow: curvature studies of neural networks from one declarative file"
FUNCTION = re.compile(r"[\w.]{1,200}:[\w.]+")  # such as nets:make_net
LONGEST = 200  # letters of a path
HAS_YEAR = re.compile(r"\b(18|19|20)\d\d\b")
YEAR = 2026  # of the version cited
FOLDER = Path(__file__).parents[4]  # of the checkout, where curvflow runs from one

# As in README: curvflow is in no package index.
INSTALL = (
    "python3 -m venv .venv",
    ".venv/bin/pip install -c constraints.txt -e .",
    ". .venv/bin/activate",
)


@dataclass(frozen=True)
class Again:
    """What somebody else needs.

    Attributes:
        version: of curvflow that wrote the page.
        commit: of the checkout that it ran from; empty if it ran from none.
        computed: versions of curvflow that computed the results, if others.
        commands: to be typed, in order.
        text_digest: SHA-256 of the study file.
        files: those beside it that it names, modules and data, with their SHA-256.
        digest: of all results with their labels; equal where every number is.
        cite: a line of text.
        bibtex: the same for BibTeX.
        methods: kinds used, and whose ideas they are, where that can be cited.
        sources: what the study's expectations say of where they are from.
    """

    version: str
    commit: str
    computed: Sequence[str]
    commands: Sequence[str]
    text_digest: str
    files: Sequence[tuple[str, str]]
    digest: str
    cite: str
    bibtex: str
    methods: Sequence[tuple[str, str]]
    sources: Sequence[str]


def again(basis: Basis) -> Again:
    """Say how to have the same numbers again.

    Args:
        basis: what the page is drawn from.

    Returns:
        Commands, digests to compare, and what to cite.
    """
    runs = {run.begun: run for run in map(basis.run_of, basis.receipts()) if run}
    computed = {run.environment.get("curvflow", "") for run in runs.values()}
    asked, overridden = basis.asked, basis.asked.run is not None
    folder = asked.file.resolve().parent
    commands = [*INSTALL, asked.command("run", of_run=False)]
    commands += [asked.command("check", of_run=False)] * bool(basis.opened.study.expect)
    commands += [asked.command("report")] * overridden
    return Again(
        __version__,
        _commit(FOLDER),
        sorted(computed - {__version__, ""}),
        commands,
        _sha256(basis.asked.file),
        [(str(p.relative_to(folder)), _sha256(p)) for p in _named(basis.text, folder)],
        _digest(basis),
        f"{TITLE}. Version {__version__}, {YEAR}.",
        _bibtex(),
        list(_methods(basis)),
        list(dict.fromkeys(x.source for x in basis.opened.study.expect if x.source)),
    )


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _named(text: str, folder: Path) -> list[Path]:
    """Return the files that words of a study's text name relative to a folder."""
    written = parse(text, lambda line, column: "")
    words = set(_words(written)) if written else set[str]()
    places = {folder / word for word in words if len(word) < LONGEST}
    for word in filter(FUNCTION.fullmatch, words):
        module = folder.joinpath(*word.partition(":")[0].split("."))
        places |= {module.with_suffix(".py"), module / "__init__.py"}
    return sorted(p for p in places if p.is_file() and p.is_relative_to(folder))


def _words(written: SourceNode) -> Iterator[str]:
    if isinstance(written.value, str):
        yield written.value
    for _, child in written.children():
        yield from _words(child)


def _commit(folder: Path) -> str:
    """Return a checkout's commit, and whether files are other than there."""
    if not (folder / ".git").exists():
        return ""
    # A tag would hide the commit.
    words = ["describe", "--always", "--abbrev=40", "--exclude=*", "--dirty= (changed)"]
    try:
        told = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return told.stdout.strip()


def _methods(basis: Basis) -> Iterator[tuple[str, str]]:
    told = explanations()
    for use in dict.fromkeys(view.use for view in basis.views):
        source = told[use].source if use in told else ""
        if HAS_YEAR.search(source) and not use.startswith("figure."):
            yield use, source


def _digest(basis: Basis) -> str:
    """Hash all results with their labels; devices, times and runs have no part."""
    return sha256(
        [
            [view.stage, list(point), receipt.digest if receipt else view.status(n)]
            for view in basis.views
            for n, (point, receipt) in enumerate(
                zip(view.points, view.receipts, strict=True)
            )
        ]
    )


def _bibtex() -> str:
    rows = {"title": f"{{{TITLE}}}", "version": __version__, "year": str(YEAR)}
    lines = [f"  {name:<8}= {{{value}}}," for name, value in rows.items()]
    return "\n".join(["@software{curvflow,", *lines, "}"])


@dataclass(frozen=True)
class Wording:
    """The study's text.

    Attributes:
        text: the study file; or the resolved study, where that is another.
        note: which of them, and what was set beside it.
    """

    text: str
    note: str


def wording(basis: Basis) -> Wording:
    """Return the text that says what the results shown were asked by.

    Args:
        basis: what the page is drawn from.

    Returns:
        The study file as it is; where a run, a profile or an override asked for
        something else, the resolved study.
    """
    asked, run = basis.asked, basis.results.run
    if run is not None and run.document != basis.opened.study.document:
        told = f"As resolved for run {run.number}; the study file has changed since."
        return Wording(to_yaml(dict(run.document)), told)
    if asked.beside:
        told = f"Resolved, with {asked.beside}."
        return Wording(to_yaml(basis.opened.study.document), told)
    return Wording(basis.text, f"{asked.file.name}, as it is written.")
