"""Command lines that cannot be read are refused on one line."""

import pytest
import typer

from curvflow.cli.app import command_line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run", "Missing argument 'STUDY'. See `curvflow run -h`."),
        ("run s.yaml --nope", "No such option: --nope"),
        ("frob", "No such command 'frob'. See `curvflow -h`."),
        ("run s.yaml --device tpu", "'tpu' is not one of 'auto', 'cpu', 'cuda'"),
        ("runs s.yaml more", "unexpected extra argument"),
        ("run s.yaml --workers 0", ": expected greater than or equal to 1. See"),
        ("run s.yaml --workers x", ": expected a valid integer, unable to parse"),
    ],
)
def test_a_wrong_command_line_is_refused_on_one_line(curvflow, line, said):
    answer = curvflow(*line.split())
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("curvflow: ")
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert "Value error" not in answer.err
    assert "Input should be" not in answer.err


@pytest.mark.parametrize("line", ["plan --help", "plan s.yaml --nope"])
def test_only_the_command_that_is_asked_for_is_built(curvflow, monkeypatch, line):
    built, build = [], typer.main.get_command_from_info

    def count(command_info, **options):
        built.append(command_info.name)
        return build(command_info=command_info, **options)

    command_line.cache_clear()  # it was built, where tests before it had asked for it
    monkeypatch.setattr(typer.main, "get_command_from_info", count)
    curvflow(*line.split())
    assert built == ["plan"]


def test_no_command_shows_them_all(curvflow):
    answer = curvflow()
    assert answer.code == 2
    assert "Commands:" in answer.err


def test_what_names_hold_cannot_act_on_the_terminal(curvflow):
    assert "\x1b" not in curvflow("run", "s.yaml", "\x1b[31m").err
