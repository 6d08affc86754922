"""Keep the logs of Dask to themselves: what matters is said in our own words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

LOGGERS = (
    "distributed",
    "distributed.client",
    "distributed.gc",
    "bokeh",
    "tornado",
    "tornado.application",
    "asyncio",
)
SILENT = logging.CRITICAL + 1


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the loggers of Dask and what it stands on, until the block ends.

    Yields:
        Nothing.
    """
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(SILENT)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
