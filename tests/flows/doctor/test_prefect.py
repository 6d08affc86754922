"""Prefect and the versions beside it; its server is met in tests/deployed."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from curvflow.flows.doctor.machine import Finding
from curvflow.flows.doctor.services import BOUNDS, prefect_findings

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
SOUND = {"prefect": "3.8.8", "fastapi": "0.150.0", "sqlalchemy": "2.0.58"}


def look(**versions):
    findings = prefect_findings((SOUND | versions).get)
    return {finding.check: finding for finding in findings}


def test_what_is_installed_is_fine():
    assert {finding.state for finding in prefect_findings()} == {"ok"}


@pytest.mark.parametrize(
    ("package", "version", "message", "remedy"),
    [
        (
            "fastapi",
            "0.165.0",
            "0.165.0; the server of Prefect 3.8 cannot start with it",
            "Run `pip install 'fastapi<0.151'`.",
        ),
        (
            "sqlalchemy",
            "2.1.9",
            "2.1.9; with it Prefect 3.8 never creates a scheduled run",
            "Run `pip install 'sqlalchemy<2.1'`.",
        ),
        (
            "sqlalchemy",
            None,
            "not installed",
            "Run `pip install 'sqlalchemy<2.1'`.",
        ),
    ],
)
def test_a_version_that_breaks_prefect_fails(package, version, message, remedy):
    looked = look(**{package: version})
    failed = Finding(f"prefect.{package}", "FAIL", message, remedy)
    assert looked.pop(f"prefect.{package}") == failed
    assert {finding.state for finding in looked.values()} == {"ok"}


def test_without_prefect_nothing_else_is_looked_at():
    remedy = "Run `pip install 'prefect>=3.8,<4'`."
    missing = Finding("prefect", "FAIL", "not installed", remedy)
    assert look(prefect=None) == {"prefect": missing}


def test_the_bounds_are_those_of_the_project():
    bounds = {f"{package}<{bound}" for package, bound, _ in BOUNDS}
    assert bounds | {"prefect>=3.8,<4"} <= set(PROJECT["project"]["dependencies"])


@pytest.mark.processes
def test_a_broken_installation_fails_and_the_other_checks_go_on(tmp_path):
    metadata = tmp_path / "fastapi-0.165.0.dist-info" / "METADATA"
    package = tmp_path / "prefect" / "__init__.py"
    for path, text in (
        (metadata, "Metadata-Version: 2.1\nName: fastapi\nVersion: 0.165.0\n"),
        (package, "raise TypeError('unexpected keyword')\n"),
    ):
        path.parent.mkdir()
        path.write_text(text)
    curvflow = [Path(sys.executable).with_name("curvflow"), "doctor", "--json"]
    said = subprocess.run(
        [*curvflow, "--store", tmp_path / "store"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (1, "")
    findings = {
        finding["check"]: finding for finding in json.loads(said.stdout)["findings"]
    }
    failed = {name for name, finding in findings.items() if finding["state"] == "FAIL"}
    assert failed == {"prefect.fastapi", "prefect.import"}
    assert findings["prefect.import"]["found"] == "TypeError: unexpected keyword"
    assert findings["store.write"]["state"] == "ok"
