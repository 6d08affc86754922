"""Pins: runs whose results collection keeps."""

from __future__ import annotations

import re
from typing import Any

from curvflow.errors import RequestError, UnknownNameError, nearest
from curvflow.flows.api import find_run
from curvflow.schemas.records.receipts import Pin, RunRecord
from curvflow.stores.base import Store

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def pin_run(
    store: Store, study: str, name: str, *, number: int | None, reason: str
) -> RunRecord:
    """Keep the results of a run until the pin is removed.

    Args:
        store: holds the run.
        study: its name.
        name: of the pin, letters, digits, `_`, `-` and `.`.
        number: of the run; the latest that has finished by default.
        reason: why it is kept.

    Returns:
        The run.

    Raises:
        RequestError: the name is no name or another run's, or the reason is not one
            line of text.
        UnknownNameError: there is no such run, or it was interrupted.
        StoreError: the store cannot be written.
    """
    if not NAME.fullmatch(name):
        raise RequestError(
            f"--name: expected letters, digits, _, - and ., got '{name}'. "
            "Choose another name."
        )
    if name.isdecimal():
        raise RequestError(
            f"--name: expected a name, got the number {name}. Write a name, such as "
            f"paper, and --run {int(name)} for that run."
        )
    if not reason.isprintable():
        raise RequestError(
            "--reason: expected one line of text, got a character that is not printed. "
            "Write it on one line."
        )
    run = find_run(store, study, _latest(store, study) if number is None else number)
    earlier = store.index().pins.get(name)
    if earlier is not None and earlier.begun != run.begun:
        raise RequestError(
            f"--name: expected a free name, got '{name}', the pin of another run. "
            f"`curvflow unpin STUDY {name}` frees it."
        )
    store.pin(Pin(name, run.begun, reason))
    return run


def unpin_run(store: Store, name: str) -> None:
    """Remove a pin; collection may have its run's results again."""
    pins = store.index().pins
    if name not in pins:
        raise UnknownNameError(
            f"unpin: expected one of the pins, got '{name}'. "
            f"{nearest(name, pins) or 'There are none.'}"
        )
    store.unpin(name)


def list_pins(store: Store) -> list[dict[str, Any]]:
    """Return the pins of all studies in a store: name, study, run and reason."""
    index = store.index()
    runs = {run.begun: run for run in index.runs}
    return [
        {
            "name": pin.name,
            "study": runs[pin.begun].study,
            "run": runs[pin.begun].number,
            "reason": pin.reason,
        }
        for pin in index.pins.values()
        if pin.begun in runs
    ]


def _latest(store: Store, study: str) -> int:
    runs = [run for run in store.index().runs if run.study == study]
    finished = [run.number for run in runs if run.ended is not None]
    if not finished:
        raise UnknownNameError(
            f"{study}: expected a finished run, got none. Run the study first."
        )
    return finished[-1]
