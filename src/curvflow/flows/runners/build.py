"""What software a process computes with, and whether another one has the same."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# Another version of these may differ in the last bits, or in what is written.
LIBRARIES = ("curvflow", "torch", "numpy", "scipy", "scikit-learn", "xarray", "zarr")
SOURCE = "source of curvflow"


@cache
def this_build() -> Mapping[str, str]:
    """Return what this process computes with, as it was when first asked.

    Returns:
        Library to version, with `python` to its minor version, and a digest of this
        package's files: two of one version need not be the same.
    """
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "absent"
    return {**found, SOURCE: _source()}


def difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """Say in what two builds differ.

    Args:
        theirs: of the worker.
        ours: of the run.

    Returns:
        `expected torch 2.9.0, got 2.8.0`, of the first that differs; None if none does.
    """
    for name, wanted in ours.items():
        if (got := theirs.get(name, "nothing")) != wanted:
            return f"expected {name} {wanted}, got {got}"
    return None


def _source() -> str:
    package, digest = Path(__file__).parents[2], sha256()
    for path in sorted(package.rglob("*.py")):
        if path.is_relative_to(package / "cli"):
            continue  # which computes nothing
        digest.update(f"{path.relative_to(package)}\0".encode())
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]
