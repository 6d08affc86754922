"""Python and curvflow."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from curvflow.flows.doctor.finding import Finding
from curvflow.flows.doctor.versions import installed, is_below

OLDEST, TOO_NEW = "3.11", "3.14"


def python_findings(python: str | None = None) -> Iterator[Finding]:
    """Look at the versions of Python and curvflow.

    Args:
        python: version of Python; this one's by default.

    Yields:
        What was found.
    """
    python = python or platform.python_version()
    known = is_below(python, TOO_NEW) and not is_below(python, OLDEST)
    remedy = f"Make an environment of Python {OLDEST}, or newer but below {TOO_NEW}."
    yield (
        Finding("python", "ok", python)
        if known
        else Finding(
            "python", "warn", f"{python}, with which nothing is tested", remedy
        )
    )
    own = installed("curvflow")
    if own is None:
        found, remedy = "not installed, but imported", "Run `pip install curvflow`."
        yield Finding("curvflow", "warn", found, remedy)
    else:
        yield Finding("curvflow", "ok", own)
