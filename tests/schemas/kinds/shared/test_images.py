"""Parameters of images and of modifications, refused while planning."""

import pytest
from pydantic import ValidationError

from curvflow.schemas.keys import form
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.images import CIFAR10, CIFAR100, FASHION_MNIST, MNIST


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        ("mnist", {"num_train": 60001}, "num_train of at most the 60000 there are"),
        ("mnist", {"num_test": 10001}, "num_test of at most the 10000 there are"),
        (
            "mnist",
            {"num_train": 12666, "classes": [0, 1]},
            "num_train of at most the 12665 there are, got 12666. Lower num_train",
        ),
        ("cifar100", {"num_test": 201, "classes": [0, 99]}, "at most the 200 there"),
        ("mnist", {"classes": [0, 10]}, "classes from 0 to 9, got 10"),
        ("cifar100", {"classes": [0, 100]}, "classes from 0 to 99, got 100"),
        ("mnist", {"classes": [3, 1, 3]}, "distinct labels from 0 on, got 3 twice"),
        ("modify", {"classes": [-1, 1]}, "distinct labels from 0 on, got -1"),
        ("mnist", {"classes": [3]}, "at least 2 items"),
        ("mnist", {"crop": 29}, "a crop of at most 28 pixels, got 29. Lower crop"),
        ("cifar10", {"crop": 33}, "a crop of at most 32 pixels"),
        ("modify", {"label_noise": 1.1}, "less than or equal to 1"),
        ("modify", {"normalise": "minmax"}, "'unit', 'standard' or 'none'"),
        ("modify", {"targets": "labels"}, "'given' or 'inputs'"),
        (
            "modify",
            {"targets": "inputs", "label_noise": 0.2},
            "label_noise 0.2 cannot be combined with targets: inputs, which keep no "
            "labels. Remove label_noise.",
        ),
        (
            "modify",
            {"targets": "inputs", "relabel": "parity"},
            "relabel parity cannot be combined with targets: inputs, which keep no "
            "labels. Remove relabel.",
        ),
        (
            "mnist",
            {"targets": "inputs", "labels": "one_hot"},
            "labels one_hot cannot be combined with targets: inputs, which keep no "
            "labels. Remove labels.",
        ),
    ],
)
def test_what_cannot_be_is_refused(kind, params, message):
    with pytest.raises(ValidationError) as caught:
        find_kind(f"data.{kind}").params.model_validate(params)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("mnist", {"num_train": 60000, "num_test": 0, "crop": 28}),
        ("fashion_mnist", {"num_train": 12000, "classes": [0, 1]}),
        ("cifar10", {"crop": 32, "classes": list(range(9, -1, -1))}),
        ("modify", {"num_train": 10**6, "crop": 100, "classes": [500, 2]}),
    ],
)
def test_what_can_be_is_accepted(kind, params):
    find_kind(f"data.{kind}").params.model_validate(params)


def test_counts_add_up_to_the_published_numbers():
    assert MNIST.counts(None) == FASHION_MNIST.counts(None) == (60000, 10000)
    assert CIFAR10.counts(None) == CIFAR100.counts(None) == (50000, 10000)
    assert MNIST.counts([0, 1, 2, 3, 4]) == (30596, 5139)


def test_where_to_look_is_no_part_of_the_form():
    params = find_kind("data.mnist").params
    plain = form(params(folder="somewhere", download=True))
    assert plain == form(params())
    assert not {"folder", "download"} & plain.keys()


@pytest.mark.parametrize(
    "kind", ["mnist", "fashion_mnist", "cifar10", "cifar100", "faces", "curves"]
)
def test_images_take_half_the_room(kind):
    outputs = {v.name: v.dtype for v in find_kind(f"data.{kind}").outputs}
    assert outputs == {
        "inputs": "float32",
        "targets": "float64",
        "test_inputs": "float32",
        "test_targets": "float64",
        "num_classes": "int64",
    }
