"""Names that files have in a store, and the paths they stand for."""

import pytest

from curvflow.flows.reads.places import path_of, portable_name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/h/ann/study/data/x", "data/x"),
        ("/h/ann/data/x/", "../data/x/"),
        ("/h/bob/x", "../../bob/x"),
        ("/data/ann/x", "../../../data/$USER/x"),
    ],
)
def test_names_in_a_store_tell_neither_the_user_nor_the_machine(
    monkeypatch, path, name
):
    monkeypatch.setenv("HOME", "/h/ann")
    assert portable_name(path, "/h/ann/study") == name
    assert path_of(name, "/h/ann/study") == path


def test_a_file_at_home_is_named_from_there_by_a_study_that_is_elsewhere(monkeypatch):
    monkeypatch.setenv("HOME", "/h/ann")
    assert portable_name("/h/ann/x", "/scratch/study") == "~/x"
    assert path_of("~/x", "/scratch/study") == "/h/ann/x"
