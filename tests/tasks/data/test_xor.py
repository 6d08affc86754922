"""Exclusive or."""

from tests.tasks.toys import assert_declared, compute, member


def arrays(labels):
    (outcome,) = compute("data.xor", [member("data.xor", {"labels": labels})])
    assert_declared("data.xor", outcome)
    return outcome.arrays


def test_targets_are_one_where_the_signs_differ():
    actual = arrays("sign")
    assert actual["targets"].shape == (4, 1)
    for (a, b), (y,) in zip(actual["inputs"], actual["targets"], strict=True):
        assert y == (1 if a != b else -1)
    assert actual["num_classes"] == 2
    assert len(actual["test_inputs"]) == 0


def test_labels_are_the_same_classes():
    assert arrays("index")["targets"].tolist() == [0, 1, 1, 0]
    assert arrays("index")["num_classes"] == 2
