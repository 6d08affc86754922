"""The options of a run as a command asks for them."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from curvflow.errors import RequestError
from curvflow.schemas.complaints import Complaint, complaints
from curvflow.schemas.options import RunOptions
from curvflow.schemas.written import dotted


def run_options(**given: Any) -> RunOptions:
    """Check the options of a run.

    Args:
        given: fields of `RunOptions`.

    Returns:
        The options.

    Raises:
        RequestError: they do not fit, each or together; it names the command's option.
    """
    try:
        return RunOptions(**given)
    except ValidationError as error:
        first = complaints(error, RunOptions, given)[0]
    raise RequestError(_worded(first))


def _worded(complaint: Complaint) -> str:
    words = complaint.wording
    if complaint.path == ("scheduler",):
        return (
            f"--scheduler: expected an address such as tcp://127.0.0.1:8786, got "
            f"{words.got}. `dask scheduler` prints the one it has."
        )
    where = f"--{dotted(complaint.path)}: " if complaint.path else ""
    return f"{where}{words.message}. {words.hint or 'Choose one.'}"
