"""Published images, if they are installed; CURVFLOW_TEST_IMAGES requires them."""

import os
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.flows.published.arrays import published_arrays
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.images import ImageParams
from curvflow.schemas.nodes import Member, Outcome
from tests import published
from tests.tasks.toys import assert_declared, compute

# Comma-separated: the sets whose absence is a failure, not a skipped test.
REQUIRED = "CURVFLOW_TEST_IMAGES"


def folder(name: str) -> Path:
    """Return the folder of a set, or skip the test without its files."""
    read(name)
    return published.folder_of(name) or pytest.skip(f"{name} lies elsewhere")


def read(name: str) -> dict[str, np.ndarray]:
    """Return the four arrays of a set, or skip the test without its files."""
    folder = published.folder_of(name)
    settings = {} if folder is None else {"folder": str(folder)}
    params = cast("ImageParams", find_kind(f"data.{name}").params(**settings))
    try:
        return dict(published_arrays(params, Path.cwd()))
    except InputError as error:
        if folder is not None or name in os.environ.get(REQUIRED, "").split(","):
            raise  # files that a package holds are the published ones
        pytest.skip(str(error))


def outcome(name: str, arrays, **params) -> Outcome:
    """Compute one set's node from arrays of its files."""
    checked = find_kind(f"data.{name}").params.model_validate(params)
    member = Member(checked, files={"originals": arrays})
    (node,) = compute(f"data.{name}", [member])
    assert_declared(f"data.{name}", node)
    return node
