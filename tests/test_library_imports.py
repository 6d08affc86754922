"""The library needs five packages, and works where the others are broken."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

# Other packages that curvflow depends on, and some that these bring.
OTHERS = [
    "click",
    "dask",
    "distributed",
    "fastapi",
    "jinja2",
    "matplotlib",
    "numcodecs",
    "obstore",
    "prefect",
    "pytest",
    "rich",
    "ruamel",
    "sklearn",
    "sqlalchemy",
    "typer",
    "yaml",
    "zarr",
]

BLOCK = f"""
import sys
from importlib.machinery import ModuleSpec


class Broken:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name in {OTHERS!r} else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        raise RuntimeError(module.__name__ + " is of another version")


sys.meta_path.insert(0, Broken())
"""

USE = (Path(__file__).parent / "library_use.py").read_text(encoding="utf-8")

LOADED = f"""
loaded = sorted(set({OTHERS!r}) & set(sys.modules))
assert loaded == [], loaded
"""


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_library_works_where_other_packages_are_broken():
    measured, _, labelled = USE.partition("for result in results:")
    assert "to_xarray" in labelled
    run(BLOCK + measured + LOADED)


def test_the_package_is_imported_in_no_time_and_alone():
    heavy = {"torch", "numpy", "pydantic", "xarray"}
    assert run(f"import curvflow, sys; print({heavy} & set(sys.modules))") == "set()\n"
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run("import curvflow")
        middle = time.perf_counter()
        run("pass")
        times.append(2 * middle - start - time.perf_counter())
    assert min(times) < 0.15
