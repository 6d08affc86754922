"""`curvflow pin`: keep the results of a run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from curvflow.cli.arguments import (
    AsJson,
    StoreUrl,
    StudyPath,
    existing,
    opened,
    print_json,
)
from curvflow.errors import RequestError

RUN = typer.Option(
    "--run", metavar="N", help="the run [default: the latest that has finished]"
)


def command(
    study: StudyPath,
    *,
    name: Annotated[str | None, typer.Option("--name", help="of the pin")] = None,
    run: Annotated[int | None, RUN] = None,
    reason: Annotated[str, typer.Option("--reason", help="why it is kept")] = "",
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Keep a run's results until it is unpinned, or list the pins."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.upkeep.pins import list_pins, pin_run

    asked = opened(study, store, None, None)
    existing(asked.store)
    if name is not None:
        pin_run(asked.store, asked.study.name, name, number=run, reason=reason)
    elif run is not None or reason:
        raise RequestError("pin: expected a name. Give it one with --name.")
    pins = list_pins(asked.store)
    if name is not None:
        pins = [pin for pin in pins if pin["name"] == name]
    if as_json:
        print_json(pins)
    else:
        typer.echo("\n".join(map(_line, pins)) or "no pins")


def _line(pin: dict[str, Any]) -> str:
    run = f"run {pin['run']} of {pin['study']}"
    reason = " ".join(pin["reason"].split())
    return f"{pin['name']:<20} {run:<28} {reason}".rstrip()
