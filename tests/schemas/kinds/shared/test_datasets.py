"""Conditions on data sets."""

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import (
    TargetParams,
    dataset,
    dataset_as,
    split,
)

X = np.arange(12.0).reshape(6, 2)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def test_integers_and_flags_are_labels_and_floats_are_values():
    assert dataset(X, LABELS)["num_classes"] == 3
    assert dataset(X, LABELS == 0)["num_classes"] == 2
    assert dataset(X, X)["num_classes"] == 0
    assert dataset(X, X[:, 0])["targets"].shape == (6, 1)


def test_signs_are_two_classes_as_values():
    signs = np.array([1.0, -1, 1, 1, -1, -1])
    actual = dataset(X, signs)
    assert actual["num_classes"] == 2
    assert actual["targets"].shape == (6, 1)


def test_values_of_no_test_samples_are_a_column_of_none():
    made = dataset(X, X[:, 0], X[:0], X[:0, 0])
    assert made["test_targets"].shape == (0, 1)


def test_every_array_is_float64_whatever_was_given():
    actual = dataset(X.astype("uint8"), LABELS.astype("int8"))
    assert {a.dtype for n, a in actual.items() if n != "num_classes"} == {X.dtype}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((X[:, 0], LABELS), "inputs: expected shape (samples, ...), got (6,). "
         "Reshape a single feature to (samples, 1)."),
        ((X * np.nan, LABELS), "inputs: expected finite numbers, got 12 NaN or "
         "infinite of 12. Remove or fill them."),
        ((X.astype(str), LABELS), "inputs: expected real numbers, got dtype <U32. "
         "Encode it as numbers."),
        ((X * 1j, LABELS), "inputs: expected real numbers, got dtype complex128. "
         "Encode it as numbers."),
        ((X, LABELS[:4]), "targets: expected 6 rows as its inputs, got 4. "
         "Return a target for each row."),
        ((X[:1], X[:1]), "inputs: expected at least 2 samples, got 1. Take more data."),
        ((X, LABELS + 1), "targets: expected integer labels 0..2 without gaps, got 1, "
         "2, 3. Give num_classes, relabel them, or give floats for regression."),
        ((X, 2 * LABELS), "targets: expected integer labels 0..2 without gaps, got 0, "
         "2, 4. Give num_classes, relabel them, or give floats for regression."),
        ((X, LABELS - 1), "targets: expected integer labels 0..2 without gaps, got "
         "-1, 0, 1. Give num_classes, relabel them, or give floats for regression."),
        ((X, LABELS[:, None]), "targets: expected integer labels of shape (samples,) "
         "or (samples, tokens), or floats, got int64 of shape (6, 1). Reshape "
         "labels of samples to (samples,)."),
        ((X, np.ones((6, 2, 2))), "targets: expected shape (samples,) or (samples, "
         "outputs), got (6, 2, 2). Reshape them."),
        ((X, LABELS, X[:, :1], LABELS), "test_inputs: expected rows of shape (2,) as "
         "in training, got (1,). Return both sets alike."),
        ((X, LABELS, X, X), "test_targets: expected rows of shape () as in training, "
         "got (2,). Return both sets alike."),
        ((X, LABELS, X, LABELS[1:]), "test_targets: expected 6 rows as its inputs, "
         "got 5. Return a target for each row."),
    ],
)  # fmt: skip
def test_what_is_no_data_set_is_refused(arrays, message):
    with pytest.raises(InputError) as caught:
        dataset(*arrays)
    assert str(caught.value) == message


def test_a_split_holds_out_the_first_in_order():
    parts = split({"inputs": X, "targets": LABELS}, np.array([5, 4, 3, 2, 1, 0]), 2)
    assert parts["test_targets"].tolist() == [2, 1]
    assert parts["targets"].tolist() == [0, 2, 1, 0]
    assert np.array_equal(parts["inputs"], X[[3, 2, 1, 0]])


def asked(targets, **params):
    return dataset_as(TargetParams(**params), {"inputs": X, "targets": targets})


AS_FLOATS = np.array([0.0, 1.0, 2.0, 1.0, 0.0, 2.0])


def test_whole_numbers_as_floats_are_asked_about():
    with pytest.raises(
        InputError, match=r"got the whole numbers 0\.\.2 as floats\. Give"
    ):
        asked(AS_FLOATS)
    labels, values = (
        asked(AS_FLOATS, targets_as=what) for what in ("labels", "values")
    )
    assert (labels["targets"].shape, labels["num_classes"]) == ((6,), 3)
    assert (values["targets"].shape, values["num_classes"]) == ((6, 1), 0)


@pytest.mark.parametrize(
    "targets",
    [
        np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        np.array([-1.0, 1.0, 1.0, -1.0, 1.0, 1.0]),
        np.array([0.0, 2.0, 2.0, 0.0, 2.0, 0.0]),
        np.array([0.0, 1.0, 0.5, 0.0, 1.0, 1.0]),
        np.zeros(6),
        AS_FLOATS[:, None],
    ],
)
def test_values_that_do_not_look_like_labels_are_taken_as_they_are(targets):
    assert asked(targets)["targets"].shape == (6, 1)


@pytest.mark.parametrize("seed", range(10))
def test_labels_of_tokens_as_floats_are_asked_about_columns_of_classes_are_not(seed):
    draw = np.random.default_rng(seed)
    num_classes, shape = draw.integers(3, 9), (6, draw.integers(4, 9))
    tokens = draw.permutation(np.arange(np.prod(shape)) % num_classes).reshape(shape)
    with pytest.raises(InputError, match=r"as floats\. Give integers, or say which"):
        asked(tokens.astype(float))
    labels = asked(tokens.astype(float), targets_as="labels")
    assert np.array_equal(labels["targets"], tokens)
    assert (labels["targets"].dtype, labels["num_classes"]) == (np.int64, num_classes)
    for values in (tokens.astype(float) - 1, tokens / 2, np.sign(tokens).astype(float)):
        assert np.array_equal(asked(values)["targets"], values)


def test_with_a_number_of_classes_any_whole_numbers_are_asked_about():
    beyond = np.array([0.0, 1.0, 2.0, 1.0, 0.0, 9.0])
    with pytest.raises(InputError, match=r"whole numbers 0\.\.9 as floats\. Give"):
        asked(beyond, num_classes=3)
    with pytest.raises(InputError, match=r"labels 0\.\.2, got 9\. Raise num_classes"):
        asked(beyond, num_classes=3, targets_as="labels")
    signs = np.array([-1.0, 1.0, 1.0, -1.0, 1.0, 1.0])
    assert asked(signs, num_classes=2)["targets"].shape == (6, 1)


def test_integers_may_be_values_and_others_no_labels():
    assert asked(np.arange(6), targets_as="values")["targets"].shape == (6, 1)
    with pytest.raises(
        InputError, match="expected whole numbers as labels, got others"
    ):
        asked(AS_FLOATS / 2, targets_as="labels")
