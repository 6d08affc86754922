"""Figures are placed and not drawn, but for tests marked `pictures`."""

import os

import pytest
import torch

from tests.pictures import _figures_are_placed_only

__all__ = ["_figures_are_placed_only"]


@pytest.fixture(scope="package", autouse=True)
def _threads_are_shared_out():
    """Give each of several test processes one thread: more wait for each other."""
    before = torch.get_num_threads()
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
