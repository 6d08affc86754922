"""The studies shown in README and docs are studies, and the code beside them runs."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zarr
from ruamel.yaml import YAML

import curvflow
from curvflow.flows.graph.graph import expand
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.schemas import kinds
from curvflow.schemas.options import Adapt, Cluster
from curvflow.schemas.study.study import load_study
from docs.generator.sections import filled
from tests.flows.results.test_foreign import written
from tests.loops import for_each

ROOT = Path(__file__).parents[1]
FLAGS = re.DOTALL | re.MULTILINE
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Pages whose YAML is of another kind, each read by a test of its own.
NO_STUDIES = {"docs/how-to/cluster"}


def added(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Add a further example of a page to the page's study, entry by entry."""
    merged = dict(base)
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = {**base[key], **value} if both else value
    return merged


def pages_with_studies() -> dict[str, Path]:
    """Return the pages that show studies by name, without reading any study."""
    shows = re.compile(r"^```yaml\n|^<!-- (?:rules|models): ", re.MULTILINE)
    named = {str(page.relative_to(ROOT).with_suffix("")): page for page in PAGES}
    return {
        name: page
        for name, page in named.items()
        if name not in NO_STUDIES and shows.search(page.read_text(encoding="utf-8"))
    }


@cache
def studies_of(page: Path) -> dict[str, dict[str, Any]]:
    """Return the studies that a page shows, by name of the page and line."""
    place = page.relative_to(ROOT).with_suffix("")
    text = filled(page.read_text(encoding="utf-8"))
    base: dict[str, Any] = {}
    studies: dict[str, dict[str, Any]] = {}
    for found in re.finditer(r"^```yaml\n(.*?)^```", text, FLAGS):
        line = text.count("\n", 0, found.start()) + 1
        example = YAML(typ="safe").load(found[1])
        base = base or example
        studies[f"{place}.md:{line}"] = (
            example if "study" in example else added(base, example)
        )
    return studies


def every_study() -> list[dict[str, Any]]:
    """Return the studies shown on all pages."""
    return [study for page in SHOWING.values() for study in studies_of(page).values()]


@cache
def shown_modules() -> dict[str, str]:
    """Return the modules shown on all pages, by name."""
    module = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```", FLAGS)
    texts = (page.read_text(encoding="utf-8") for page in PAGES)
    return dict(found for text in texts for found in module.findall(text))


@contextmanager
def modules_shown(folder: Path) -> Iterator[None]:
    """Write the modules shown to a folder, importable for the time of the block."""
    for name, code in shown_modules().items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, mock.patch.dict(kinds._added):
        patch.syspath_prepend(folder)
        yield
    for path in folder.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the modules shown, importable for the time of a test."""
    with modules_shown(tmp_path):
        yield tmp_path


SHOWING = pages_with_studies()


@pytest.mark.parametrize("page", SHOWING.values(), ids=SHOWING)
def test_every_study_shown_can_be_planned(page, folder):
    (folder / "shapes").mkdir()
    steps = [f"imported/{run}/step_10.pt" for run in ("small", "large")]
    texts = ("sums.txt", "wine.csv", "friends.csv")
    arrays = ("measured.npz", "patients.npz", "inputs.npy", "targets.npy")
    zarr.save(folder / "measured.zarr", np.zeros((4, 2)))
    networks = ("monitor.npz", "net.npz", "net.pt")
    for name in (*arrays, *networks, *texts, *steps):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"any content")

    @for_each("where, study", studies_of(page).items())
    def is_planned(where, study):
        text = StringIO()
        YAML(typ="safe").dump(study, text)
        loaded = load_study(text.getvalue(), file=where)
        assert len(list(expand(loaded, SourceFiles(folder)))) >= len(loaded.stages)

    is_planned()


@pytest.mark.pages
def test_the_kind_of_one_s_own_that_is_shown_runs(folder):
    (study,) = [s for s in every_study() if "mine:largest_weight" in str(s)]
    small = {"axes.seed": 2, "stages.fit.epochs": 2}
    path = folder / "study.yaml"
    YAML(typ="safe").dump({**study, "profiles": {"small": small}}, path)
    results = curvflow.run(path, profile="small")
    largest = results["largest"]
    assert set(largest["largest"].dims) == {"seed", "rule"}
    assert largest["largest"].attrs["units"] == "parameter"
    assert np.all(largest["relative"] > 1)
    assert set(results["largest_per_rule"]["count"].values.ravel()) == {2}


def test_a_node_without_a_value_is_reported_as_diverged(folder):
    mine = import_module("mine")
    weights = {"weights": np.array([0.0, 0.0, 0.0, -2.0])}
    outcome = mine.largest_weight(weights, mine.Largest())
    assert (outcome.status, outcome.arrays["largest"]) == ("diverged", 2.0)


def test_no_block_is_overlooked():
    text = "\n".join(filled(page.read_text(encoding="utf-8")) for page in PAGES)
    fences = re.findall(r"^ *(?:```|~~~) *(ya?ml|py\w*)", text, re.MULTILINE)
    read = sum(len(pythons(page)) for page in PAGES)
    assert len(fences) == len(every_study()) + len(NO_STUDIES) + read


def test_the_cluster_file_shown_is_one():
    text = (ROOT / "docs" / "how-to" / "cluster.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", text, FLAGS)
    cluster = Cluster(**YAML(typ="safe").load(shown)["cluster"])
    assert cluster.adapt == Adapt(minimum=0, maximum=40)


def pythons(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), FLAGS)


# The study that docs/llc.md and docs/code.md run and open, soon done.
SMALL = """
study: small
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: mlp, hidden: [3]},
        rule: {rule: sgd, lr: 0.1}, epochs: 5}
  llc: {use: probe.llc, weights: fit, calibrate: none, sampling_method: mala, lr: 0.001,
        localization: 1.0, num_burnin_steps: 5, num_chains: 2, num_draws: 8}
"""


@pytest.mark.pages
@pytest.mark.parametrize(
    "page", [p for p in PAGES if pythons(p)], ids=lambda page: page.stem
)
def test_every_python_block_runs(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in ("study.yaml", "widths.yaml"):
        Path(name).write_text(SMALL, encoding="utf-8")
    if page == ROOT / "docs" / "llc.md":
        curvflow.run("study.yaml")
        written(folder / "samples.zarr")
    names: dict[str, Any] = {}
    for code in pythons(page):
        module = re.match(r"# (\w+)\.py\n", code)
        if module:
            names |= vars(import_module(module[1]))
        else:
            exec(code, names)
    assert names
