"""The property that every text must have, and a clock that ends what hangs."""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import FrameType

from curvflow.errors import RequestError
from curvflow.flows.graph.graph import expand
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.schemas.study.study import load_study
from curvflow.schemas.words import printable
from tests.fuzz.grammar import Case

MAX_NODES = 3000
SECONDS = 20  # of the processor, of one text
LONGEST = 12_500  # characters of one line: path, message and hint of 4,000 each


class HangError(BaseException):
    """Reading took too long."""


@contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Raise HangError in what uses the processor for longer."""

    def stop(_: int, __: FrameType | None) -> None:
        raise HangError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def outcome(case: Case) -> str:
    """Read and lay out a study; `planned`, or the one line that refuses it."""
    text, overrides = case
    with limited(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        try:
            study = load_study(text, file="fuzz.yaml", overrides=overrides)
            bounded = replace(study, max_nodes=MAX_NODES)
            expand(bounded, SourceFiles(Path(tempfile.gettempdir()) / "no such folder"))
        except RequestError as error:
            return str(error)
    return "planned"


def check(case: Case) -> str:
    """Assert that a text is planned, or refused on one line that says where."""
    said = outcome(case)
    if said != "planned":
        shown = printable(said)
        assert "\n" not in shown, said
        assert shown.isprintable(), said
        assert len(said) <= LONGEST, said
        assert said.startswith(("fuzz.yaml", "--set")), said
    return said
