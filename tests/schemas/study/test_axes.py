import pytest

from curvflow.schemas.study.axes import is_identifier, read_axes
from curvflow.schemas.study.document import read_document


def axis(text):
    (axis_read,) = read_axes(read_document(f"axes: {{a: {text}}}", "s.yaml")).values()
    return axis_read


def test_a_count_stands_for_the_integers_below_it():
    assert axis("3").labels == (0, 1, 2)
    assert axis("3").values == (0, 1, 2)


def test_the_values_of_a_list_are_their_own_labels():
    axis_read = axis("[0.1, low, true]")
    assert axis_read.labels == axis_read.values == (0.1, "low", True)


def test_a_mapping_has_labels_and_any_values():
    axis_read = axis("{none: null, some: {lr: 0.1}, 8: [1, 2]}")
    assert axis_read.labels == ("none", "some", 8)
    assert axis_read.values == (None, {"lr": 0.1}, [1, 2])


@pytest.mark.parametrize(
    ("text", "label", "path"),
    [
        ("3", 2, ("axes", "a")),
        ("[5, 7]", 7, ("axes", "a", 1)),
        ("{x: 1, y: 2}", "y", ("axes", "a", "y")),
    ],
)
def test_a_label_knows_where_its_value_is_written(text, label, path):
    assert axis(text).path(label) == path


def test_axes_keep_the_order_written():
    document = read_document("axes: {z: 1, a: 2, m: 3}", "s.yaml")
    assert list(read_axes(document)) == ["z", "a", "m"]


def test_a_study_may_have_no_axes():
    assert read_axes(read_document("study: x", "s.yaml")) == {}


@pytest.mark.parametrize("name", ["lr", "_x", "seed2", "A"])
def test_identifiers_name_axes(name):
    assert is_identifier(name)


@pytest.mark.parametrize("name", ["2x", "a-b", "a.b", "", " a", "é", 3, None, "a\n"])
def test_other_names_do_not(name):
    assert not is_identifier(name)
