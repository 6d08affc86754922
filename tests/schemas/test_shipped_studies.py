"""The studies that ship are in order, for the loader and for editors alike."""

from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from curvflow.schemas.study import study as loading
from curvflow.schemas.study.jsonschema import study_schema
from curvflow.schemas.study.study import load_study
from tests.shipped import profiles

ROOT = Path(__file__).parents[2]
STUDIES = sorted([*ROOT.glob("studies/**/*.yaml"), *ROOT.glob("src/**/*.yaml")])


@pytest.fixture(scope="module")
def validator():
    return Draft202012Validator(study_schema())


@pytest.mark.parametrize("path", STUDIES, ids=[path.stem for path in STUDIES])
def test_a_shipped_study_is_accepted_with_each_of_its_profiles(
    path, validator, monkeypatch
):
    monkeypatch.syspath_prepend(path.parent)  # for kinds next to the study
    text = path.read_text(encoding="utf-8")
    study = load_study(text, file=path.name)
    assert [error.message for error in validator.iter_errors(study.document)] == []
    if "profiles:" in text:
        monkeypatch.setattr(loading, "_check_profile", lambda *_: None)  # done above
        smoke = load_study(text, file=path.name, profile="smoke")
        assert smoke.document != study.document


def test_there_are_studies_to_look_at():
    assert STUDIES


@cache
def written():
    """Return the shipped studies as YAML reads them."""
    return {path: YAML(typ="safe").load(path) for path in profiles()}


def test_profiles_are_read_off_a_study_as_by_yaml():
    assert profiles() == {
        path: tuple(study.get("profiles", {})) for path, study in written().items()
    }
    assert any(len(names) > 1 for names in profiles().values())


def test_each_expectation_says_where_its_value_or_its_tolerance_is_from():
    lists = [
        (path.stem, part.get("expect") or [])
        for path, study in written().items()
        for part in (study, *study.get("profiles", {}).values())
    ]
    lacking = [
        (name, entry)
        for name, entries in lists
        for entry in entries
        if not entry.get("source") or ("sd" in entry and "n" not in entry)
    ]
    assert not lacking
    assert sum(len(entries) for _, entries in lists) > 500
