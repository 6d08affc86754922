"""Curves, drawn at random and where they must be."""

import numpy as np
import pytest
import torch

from curvflow.tasks.data.images.curves import drawn, member_bytes
from tests.tasks.toys import assert_declared, compute, member

SMALL = {"num_train": 70, "num_test": 3, "size": 10}


def outcome(**params):
    (node,) = compute("data.curves", [member("data.curves", SMALL | params)])
    assert_declared("data.curves", node)
    return node.arrays


def points(*rows):
    return torch.tensor([rows], dtype=torch.float64)


def test_pictures_are_their_own_targets_in_the_unit_interval():
    actual = outcome()
    for prefix, count in (("", 70), ("test_", 3)):
        inputs = actual[f"{prefix}inputs"]
        assert inputs.shape == (count, 1, 10, 10)
        assert np.array_equal(actual[f"{prefix}targets"], inputs.reshape(count, 100))
    assert (actual["inputs"].min(), actual["inputs"].max()) == (0, 1)
    assert actual["num_classes"] == 0


def test_a_straight_row_is_a_line_of_the_width_of_the_pen():
    # Through the centres of row 4 of 10, from column 2 to 7.
    ends = points([0.25, 0.45], [0.5, 0.45], [0.75, 0.45])
    picture = drawn(ends, 10, 2.0)[0].numpy()
    assert picture[4, 2:8].tolist() == [1.0] * 6
    assert picture[3, 2:8].tolist() == picture[5, 2:8].tolist() == [0.5] * 6
    assert not picture[:3].any()
    assert not picture[6:].any()
    # In its middle as wide as the pen, whatever its width.
    for pen in (0.5, 1.0, 2.5):
        assert drawn(ends, 10, pen)[0, :, 5].sum() == pytest.approx(
            min(pen / 2 + 0.5, 1) + 2 * max(pen / 2 - 0.5, 0), abs=1e-6
        )


def test_a_curve_goes_through_its_points_and_is_near_its_formula():
    three = torch.rand((5, 3, 2), dtype=torch.float64) * 0.7 + 0.15
    size = 60
    pictures = drawn(three, size, 1.5)
    for picture, (p0, p1, p2) in zip(pictures, three, strict=True):
        t = torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None]
        curve = (1 - t) * (1 - 2 * t) * p0 + 4 * t * (1 - t) * p1 + t * (2 * t - 1) * p2
        y, x = torch.meshgrid(*[torch.arange(size) + 0.5] * 2, indexing="ij")
        centres = torch.stack([x, y], dim=-1).flatten(0, 1).double()
        far = torch.cdist(centres, size * curve).amin(1).reshape(size, size)
        exact = (1.25 - far).clamp(0, 1)
        assert (picture - exact).abs().max() < 0.05
        for point in (p0, p1, p2):
            column, row = (size * point).long()
            assert picture[row, column] > 0.5


def test_three_equal_points_are_a_dot():
    dot = drawn(points(*[[0.55, 0.35]] * 3), 10, 1.5)[0]
    assert dot[3, 5] == 1
    assert dot.sum() == pytest.approx(1 + 4 * 0.25, abs=1e-6)


def test_no_curve_is_cut_off():
    corners = torch.tensor([[0.15, 0.15], [0.85, 0.85], [0.85, 0.15]])
    which = torch.cartesian_prod(*[torch.arange(3)] * 3)
    pictures = drawn(corners[which].double(), 28, 1.5)
    edges = [pictures[:, 0], pictures[:, -1], pictures[:, :, 0], pictures[:, :, -1]]
    assert not any(edge.any() for edge in edges)


def test_more_pictures_begin_with_the_same_and_test_ones_are_others():
    few, many = outcome(num_train=5), outcome(num_train=70)
    assert np.array_equal(few["inputs"], many["inputs"][:5])
    assert np.array_equal(few["test_inputs"], many["test_inputs"])
    assert not np.array_equal(few["test_inputs"], few["inputs"][:3])
    assert not np.array_equal(outcome(seed=1)["inputs"], many["inputs"])


def test_memory_grows_with_the_pictures():
    sizes = [
        member_bytes(member("data.curves", {"num_train": count, "size": 28}))
        for count in (1000, 2000)
    ]
    # Twice, inputs in single precision and targets in double.
    assert sizes[1] - sizes[0] == 1000 * 784 * 24
