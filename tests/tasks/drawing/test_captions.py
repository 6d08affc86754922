import pytest

from curvflow.schemas.kind import Variable
from curvflow.tasks.drawing import captions
from curvflow.tasks.statistics.label_groups import ValueGroup
from curvflow.tasks.statistics.measurements import Measurement
from tests.tasks.measured_nodes import node, toy_kinds


def of(name, units):
    return Measurement(Variable(name, "", units=units), [])


@pytest.mark.parametrize(
    ("name", "units", "label"),
    [
        ("trace", "loss / parameter^2", "trace (loss / parameter²)"),
        ("rate", "epoch^-1 loss", "rate (epoch⁻¹ loss)"),
        ("train_loss", "loss", "train loss"),
        ("train_accuracy", "1", "train accuracy"),
        ("norm_l2", "parameter", "norm l2 (parameter)"),
        ("cost", "$", r"cost (\$)"),
    ],
)
def test_axes_bear_units_where_these_say_more_than_the_name(name, units, label):
    assert captions.axis_label(of(name, units)) == label


@pytest.mark.parametrize(
    ("diverged", "text"),
    [(0, "sgd"), (2, "sgd (2 of 5 diverged)"), (5, "sgd (all 5 diverged)")],
)
def test_a_legend_says_how_many_diverged(diverged, text):
    assert captions.legend_label(ValueGroup("sgd", nodes=5, diverged=diverged)) == text


def test_a_caption_says_what_was_averaged_and_what_was_held():
    coords = [{"seed": s, "width": 16, "rule": r} for s in (0, 1) for r in "ab"]
    with toy_kinds():
        measurement = Measurement(Variable("trace", ""), [node(c) for c in coords])
    text = captions.average_text(measurement, [2, 1], ("rule",))
    assert text == "Mean over seed, n = 1 to 2, at width = 16"


def test_a_caption_names_what_diverged_also_where_its_label_is_zero():
    groups = [ValueGroup(0, nodes=1, diverged=1), ValueGroup(1, nodes=2, diverged=1)]
    assert captions.left_out_sentences(groups) == [
        "Diverged, left out: 0 (1 of 1), 1 (1 of 2)."
    ]
    (text,) = captions.left_out_sentences([ValueGroup("", nodes=2, diverged=1)])
    assert text == "Diverged, left out: 1 of 2."
