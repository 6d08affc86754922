"""The exception tree.

CurvflowError
├── RequestError              the request is wrong; exit code 2
│   ├── StudyError            a study file, with file, line, column and path
│   ├── ChangedCodeError      code moved under results while its version did not
│   └── UnknownNameError      a kind, stage, run or variable that does not exist
├── InputError                data or an argument cannot be used; a ValueError too
├── StoreError                the store cannot be read or written
│   ├── CorruptPayloadError   a payload is missing, torn or foreign: a miss
│   ├── RemovedPayloadError   collection has removed a payload; its results stand
│   └── StoreFormatError      written by a newer curvflow, or not a store; a
│                             RequestError too
├── ClusterError              what computes the tiles is lost, or cannot take them
└── NotEncodableError         a value has no canonical form

Four more never leave their package and so live there: `LostInputError`, which carries
a receipt, in `flows/run/compute.py`; `TornEntryError` in `stores/log_entries.py`;
`UnlikeUsesError` in `tasks/numerics/kronecker/recorded.py`; and `UnlikeModelsError`, an
InputError, in `tasks/numerics/kronecker/uses.py`.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile

PACKAGE = __file__.removesuffix("errors.py")  # its folder


class CurvflowError(Exception):
    """Base of all errors that curvflow raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the message, and the line of the cell.

        Frames of the package say nothing of the fault. IPython looks for this
        name; `traceback.print_last()` prints all frames.
        """
        lines = [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())]
        frames = traceback.extract_tb(self.__traceback__)
        theirs = [*takewhile(lambda f: not f.filename.startswith(PACKAGE), frames)]
        if theirs and theirs[-1].line:
            lines.append(f"  in line {theirs[-1].lineno}: {theirs[-1].line}")
        return lines


class RequestError(CurvflowError):
    """The request is wrong: nothing was computed, exit code 2."""


class ChangedCodeError(RequestError):
    """Code drift, changed code under an unchanged version, that is not settled."""


class UnknownNameError(RequestError, KeyError):
    """A kind, stage, run or variable that does not exist."""

    __str__ = Exception.__str__  # KeyError would put the message in quotes


class InputError(CurvflowError, ValueError):
    """A stage or a function was given data or an argument that it cannot use."""


class StoreError(CurvflowError):
    """The store cannot be read or written."""


class CorruptPayloadError(StoreError):
    """A payload is missing, torn or foreign; its nodes count as not computed."""


class RemovedPayloadError(StoreError):
    """Collection has removed the arrays of results, which stay valid."""

    def __init__(self, stage: str) -> None:
        """State how to recompute them.

        Args:
            stage: of the results.
        """
        super().__init__(
            f"{stage}: expected the arrays of its results, got none: collection has "
            f"removed them. Run the study with --revive {stage} to compute them again."
        )


class StoreFormatError(StoreError, RequestError):
    """The folder is no store, or one of a newer format."""


class ClusterError(CurvflowError):
    """The cluster that computes tiles is lost; finished results are in the store."""


class NotEncodableError(CurvflowError):
    """A value has no canonical form and so cannot enter a key."""


class Stopped(KeyboardInterrupt):  # an end, not an error
    """The run was requested to stop; finished work is kept.

    No `Exception`, so that no handler of errors takes it for one.
    """

    def __init__(self, signal: int) -> None:
        """Store the number of the signal."""
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal


@dataclass(frozen=True)
class Place:
    """Position of a value in a study file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


# Characters of one part of a message, which may repeat what somebody wrote.
LONGEST = 4000


# Line breaks, and what a terminal would act upon: of files that are no text.
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def _one_line(text: str) -> str:
    """Return a part of a message, cut, with what its values cannot show escaped."""
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


class StudyError(RequestError):
    """A study requests something that cannot be done."""

    def __init__(
        self, path: str, message: str, *, place: Place | str, hint: str = ""
    ) -> None:
        """Join the parts into the one line that the user reads.

        Args:
            path: the YAML path, such as `stages.fit.epochs`.
            message: `expected <what>, got <value>`.
            place: file, line and column, or the override that brought the value.
            hint: what to do.
        """
        path, message, hint = map(_one_line, (path, message, hint))
        message = said_at(path, message)
        self.path, self.message, self.place, self.hint = path, message, place, hint
        where = f"{place}: {path}" if path else f"{place}"
        end = "" if message.endswith(("?", ".")) else "."
        super().__init__(f"{where}: {message}{end}" + (f" {hint}" if hint else ""))


def said_at(path: str, message: str) -> str:
    """Leave out of a clash the name that its path ends in, and the clash begins with.

    Args:
        path: the YAML path, such as `stages.fit.lr`.
        message: such as `lr 0.1 cannot be combined with factors 'f'`.

    Returns:
        Such as `0.1 cannot be combined with factors 'f'`.
    """
    if "cannot be combined with" not in message:
        return message
    return message.removeprefix(f"{path.rpartition('.')[2]} ")


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return (str(error).strip() or "no message").splitlines()[0]


def summary(error: BaseException) -> str:
    """Return the type of an error, and the first line of what it says."""
    return f"{type(error).__name__}: {first_line(error)}"


LONGEST_NAME = 100  # that is compared with others, which takes the square of it


def nearest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Suggest the known name closest to `name`, or list the known ones.

    Args:
        name: what was written.
        known: the names that exist.
        otherwise: what to say where none is close, in place of the list.

    Returns:
        A sentence for the end of an error message, empty if nothing is known. Names of
        more than 100 characters are left out.
    """
    names = sorted(text for text in known if len(text) <= LONGEST_NAME)
    word = str(name) if len(str(name)) <= LONGEST_NAME else ""
    if close := get_close_matches(word, names, n=1, cutoff=0.6):
        return f"Did you mean '{close[0]}'?"
    return otherwise or (f"Known: {', '.join(names)}." if names else "")


MOST_NAMES = 24  # that are listed of many


def nearest_of_many(name: str, known: Iterable[str]) -> str:
    """Do as `nearest`, with the first of the names where it would list thousands.

    Args:
        name: what was written.
        known: the names that exist, such as tokens of a vocabulary.

    Returns:
        A sentence for the end of an error message, on one line.
    """
    names = sorted(known)
    listed = [_printable(each) for each in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        listed.append(f"and {len(names) - MOST_NAMES} more")
    listing = f"Known: {', '.join(listed)}." if names else ""
    return _printable(nearest(name, names, otherwise=listing))


def _printable(text: str) -> str:
    """Return a text on one line, as the token of a line's end is not."""
    return text if text.isprintable() else repr(text)[1:-1]
