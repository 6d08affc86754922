"""Rows of weights in a plane, and the arrows that figures draw of them."""

import io
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.figures.vectors import VectorsParams
from curvflow.schemas.nodes import Member, Weights
from curvflow.tasks.drawing import canvas
from curvflow.tasks.figures.vectors import planar_rows
from curvflow.tasks.registry import Machine, find
from tests.tasks.toys import train_all, train_member, weights_of, xor

NETWORK = np.array(json.dumps({"parameters": [["layer1.weight", [4, 2]]]}))
RULES = ("sgd", "metric", "l2")


def rows(rule, seed):
    return (RULES.index(rule) + 1) * np.arange(seed, seed + 8.0).reshape(4, 2)


def networks(rules=RULES, seeds=3, diverged=()):
    return [
        Weights(
            "fit",
            "train",
            {"seed": seed, "rule": rule},
            {"network": NETWORK, "weights": rows(rule, seed).ravel()},
            "w",
            "diverged" if (rule, seed) in diverged else "ok",
        )
        for rule in rules
        for seed in range(seeds)
    ]


def draw(of, **params):
    given = {"label": "rule", "over": "seed", **params}
    member = Member(VectorsParams(**given), {"weights": of})
    (outcome,) = find("figure.vectors").compute([member], Machine())
    return outcome.arrays


def drawn(got):
    return np.stack([got["first"], got["second"]], axis=1)


def test_every_row_of_every_network_is_an_arrow():
    got = draw(networks())
    wanted = [rows(rule, seed) for rule in RULES for seed in range(3)]
    assert drawn(got).tolist() == np.concatenate(wanted).tolist()
    assert got["panel"].tolist() == list(RULES)
    assert got["label"].tolist() == [rule for rule in RULES for _ in range(12)]
    assert got["network"][:5].tolist() == ["seed = 0"] * 4 + ["seed = 1"]
    assert got["unit"][3] == "layer1.weight[3]"
    assert str(got["caption"]) == (
        "Arrows: rows of layer1.weight, 4 of each network; all 3 of seed. "
        "Scales: equal."
    )


@pytest.mark.parametrize("largest", [0.9, 1.0, 3.7, 4.7, 9.0])
def test_labels_of_panels_side_by_side_do_not_overlap(largest, monkeypatch):
    sheets, compose = [], canvas.compose

    def watched(figure, **given):
        sheets.append(figure)
        compose(figure, **given)

    monkeypatch.setattr(canvas, "compose", watched)
    of = networks(rules=RULES, seeds=1)
    values = np.linspace(-largest, largest, 8)
    draw(
        [
            replace(network_node, arrays={**network_node.arrays, "weights": values})
            for network_node in of
        ]
    )
    sheets[0].draw_without_rendering()
    boxes = sorted(
        (label.get_window_extent() for axes in sheets[0].axes
         for label in axes.get_xticklabels() if label.get_text()),
        key=lambda box: box.x0,
    )  # fmt: skip
    assert len(boxes) >= 3 * len(RULES)
    gaps = [two.x0 - left.x1 for left, two in itertools.pairwise(boxes)]
    assert min(gaps) > 0.5 * boxes[0].height


def test_the_first_network_may_stand_for_the_others():
    got = draw(networks(diverged=[("sgd", 0)]), show="first", limits="own")
    wanted = [rows("sgd", 1), rows("metric", 0), rows("l2", 0)]
    assert drawn(got).tolist() == np.concatenate(wanted).tolist()
    assert got["networks"].tolist() == [1, 1, 1]
    assert "; the first of seed. Scales: each panel's own." in str(got["caption"])


def test_diverged_networks_are_reported_and_never_drawn():
    gone = [("metric", 1), *(("l2", seed) for seed in range(3))]
    got = draw(networks(diverged=gone))
    assert got["networks"].tolist() == [3, 2, 0]
    assert got["diverged"].tolist() == [0, 1, 3]
    assert set(got["label"].tolist()) == {"sgd", "metric"}
    assert str(got["caption"]).endswith(
        "Diverged, left out: metric (1 of 3), l2 (3 of 3)."
    )


def test_everything_diverged_gives_empty_panels():
    got = draw(networks(["sgd"], diverged=[("sgd", seed) for seed in range(3)]))
    assert drawn(got).shape == (0, 2)
    assert got["label"].shape == (0,)


def test_rows_that_are_not_finite_are_reported_and_left_out():
    of = networks(["sgd"])
    of[1].arrays["weights"][3] = np.nan
    got = draw(of)
    assert len(drawn(got)) == 11
    assert "Not finite, left out: 1 value." in str(got["caption"])
    assert "3 to 4 of each network" in str(got["caption"])


def test_rows_of_zeros_are_drawn_as_nothing():
    of = networks(["sgd"], seeds=1)
    of[0].arrays["weights"][:] = 0
    assert (drawn(draw(of)) == 0).all()


def test_without_a_label_there_is_one_panel():
    got = draw(networks(), label=None, over=["seed", "rule"])
    assert got["panel"].tolist() == [""]
    assert got["networks"].tolist() == [9]
    assert got["network"][-1] == "seed = 2, rule = l2"
    assert str(got["caption"]).endswith("all 9 of seed, rule.")


def test_hidden_units_of_a_trained_network_are_its_first_layer():
    (outcome,) = train_all([train_member(xor())])
    trained = weights_of(outcome)
    got = draw([trained], label=None, over=None)
    first = outcome.arrays["weights"][-1][:12].reshape(6, 2)
    np.testing.assert_array_equal(drawn(got), first)


@pytest.mark.pictures("png")
def test_panels_stand_side_by_side_up_to_four():
    def size(count, **params):
        of = networks(seeds=1)[:1]
        copies = [
            Weights("fit", "train", {"rule": n}, of[0].arrays, "w")
            for n in range(count)
        ]
        files = draw(copies, over=None, **params)
        return Image.open(io.BytesIO(files["png"].tobytes())).size

    widths, heights = zip(*(size(count) for count in (1, 2, 4, 8)), strict=True)
    assert list(widths) == sorted(widths)
    assert widths[2] == widths[3]
    assert heights[3] > 1.6 * heights[2]
    narrow = size(8, width=40.0, limits="own")
    assert narrow[0] == pytest.approx(40 / 25.4 * 300, abs=1)


def test_an_axis_that_networks_lack_is_refused():
    with pytest.raises(InputError) as caught:
        draw(networks(), label="rules")
    assert str(caught.value) == (
        "label: expected an axis of fit, got 'rules'. Did you mean 'rule'?"
    )


@pytest.mark.pictures
def test_the_same_input_gives_the_same_bytes():
    first, second = (draw(networks(), title="XOR") for _ in range(2))
    assert all(a.tobytes() == second[name].tobytes() for name, a in first.items())


def test_every_declared_variable_is_there_in_its_type_and_shape():
    got = draw(networks())
    sizes = {"panel": 3, "vector": 36}
    for variable in find_kind("figure.vectors").outputs:
        array = got[variable.name]
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype
        if variable.file is None:
            assert array.shape == tuple(sizes[dim] for dim in variable.dims)


def test_an_axis_with_two_parts_is_refused():
    with pytest.raises(ValidationError, match="expected label to differ from over"):
        VectorsParams(label="seed", over="seed")


SHAPES = {
    "layer1.weight": [3, 2],
    "layer1.bias": [3],
    "filters.0": [2],
    "filters.1": [2],
    "conv.weight": [2, 1, 2],
    "wide.weight": [2, 2, 2],
    "layer2.weight": [1, 3],
}


def network(shapes=SHAPES):
    text = json.dumps({"parameters": list(shapes.items())})
    size = sum(int(np.prod(shape)) for shape in shapes.values())
    arrays = {"weights": np.arange(float(size)), "network": np.array(text)}
    return Weights("fit", "train", {}, arrays, "w")


def planar(tensor, **kwargs):
    result = planar_rows(network(**kwargs), tensor)
    return {name: row.tolist() for name, row in result}


def test_rows_of_a_matrix_are_taken_in_their_order():
    assert planar("layer1.weight") == {
        "layer1.weight[0]": [0, 1],
        "layer1.weight[1]": [2, 3],
        "layer1.weight[2]": [4, 5],
    }


def test_the_beginning_of_names_takes_several_tensors():
    assert planar("filters") == {"filters.0": [9, 10], "filters.1": [11, 12]}
    assert planar("layer1") == planar("layer1.weight")


def test_a_filter_over_one_channel_is_a_vector():
    assert planar("conv") == {"conv.weight[0]": [13, 14], "conv.weight[1]": [15, 16]}


def test_what_stands_behind_the_parameters_is_no_part_of_them():
    whole = network({"layer1.weight": [1, 2]})
    longer = {**whole.arrays, "weights": np.array([7.0, 8.0, 9.0, 9.0])}
    node = Weights("fit", "train", {}, longer, "w")
    assert [row.tolist() for _, row in planar_rows(node, "layer1")] == [[7, 8]]


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            "layer1.weigth",
            "tensor: expected the name of a tensor whose rows have two entries, got "
            "'layer1.weigth'. Did you mean 'layer1.weight'?",
        ),
        ("layer2.weight", "got layer2.weight (1, 3). Did you mean 'layer1.weight'?"),
        ("wide", "got wide.weight (2, 2, 2). Known: conv.weight, filters.0"),
        ("layer1.bias", "got layer1.bias (3,)."),
    ],
)
def test_tensors_of_other_shapes_are_refused(tensor, message):
    with pytest.raises(InputError) as caught:
        planar(tensor)
    assert message in str(caught.value)


def test_a_network_without_such_tensors_has_none_to_offer():
    with pytest.raises(InputError, match="There is none"):
        planar("layer1", shapes={"layer1.weight": [4, 3]})
