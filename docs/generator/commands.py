"""The page of the command line: every command with every option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from curvflow.cli.app import app
from docs.generator.markdown import code, prose, table

CODES = {
    0: "done",
    1: "some nodes failed, or the store did; an expected value was not measured",
    2: "the request is wrong; one line says where and what to do",
    3: "an expectation is contradicted",
    4: "a mean differs from the one expected, within the scatter of one run",
    5: "an expectation is undecided",
    130: "a run was interrupted by Ctrl-C; finished tiles are kept",
    143: "the same by a request to terminate",
}


def page() -> str:
    """Return the page of all commands."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    codes = table(("Exit code", "Meaning"), [(str(n), t) for n, t in CODES.items()])
    listed = table(
        ("Command", "What it does"),
        [
            (f"[{code(name)}](#{name})", prose(_summary(command)))
            for name, command in commands.items()
        ],
    )
    parts = ["# Command line", "`curvflow COMMAND --help` prints the same.", listed]
    parts += [codes]
    for name, command in commands.items():
        parts += [
            f"## `{name}` {{#{name}}}",
            prose(command.help or ""),
            *_rows(command),
        ]
    return "\n\n".join(parts)


def _summary(command: Any) -> str:
    return str(command.help or "").partition("\n")[0]


def _rows(command: Any) -> Iterator[str]:
    given = [
        parameter
        for parameter in command.params
        if not parameter.opts[0].startswith("-")
    ]
    usage = " ".join(map(_argument, given))
    yield f"```text\ncurvflow {command.name} {usage} [options]\n```".replace("  ", " ")
    if given:
        arguments = [(code(_argument(o)), prose(o.help or "")) for o in given]
        yield table(("Argument", "Meaning"), arguments)
    context = typer.Context(command)
    rows = [
        _row(parameter, context)
        for parameter in command.params
        if parameter not in given
    ]
    if rows:
        yield table(("Option", "Value", "Default", "Meaning"), rows)


def _argument(argument: Any) -> str:
    """Return the name of an argument, in brackets if it may be left out."""
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _row(option: Any, context: typer.Context) -> tuple[str, ...]:
    names = ", ".join(map(code, [*option.opts, *option.secondary_opts]))
    value = code(option.metavar or _type(option, context))
    default = "" if option.default in (None, False, "") else code(str(option.default))
    return names, value, default, prose(option.help or "")


def _type(option: Any, context: typer.Context) -> str:
    """Name the type of an option's value; nothing of a flag, which takes none."""
    shown = str(option.display_type(context)).strip("<>").replace("|", " | ")
    names = {"str": "text", "list[str]": "text", "boolean": "", "bool": ""}
    return names.get(shown, shown.removesuffix(" range"))
