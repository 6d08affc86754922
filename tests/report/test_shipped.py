"""Every study that ships runs in its profile smoke, and its page holds all of it."""

import shutil

import numpy as np
import pytest

import curvflow
from curvflow.flows.published.catalogue import CATALOGUE
from curvflow.flows.published.find import VARIABLE
from curvflow.flows.report.basis import kind_of
from curvflow.flows.report.gather import gather, open_basis
from curvflow.flows.report.render import render
from curvflow.flows.report.request import ReportRequest
from curvflow.schemas.nodes import Figure, Table
from tests import published
from tests.flows.published import fakes, real
from tests.pictures import _figures_are_placed_only
from tests.report.page import Page, assert_whole_in_itself
from tests.shared_runs import shared_store
from tests.shipped import profiles

# Fixtures: figures without files, a store of the whole session.
__all__ = ["_figures_are_placed_only", "shared_store"]

RULES = 8  # of Jarvis (2021), each with two seeds in smoke


def cases():
    for path, names in profiles().items():
        if "smoke" in names:
            yield pytest.param(path, id=f"{path.parent.name}-{path.stem}")


def stages(basis, returns):
    """Return the number of nodes of each stage that returns such a result."""
    return {
        view.stage: len(view.points)
        for view in basis.views
        if issubclass(kind_of(view).returns, returns)
    }


@pytest.fixture(scope="session")
def made_up(tmp_path_factory):
    """Return a folder of noise for sets that cannot be installed everywhere.

    Also the catalogue that knows them, for tests of them alone: others of the session
    read the published files.
    """
    folder = tmp_path_factory.mktemp("images")
    contents = {
        "fashion_mnist": fakes.idx_contents(train=300, test=100),
        "cifar10": fakes.ten_contents(each=100),
    }
    known = {}
    for name, content in contents.items():
        fakes.write(folder / name, CATALOGUE[name].layouts[0], content)
        known[name] = fakes.knowing(CATALOGUE[name], 0, content)
    if mnist := published.folder_of("mnist"):
        (folder / "mnist").symlink_to(mnist)
    return folder, known


def all_rules_train(results):
    """The small regime begins on a plateau; all other networks learn at once."""
    loss = results["fit"]["train_loss"]
    assert (loss.sizes["rule"], loss.sizes["seed"]) == (RULES, 2)
    assert np.isfinite(loss.values).all()
    assert (loss.values[..., -1] < loss.values[..., 0]).mean() > 0.6


def products_find_the_eigenvalues_of_the_dense_matrix(results):
    exact = results["exact"]["eigenvalues"].values
    for name in ("power", "lanczos"):
        assert results[name]["converged"].values.all()
        np.testing.assert_allclose(results[name]["eigenvalues"], exact, rtol=1e-9)


CHECKS = {
    "xor-tanh": all_rules_train,
    "xor-relu": all_rules_train,
    "xord-tanh": all_rules_train,
    "xord-relu": all_rules_train,
    "power-method": products_find_the_eigenvalues_of_the_dense_matrix,
}


@pytest.mark.slow
@pytest.mark.spread
@pytest.mark.images
@pytest.mark.parametrize("path", [*cases()])
def test_a_shipped_study_runs_and_its_page_holds_all_of_it(
    path, shared_store, made_up, tmp_path, monkeypatch
):
    folder, known = made_up
    monkeypatch.setenv(VARIABLE, str(folder))
    for name, data_set in known.items():
        monkeypatch.setitem(CATALOGUE, name, data_set)
    monkeypatch.syspath_prepend(path.parent)  # for kinds next to the study
    text = path.read_text(encoding="utf-8")
    if "use: data.mnist" in text:
        real.read("mnist")
    study = tmp_path / path.name
    study.write_text(text, encoding="utf-8")
    if (files := path.with_suffix("")).is_dir():  # that the study reads
        shutil.copytree(files, tmp_path / files.name)
    # Studies of one folder have nodes in common, and each reads the log of all of them.
    store = f"{shared_store}/{path.parent.name}"
    results = curvflow.run(study, store=store, profile="smoke", workers=1)
    assert results.run.failures == []
    CHECKS.get(path.stem, lambda results: None)(results)
    basis = open_basis(ReportRequest(study, store=store, profile="smoke"))
    content = gather(basis)
    page = Page(render(content))
    assert content.unreadable == content.gallery.notes == []
    assert {*content.troubles.stages} <= {"diverged"}
    assert {one.name for one in content.tables if one.grids} == {*stages(basis, Table)}
    figures = sum(stages(basis, Figure).values())
    assert len([one for one in page.all("img") if "src" in one]) == figures
    assert_whole_in_itself(page)
