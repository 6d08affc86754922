"""Versions of Python that are known to work."""

import tomllib
from pathlib import Path

import pytest

import curvflow
from curvflow.flows.doctor.machine import OLDEST, TOO_NEW, Finding, python_findings

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())


def test_this_python_and_this_curvflow_are_fine():
    python, curvflow_ = python_findings()
    assert python.state == "ok"
    assert curvflow_ == Finding("curvflow", "ok", curvflow.__version__)


@pytest.mark.parametrize("version", ["3.10.14", "3.14.0", "4.0.1"])
def test_another_python_is_warned_of(version):
    python, _ = python_findings(version)
    assert (python.state, python.message) == (
        "warn",
        f"{version}, which is not tested",
    )
    assert python.remedy == (
        "Make an environment of Python 3.11, or newer but below 3.14."
    )


def test_the_bounds_are_those_of_the_project():
    assert PROJECT["project"]["requires-python"] == f">={OLDEST},<{TOO_NEW}"
