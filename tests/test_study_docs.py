"""Every study shown in README and docs runs, with settings that take a moment."""

import shutil
from typing import Any
from unittest import mock

import pytest
from ruamel.yaml import YAML

from curvflow.flows.graph.open_study import open_study
from curvflow.flows.published import find
from curvflow.flows.published.catalogue import CATALOGUE
from curvflow.flows.run.run import run_study
from curvflow.stores.memory import MemoryStore
from tests.flows.published import fakes
from tests.pictures import _figures_are_placed_only
from tests.test_docs import (
    ROOT,
    folder,
    modules_shown,
    pages_with_studies,
    pythons,
    studies_of,
)

# Fixtures: the modules shown, in a folder; figures without files.
__all__ = ["_figures_are_placed_only", "folder"]

# The most that a setting of a kind is run with, written or by default.
MOST = {
    "train": {"epochs": 5},
    "data.digits": {"num_train": 60},
    "data.mnist": {"num_train": 30},
    "data.fashion_mnist": {"num_train": 30},
    "data.cifar10": {"num_train": 30},
    "data.cifar100": {"num_train": 30},
    "data.faces": {"people": 2, "pairs": 2},
    "data.curves": {"num_train": 30},
    "data.modify": {"num_train": 30},
    "probe.eigenvalues": {"max_iterations": 3},
    "probe.hessian_trace": {"num_probes": 8},
    "probe.trace": {"num_probes": 8},
    "probe.moments": {"num_moments": 20},
    "probe.spectrum": {"num_steps": 15},
    "probe.llc": {"num_draws": 20, "num_steps_bw_draws": 2, "num_burnin_steps": 20},
}
SEEDS = 3  # the most of an axis that counts
# The epochs that stages of a page name.
EPOCHS = {"docs/study": 30}
# Pages whose code writes the files that their studies read.
WRITING = ("how-to/own-data", "how-to/checkpoints", "how-to/monitor", "graphs")


PAGES = pages_with_studies()
del PAGES["docs/tutorial"]  # which test_tutorial follows as it is


def few(axes: dict[str, Any]) -> dict[str, Any]:
    """Lower the lengths of axes that count."""
    return {n: min(a, SEEDS) if isinstance(a, int) else a for n, a in axes.items()}


def small(stage: dict[str, Any], page: str) -> dict[str, Any]:
    """Lower the settings of a stage that are numbers to what is run."""
    most = dict(MOST.get(stage["use"], {}))
    if not {"ritz", "factors"}.isdisjoint(stage):  # nothing is left to iterate
        most.pop("max_iterations", None)
    if "epochs" in most:
        most["epochs"] = EPOCHS.get(page, most["epochs"])
    asked = {name: stage.get(name) or limit for name, limit in most.items()}
    lower = {
        name: min(value, most[name])
        for name, value in asked.items()
        if isinstance(value, int)
    }
    return stage | lower


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with what the code of pages writes, and its sets of images."""
    whole = tmp_path_factory.mktemp("pages")
    with modules_shown(whole), pytest.MonkeyPatch.context() as patch:
        patch.chdir(whole)
        patch.setenv("HOME", str(whole))
        patch.setenv(find.VARIABLE, str(whole / "images"))
        for name in WRITING:
            for code in pythons(ROOT / "docs" / f"{name}.md"):
                if not code.startswith("# "):
                    exec(code, {})
        return whole, fakes.write_all(whole / "images")


@pytest.fixture
def place(files, folder, monkeypatch):
    """Return a folder of a page's own with all that the studies shown read, small."""
    whole, images = files
    known = shutil.ignore_patterns("__pycache__")
    shutil.copytree(whole, folder, dirs_exist_ok=True, ignore=known)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv(find.VARIABLE, str(folder / "images"))
    with mock.patch.dict(CATALOGUE, images):
        yield folder


@pytest.fixture(scope="module")
def store():
    """Return a store in which no page repeats another's work."""
    return MemoryStore()


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize("page", PAGES)
def test_every_study_of_a_page_runs(page, place, store):
    for where, study in studies_of(PAGES[page]).items():
        stages = {n: small(stage, page) for n, stage in study["stages"].items()}
        lower = {"axes": few(study.get("axes", {})), "stages": stages}
        YAML(typ="safe").dump({**study, **lower}, place / "study.yaml")
        for profile in (None, *study.get("profiles", {})):
            opened = open_study("study.yaml", store="memory:", profile=profile)
            record = run_study(opened.study, store, opened.files).record
            assert record.failures == [], where
