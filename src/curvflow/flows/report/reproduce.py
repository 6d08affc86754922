"""Reproduction: commands, digests, citations, and the text of the study."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from curvflow import __version__
from curvflow.flows.reads.current import warnings
from curvflow.flows.report.basis import Basis
from curvflow.schemas.explanations import explanations
from curvflow.schemas.keys import sha256
from curvflow.schemas.study.yaml_source import SourceNode, parse, to_yaml

TITLE = "curvflow: curvature studies of neural networks from one declarative file"
FUNCTION = re.compile(r"[\w.]{1,200}:[\w.]+")  # such as nets:make_net
LONGEST = 200  # letters of a path
HAS_YEAR = re.compile(r"\b(18|19|20)\d\d\b")
YEAR = 2026  # of the cited version
FOLDER = Path(__file__).parents[4]  # of the checkout, where curvflow runs from one

# As in README: curvflow is in no package index.
INSTALL = (
    "python3 -m venv .venv",
    ".venv/bin/pip install -c constraints.txt -e .",
    ". .venv/bin/activate",
)


@dataclass(frozen=True)
class Reproduction:
    """Commands and digests to reproduce the numbers, and citations.

    Attributes:
        version: of curvflow that wrote the page.
        commit: of the checkout that it ran from; empty without one.
        computed: versions of curvflow that computed the results, if others.
        commands: to be typed, in order.
        text_digest: SHA-256 of the study file.
        files: modules and data that it names or code of a user's read, with their
            SHA-256.
        unheld: what else the results stand on, that no file holds, in words.
        digest: of all results with their labels; equal where every number is.
        cite: a line of text.
        bibtex: the same for BibTeX.
        methods: kinds used, with citations.
        sources: of the expected values.
    """

    version: str
    commit: str
    computed: Sequence[str]
    commands: Sequence[str]
    text_digest: str
    files: Sequence[tuple[str, str]]
    unheld: Sequence[str]
    digest: str
    cite: str
    bibtex: str
    methods: Sequence[tuple[str, str]]
    sources: Sequence[str]


def reproduction(basis: Basis) -> Reproduction:
    """Return the commands, digests and citations of the results."""
    runs = {run.begun: run for run in map(basis.run_of, basis.receipts()) if run}
    computed = {run.environment.get("curvflow", "") for run in runs.values()}
    request, overridden = basis.request, basis.request.run is not None
    folder = request.file.resolve().parent
    named = {str(p.relative_to(folder)): _sha256(p) for p in _named(basis.text, folder)}
    commands = [*INSTALL, request.command("run", of_run=False)]
    commands += [request.command("check", of_run=False)] * bool(
        basis.opened.study.expect
    )
    commands += [request.command("report")] * overridden
    return Reproduction(
        __version__,
        _commit(FOLDER),
        sorted(computed - {__version__, ""}),
        commands,
        _sha256(basis.request.file),
        sorted((_read(basis) | named).items()),
        _unheld(basis),
        _digest(basis),
        f"{TITLE}. Version {__version__}, {YEAR}.",
        _bibtex(),
        list(_methods(basis)),
        list(dict.fromkeys(x.source for x in basis.opened.study.expect if x.source)),
    )


def _read(basis: Basis) -> dict[str, str]:
    """Return the files that code of a user's read, as they were then."""
    return {
        name: entry[0]
        for receipt in basis.receipts()
        for name, entry in (receipt.reads or {}).get("files", {}).items()
        if entry is not None and not name.endswith("/")
    }


def _unheld(basis: Basis) -> list[str]:
    """Word which stages use variables, chance, a network or another process."""
    lines = {
        f"{receipt.stage} {line}"
        for receipt in basis.receipts()
        for line in warnings(receipt.reads or {})
    }
    return sorted(lines)


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
    """Return a checkout's commit, marked if files differ from it."""
    if not (folder / ".git").exists():
        return ""
    # A tag would hide the commit.
    words = ["describe", "--always", "--abbrev=40", "--exclude=*", "--dirty= (changed)"]
    try:
        process = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip()


def _methods(basis: Basis) -> Iterator[tuple[str, str]]:
    known = explanations()
    for use in dict.fromkeys(view.use for view in basis.views):
        source = known[use].source if use in known else ""
        if HAS_YEAR.search(source) and not use.startswith("figure."):
            yield use, source


def _digest(basis: Basis) -> str:
    """Hash all results with their labels, without devices, times and runs."""
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
class StudyText:
    """The study's text.

    Attributes:
        text: the study file, or the resolved study where that differs.
        note: which of them, with the modifications.
    """

    text: str
    note: str


def study_text(basis: Basis) -> StudyText:
    """Return the study file, or the resolved study where the results need it."""
    request, run = basis.request, basis.results.run
    if run is not None and run.document != basis.opened.study.document:
        note = f"As resolved for run {run.number}; the study file has changed since."
        return StudyText(to_yaml(dict(run.document)), note)
    if request.modifications:
        note = f"Resolved, with {request.modifications}."
        return StudyText(to_yaml(basis.opened.study.document), note)
    return StudyText(basis.text, f"{request.file.name}, as written.")
