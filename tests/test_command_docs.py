"""Every command shown in README and docs is one, with options that there are."""

import re
import shlex
from collections.abc import Iterator

import pytest
import typer

from curvflow.cli.app import app
from tests.loops import for_each
from tests.test_docs import FLAGS, PAGES, ROOT

COMMANDS = typer.main.get_group(app).commands


def entered() -> Iterator[tuple[str, str]]:
    """Yield the pages and the command lines in their blocks, without `curvflow`."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^ *```(?:sh|text)\n(.*?)^ *```", text, FLAGS):
            for line in re.findall(r"^(?:\$ )?\S*\bcurvflow (.*)", block, re.MULTILINE):
                yield str(page.relative_to(ROOT)), line


def told() -> Iterator[tuple[str, str]]:
    """Yield the pages and the code in their prose that begins with `curvflow`."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"^ *```.*?^ *```", "", text, flags=FLAGS)
        for span in re.findall(r"`curvflow ([^`]*)`", prose):
            yield str(page.relative_to(ROOT)), " ".join(span.split())


def parse(line: str) -> None:
    name, *rest = shlex.split(line, comments=True)
    COMMANDS[name].make_context(name, rest)


@for_each("page, line", sorted(set(entered())))
def test_a_command_line_can_be_entered(page, line):
    parse(line)


@for_each("page, span", sorted(set(told())))
def test_a_command_reported_is_one_with_its_options(page, span):
    name, *rest = shlex.split(span)
    known = {option for one in COMMANDS[name].params for option in one.opts}
    assert {word for word in rest if word.startswith("-")} <= known


def test_studies_named_are_there():
    for page in PAGES:
        for path in re.findall(r"\bstudies/[\w/.-]+\.yaml", page.read_text("utf-8")):
            assert (ROOT / path).is_file(), f"{page.name}: {path}"


@pytest.mark.parametrize("line", ["run study.yaml --sett a=1", "run"])
def test_what_cannot_be_entered_is_found(line):
    with pytest.raises(Exception, match=r"No such option|Missing"):
        parse(line)
