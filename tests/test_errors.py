"""Errors as a notebook shows them."""

import linecache

import pytest

import curvflow
from curvflow.errors import (
    ChangedCodeError,
    RequestError,
    StudyError,
    nearest_of_many,
    said_at,
)


def raised(cell):
    """Run a cell as IPython does, and return what it raises."""
    name = "<cell>"
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    with pytest.raises(RequestError) as caught:
        exec(compile(cell, name, "exec"), {"curvflow": curvflow})
    return caught.value


def test_a_wrong_request_is_one_line_and_the_line_of_the_cell():
    error = raised(
        "stages = {'data': {'use': 'data.xro'}}\n"
        "study = curvflow.Study(axes={}, stages=stages)\n"
    )
    message, line = error._render_traceback_()
    assert message.startswith("StudyError: Study: stages.data.use: expected")
    assert "\n" not in message
    assert line == "  in line 2: study = curvflow.Study(axes={}, stages=stages)"


def test_a_question_ends_as_one_and_nothing_moves_the_terminal():
    error = StudyError("stages.g", "got '\x1b[2J\x00'. Did you mean 'to'?", place="a")
    assert str(error) == "a: stages.g: got '\\x1b[2J\\x00'. Did you mean 'to'?"


def test_what_was_added_to_an_error_is_shown_too():
    error = ChangedCodeError("train: changed")
    error.add_note("In Python: ...")
    assert error._render_traceback_() == [
        "ChangedCodeError: train: changed",
        "In Python: ...",
    ]


def test_a_clash_leaves_out_the_name_that_its_path_ends_in():
    clash = "lr 0.1 cannot be combined with factors 'f'"
    assert said_at("stages.fit.lr", clash) == clash.removeprefix("lr ")
    assert said_at("stages.fit", clash) == clash
    assert said_at("stages.fit.lr", "lr expected") == "lr expected"


def test_a_list_of_many_known_names_ends():
    names = [f"token {n}" for n in range(50_257)]
    hint = nearest_of_many("<|end|>", ["\n\n", *names])
    assert hint.startswith(r"Known: \n\n, token 0, token 1, token 10, token 100,")
    assert hint.endswith(", and 50234 more.")
    assert len(hint) < 400
    assert nearest_of_many("\n \n", ["\n\n", *names]) == r"Did you mean '\n\n'?"
    assert nearest_of_many("<|end|>", ["a", "b"]) == "Known: a, b."
    assert nearest_of_many("a", []) == ""
