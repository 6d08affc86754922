"""The command `curvflow`: one file per command, errors on one line.

Exit codes: 0 done, 1 some nodes failed or the store did, 2 the request is wrong; of
`check` see there.
"""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import typer
from typer.exceptions import TyperException

from curvflow import __version__
from curvflow.cli.arguments import echo
from curvflow.cli.commands import (
    check,
    deploy,
    diff,
    doctor,
    export,
    gc,
    init,
    kinds,
    log,
    pin,
    plan,
    report,
    run,
    runs,
    schema,
    serve,
    show,
    verify,
    why,
)
from curvflow.errors import CurvflowError, RequestError
from curvflow.schemas.long_lived import one_command
from curvflow.schemas.words import printable

OUT_OF_MEMORY = (
    "out of memory. Use fewer labels or checkpoints; --max-nodes bounds their product."
)

# In the order of `curvflow --help`.
COMMANDS: dict[str, Callable[..., None]] = {
    "init": init.command,
    "kinds": kinds.command,
    "schema": schema.command,
    "plan": plan.command,
    "run": run.command,
    "runs": runs.command,
    "why": why.command,
    "diff": diff.command,
    "show": show.command,
    "check": check.command,
    "report": report.command,
    "export": export.command,
    "log": log.command,
    "pin": pin.pin,
    "unpin": pin.unpin,
    "gc": gc.command,
    "verify": verify.command,
    "deploy": deploy.command,
    "serve": serve.command,
    "doctor": doctor.command,
}


def _print_version(value: bool) -> None:
    if value:
        echo(__version__)
        raise typer.Exit


def curvflow(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True
    ),
) -> None:
    """Curvature studies of neural networks from one declarative file."""


def application(*names: str) -> typer.Typer:
    """Return the command line with some commands, each of which takes time to build."""
    built = typer.Typer(
        name="curvflow",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    built.callback()(curvflow)
    for name in names:
        built.command(name=name)(COMMANDS[name])
    return built


app = application(*COMMANDS)


@cache
def command_line(*names: str) -> Callable[..., Any]:
    """Return some commands as read from their functions, once in a process."""
    return typer.main.get_command(application(*names))


def _one_line(error: Any) -> str:
    """Return a usage error as one line, or the help text if that is the message."""
    text = str(error.format_message())
    if "\n" in text:
        return text
    where = f" See `{error.ctx.command_path} -h`." if error.ctx else ""
    plain = text.replace("Value error, ", "").removesuffix(".")
    plain = plain.replace("Input should be ", "expected ")
    end = "" if plain.endswith("?") else "."
    return f"curvflow: {plain}{end}{where}"


class _PrintableFormatter(logging.Formatter):
    """Lines of a log, escaped."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    del line  # the source says less than the message
    return printable(f"{filename}:{lineno}: {category.__name__}: {message}\n")


def _escape_what_others_print() -> None:
    """Escape what libraries and kinds log and warn of on the terminal."""
    warnings.formatwarning = _format_warning
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())


def main() -> None:
    """Run the command line; print a CurvflowError as one line."""
    _escape_what_others_print()
    asked = COMMANDS.keys() & sys.argv[1:2] or COMMANDS
    try:
        with one_command():
            named = command_line(*asked)
            sys.exit(named(prog_name="curvflow", standalone_mode=False))
    except TyperException as error:
        sys.stderr.write(printable(f"{_one_line(error)}\n"))
        sys.exit(2)
    except CurvflowError as error:
        sys.stderr.write(printable(f"curvflow: {error}\n"))
        sys.exit(2 if isinstance(error, RequestError) else 1)
    except BrokenPipeError:
        # The reader, `head` say, has closed the pipe; the interpreter must not warn.
        sys.stderr.close()
        sys.exit(0)
    except MemoryError:
        sys.stderr.write(printable(f"curvflow: {OUT_OF_MEMORY}\n"))
        sys.exit(1)
    except Exception:  # a fault of ours, in full
        sys.stderr.write(printable(traceback.format_exc()))
        sys.exit(1)
