"""The command `curvflow`: one file per command, errors on one line.

Exit codes: 0 done, 1 some nodes failed or the store did, 2 the request is wrong, 3 an
expectation is contradicted.
"""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.exceptions import TyperException

from curvflow import __version__
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
    unpin,
    verify,
    why,
)
from curvflow.errors import CurvflowError, RequestError

app = typer.Typer(
    name="curvflow",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    *(init, kinds, schema, plan, run, runs, why, diff, show, check, report),
    *(export, log),
    *(pin, unpin, gc, verify, deploy, serve, doctor),
)
for module in COMMANDS:
    app.command(name=module.__name__.rpartition(".")[2])(module.command)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def curvflow(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True
    ),
) -> None:
    """Curvature studies of neural networks from one declarative file."""


def _printable(text: str) -> str:
    """Escape what a terminal would act on; names come from files of others."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
        for c in text
    )


def _told(error: Any) -> str:
    """Return what is wrong with a command line as one line, or help if that is it."""
    text = str(error.format_message())
    if "\n" in text:
        return text
    where = f" See `{error.ctx.command_path} -h`." if error.ctx else ""
    plain = text.replace("Value error, ", "").removesuffix(".")
    plain = plain.replace("Input should be ", "expected ")
    return f"curvflow: {_printable(plain)}.{where}"


def main() -> None:
    """Run the command line; what curvflow raises on purpose becomes one line."""
    try:
        sys.exit(app(prog_name="curvflow", standalone_mode=False))
    except TyperException as error:
        sys.stderr.write(f"{_told(error)}\n")
        sys.exit(2)
    except CurvflowError as error:
        sys.stderr.write(f"curvflow: {_printable(str(error))}\n")
        sys.exit(2 if isinstance(error, RequestError) else 1)
    except BrokenPipeError:
        # The reader, `head` say, has seen enough; keep the interpreter from telling.
        sys.stderr.close()
        sys.exit(0)
