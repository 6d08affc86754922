"""`curvflow doctor` as a person or a script meets it."""

import json

import pytest

from curvflow.cli.commands import doctor
from curvflow.flows.doctor import examine
from curvflow.flows.doctor.machine import Finding

FINE = Finding("toy", "ok", "fine")
ODD = Finding("toy.part", "warn", "odd", "Look at it.")
LONG = Finding(
    "toy.wheel",
    "FAIL",
    "0.165.0; the server of Prefect 3.8 cannot start with it, which nobody expects",
    "First look around you, then go and run `pip install 'fastapi<0.151'`.",
)


REPORT = """\
ok    toy                fine
warn  toy.part           odd
                         Look at it.
FAIL  toy.wheel          0.165.0; the server of Prefect 3.8 cannot start with
                         it, which nobody expects
                         First look around you, then go and run
                         `pip install 'fastapi<0.151'`.
3 checks: 1 ok, 1 warn, 1 FAIL
no store was looked at; name a STUDY or --store
"""


@pytest.fixture
def findings(monkeypatch):
    """Return a function that settles what is found."""

    def settle(*findings):
        def examined(study, **asked):
            return iter(findings)

        monkeypatch.setattr(examine, "examine", examined)

    return settle


def test_this_machine_and_a_new_store_are_fine(curvflow, study, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    said = curvflow("doctor", study)
    assert said.code == 0, said.out
    assert said.err == ""
    *lines, last = said.out.splitlines()
    assert last.endswith(" 0 FAIL")
    folder = str(study.parent)  # may be longer than a line
    assert max(len(line) for line in lines if folder not in line) <= 80
    assert all(line[doctor.INDENT - 1] == " " for line in lines)
    assert [path.name for path in study.parent.iterdir()] == ["tiny.yaml"]


def test_json_shows_the_same(curvflow, study, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    said = json.loads(curvflow("doctor", study, "--json").out)
    assert said["healthy"] is True
    assert {tuple(finding) for finding in said["findings"]} == {
        ("check", "state", "found", "remedy")
    }
    checks = {finding["check"] for finding in said["findings"]}
    assert {"python", "cores", "torch", "dask", "prefect.fastapi", "store"} <= checks


def test_what_fails_is_reported_with_its_remedy_in_80_columns(curvflow, findings):
    findings(FINE, ODD, LONG)
    said = curvflow("doctor")
    assert said.code == 1
    assert said.out == REPORT


def test_a_warning_alone_ends_well(curvflow, findings):
    findings(FINE, ODD)
    assert curvflow("doctor").code == 0


def test_a_failure_ends_with_exit_code_1_in_json_as_well(curvflow, findings):
    findings(LONG)
    said = curvflow("doctor", "--json")
    assert said.code == 1
    assert json.loads(said.out)["healthy"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny.yaml", "--store", "tiny.yaml"], "expected a folder, got a file"),
        (["nowhere.yaml"], "expected a study file, got none"),
    ],
)
def test_a_store_or_study_that_is_none_fails(curvflow, study, arguments, message):
    said = curvflow("doctor", *arguments, "--json")
    assert said.code == 1
    (failed,) = [
        finding
        for finding in json.loads(said.out)["findings"]
        if finding["state"] == "FAIL"
    ]
    assert failed["check"] == "store"
    assert message in failed["found"]
