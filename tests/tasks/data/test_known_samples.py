"""Samples that planning knows are those that the data sets turn out to have."""

from dataclasses import replace

import numpy as np
import pytest

from curvflow.schemas.checks.samples import known_samples
from curvflow.schemas.kind import Samples
from curvflow.schemas.kinds import all_kinds, find_kind
from curvflow.schemas.kinds.data.array import samples_of
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.nodes import Data, Member
from tests import golden
from tests.flows.published import fakes, real
from tests.tasks.toys import as_data, compute, member

DEEP = {"kind": "deep_linear", "hidden": [3]}
TANH = {"kind": "mlp", "hidden": [3], "activation": "tanh", "bias": False}
CROSSING = {"kind": "normal_crossing", "powers": [[1, 2], [2]]}
WELL = {"kind": "quadratic_well", "eigenvalues": [0.5, 2.0, 3.0]}
CASES = [
    ("data.xor", {}),
    ("data.xor", {"labels": "index"}),
    ("data.xord", {"pairs": 3, "num_train": 4, "num_test": 2}),
    ("data.xord", {"pairs": 3, "num_train": 4, "num_test": 2, "labels": "index"}),
    ("data.digits", {}),
    ("data.sinusoid", {"num_samples": 20, "dim": 3}),
    ("data.teacher", {"dim": 5, "outputs": 2, "num_train": 50}),
    ("data.teacher", {"dim": 5, "outputs": 2, "num_train": 50, "labels": "class"}),
    ("data.modular", {"p": 7, "equals_token": False}),
    ("data.known_answer", {"model": DEEP, "inputs": 4, "outputs": 2, "rank": 1}),
    ("data.known_answer", {"model": TANH}),
    ("data.known_answer", {"model": CROSSING}),
    ("data.known_answer", {"model": WELL, "num_samples": 6}),
]
IMAGES = {
    f"data.{name}"
    for name in ("mnist", "fashion_mnist", "cifar10", "cifar100", "faces")
}
SHIPPED = {
    name: kind
    for name, kind in all_kinds().items()
    if issubclass(kind.returns, Data) and not kind.home
}
# Further ones by themselves: a kind that takes nothing, as its example has it.
EXAMPLES = [
    (name, golden.params_of(kind))
    for name, kind in SHIPPED.items()
    if kind.known_samples and not kind.inputs and name not in IMAGES
]
NOTHING = Samples()
CHANGES = [
    {},
    {"flatten": True},
    {"crop": 4},
    {"crop": 4, "flatten": True, "classes": [2, 0]},
    {"labels": "one_hot"},
    {"labels": "one_hot", "classes": [1, 3, 0]},
    {"targets": "inputs", "crop": 3},
    {"relabel": "parity", "classes": [3, 1, 2]},
    {"relabel": "parity", "labels": "one_hot"},
]


def form(arrays):
    """Return the form of a data set that is there."""
    shape, targets = arrays["inputs"].shape[1:], arrays["targets"]
    if targets.ndim == 1:
        return Samples(shape, "labels", int(arrays["num_classes"]))
    return Samples(shape, "values", targets.shape[1])


def pictures():
    rng = np.random.default_rng(3)
    x, y = rng.uniform(size=(60, 2, 6, 6)), np.arange(60) % 4
    return as_data(dataset(x[10:], y[10:], x[:10], y[:10]))


def known(kind, params, taken=NOTHING):
    return known_samples(find_kind(kind), params, taken)


@pytest.mark.parametrize(("name", "params"), [*CASES, *EXAMPLES])
def test_samples_are_as_planned(name, params):
    node = member(name, params)
    (outcome,) = compute(name, [node])
    planned = known(name, node.params)
    assert replace(planned, vocabulary=None) == form(outcome.arrays)
    parts = outcome.arrays["inputs"], outcome.arrays["test_inputs"]
    if parts[0].dtype == np.int64:  # tokens, each of which occurs in one of the parts
        tokens = np.unique(np.concatenate([part.ravel() for part in parts]))
        assert tokens.tolist() == list(range(planned.vocabulary))
    else:
        assert planned.vocabulary is None


@pytest.mark.parametrize("changes", CHANGES)
def test_samples_are_as_planned_after_changes(changes):
    data = pictures()
    node = member("data.modify", changes, data=data)
    (outcome,) = compute("data.modify", [node])
    assert known("data.modify", node.params, form(data)) == form(outcome.arrays)


@pytest.mark.parametrize("changes", CHANGES)
def test_samples_of_images_are_as_planned(changes):
    arrays = fakes.CATALOGUE["mnist"].layouts[0].decode(fakes.idx_contents())
    node = member("data.mnist", changes)
    outcome = real.outcome("mnist", arrays, **changes)
    assert known("data.mnist", node.params) == form(outcome.arrays)


@pytest.mark.parametrize("changes", [{}, {"relabel": "parity"}, {"targets": "inputs"}])
def test_samples_of_faces_are_as_planned(changes):
    arrays = fakes.CATALOGUE["faces"].layouts[0].decode(fakes.faces_contents())
    few = {"people": 2, "test_people": 1, "pairs": 1, "size": 5} | changes
    outcome = real.outcome("faces", arrays, **few)
    assert known("data.faces", member("data.faces", few).params) == form(outcome.arrays)


@pytest.mark.parametrize("targets", [np.arange(6) % 3, np.ones(6), np.ones((6, 2))])
def test_samples_in_files_are_as_planned(targets):
    files = {"path": {"inputs": np.ones((6, 2, 3)), "targets": targets}}
    params = find_kind("data.array").params(path="own.npz", test_fraction=0.5)
    (outcome,) = compute("data.array", [Member(params, files=files)])
    assert samples_of(params, files) == form(outcome.arrays)


def test_changes_of_unknown_samples_settle_what_they_can():
    hot = member("data.modify", {"labels": "one_hot", "classes": [0, 1]})
    assert known("data.modify", hot.params) == Samples(None, "values", 2)
    flat = member("data.modify", {"flatten": True})
    assert known("data.modify", flat.params) == Samples()


def test_few_digits_may_lack_some_classes():
    few = member("data.digits", {"num_train": 20, "test_fraction": 0.0})
    assert known("data.digits", few.params) == Samples((64,), "labels", None)


def test_samples_of_every_kind_are_known_but_of_files_and_functions():
    unknown = {name for name, kind in SHIPPED.items() if kind.known_samples is None}
    in_files = {name for name, kind in SHIPPED.items() if kind.samples_in_files}
    assert unknown == in_files | {"data.factory"}
    tested = {name for name, _ in [*CASES, *EXAMPLES]}
    assert set(SHIPPED) - unknown == tested | IMAGES | {"data.modify"}
