"""Asking and planning start fast: the heavy libraries stay unloaded."""

import subprocess
import sys
from pathlib import Path

import pytest

QUICKSTART = str(Path(__file__).parents[1] / "studies" / "quickstart.yaml")
HEAVY = (
    "torch",
    "dask",
    "distributed",
    "prefect",
    "matplotlib",
    "obstore",
    "scipy",
    "sklearn",
    "xarray",
    "zarr",
)
# Refuses a library whether or not it is installed, so no proof here is empty.
GUARDED = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy!r}:
            raise AssertionError(f"{{name}} was imported")

sys.meta_path.insert(0, Refuse())
{code}
"""
ASK = "sys.argv[0] = 'curvflow'; from curvflow.cli.app import main; sys.exit(main())"


def guarded(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = GUARDED.format(heavy=HEAVY, code=code)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["plan", QUICKSTART, "--store", "empty", "--json"],
        ["kinds"],
        ["schema"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_heavy_library_is_imported_to_answer(arguments, tmp_path):
    done = guarded(ASK, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("library", HEAVY)
def test_the_guard_refuses_each_heavy_library(library, tmp_path):
    done = guarded(f"import {library}", cwd=tmp_path)
    assert done.returncode == 1
    assert f"{library} was imported" in done.stderr
