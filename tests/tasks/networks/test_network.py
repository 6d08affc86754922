"""Tensors of a vector."""

import torch

from curvflow.tasks.networks.network import Layout

LAYOUT = Layout(("a", "b", "c"), ((2, 3), (), (4,)))


def test_views_of_a_vector_are_its_tensors_and_share_its_memory():
    rows = torch.arange(2.0 * 11).reshape(2, 11)
    views = LAYOUT.views(rows[1])
    expected = [tensor[1] for tensor in LAYOUT.unflatten(rows)]
    assert all(torch.equal(*pair) for pair in zip(views, expected, strict=True))
    assert [tuple(view.shape) for view in views] == list(LAYOUT.shapes)
    views[1].zero_()
    assert rows[1, 6] == 0


def test_views_of_a_column_are_those_of_its_copy():
    column = torch.arange(22.0).reshape(11, 2)[:, 1]
    views = LAYOUT.views(column)
    assert torch.equal(torch.cat([view.flatten() for view in views]), column)
    assert all(view.is_contiguous() for view in views)
