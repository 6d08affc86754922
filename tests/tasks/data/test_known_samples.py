"""What planning knows of samples is what the data sets turn out to be."""

import numpy as np
import pytest

from curvflow.schemas.checks.samples import Samples, known_samples
from curvflow.schemas.kinds import all_kinds, find_kind
from curvflow.schemas.kinds.data.array import samples_of
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.nodes import Data, Member
from tests.flows.published_images import fakes, real
from tests.tasks.toys import as_data, compute, member

DEEP = {"kind": "deep_linear", "hidden": [3]}
TANH = {"kind": "mlp", "hidden": [3], "activation": "tanh", "bias": False}
CROSSING = {"kind": "normal_crossing", "powers": [[1, 2], [2]]}
WELL = {"kind": "quadratic_well", "eigenvalues": [0.5, 2.0, 3.0]}
CASES = [
    ("xor", {}),
    ("xor", {"labels": "index"}),
    ("xord", {"pairs": 3, "num_train": 4, "num_test": 2}),
    ("xord", {"pairs": 3, "num_train": 4, "num_test": 2, "labels": "index"}),
    ("digits", {}),
    ("sinusoid", {"num_samples": 20, "dim": 3}),
    ("teacher", {"dim": 5, "outputs": 2, "num_train": 50}),
    ("teacher", {"dim": 5, "outputs": 2, "num_train": 50, "labels": "class"}),
    ("known_answer", {"model": DEEP, "inputs": 4, "outputs": 2, "rank": 1}),
    ("known_answer", {"model": TANH}),
    ("known_answer", {"model": CROSSING}),
    ("known_answer", {"model": WELL, "num_samples": 6}),
]
CHANGES = [
    {},
    {"flatten": True},
    {"crop": 4},
    {"crop": 4, "flatten": True, "classes": [2, 0]},
    {"labels": "one_hot"},
    {"labels": "one_hot", "classes": [1, 3, 0]},
    {"targets": "inputs", "crop": 3},
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


@pytest.mark.parametrize(("name", "params"), CASES)
def test_samples_are_as_planned(name, params):
    one = member(f"data.{name}", params)
    (outcome,) = compute(f"data.{name}", [one])
    assert known_samples(one.params, Samples()) == form(outcome.arrays)


@pytest.mark.parametrize("changes", CHANGES)
def test_samples_are_as_planned_after_changes(changes):
    data = pictures()
    one = member("data.modify", changes, data=data)
    (outcome,) = compute("data.modify", [one])
    assert known_samples(one.params, form(data)) == form(outcome.arrays)


@pytest.mark.parametrize("changes", CHANGES)
def test_samples_of_images_are_as_planned(changes):
    arrays = fakes.CATALOGUE["mnist"].layouts[0].decode(fakes.idx_contents())
    one = member("data.mnist", changes)
    found = real.outcome("mnist", arrays, **changes)
    assert known_samples(one.params, Samples()) == form(found.arrays)


@pytest.mark.parametrize("targets", [np.arange(6) % 3, np.ones(6), np.ones((6, 2))])
def test_samples_in_files_are_as_planned(targets):
    files = {"path": {"inputs": np.ones((6, 2, 3)), "targets": targets}}
    params = find_kind("data.array").params(path="own.npz", test_fraction=0.5)
    (outcome,) = compute("data.array", [Member(params, files=files)])
    assert samples_of(params, files) == form(outcome.arrays)


def test_changes_of_unknown_samples_tell_what_they_settle():
    one = member("data.modify", {"labels": "one_hot", "classes": [0, 1]})
    assert known_samples(one.params, Samples()) == Samples(None, "values", 2)
    alike = member("data.modify", {"flatten": True})
    assert known_samples(alike.params, Samples()) == Samples()


def test_few_digits_may_lack_some_classes():
    few = member("data.digits", {"num_train": 20, "test_fraction": 0.0})
    assert known_samples(few.params, Samples()) == Samples((64,), "labels", None)


def test_of_every_kind_of_samples_it_is_known_or_only_its_files_and_code_tell():
    told = {f"data.{name}" for name, _ in CASES}
    images = {f"data.{n}" for n in ("mnist", "fashion_mnist", "cifar10", "cifar100")}
    shipped = {
        name
        for name, kind in all_kinds().items()
        if issubclass(kind.returns, Data) and not kind.home
    }
    assert shipped == told | images | {"data.modify", "data.array", "data.factory"}
