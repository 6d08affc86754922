"""Every study that ships can be planned, with each of its profiles."""

from pathlib import PurePosixPath
from unittest import mock

import pytest

from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.published.catalogue import CATALOGUE
from curvflow.flows.published.find import VARIABLE
from curvflow.schemas.published_graphs import PUBLISHED
from curvflow.schemas.study import study
from tests.flows.published import fakes
from tests.shipped import profiles


def cases():
    for path, names in profiles().items():
        for profile in (None, *names):
            yield pytest.param(path, profile, id=f"{path.stem}-{profile or 'default'}")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Return a folder with files in the place of published images and graphs.

    Planning only looks whether they are there, so these tests need no package.
    """
    folder = tmp_path_factory.mktemp("images")
    for graph in PUBLISHED.values():
        path = folder / "graphs" / PurePosixPath(graph.file).name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    with mock.patch.dict(CATALOGUE, fakes.write_all(folder)):
        yield folder


@pytest.mark.parametrize(("path", "profile"), [*cases()])
def test_a_shipped_study_is_planned(images, monkeypatch, path, profile):
    monkeypatch.setenv(VARIABLE, str(images))
    if profile is not None:
        # Without a profile all are checked; each is here connected and planned.
        monkeypatch.setattr(study, "_check_profile", lambda *_: None)
    opened = open_study(path, store="memory:", profile=profile)
    plan = make_plan(opened.study, opened.store, opened.files)
    planned = {node.stage for node in plan.graph}
    assert planned == set(opened.study.stages)
