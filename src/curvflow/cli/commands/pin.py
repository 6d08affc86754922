"""`curvflow pin` and `curvflow unpin`: keep the results of a run, or stop."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from curvflow.cli.arguments import (
    AsJson,
    StoreUrl,
    StudyPath,
    echo,
    open_study_store,
    print_json,
    require_store,
)
from curvflow.errors import RequestError
from curvflow.schemas.words import one_line

NO_PINS = "no pins; `curvflow pin STUDY NAME` keeps the latest run under a name"
RUN = typer.Option(
    "--run", metavar="N", help="the run [default: the latest that has finished]"
)


def pin(
    study: StudyPath,
    given: Annotated[
        str | None, typer.Argument(metavar="NAME", help="of the pin")
    ] = None,
    *,
    name: Annotated[
        str | None, typer.Option("--name", help="the same, as an option")
    ] = None,
    run: Annotated[int | None, RUN] = None,
    reason: Annotated[str, typer.Option("--reason", help="why it is kept")] = "",
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Keep a run's results until it is unpinned.

    Without a name the pins are listed.
    """
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.upkeep.pins import list_pins, pin_run

    name = _single_name(given, name, needed=run is not None or bool(reason))
    opened = open_study_store(study, store, None, None)
    require_store(opened.store)
    if name is not None:
        pin_run(opened.store, opened.study.name, name, number=run, reason=reason)
    pins = list_pins(opened.store)
    if name is not None:
        pins = [pin for pin in pins if pin["name"] == name]
    if as_json:
        print_json(pins)
    else:
        echo("\n".join(map(_line, pins)) or NO_PINS)


def _single_name(given: str | None, name: str | None, *, needed: bool) -> str | None:
    """Return the name of a pin, if there is any.

    Raises:
        RequestError: there are two, or none where one is needed.
    """
    if given is not None and name is not None:
        raise RequestError(f"pin: expected one name, got {given} and {name}. Name one.")
    if needed and given is None and name is None:
        raise RequestError(
            "pin: expected a name, got none. Write it behind the study, such as paper."
        )
    return name if given is None else given


def unpin(
    study: StudyPath,
    name: Annotated[str, typer.Argument(help="of the pin")],
    *,
    store: StoreUrl = None,
) -> None:
    """Remove a pin.

    Nothing else changes until the next gc.
    """
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.upkeep.pins import unpin_run

    unpin_run(require_store(open_study_store(study, store, None, None).store), name)
    echo(f"{name} is unpinned")


def _line(pin: dict[str, Any]) -> str:
    run = f"run {pin['run']} of {pin['study']}"
    reason = one_line(pin["reason"])
    return f"{pin['name']:<20} {run:<28} {reason}".rstrip()
