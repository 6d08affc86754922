"""Versions compared by their numbers."""

import pytest

from curvflow.flows.doctor.machine import installed, is_below


@pytest.mark.parametrize(
    ("version", "bound", "below"),
    [
        ("0.150.0", "0.151", True),
        ("0.151", "0.151", False),
        ("0.151.0", "0.151", False),
        ("0.1510", "0.151", False),
        ("2.0.58", "2.1", True),
        ("2.1.0b3", "2.1", False),
        ("2.10", "2.9", False),
        ("2.13.0+cpu", "2.14", True),
    ],
)
def test_a_version_is_below_a_bound_by_its_numbers(version, bound, below):
    assert is_below(version, bound) is below


def test_what_is_not_installed_has_no_version():
    assert installed("nowhere-to-be-found") is None
