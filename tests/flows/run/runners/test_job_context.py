"""Whether two processes compute with the same software."""

from curvflow import __version__
from curvflow.flows.run.runners.job_context import SOURCE, difference, this_build


def test_a_build_shows_versions_and_the_source():
    build = this_build()
    assert build["curvflow"] == __version__
    assert build["torch"]
    assert len(build[SOURCE]) == 12


def test_the_first_difference_is_said_with_both_versions():
    ours = {"curvflow": "1", "torch": "2.9.0", "zarr": "3"}
    assert difference(ours, ours) is None
    theirs = {"curvflow": "1", "torch": "2.8.0", "zarr": "2"}
    assert difference(theirs, ours) == "expected torch 2.9.0, got 2.8.0"
    assert difference({}, ours) == "expected curvflow 1, got nothing"
