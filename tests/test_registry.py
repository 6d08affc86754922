"""Properties of every built-in kind."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest
from ruamel.yaml import YAML

import curvflow.flows.graph.tiles as tiles
from curvflow.flows.graph.graph import Node
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.published.catalogue import CATALOGUE
from curvflow.flows.run.run import run_study
from curvflow.schemas.explanations import explanations
from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds import (
    all_kinds,
    declaration,
    declarations,
    find_kind,
    known_kind,
)
from curvflow.schemas.losses import WITH_SETTINGS
from curvflow.schemas.models import all_models
from curvflow.schemas.nodes import Figure, Table
from curvflow.schemas.rules import all_rules
from curvflow.stores.memory import MemoryStore
from tests import example_files, golden
from tests.flows.published import fakes
from tests.loops import for_each
from tests.pictures import place_only

KINDS = sorted(name for name, kind in all_kinds().items() if not kind.home)

# What examples name: functions, arrays and weights of the reader's own.
NETS = """
import numpy as np


def spirals(turns):
    angle = np.linspace(0.1, 2 * np.pi * turns, 40)
    half = np.stack([angle * np.cos(angle), angle * np.sin(angle)], axis=1)
    return np.concatenate([half, -half]), np.repeat([0, 1], len(half))
"""

MOST_EPOCHS = 20  # where an example has up to 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("every-kind")
    for name in KINDS:
        with (folder / f"{name}.yaml").open("w", encoding="utf-8") as file:
            YAML(typ="safe").dump(every_kind(name), file)
    (folder / "nets.py").write_text(NETS)
    example_files.write(folder)
    with (
        mock.patch.dict(CATALOGUE, fakes.write_all(folder / "images")),
        mock.patch.dict("os.environ", CURVFLOW_DATA=str(folder / "images")),
        mock.patch("sys.path", [str(folder), *sys.path]),
    ):
        yield folder
    # Other studies have modules of the same names in folders of their own.
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def every_kind(name):
    """Return a kind's own example, its seeds repeated, to fill tiles of some width."""
    study = YAML(typ="safe").load(explanations()[name].example)
    stages = study["stages"]
    fields = {
        s: find_kind(stage["use"]).params.model_fields for s, stage in stages.items()
    }
    for stage, params in stages.items():
        params |= short(params)
        if "dtype" in fields[stage]:
            params["dtype"] = "float64"  # results are compared closely
        if "num_steps_bw_draws" in fields[stage]:
            params["num_steps_bw_draws"] = 2  # equal at each step, or soon nowhere
            params |= {"num_draws": 20, "num_burnin_steps": 40}
    if "axes" not in study and not find_kind(name).reduces:
        target = next(s for s, stage in stages.items() if stage["use"] == name)
        study["stages"] = {s: stages[s] for s in stages if s in needed(stages, target)}
        seeded = [s for s in study["stages"] if is_seeded(stages[s])]
        study |= {"axes": {"seed": 3}} if seeded else {}
        for stage in seeded:
            stages[stage]["seed"] = "${seed}"
    return study


def short(params):
    """Return settings of a stage of an example that take less time than its own."""
    known = {}
    if hasattr(find_kind(params["use"]).params, "original"):
        known["num_train"] = 20  # the published images here are few
    elif params["use"] == "data.digits" and params.get("num_train") == 200:
        known["num_train"] = 40  # products cost as many passes, of a fifth
    if "num_batches" in params:
        known["num_batches"] = min(params["num_batches"], 30)  # of a sample each
    if "epochs" in params:
        known["epochs"] = min(params["epochs"], MOST_EPOCHS)
    if "rel_sem" in params:
        known["rel_sem"] = 0.3  # a few doublings, as of a smaller one
    return known


def is_seeded(stage):
    kind = find_kind(stage["use"])
    settled = {
        name for i, taken in kind.inputs.items() if i in stage for name in taken.settles
    }
    return "seed" in set(kind.params.model_fields) - settled


def needed(stages, name):
    """Return a stage and those that it takes, directly or through others."""
    names = {name}
    for field in find_kind(stages[name]["use"]).inputs:
        taken = stages[name].get(field, [])
        for other in [taken] if isinstance(taken, str) else taken:
            names |= needed(stages, other)
    return names


@dataclass(frozen=True)
class Runs:
    """The examples of all kinds, run one after the other on one store in memory."""

    store: MemoryStore
    nodes: Mapping[str, list[Node]]

    def read(self, kind: str) -> Iterator[tuple[Node, Mapping[str, np.ndarray]]]:
        """Yield the nodes of a kind's example, and what must not depend on the tile."""
        for node in self.nodes[kind]:
            assert node.receipt is not None
            yield node, self.store.read(node.receipt, numeric(node.kind.outputs))


def run(folder, name, store, *overrides):
    path = folder / f"{name}.yaml"
    opened = open_study(path, store="memory:", overrides=overrides)
    report = run_study(opened.study, store, opened.files)
    assert report.record.failures == [], name
    return report


def run_all(folder, names=KINDS, width=8):
    """Run the examples on a fresh store, in tiles of a given width."""
    store = MemoryStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "MAX_WIDTH", width)
        place_only(patch)
        reports = {name: run(folder, name, store) for name in names}
    return Runs(store, {n: list(report.plan.graph) for n, report in reports.items()})


@pytest.fixture(scope="module")
def first(folder):
    return run_all(folder)


def digests(runs):
    return {
        (name, node.stage, node.point): node.receipt.digest
        for name, nodes in runs.nodes.items()
        for node in nodes
    }


def test_every_kind_is_used_by_its_own_example(first):
    for name, nodes in first.nodes.items():
        assert name in {node.kind.name for node in nodes}


# Tables are made one by one, whatever the width. So are figures, whose bytes their own
# tests compare.
NUMBERS = [n for n in KINDS if not issubclass(find_kind(n).returns, (Figure, Table))]


def test_the_same_studies_from_scratch_are_equal_bit_for_bit(folder, first):
    again = run_all(folder, [n for n in KINDS if not n.startswith("figure.")])
    found, expected = digests(again), digests(first)
    assert found == {key: expected[key] for key in found}
    assert set(NUMBERS) <= {name for name, *_ in found}


def test_no_result_depends_on_the_width_of_its_tile(folder, first):
    narrow = run_all(folder, NUMBERS, width=2)
    for name in NUMBERS:
        for (node, wide), (other, thin) in zip(
            first.read(name), narrow.read(name), strict=True
        ):
            assert (node.stage, node.point) == (other.stage, other.point)
            for variable in wide:
                np.testing.assert_allclose(
                    wide[variable],
                    thin[variable],
                    rtol=1e-9,
                    atol=1e-11,
                    err_msg=f"{name}: {node.stage}.{variable}",
                )


def numeric(outputs: tuple[Variable, ...]) -> list[str]:
    # Residuals are rounding errors themselves once converged.
    sure = [v for v in outputs if not v.optional]
    names = [v.name for v in sure if v.dtype != "str" and not v.file]
    return [name for name in names if name != "residuals"]


def test_a_study_run_in_two_halves_equals_one_run_at_once(folder, first):
    store = MemoryStore()
    run(folder, "train", store, "axes.seed=2")
    report = run(folder, "train", store)
    assert report.record.counts["cached"]["fit"] == 4
    for node, other in zip(first.nodes["train"], report.plan.graph, strict=True):
        if node.kind.name == "train":
            names = ["final_train_loss", "norm_tensor_sum"]
            whole, halves = (
                first.store.read(node.receipt, names),
                store.read(other.receipt, names),
            )
            for name in names:
                np.testing.assert_allclose(whole[name], halves[name], rtol=1e-9)


def test_sizes_of_arrays_fit_the_declared_dims(first):
    for node in [node for nodes in first.nodes.values() for node in nodes]:
        there = {part.partition("@")[0] for part in node.receipt.parts}
        outputs = [v for v in node.kind.outputs if v.name in there or not v.optional]
        arrays = first.store.read(node.receipt, [v.name for v in outputs])
        sizes: dict[str, int] = {}
        for variable in outputs:
            shape = arrays[variable.name].shape
            if "..." not in variable.dims:
                assert len(shape) == len(variable.dims), (node.stage, variable.name)
            for dim, size in zip(variable.dims, shape, strict=False):
                assert dim == "..." or sizes.setdefault(dim, size) == size


@for_each("name", KINDS)
def test_every_kind_is_documented(name):
    kind = find_kind(name)
    assert kind.summary.endswith(".")
    assert len(kind.summary) <= 80
    for field, info in kind.params.model_fields.items():
        assert info.description, f"{name}: parameter {field}"
    for variable in kind.outputs:
        assert variable.description, f"{name}: variable {variable.name}"
        assert variable.units


@for_each("name", KINDS)
def test_declared_fields_exist(name):
    kind = find_kind(name)
    fields = kind.params.model_fields
    for path in (*kind.varying, *kind.reduces, *kind.selects):
        assert path.partition(".")[0] in fields
    for given in kind.inputs.values():
        assert set(given.sources) <= set(kind.inputs)
    names = [variable.name for variable in kind.outputs]
    assert len(names) == len(set(names))
    for variable in kind.outputs:
        if variable.judged_by:
            verdict = kind.output(variable.judged_by)
            assert verdict is not None
            assert verdict.dtype == "bool" or (verdict.dtype, verdict.dims) == (
                "str",
                (),
            )
            assert verdict.dims in ((), variable.dims)
        if variable.rests_on:
            basis = kind.output(variable.rests_on)
            assert basis is not None
            assert (basis.dtype, basis.dims) == ("str", ())
    assert set(kind.returns.takes or ()) <= set(names)


@for_each("name", KINDS)
def test_a_kind_is_found_by_its_name_as_among_all(name):
    assert declaration(name) is declarations()[name]
    assert known_kind(name) is find_kind(name)


@pytest.mark.parametrize(
    "name", ["", "probe", "probe.*", "shared.images", "x.__init__"]
)
def test_what_is_no_kind_is_not_found(name):
    assert declaration(name) is known_kind(name) is None


def test_golden_keys_are_those_of_make_golden():
    entries = golden.written()
    rules = {f"rule.{name}" for name in all_rules()}
    models = {f"model.{name}" for name in all_models()}
    losses = {f"loss.{name}" for name in WITH_SETTINGS}
    named = {*KINDS, *rules, *models, *losses}
    assert set(entries) == named, "write them by `make golden`"
    moved = {
        name
        for name, entry in golden.renewed(entries).items()
        if entry != entries[name]
    }
    assert not moved
    assert golden.text_of(entries) == golden.FILE.read_text(encoding="utf-8")


def test_new_golden_keys_are_of_the_kind_s_own_example():
    (entry,) = [e for n, e in golden.renewed({}).items() if n == "data.xord"]
    assert entry["params"] == {"pairs": 5, "seed": 0}
    assert golden.key_of(find_kind("data.xord"), {"pairs": 5}) == entry["key"]
    assert golden.key_of(find_kind("data.xord"), {"pairs": 4}) != entry["key"]
